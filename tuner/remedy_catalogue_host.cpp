#include <algorithm>
#include <utility>

#include "model/predict/host_memory.hpp"
#include "tuner/remedy_catalogue.hpp"
#include "tuner/strategies.hpp"

namespace zeroplan::tuner {
namespace {

constexpr std::int64_t kSpareSubGroup = 10'000'000;

}  // namespace

void RemedyCatalogue::add_loading(Loading loading, Phrase text) {
  add(RemedyPrice::nothing,
      MemoryCategory::parameters,
      std::move(text),
      {{ScenarioKey::loading, Json(name(kLoadingNames, loading))}})
      .decides = true;
}

// While weights are loaded, or gathered to be saved.
void RemedyCatalogue::add_lighter_loading() {
  const Phase peak = subject_.result().host.peak_phase;
  const Knob gathers = Knob::stage3_gather_16bit_weights_on_model_save;
  if (peak == Phase::save && sharded_ && plan_.engine.stage3.gather_16bit_weights_on_save) {
    add(RemedyPrice::nothing,
        MemoryCategory::parameters,
        "gather no 16-bit weights to save them: zero_to_fp32.py makes them of a checkpoint "
        "(--stage3-gather-16bit-weights-on-model-save false)",
        {{gathers, Json(false)}})
        .decides = true;
  }
  if (peak != Phase::load) return;
  if (!subject_.lacks(Resource::gpu_memory)) add_sixteen_bit_copy();  // mapped to its files
  if (converts_while_loading(plan_)) {
    add_loading(Loading::converted,
                "load a copy that has the experts as the class does: "
                "save_pretrained(save_original_format=False), once (--loading converted)");
  }
  if (fills_while_loading(plan_)) {
    add_loading(Loading::every_rank,
                "load on every rank, which maps the files: fsdp_cpu_ram_efficient_loading: false "
                "(--loading every-rank)");
  }
  if (workload_.precision == Precision::fp16 && plan_.cluster.gpu.bf16_supported && !has_file()) {
    add(RemedyPrice::training,
        MemoryCategory::parameters,
        "train in bf16, in which the weights stay mapped to their files (--precision bf16)",
        {{ScenarioKey::precision, Json("bf16")}});
  }
}

void RemedyCatalogue::add_less_on_host() {
  add_lighter_loading();
  const bool converts =
      subject_.result().host.peak_phase == Phase::load && converts_while_loading(plan_);
  // Among what costs nothing where the GPU's memory is short, too.
  if (!subject_.lacks(Resource::gpu_memory) && (converts || !deepspeed_)) add_engine();
  if (!deepspeed_ || plan_.engine.embedded) return;
  const bool optimizer = plan_.engine.offload_optimizer.device == OffloadDevice::cpu;
  const OffloadDevice weights_on = plan_.engine.offload_parameter.device;
  const bool weights = weights_on == OffloadDevice::cpu;
  const auto host = [&](RemedyPrice price, Phrase text, std::vector<Change> changes) {
    add(price, MemoryCategory::optimizer_states, std::move(text), std::move(changes));
  };
  add_leaner_offload(optimizer, weights);
  if (free_) return;
  if (weights_on == OffloadDevice::nvme) {
    std::vector<Change> buffers;
    add_buffers_for_weights(buffers);
    host(RemedyPrice::nothing,
         phrase("larger buffers for weights on NVMe, none kept for reuse "
                "(--offload-param.buffer-size {} --stage3-max-reuse-distance 0)",
                enough_for_a_weight()),
         std::move(buffers));
    host(RemedyPrice::nothing,
         "no offload of the weights: the GPUs have the room",
         {{Knob::offload_param_device, none()}});
    host(RemedyPrice::nothing,
         "weights on the CPU (--offload-param cpu)",
         {{Knob::offload_param_device, cpu()}});
  }
  if (plan_.engine.stage < 3) {
    host(RemedyPrice::speed,
         "ZeRO stage 3, which loads partitioned (--stage 3)",
         {{Knob::zero_stage, Json(std::int64_t{3})}});
  }
  if (optimizer) {
    host(RemedyPrice::nothing,
         "no offload: the GPUs have the room",
         {{Knob::offload_optimizer_device, none()}, {Knob::offload_param_device, none()}});
  }
  if (weights) {
    host(RemedyPrice::nothing,
         "no offload of the weights: the GPUs have the room",
         {{Knob::offload_param_device, none()}});
  }
  if (!plan_.cluster.node.nvme || plan_.engine.stage < 3 || !optimizer) return;
  const Json nvme(name(OffloadDevice::nvme));
  host(RemedyPrice::speed,
       "the optimizer on NVMe (--offload-optimizer nvme)",
       {{Knob::offload_optimizer_device, nvme}});
  if (weights) {
    host(RemedyPrice::speed,
         "the optimizer on NVMe, the weights on the GPUs (--offload-optimizer nvme "
         "--offload-param none)",
         {{Knob::offload_optimizer_device, nvme}, {Knob::offload_param_device, none()}});
    std::vector<Change> both = {{Knob::offload_optimizer_device, nvme},
                                {Knob::offload_param_device, nvme}};
    add_buffers_for_weights(both);
    host(RemedyPrice::speed,
         phrase("optimizer and weights on NVMe (--offload-optimizer nvme --offload-param nvme "
                "--offload-param.buffer-size {} --stage3-max-reuse-distance 0)",
                enough_for_a_weight()),
         std::move(both));
  }
}

// One buffer holds the largest partition; what is kept for reuse keeps its buffer, of the few
// that there are.
std::int64_t RemedyCatalogue::enough_for_a_weight() const {
  return std::max(plan_.engine.offload_parameter.buffer_size.count(),
                  largest_parameter(*plan_.model));
}

void RemedyCatalogue::add_buffers_for_weights(std::vector<Change>& changes) const {
  changes.push_back({Knob::offload_param_buffer_size, Json(enough_for_a_weight())});
  changes.push_back({Knob::stage3_max_reuse_distance, Json(std::int64_t{0})});
}

// A file that says how what is offloaded lies: `fit` decides the rest by itself.
void RemedyCatalogue::add_leaner_offload(bool optimizer, bool weights) {
  if (free_ && !has_file()) return;
  if (!free_ && !optimizer && !weights) return;
  const bool divides = plan_.engine.stage == 3 || free_;
  const auto pageable = [&] {
    std::vector<Change> changes;
    if (optimizer || free_) changes.push_back({Knob::offload_optimizer_pin_memory, Json(false)});
    if (weights || free_) changes.push_back({Knob::offload_param_pin_memory, Json(false)});
    return changes;
  };
  const Change small{Knob::sub_group_size, Json(kSpareSubGroup)};
  const auto one = [&](Phrase text, std::vector<Change> changes) {
    add(RemedyPrice::speed, MemoryCategory::optimizer_states, std::move(text), std::move(changes));
  };
  one("offload with pin_memory false", pageable());
  if (!divides) return;
  one("use a sub_group_size of 1e7", {small});
  std::vector<Change> both = pageable();
  both.push_back(small);
  one("offload with pin_memory false and a sub_group_size of 1e7", std::move(both));
}

}  // namespace zeroplan::tuner
