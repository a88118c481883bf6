// Memory of a plan against sums that can be made by hand: the engine's formulas (docs/model.md and
// the tables of deepspeed/runtime/zero) on a small Llama of P parameters, N ranks.
#include "model/predict/memory.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include "model/cost/coefficients.hpp"
#include "model/plan/scenario_reader.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

// Two layers; P is a multiple of 16, so that no partition is padded.
struct Setup {
  std::string zero = R"({"stage":2})";
  int gpus = 1;
  std::string workload = "";  // keys beside the usual ones, with a comma in front
  std::string frontend = "native";
  std::string model = "";
  std::string cluster = R"(,"host_memory_bytes":1000000000000)";
  std::string software = "{}";
  std::string type = "llama";
};

Plan plan_of(const Setup& setup) {
  const std::string text =
      R"({"model":{"model_type":")" + setup.type + R"(","hidden_size":512,
          "intermediate_size":1024,"num_hidden_layers":2,"num_attention_heads":4,
          "num_key_value_heads":4,"max_position_embeddings":65536)" +
      (setup.model.empty() ? R"(,"vocab_size":1024,"tie_word_embeddings":false)" : setup.model) +
      R"(},"cluster":{"nodes":1,"gpu":"A100-80G-SXM","gpus_per_node":)" +
      std::to_string(setup.gpus) + setup.cluster +
      R"(},"workload":{"sequence_length":128,"attention":"flash","outputs_kept":false,"frontend":")" +
      setup.frontend + "\"" + setup.workload +
      R"(},"ds_config":{"bf16":{"enabled":true},"zero_optimization":)" + setup.zero +
      R"(},"software":)" + setup.software + "}";
  return resolve(parse_scenario(parse_json(text, "s.json").root, "s.json"));
}

MemoryPrediction memory_of(const Plan& plan) { return predict_memory(plan, step_work(plan)); }
MemoryPrediction memory_of(const Setup& setup) { return memory_of(plan_of(setup)); }

Bytes elements(const Plan& plan, std::int64_t width) {
  return count_parameters(*plan.model).total.times_width(width);
}

constexpr std::int64_t kLargest = 1024 * 512;  // the embedding

// Two cuBLAS workspaces of 8 MiB and 128 KiB (before Hopper).
constexpr Bytes kWorkspaces = Bytes::of(2 * 8'519'680);

CategoryBytes at_peak_of(const MemoryPrediction& memory, Phase phase) {
  return memory.gpu.by_phase[static_cast<std::size_t>(phase)];
}

// Norm weights are persistent in stage 3: below the threshold of 100,000 elements.
constexpr std::int64_t kPersistent = 5 * 512;

TEST_CASE("Between steps stage 0 holds 14 P, stages 1 and 2 hold 2 P and 12 P / N") {
  for (const int gpus : {1, 4}) {
    const Plan zero = plan_of({.zero = R"({"stage":0})", .gpus = gpus});
    CHECK(memory_of(zero).gpu.static_allocated == elements(zero, 14) + kWorkspaces);
    for (const char* stage : {R"({"stage":1})", R"({"stage":2})"}) {
      const Plan plan = plan_of({.zero = stage, .gpus = gpus});
      CHECK(memory_of(plan).gpu.static_allocated ==
            elements(plan, 2) + elements(plan, 12) / gpus + kWorkspaces);
    }
  }
}

TEST_CASE("Between steps stage 3 holds 16 P / N, its bucket and the persistent weights") {
  const Plan plan = plan_of({.zero = R"({"stage":3,"reduce_bucket_size":1000000})", .gpus = 4});
  CHECK(memory_of(plan).gpu.static_allocated ==
        elements(plan, 16) / 4 + Bytes::of(2 * 1000000 + 2 * kPersistent) + kWorkspaces);
}

TEST_CASE("Offloading the optimizer leaves stage 2 the weights and one largest gradient") {
  const Plan plan =
      plan_of({.zero = R"({"stage":2,"offload_optimizer":{"device":"cpu"}})", .gpus = 4});
  CHECK(memory_of(plan).gpu.static_allocated ==
        elements(plan, 2) + Bytes::of(2 * kLargest) + kWorkspaces);
}

