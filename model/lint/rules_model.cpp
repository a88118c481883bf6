// Rules that hold the file's sizes against the model's; see lint.hpp.
#include <algorithm>
#include <array>
#include <cmath>

#include "model/engine/fetch_schedule.hpp"
#include "model/lint/run_view.hpp"

namespace zeroplan::rules {
namespace {

std::string percent(double share) {
  return std::to_string(static_cast<std::int64_t>(std::lround(100.0 * share)));
}

double count(Elements elements) { return static_cast<double>(elements.count()); }

void fp16_for_bf16_model(const Run& run, Report& report) {
  if (run.format() != "fp16") return;
  constexpr std::array<std::string_view, 5> kTrainedInBf16 = {
      "t5", "mt5", "umt5", "longt5", "switch_transformers"};
  const bool known =
      std::find(kTrainedInBf16.begin(), kTrainedInBf16.end(), run.model->model_type) !=
      kTrainedInBf16.end();
  if (!known && run.model->torch_dtype != "bfloat16") return;
  report.at(Knob::fp16_enabled, {run.model->name});
}

// The class around a list of experts: what DeepSpeed must fetch as one.
std::string expert_class(const Model& model) {
  for (const Module& module : model.modules) {
    if (module.type != "ModuleList" || !module.name.ends_with(".experts")) continue;
    return model.modules[static_cast<std::size_t>(module.parent)].type;
  }
  return "";
}

void leaf_modules(const Run& run, Report& report) {
  if (run.file.stage() != 3 || run.file.config().is_set(Knob::leaf_module)) return;
  const std::string type = expert_class(*run.model);
  if (type.empty()) return;
  const bool newest = run.file.acts(ReleaseRule::leaf_modules_by_default);
  if (newest && is_leaf_by_default(type)) return;
  report.at(Knob::leaf_module, {type}, newest ? 0 : 1);
}

void persistence(const Run& run, Report& report) {
  constexpr double kShare = 0.1;
  const auto threshold = run.size(Knob::stage3_param_persistence_threshold);
  if (run.file.stage() != 3 || !threshold) return;
  double kept = 0.0;
  double all = 0.0;
  for (const Parameter& parameter : run.model->parameters) {
    all += count(parameter.numel);
    if (parameter.numel.count() <= *threshold) kept += count(parameter.numel);
  }
  if (all == 0.0 || kept < kShare * all) return;
  report.at(Knob::stage3_param_persistence_threshold,
            {std::to_string(*threshold), percent(kept / all)});
}

void bucket_beyond_model(const Run& run, Report& report) {
  const std::optional<std::int64_t> size = run.file.config().integer(Knob::reduce_bucket_size);
  const double trainable = count(count_parameters(*run.model).trainable);
  if (run.file.stage() == 0 || !size || static_cast<double>(*size) <= 2.0 * trainable) return;
  report.at(Knob::reduce_bucket_size,
            {std::to_string(*size), std::to_string(static_cast<std::int64_t>(trainable))});
}

// A partition of a parameter takes one buffer of the pool, whatever its size.
void nvme_parameter_buffer(const Run& run, Report& report) {
  if (run.file.stage() != 3 || run.file.text(Knob::offload_param_device) != "nvme") return;
  const std::optional<std::int64_t> buffer = run.file.integer(Knob::offload_param_buffer_size);
  if (!buffer) return;
  const std::int64_t ranks = run.file.data_parallel() * run.file.context().sequence_parallel;
  const Parameter* largest = nullptr;
  for (const Parameter& parameter : run.model->parameters) {
    if (largest == nullptr || parameter.numel > largest->numel) largest = &parameter;
  }
  if (largest == nullptr) return;
  const std::int64_t part = (largest->numel.count() + ranks - 1) / ranks;
  if (part <= *buffer) return;
  report.at(Knob::offload_param_buffer_size,
            {std::to_string(*buffer), largest->name, std::to_string(part)});
}

// [L2] Elements of this rank in sub-groups: parameters of one optimizer group in order, a sub-group
// closed when it reaches sub_group_size.  Source: runtime/zero/stage3.py:_create_fp16_sub_groups.
std::vector<double> sub_groups(const Run& run, std::int64_t size, std::int64_t ranks) {
  const std::vector<EngineParameter> parameters =
      engine_parameters(*run.model, run.is_trainer() && run.file.optimizer().empty());
  int groups = 0;
  for (const EngineParameter& parameter : parameters)
    groups = std::max(groups, parameter.group + 1);
  std::vector<double> sizes;
  for (int group = 0; group < groups; ++group) {
    double open = 0.0;
    for (const EngineParameter& parameter : parameters) {
      if (!parameter.trainable || parameter.group != group) continue;
      open += std::ceil(count(parameter.numel) / static_cast<double>(ranks));
      if (open < static_cast<double>(size)) continue;
      sizes.push_back(open);
      open = 0.0;
    }
    if (open > 0.0) sizes.push_back(open);
  }
  return sizes;
}

// Twin-Flow deals out whole sub-groups by their number: sub-group i steps on the CPU when
// i >= int((1 - ratio) n).
void twin_flow_share(const Run& run, Report& report) {
  constexpr double kFarOff = 0.2;
  const double ratio = run.file.real(Knob::offload_optimizer_ratio).value_or(1.0);
  if (run.file.stage() != 3 || ratio >= 1.0) return;
  if (!run.file.is_offloaded(Knob::offload_optimizer_device)) return;
  const auto size = run.size(Knob::sub_group_size);
  if (!size) return;
  const std::int64_t ranks = run.file.data_parallel() * run.file.context().sequence_parallel;
  const std::vector<double> sizes = sub_groups(run, *size, ranks);
  const auto on_gpu = static_cast<std::size_t>((1.0 - ratio) * static_cast<double>(sizes.size()));
  double gpu = 0.0;
  double all = 0.0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    all += sizes[i];
    if (i < on_gpu) gpu += sizes[i];
  }
  if (all == 0.0 || std::fabs(gpu / all - (1.0 - ratio)) < kFarOff) return;
  const auto tenth = static_cast<std::int64_t>(std::max(1.0, all / 10.0));
  report.at(Knob::offload_optimizer_ratio,
            {Json(ratio).dump(),
             percent(gpu / all),
             percent(1.0 - ratio),
             std::to_string(sizes.size()),
             std::to_string(tenth)});
}

constexpr std::array kModelRules = {
    RunRule{
        {.code = "fp16-for-bf16-model",
         .use = RuleUse::advice,
         .needs = kNeedsModel,
         .summary = "a model that was trained in bf16 is not tuned in fp16",
         .cost = "activations overflow: the loss scale falls to its minimum and the run stops, or "
                 "the loss is NaN",
         .texts = {{"{0} was trained in bf16 and is to be tuned in fp16",
                    "use bf16, or fp32 where the GPU has no bf16"}},
         .source = "DeepSpeed#4017, #4021, DeepSpeedExamples#418"},
        fp16_for_bf16_model},
    RunRule{{.code = "leaf-modules",
             .use = RuleUse::advice,
             .needs = kNeedsModel,
             .summary = "a mixture of experts under stage 3 is a leaf module",
             .cost = "ranks whose tokens visit different experts gather different weights: the run "
                     "hangs",
             .texts = {{"stage 3 with experts that not every rank visits hangs",
                        "add \"leaf_module\": {\"classes\": [\"{0}\"]} to zero_optimization, or "
                        "deepspeed_moe_layer_cls_names: {0} for accelerate"},
                       {"stage 3 with experts that not every rank visits hangs",
                        "call deepspeed.utils.set_z3_leaf_modules(model, [{0}]), or set "
                        "deepspeed_moe_layer_cls_names: {0} for accelerate"}},
             .source = "runtime/zero/leaf_module_config.py; DeepSpeed#4808, #4966, #7461"},
            leaf_modules},
    RunRule{
        {.code = "persistence-unshards",
         .use = RuleUse::advice,
         .needs = kNeedsModel,
         .summary = "stage3_param_persistence_threshold keeps small parameters only",
         .cost = "what is below the threshold is not sharded, and gathered anew after every step "
                 "one parameter at a time",
         .texts = {{"stage3_param_persistence_threshold {0} keeps {1} % of the parameters on "
                    "every GPU",
                    "use 1e5 (the default), or 10 times the hidden size"}},
         .source = "runtime/zero/parameter_offload.py:mark_persistent_parameters"},
        persistence},
    RunRule{{.code = "bucket-beyond-model",
             .severity = Severity::info,
             .use = RuleUse::advice,
             .needs = kNeedsModel,
             .summary = "reduce_bucket_size is not larger than the gradients",
             .cost = "the buffer is allocated whole and never filled",
             .texts = {{"reduce_bucket_size {0} is more than twice the {1} trainable parameters",
                        "set it to the number of trainable parameters or less"}},
             .source = "runtime/zero/stage_1_and_2.py:setup_buckets"},
            bucket_beyond_model},
    RunRule{
        {.code = "nvme-parameter-buffer",
         .severity = Severity::error,
         .use = RuleUse::advice,
         .needs = kNeedsModel | kNeedsRanks,
         .summary = "offload_param.buffer_size holds the largest partition of a parameter",
         .cost = "DeepSpeed stops: \"More elements than buffer size\"",
         .texts = {{"buffer_size is {0} elements; a rank's part of {1} has {2}",
                    "set buffer_size to {2} or more"}},
         .source =
             "runtime/swap_tensor/partitioned_param_swapper.py:AsyncPartitionedParameterSwapper"},
        nvme_parameter_buffer},
    RunRule{{.code = "twin-flow-share",
             .use = RuleUse::advice,
             .needs = kNeedsModel | kNeedsRanks,
             .summary = "a ratio below 1 has sub-groups enough to be divided",
             .cost = "the step is not shared as asked: whole sub-groups go to the CPU or the GPU",
             .texts = {{"ratio {0} puts {1} % of the step on the GPU, not {2} %: there are {3} "
                        "sub-groups",
                        "set sub_group_size to about {4}, for ten sub-groups"}},
             .source = "runtime/zero/stage3.py:_create_fp16_partitions_with_defragmentation"},
            twin_flow_share},
};

}  // namespace

std::span<const RunRule> model_rules() { return kModelRules; }

}  // namespace zeroplan::rules
