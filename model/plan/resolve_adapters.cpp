// In which format peft's adapters are kept and computed with beside a frozen model: what the
// release of peft makes of them, what the engine casts, what runs under mixed precision.
//
// Sources: peft 0.10.0, 0.11.1, 0.12.0, 0.15.1, 0.21.2 (tuners/tuners_utils.py cast_adapter_dtype,
// _move_adapter_to_device_of_base_layer; tuners/lora/layer.py update_layer); DeepSpeed 0.14.2,
// 0.16.4, 0.19.6 (runtime/engine.py _configure_distributed_model). Each was rehearsed
// (tests/reference/rehearsal/adapters_lines.py).
#include <algorithm>
#include <string>

#include "base/described.hpp"
#include "model/families/hf_config.hpp"
#include "model/graph/traced_graph.hpp"
#include "model/implementations/lora.hpp"
#include "model/plan/resolver.hpp"
#include "model/plan/trainer.hpp"
#include "model/releases.hpp"

namespace zeroplan {
namespace {

const Json* setting(const Resolver& r, std::string_view key) {
  const ExplicitValue* said = r.scenario.find(ScenarioKey::method);
  if (said == nullptr || said->value.is_string() || said->value.members().size() != 1) {
    return nullptr;
  }
  return said->value.members()[0].second.find(key);
}

Origin place_of(const Resolver& r, const char* key) {
  const Origin origin = r.origin(ScenarioKey::method);
  const std::string method(name(kMethodNames, r.plan.workload.method));
  return {origin.file, origin.pointer + "/" + method + "/" + key};
}

// Whether DeepSpeed leaves the adapters as peft made them. transformers enters zero.Init for
// weights that it does not quantise.
bool deepspeed_keeps(const Plan& plan) {
  const bool zero_init = plan.ds_config.integer(Knob::zero_stage).value_or(0) == 3 &&
                         plan.workload.method == Method::lora && !plan.loads_whole;
  return zero_init && plan.software.deepspeed_acts(ReleaseRule::keeps_dtypes_under_zero_init);
}

bool casts_everything(const Plan& plan) {
  if (plan.workload.engine == TrainingEngine::embedded) return true;
  return runs_deepspeed(plan.workload) && !deepspeed_keeps(plan);
}

// Weights in four bits are bytes, whose adapters stay in fp32, unless the bytes are stored as
// floating-point numbers, which FSDP needs.
bool peft_widens(const Plan& plan) {
  const bool bytes =
      plan.workload.method == Method::qlora && plan.workload.engine != TrainingEngine::fsdp;
  return bytes || plan.software.transformers_act(ReleaseRule::goes_with_wide_adapters);
}

// Where TRL makes adapters in 16 bits, which peft would widen: beside four-bit weights, and beside
// others at stage 3. PPO's trainer does neither.
bool trl_narrows(const Plan& plan) {
  if (plan.trainer == nullptr || plan.trainer->code != TrainerCode::trl ||
      plan.trainer->trains_values()) {
    return false;
  }
  if (plan.workload.method == Method::qlora) {
    return keeps_four_bits(plan);
  }
  return runs_deepspeed(plan.workload) &&
         plan.ds_config.integer(Knob::zero_stage).value_or(0) == 3 &&
         plan.software.trl_acts(ReleaseRule::trl_keeps_adapters_narrow);
}

void read_autocast(Resolver& r) {
  Workload& workload = r.plan.workload;
  const bool own = workload.implementation == Implementation::hf;
  const bool can = own && workload.precision != Precision::fp32 && is_torch_engine(workload.engine);
  if (const Json* said = setting(r, "autocast")) {
    if (!said->is_boolean()) {
      r.problem(place_of(r, "autocast"), "true or false", described(*said));
      return;
    }
    workload.lora.autocast = said->as_boolean() && can;
    return;
  }
  workload.lora.autocast = can && workload.frontend == Frontend::hf_trainer;
  if (workload.lora.autocast) {
    r.assume(phrase("the Trainer's mixed precision is on: adapters are computed with in {}",
                    name(kPrecisionNames, workload.precision)));
  }
}

// What of QLoRA DeepSpeed runs. Rehearsed with DeepSpeed 0.19.6, transformers 5.17 and bitsandbytes
// 0.50.2 (tests/reference/rehearsal/four_bit_lines.py): stages 0 to 2 keep the frozen bytes whole
// on every GPU; stage 3 partitions them, stored as bytes or in 16 bits, after the whole model came
// to each GPU, since transformers enters no zero.Init for weights that it quantises. With
// transformers 4.40.2 and DeepSpeed 0.14.2 they wait on the host until DeepSpeed moves the module.
void check_four_bits_under_deepspeed(Resolver& r) {
  const Plan& plan = r.plan;
  if (plan.workload.method != Method::qlora || !runs_deepspeed(plan.workload)) return;
  const std::int64_t stage = plan.ds_config.integer(Knob::zero_stage).value_or(0);
  if (plan.degrees.pipeline > 1 || plan.degrees.tensor > 1) {
    r.problem(r.origin(ScenarioKey::method),
              "qlora under DeepSpeed with data-parallel ranks",
              "a model that ranks share");
    return;
  }
  if (stage != 3 || plan.workload.engine == TrainingEngine::embedded) return;
  r.plan.loads_whole = true;
  r.assume(
      "the four-bit model is whole on each GPU before stage 3 partitions it: transformers enters "
      "no "
      "zero.Init for quantised weights, and DeepSpeed moves the module to the GPU");
}

// transformers enters no zero.Init for a checkpoint that a quantizer loads, one that makes it bf16
// among them (modeling_utils.py get_init_context), and DeepSpeed moves the module to the GPU.
// Rehearsed with transformers 5.17 and DeepSpeed 0.19.6, a gpt-oss of 0.8 G parameters in MXFP4 on
// eight ranks: read on each rank's host, 1.65 GiB on each GPU while the engine is made, which are
// all weights; a copy in bf16 0.59 GiB. Under FSDP and below stage 3 both are alike.
void resolve_quantized_loading(Resolver& r) {
  const Plan& plan = r.plan;
  const bool hf = plan.workload.engine == TrainingEngine::deepspeed &&
                  plan.workload.implementation == Implementation::hf;
  if (!hf || plan.ds_config.integer(Knob::zero_stage).value_or(0) != 3) return;
  if (quantized_format(*plan.model) != kMxfp4Checkpoint) return;
  r.plan.loads_whole = true;
  r.assume(
      "the model is whole on each GPU before stage 3 partitions it: transformers enters no "
      "zero.Init for a checkpoint in MXFP4; a copy in 16 bits is partitioned as it is read");
}

// accelerate's DeepSpeedPlugin makes no HfDeepSpeedConfig where zero3_init_flag is false, so that
// from_pretrained enters no zero.Init (utils/dataclasses.py set_deepspeed_weakref).
void resolve_whole_loading(Resolver& r) {
  const Plan& plan = r.plan;
  const bool asked = plan.workload.loading == Loading::every_rank &&
                     plan.workload.engine == TrainingEngine::deepspeed;
  if (!asked || plan.ds_config.integer(Knob::zero_stage).value_or(0) != 3) return;
  r.plan.loads_whole = true;
  r.assume("the model is whole on each GPU before stage 3 partitions it: no zero.Init");
}

// --loading where it changes nothing.
void report_loading(Resolver& r) {
  const Plan& plan = r.plan;
  const ExplicitValue* said = r.scenario.find(ScenarioKey::loading);
  if (said == nullptr || said->origin.file != "command line") return;
  const bool fsdp = plan.workload.engine == TrainingEngine::fsdp;
  const bool stage_3 = plan.workload.engine == TrainingEngine::deepspeed &&
                       plan.ds_config.integer(Knob::zero_stage).value_or(0) == 3;
  const auto without_effect = [&](Phrase why) {
    r.warn(phrase("{}: without effect, {}", said->origin.pointer, why));
  };
  if (plan.workload.loading == Loading::every_rank && !fsdp && !stage_3) {
    without_effect("every rank loads the whole model anyway");
  }
  if (plan.workload.loading != Loading::converted) return;
  const std::vector<Parameter>& parameters = plan.model->parameters;
  const bool some = std::any_of(
      parameters.begin(), parameters.end(), [](const Parameter& one) { return one.converted; });
  if (some && plan.software.transformers_act(ReleaseRule::fuses_experts)) return;
  without_effect(phrase("transformers {} joins no tensors of this model while it loads",
                        to_string(plan.software.transformers)));
}

// Where four-bit weights are until FSDP shards them. Rehearsed with transformers 5.17 and
// torch 2.11: 0.45 GiB of a model of 0.44 on each GPU, under FSDP1; with 4.41.2 and torch 2.3 the
// four-bit weights wait on the host, embedding and head do not (docs/validate.md).
void resolve_four_bit_loading(Resolver& r) {
  Plan& plan = r.plan;
  if (plan.workload.method != Method::qlora || plan.workload.engine != TrainingEngine::fsdp) return;
  const auto said = r.text(ScenarioKey::load_device);
  // Scripts of their own load layer by layer (AnswerDotAI/fsdp_qlora train.py).
  const bool trainer = plan.workload.frontend == Frontend::hf_trainer &&
                       plan.workload.implementation == Implementation::hf;
  const bool stays =
      trainer && plan.software.transformers_act(ReleaseRule::leaves_four_bits_on_gpu);
  plan.loads_whole = said ? *said == "gpu" : stays;
  if (plan.loads_whole) {
    r.assume(
        phrase("the four-bit model is whole on each GPU before FSDP shards it: from_pretrained of "
               "transformers {} quantises on the GPU and leaves it there (--load-device cpu: "
               "device_map={})",
               to_string(plan.software.transformers),
               "{\"\": \"cpu\"}"));
  } else {
    r.assume(said      ? "four-bit weights wait in host memory until FSDP shards them: device_map"
             : trainer ? "four-bit weights wait in host memory until FSDP shards them: "
                         "transformers before 5, with cpu_ram_efficient_loading"
                       : "four-bit weights wait in host memory until FSDP shards them: as scripts "
                         "of FSDP and QLoRA load them");
  }
}

// Earlier trainers of TRL call prepare_model_for_kbit_training, and with bf16
// peft_module_casting_to_bf16 then (trainer/utils.py), which leaves norms alone in fp32. Not where
// four bits wait on the host to be sharded (is_sharded_qlora).
Upcast upcast_of_trainer(const Plan& plan) {
  const bool prepares = plan.trainer != nullptr && plan.trainer->code == TrainerCode::trl &&
                        plan.workload.method == Method::qlora &&
                        plan.workload.engine != TrainingEngine::fsdp && !keeps_four_bits(plan);
  if (!prepares) return Upcast::none;
  return plan.workload.precision == Precision::bf16 ? Upcast::norms : Upcast::all;
}

// What DeepSpeed makes 16 bits again, FSDP cannot flatten beside them.
void check_upcast(Resolver& r) {
  const Plan& plan = r.plan;
  const Upcast upcast = plan.workload.lora.upcast;
  if (plan.workload.implementation != Implementation::hf) {
    r.problem(place_of(r, "upcast"),
              "none: peft prepares models of transformers",
              name(kUpcastNames, upcast));
  } else if (plan.workload.engine == TrainingEngine::fsdp) {
    r.problem(place_of(r, "upcast"),
              "none under FSDP, whose units are of one format",
              name(kUpcastNames, upcast));
  } else if (casts_everything(plan)) {
    r.warn(phrase("upcast {}: without effect, DeepSpeed makes the whole module {} again",
                  name(kUpcastNames, upcast),
                  name(kPrecisionNames, plan.workload.precision)));
  } else if (upcast == Upcast::norms && !plan.workload.lora.autocast) {
    r.warn(
        "upcast norms without autocast: the last norm gives fp32 to a head in 16 bits, whose "
        "product PyTorch refuses");
  }
}

void resolve_upcast(Resolver& r) {
  Plan& plan = r.plan;
  Upcast& upcast = plan.workload.lora.upcast;
  upcast = upcast_of_trainer(plan);
  const bool qlora = plan.workload.method == Method::qlora;
  if (const Json* said = setting(r, "upcast")) {
    const auto found =
        said->is_string() ? find(kUpcastNames, std::string_view(said->as_string())) : std::nullopt;
    if (!found || (*found == Upcast::all && !qlora)) {
      r.problem(place_of(r, "upcast"),
                qlora ? "none, norms or all" : "none or norms: the frozen weights are in 16 bits",
                described(*said));
      return;
    }
    upcast = *found;
    if (upcast != Upcast::none) check_upcast(r);
  } else if (upcast != Upcast::none) {
    r.assume(phrase("{} beside the four-bit weights are in fp32: TRL {} prepares the model so",
                    upcast == Upcast::norms ? "norms" : "norms, embeddings and head",
                    to_string(plan.software.trl)));
  } else if (qlora && plan.workload.implementation == Implementation::hf) {
    r.assume(
        "norms, embeddings and head beside the four-bit weights keep the model's dtype: peft's "
        "prepare_model_for_kbit_training, which casts them to fp32, is not applied "
        "({\"qlora\": {\"upcast\": \"all\"}}; TRL before 0.29: \"norms\")");
  }
  if (upcast == Upcast::none || casts_everything(plan)) return;
  if (traced_graph_of(*plan.model) != nullptr) {
    upcast = Upcast::none;
    r.warn(
        "norms in fp32 beside a frozen model are not described for recorded classes: what goes "
        "from layer to layer would be fp32, and checkpoints twice as large");
    return;
  }
  const auto base = plan.model;
  plan.model = r.make(base, "upcast:" + std::string(name(kUpcastNames, upcast)), [&] {
    return with_upcast(*base, upcast);
  });
}

}  // namespace

void resolve_adapter_dtype(Resolver& r) {
  report_loading(r);
  resolve_whole_loading(r);
  resolve_quantized_loading(r);
  Workload& workload = r.plan.workload;
  if (workload.method == Method::full) return;
  check_four_bits_under_deepspeed(r);
  resolve_four_bit_loading(r);
  read_autocast(r);
  resolve_upcast(r);
  const bool hf = workload.implementation == Implementation::hf;
  const std::string precision(name(kPrecisionNames, workload.precision));
  workload.lora.dtype = workload.precision;
  const Json* said = setting(r, "dtype");
  if (said != nullptr) {
    const auto found = said->is_string()
                           ? find(kPrecisionNames, std::string_view(said->as_string()))
                           : std::nullopt;
    if (!found) {
      r.problem(place_of(r, "dtype"), "bf16, fp16 or fp32", described(*said));
      return;
    }
    if (casts_everything(r.plan)) {
      if (*found != workload.precision) {
        r.warn(phrase("adapters are in {}: the engine casts the whole module", precision));
      }
      return;
    }
    workload.lora.dtype = *found;
    return;
  }
  if (!hf || workload.precision == Precision::fp32 || casts_everything(r.plan)) return;
  if (trl_narrows(r.plan)) {
    const bool four_bits = workload.method == Method::qlora;
    if (four_bits) workload.lora.dtype = Precision::bf16;
    const std::string trl = to_string(r.plan.software.trl);
    r.assume(
        four_bits
            ? phrase("adapters are in bf16: TRL {} casts them beside four-bit weights", trl)
            : phrase("adapters are in {}: TRL {} makes them so at ZeRO stage 3", precision, trl));
    return;
  }
  const bool widens = peft_widens(r.plan);
  if (widens) workload.lora.dtype = Precision::fp32;
  r.assume(widens
               ? "adapters are in fp32: peft from 0.12 on, and beside four-bit weights"
               : phrase("adapters are in {} like the frozen weights: peft before 0.12", precision));
}

}  // namespace zeroplan