TEST_CASE("Offloading both leaves stage 3 its bucket and the persistent weights") {
  const Plan plan = plan_of({.zero = R"({"stage":3,"reduce_bucket_size":1000000,
      "offload_optimizer":{"device":"cpu"},"offload_param":{"device":"cpu"}})",
                             .gpus = 4});
  CHECK(memory_of(plan).gpu.static_allocated ==
        Bytes::of(2 * 1000000 + 2 * kPersistent) + kWorkspaces);
}

TEST_CASE("The step of stage 2 holds owned gradients, their flat copy and its fp32 cast") {
  const Plan plan = plan_of({});
  const MemoryPrediction memory = memory_of(plan);
  CHECK(sum(at_peak_of(memory, Phase::step)) ==
        memory.gpu.static_allocated + elements(plan, 2 + 2 + 4));
}

TEST_CASE("A Trainer's own AdamW makes square roots of the master's size in the step") {
  // The Trainer keeps the weights of norms in a group of their own, which comes second.
  // From transformers 4.54 with torch 2.8 on it is fused.
  Setup setup{.frontend = "hf-trainer", .software = R"({"torch":"2.7","transformers":"5.17"})"};
  const Plan plan = plan_of(setup);
  const Bytes norms = Bytes::of(kPersistent);
  const MemoryPrediction memory = memory_of(plan);
  // The flat copy is gone by then: owned gradients, fp32 gradient, square roots.
  CHECK(sum(at_peak_of(memory, Phase::step)) ==
        memory.gpu.static_allocated + elements(plan, 2 + 4 + 4) - norms * 8);
  // To an optimizer of the file it hands one group.
  setup.zero = R"({"stage":2},"optimizer":{"type":"AdamW"})";
  const Plan fused_plan = plan_of(setup);
  const MemoryPrediction fused = memory_of(fused_plan);
  CHECK(sum(at_peak_of(fused, Phase::step)) ==
        fused.gpu.static_allocated + elements(fused_plan, 2 + 2 + 4));
}

TEST_CASE("Stage 1 keeps the gradients of earlier micro-steps through the next forward") {
  const Setup one{.zero = R"({"stage":1,"overlap_comm":false})"};
  Setup two = one;
  two.workload = R"(,"gradient_accumulation_steps":2)";
  CHECK(at(at_peak_of(memory_of(one), Phase::forward), MemoryCategory::gradients) == Bytes::zero());
  const Plan plan = plan_of(two);
  CHECK(at(at_peak_of(memory_of(plan), Phase::forward), MemoryCategory::gradients) ==
        elements(plan, 2));
}

TEST_CASE("Stage 2 adds later micro-steps up in a second storage of owned gradients") {
  Setup setup{.zero = R"({"stage":2,"reduce_bucket_size":1000000})",
              .workload = R"(,"gradient_accumulation_steps":3)"};
  const Plan plan = plan_of(setup);
  const MemoryPrediction memory = memory_of(plan);
  const Bytes gradients = at(at_peak_of(memory, Phase::backward), MemoryCategory::gradients);
  CHECK(gradients >= elements(plan, 4));
  setup.workload = R"(,"gradient_accumulation_steps":1)";
  const Bytes once = at(at_peak_of(memory_of(setup), Phase::backward), MemoryCategory::gradients);
  CHECK(gradients - once == elements(plan, 2));
}

