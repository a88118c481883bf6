#include "tuner/kit/trainer_line.hpp"

#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "foreign/form_settings.hpp"
#include "model/plan/software_sets.hpp"
#include "model/plan/trainer.hpp"
#include "model/releases.hpp"

namespace zeroplan::tuner {
namespace {

bool recomputes(const Plan& plan) {
  return plan.workload.activation_checkpointing != ActivationCheckpointing::none;
}

std::string lora_setting(const LoraSettings& lora) {
  std::string targets;
  for (const std::string& target : lora.targets) {
    targets += fmt::format("{}\"{}\"", targets.empty() ? "" : ", ", target);
  }
  std::string text = fmt::format("LoraConfig(r={}", lora.rank);
  if (lora.dropout > 0.0) text += fmt::format(", lora_dropout={}", lora.dropout);
  if (!targets.empty()) text += fmt::format(", target_modules=[{}]", targets);
  return text + ")";
}

// The arguments whose values ds_config's section "pipeline" has; the engine reads use_reentrant.
std::string pipeline_setting(const Plan& plan) {
  return fmt::format(
      "PipelineModule(num_stages={}, partition_method=\"{}\", activation_checkpoint_interval={})",
      plan.stages.size(),
      plan.ds_config.text(Knob::pipeline_partition).value_or("best"),
      plan.ds_config.integer(Knob::pipeline_activation_checkpoint_interval).value_or(0));
}

// TrainingArguments.use_liger_kernel, which came with 4.45.
bool trainer_has_liger(const Plan& plan) {
  return plan.workload.frontend == Frontend::hf_trainer &&
         plan.software.transformers_act(ReleaseRule::trainer_has_liger);
}

// The tried set that the plan's releases are, or null.
const SoftwareSet* set_of(const Plan& plan) {
  for (const SoftwareSet& set : software_sets()) {
    if (set.trains && set.torch == plan.software.torch &&
        set.transformers == plan.software.transformers) {
      return &set;
    }
  }
  return nullptr;
}

}  // namespace

std::string trainer_arguments(const Plan& plan) {
  const Workload& work = plan.workload;
  std::string text = runs_deepspeed(work) ? "--deepspeed ds_config.json " : "";
  text += fmt::format("--per_device_train_batch_size {} --gradient_accumulation_steps {}",
                      work.micro_batch_size,
                      work.gradient_accumulation_steps);
  if (work.precision != Precision::fp32) {
    text += fmt::format(" --{}", name(kPrecisionNames, work.precision));
  }
  if (recomputes(plan)) {
    text += fmt::format(
        " --gradient_checkpointing --gradient_checkpointing_kwargs '{{\"use_reentrant\": {}}}'",
        work.checkpoint_reentrant);
  }
  // Under DeepSpeed the Trainer's own choice of AdamW is not said.
  const std::string optimizer = foreign::optimizer_argument(plan);
  const char* const own =
      trainer_asks_for_fused(plan.software) ? "adamw_torch_fused" : "adamw_torch";
  const bool usual = runs_deepspeed(work) && optimizer == own;
  if (!optimizer.empty() && !usual) {
    text += fmt::format(" --optim {}", optimizer);
  }
  if (work.fused_loss && trainer_has_liger(plan)) text += " --use_liger_kernel";
  return text;
}

std::string script_settings(const Plan& plan) {
  const Workload& work = plan.workload;
  constexpr std::string_view kAttention[] = {"eager", "sdpa", "flash_attention_2"};
  std::string text = fmt::format("attn_implementation=\"{}\"",
                                 kAttention[static_cast<std::size_t>(work.attention)]);
  if (!plan.stages.empty()) {
    text += ", " + pipeline_setting(plan);
  } else if (work.frontend == Frontend::native && recomputes(plan)) {
    text += fmt::format(
        ", model.gradient_checkpointing_enable(gradient_checkpointing_kwargs="
        "{{\"use_reentrant\": {}}})",
        work.checkpoint_reentrant ? "True" : "False");
  }
  if (work.method != Method::full) text += ", " + lora_setting(work.lora);
  if (work.fused_loss && !trainer_has_liger(plan)) {
    text += ", liger_kernel.transformers._apply_liger_kernel_to_instance(model)";
  }
  if (work.tiled_mlp) text += ", deepspeed's TiledMLP";
  return text;
}

std::string pinned_packages(const Plan& plan, const char* separator) {
  const Software& software = plan.software;
  const SoftwareSet* set = set_of(plan);
  std::string text;
  const auto add = [&](std::string_view package, const std::string& release) {
    text += fmt::format(
        "{}{}{}{}", text.empty() ? "" : separator, package, release.empty() ? "" : "==", release);
  };
  if (runs_deepspeed(plan.workload)) add("deepspeed", to_string(software.deepspeed_release));
  add("torch", to_string(software.torch));
  add("transformers", to_string(software.transformers));
  if (plan.trainer != nullptr && plan.trainer->code == TrainerCode::trl) {
    add("trl", to_string(software.trl));
  }
  add("accelerate", to_string(software.accelerate));
  if (plan.workload.method != Method::full) add("peft", set != nullptr ? set->peft : "");
  if (plan.workload.optimizer == OptimizerName::adamw8bit ||
      plan.workload.method == Method::qlora) {
    add("bitsandbytes", "");
  }
  if (plan.workload.fused_loss) add("liger-kernel", "");
  if (plan.workload.images.count > 0) {
    add("torchvision", "");
    add("pillow", "");
  }
  if (plan.workload.attention == Attention::flash) add("flash-attn", "");
  if (plan.workload.linear_attention == LinearAttention::fla) add("flash-linear-attention", "");
  if (plan.workload.linear_attention == LinearAttention::mamba_ssm) {
    add("mamba-ssm[causal-conv1d]", "");
  }
  return text;
}

Phrase trainer_lines(const Plan& plan) {
  const Workload& work = plan.workload;
  if (work.engine == TrainingEngine::embedded) return "";
  Phrase text;
  // Of ranks that share a sequence or a layer these arguments would start data parallelism.
  const bool data_alone = work.sequence_parallel == 1 && work.tensor_parallel == 1;
  if (work.frontend == Frontend::hf_trainer && data_alone) {
    text.append(phrase("With the Trainer: {}\n", trainer_arguments(plan)));
  }
  if (work.implementation == Implementation::hf) {
    text.append(phrase("In the script: sequences of {} tokens, {}\n",
                       work.sequence_length,
                       script_settings(plan)));
    text.append(phrase("Installed: {}\n", pinned_packages(plan)));
  }
  return text;
}

}  // namespace zeroplan::tuner