TEST_CASE("Buckets that appear with the first gradient do not add to the logits' peak") {
  Setup setup{.workload = R"(,"activation_checkpointing":"full","micro_batch_size":16)",
              .model = R"(,"vocab_size":131072,"tie_word_embeddings":false)"};
  setup.zero = R"({"stage":2,"reduce_bucket_size":1000000})";
  const MemoryPrediction small = memory_of(setup);
  REQUIRE(at(small.gpu.breakdown_at_peak, MemoryCategory::logits) > Bytes::of(1'000'000'000));
  setup.zero = R"({"stage":2,"reduce_bucket_size":90000000})";
  CHECK(memory_of(setup).gpu.peak_allocated == small.gpu.peak_allocated);
  // Stage 3 has its bucket all the time.
  setup.zero = R"({"stage":3,"reduce_bucket_size":1000000})";
  const Bytes less = memory_of(setup).gpu.peak_allocated;
  setup.zero = R"({"stage":3,"reduce_bucket_size":2000000})";
  CHECK(memory_of(setup).gpu.peak_allocated == less + Bytes::of(2 * 1'000'000));
}

TEST_CASE("A tied weight's gradient is handed over once, last of all, and lives from the start") {
  const Plan plan = plan_of({.model = R"(,"vocab_size":1024,"tie_word_embeddings":true)"});
  const ActivationTimeline timeline = step_work(plan).activations;
  CHECK(timeline.gradient_order.size() == plan.engine_parameters.size());
  CHECK(plan.engine_parameters[static_cast<std::size_t>(timeline.gradient_order.back())].numel ==
        Elements::of(kLargest));
  CHECK(timeline.weight_gradients == elements(plan, 2));
  for (const ActivationStep& step : timeline.steps) {
    if (step.pass.pass != Pass::backward || step.pass.instance != 1) continue;
    CHECK(at(step.entry, MemoryCategory::gradients) == Bytes::of(2 * kLargest));
  }
  CHECK(at(timeline.after, MemoryCategory::gradients) == Bytes::zero());
}

TEST_CASE("torch's own linear keeps every gathered weight of stage 3 until its backward") {
  Setup setup{.zero = R"({"stage":3,"stage3_max_live_parameters":0,"stage3_max_reuse_distance":0,
      "stage3_prefetch_bucket_size":0,"reduce_bucket_size":1000000})",
              .gpus = 4};
  const MemoryPrediction efficient = memory_of(setup);
  setup.zero.insert(1, R"("memory_efficient_linear":false,)");
  const MemoryPrediction kept = memory_of(setup);
  // Two layers of 4 h h + 3 h f, and the head.
  const Bytes linears = Bytes::of(2 * (2 * (4 * 512 * 512 + 3 * 512 * 1024) + kLargest));
  const Bytes more = at(at_peak_of(kept, Phase::backward), MemoryCategory::parameters) -
                     at(at_peak_of(efficient, Phase::backward), MemoryCategory::parameters);
  CHECK(more == linears);
}

TEST_CASE("Loading without zero.Init takes the whole model on every GPU, flattening twice of it") {
  const Plan plan = plan_of({.gpus = 4});
  const MemoryPrediction memory = memory_of(plan);
  CHECK(sum(at_peak_of(memory, Phase::load)) == elements(plan, 2));
  // 0.19: the flat copy beside the originals, or all that stays and a zero gradient.
  CHECK(sum(at_peak_of(memory, Phase::init)) ==
        std::max(elements(plan, 4), elements(plan, 2) + elements(plan, 4 + 4) / 4));
}

TEST_CASE("Pageable offload of stage 2 takes 18 bytes an owned parameter on the host") {
  const Plan plan =
      plan_of({.zero = R"({"stage":2,"offload_optimizer":{"device":"cpu","pin_memory":false}})",
               .gpus = 4});
  const HostMemory host = memory_of(plan).host;
  CHECK(host.pinned == Bytes::zero());
  const Bytes processes = Bytes::nearest(Coefficients()[Coefficient::host_process_bytes]) * 4;
  const Bytes states = elements(plan, 18) + Bytes::of(4 * 2 * kLargest);
  // Rank 0 serialises the 16-bit weights while it saves.
  CHECK(host.peak == processes + states + elements(plan, 2));
  CHECK(host.peak_phase == Phase::save);
}

// Host memory while weights are loaded, without the processes.
Bytes loading(const Setup& setup) {
  const Bytes process = Bytes::nearest(Coefficients()[Coefficient::host_process_bytes]);
  return memory_of(setup).host.load_peak - process * setup.gpus;
}

// RssAnon of from_pretrained, measured with transformers 4.36 to 4.57 and 5.17 on a checkpoint in
// bf16: 893 MiB of 893 up to 4.42.4, 550 with 4.50.3, nothing with 4.43.4 and from 4.52 on.
TEST_CASE("Weights in the format of their files are mapped; others every rank builds on the host") {
  for (const char* transformers : {"4.42.4", "4.43.4", "4.50.3", "4.52.4", "5.17.0", "5.23.0"}) {
    const bool maps =
        transformers != std::string("4.42.4") && transformers != std::string("4.50.3");
    Setup setup{.gpus = 4};
    setup.software = R"({"transformers":")" + std::string(transformers) + "\"}";
    CHECK(loading(setup) == (maps ? Bytes::zero() : elements(plan_of(setup), 2) * 4));
    setup.workload = R"(,"engine":"ddp","weights_dtype":"bf16")";
    CHECK(loading(setup) == (maps ? Bytes::zero() : elements(plan_of(setup), 2) * 4));
    setup.workload = R"(,"engine":"ddp","weights_dtype":"fp32")";
    CHECK(loading(setup) == elements(plan_of(setup), 4) * 4);
    // Under FSDP the first rank of a node reads, and the others hold zeros in releases of 2026:
    // RssAnon of rank 1 of 2, measured with 5.17.
    const std::int64_t holding = transformers == std::string("5.17.0") ? 4 : 1;
    setup.workload = R"(,"engine":"fsdp","weights_dtype":"fp32")";
    CHECK(loading(setup) == elements(plan_of(setup), 4) * holding);
    setup.workload = R"(,"engine":"fsdp","weights_dtype":"fp32","loading":"every-rank")";
    CHECK(loading(setup) == elements(plan_of(setup), 4) * 4);
    setup.workload = "";
    setup.zero = R"({"stage":3})";
    CHECK(loading(setup) == Bytes::zero());
  }
}

// Rehearsed on two ranks at stage 3, transformers 5.17, a Qwen3-MoE whose experts take 864 MiB:
// RssAnon of each rank grows by 964 MiB and goes back; without stage 3 by 954. A copy that was
// saved as the class has its experts takes nothing.
TEST_CASE("From transformers 5 on every rank joins all experts on the host while it loads") {
  const std::string experts = R"(,"vocab_size":1024,"tie_word_embeddings":false,
      "num_experts":8,"num_experts_per_tok":2,"moe_intermediate_size":256,"head_dim":128)";
  const auto plan_with = [&](const char* transformers, const char* zero) {
    Setup setup{.zero = zero, .gpus = 4, .model = experts};
    setup.software = R"({"transformers":")" + std::string(transformers) + "\"}";
    setup.type = "qwen3_moe";
    return setup;
  };
  const Bytes layer = Bytes::of(2) * (8 * 3 * 512 * 256);
  const Bytes gate_up = Bytes::of(2) * (8 * 2 * 512 * 256);
  for (const char* zero : {R"({"stage":2})", R"({"stage":3})"}) {
    CHECK(loading(plan_with("5.17.0", zero)) == (layer * 2 + gate_up) * 4);
    CHECK(loading(plan_with("4.57.6", zero)) == Bytes::zero());
    Setup copy = plan_with("5.17.0", zero);
    copy.workload = R"(,"loading":"converted")";
    CHECK(loading(copy) == Bytes::zero());
  }
}

TEST_CASE("Pinned buffers take powers of two of host memory") {
  const Plan plan =
      plan_of({.zero = R"({"stage":2,"offload_optimizer":{"device":"cpu","pin_memory":true}})"});
  const auto power = [](Bytes bytes) {
    std::int64_t rounded = 1;
    while (rounded < bytes.count()) rounded *= 2;
    return Bytes::of(rounded);
  };
  // Master and gradient, the 16-bit staging buffer, and one largest gradient.
  CHECK(memory_of(plan).host.pinned ==
        power(elements(plan, 4)) * 2 + power(elements(plan, 2)) + power(Bytes::of(2 * kLargest)));
}

TEST_CASE("Gathering 16-bit weights while saving takes them once on the host of rank 0") {
  Setup setup{.zero = R"({"stage":3,"offload_optimizer":{"device":"cpu","pin_memory":false}})",
              .gpus = 4};
  const HostMemory without = memory_of(setup).host;
  setup.zero.insert(1, R"("stage3_gather_16bit_weights_on_model_save":true,)");
  const Plan plan = plan_of(setup);
  CHECK(memory_of(plan).host.peak == without.peak + elements(plan, 2));
}

TEST_CASE("Quantised gathers make a stage-3 prediction less certain, not larger") {
  Setup setup{.zero = R"({"stage":3})", .gpus = 4};
  const MemoryPrediction plain = memory_of(setup);
  setup.zero = R"({"stage":3,"zero_quantized_weights":true})";
  const MemoryPrediction quantized = memory_of(setup);
  CHECK(quantized.relative_sd > plain.relative_sd);
  CHECK(quantized.gpu.peak_allocated == plain.gpu.peak_allocated);
}

TEST_CASE("A fit does not need what the allocator gives back under pressure") {
  const MemoryPrediction two = memory_of({.gpus = 4});
  CHECK(two.gpu_needed == two.gpu.peak_total);
  // Stage 3 with overlap: the copies of one bucket's reduction.
  const MemoryPrediction three =
      memory_of({.zero = R"({"stage":3,"reduce_bucket_size":1000000})", .gpus = 4});
  CHECK(three.gpu_needed < three.gpu.peak_total);
  CHECK(three.gpu_needed > three.gpu.peak_allocated);
}

TEST_CASE("The categories of the peak sum to its total, the phases to no more than its allocated") {
  for (const char* zero :
       {R"({"stage":0})", R"({"stage":1})", R"({"stage":2})", R"({"stage":3})"}) {
    const GpuMemory gpu = memory_of({.zero = zero, .gpus = 2}).gpu;
    CHECK(sum(gpu.breakdown_at_peak) == gpu.peak_total);
    for (const CategoryBytes& phase : gpu.by_phase) CHECK(sum(phase) <= gpu.peak_allocated);
    CHECK(gpu.static_allocated <= gpu.peak_allocated);
    CHECK(gpu.peak_allocated <= gpu.peak_reserved);
  }
}

}  // namespace

TEST_CASE("memory_coefficients() are those that a prediction of memory depends on") {
  const std::string offload =
      R"({"stage":3,"zero_hpz_partition_size":2,"offload_optimizer":{"device":"cpu"}})";
  std::vector<Plan> plans = {plan_of({.zero = offload, .gpus = 8}),
                             plan_of({.gpus = 2}),
                             plan_of({.gpus = 4, .cluster = R"(,"nodes":2,"gpu":"RTX3090")"}),
                             plan_of({.gpus = 4, .workload = R"(,"sequence_parallel":4)"})};
  for (Plan& plan : std::vector<Plan>(plans)) {
    plan.software.torch = {1, 13};
    plans.push_back(plan);
    plan.software.torch = {1, 10};
    plans.push_back(plan);
  }
  const std::span<const Coefficient> ids = memory_coefficients();
  for (const CoefficientInfo& row : coefficient_rows()) {
    INFO(row.name);
    bool depends = false;
    for (const Plan& plan : plans) {
      Plan moved = plan;
      moved.coefficients.set(row.id, 1.5 * plan.coefficients[row.id]);
      const MemoryPrediction before = memory_of(plan);
      const MemoryPrediction after = memory_of(moved);
      depends = depends || before.gpu.peak_total != after.gpu.peak_total ||
                before.host.peak != after.host.peak;
    }
    CHECK(depends == (std::find(ids.begin(), ids.end(), row.id) != ids.end()));
  }
}
