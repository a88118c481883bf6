#include "model/plan/frontend_hf.hpp"

#include "base/check.hpp"
#include "base/units.hpp"

namespace zeroplan {
namespace {

// TrainingArguments' defaults that reach the file.
constexpr double kMaxGradNorm = 1.0;
constexpr double kLearningRate = 5e-5;
constexpr double kAdamEpsilon = 1e-8;
constexpr double kWeightDecay = 0.0;

bool needs_hidden_size(AutoRule rule) {
  return rule == AutoRule::hidden_squared || rule == AutoRule::hidden_squared_0_9 ||
         rule == AutoRule::hidden_times_10;
}

// The two prefetch rules act in stage 3 only; elsewhere, and in a loop that hands the file to
// DeepSpeed as it is, DeepSpeed drops the text "auto".
KnobValue sized_value(AutoRule rule, const TrainerArguments& arguments) {
  if (!arguments.runs) return Unset{};
  const std::int64_t h = arguments.hidden_size;
  if (rule == AutoRule::hidden_squared) return detail::checked_product(h, h);
  if (arguments.stage != 3) return Unset{};
  if (rule == AutoRule::hidden_times_10) return detail::checked_product(10, h);
  return static_cast<std::int64_t>(0.9 * static_cast<double>(h) * static_cast<double>(h));
}

KnobValue value_of(AutoRule rule, const TrainerArguments& arguments) {
  switch (rule) {
    case AutoRule::micro_batch_size:
      return arguments.micro_batch_size;
    case AutoRule::gradient_accumulation_steps:
      return arguments.gradient_accumulation_steps;
    case AutoRule::train_batch_size:
      return detail::checked_product(
          detail::checked_product(arguments.micro_batch_size, arguments.data_parallel_ranks),
          arguments.gradient_accumulation_steps);
    case AutoRule::max_grad_norm:
      return kMaxGradNorm;
    case AutoRule::learning_rate:
      return kLearningRate;
    case AutoRule::adam_betas:
      return Json::array({0.9, 0.999});
    case AutoRule::adam_epsilon:
      return kAdamEpsilon;
    case AutoRule::weight_decay:
      return kWeightDecay;
    case AutoRule::zero:
      return std::int64_t{0};
    case AutoRule::warmup_steps:
      return std::int64_t{1};
    case AutoRule::total_steps:
      if (arguments.total_steps == 0) return Unset{};
      return arguments.total_steps;
    case AutoRule::fp16_flag:
      return arguments.precision == Precision::fp16;
    case AutoRule::bf16_flag:
      return arguments.precision == Precision::bf16;
    case AutoRule::apex_flag:
      return false;
    case AutoRule::pipeline_degree:
      return arguments.pipeline_stages;
    case AutoRule::hidden_squared:
    case AutoRule::hidden_squared_0_9:
    case AutoRule::hidden_times_10:
      return sized_value(rule, arguments);
    case AutoRule::unresolved:
    case AutoRule::dropped:
    case AutoRule::accelerate_default:
    case AutoRule::apex_level:
      return Unset{};
  }
  return Unset{};
}

// A row may be real where the rule gives a whole number, and the other way round.
KnobValue fitted(const KnobRow& row, KnobValue value) {
  if (row.type == KnobType::real && std::holds_alternative<std::int64_t>(value)) {
    return static_cast<double>(std::get<std::int64_t>(value));
  }
  if (row.type == KnobType::integer && std::holds_alternative<double>(value)) {
    return static_cast<std::int64_t>(std::get<double>(value));
  }
  return value;
}

}  // namespace

std::vector<std::string> fill_auto(DsConfig& config, const TrainerArguments& arguments) {
  std::vector<std::string> unresolved;
  for (const auto& [knob, value] : config.values()) {
    if (!std::holds_alternative<Auto>(value)) continue;
    const KnobRow& row = knob_row(knob);
    if (needs_hidden_size(row.automatic) && arguments.runs && arguments.hidden_size == 0) {
      unresolved.emplace_back(row.pointer);
      config.unset(row.id);
      continue;
    }
    config.set(row.id, fitted(row, value_of(row.automatic, arguments)));
  }
  return unresolved;
}

void fill_sizes(DsConfig& config, std::int64_t hidden_size) {
  TrainerArguments arguments;
  arguments.hidden_size = hidden_size;
  arguments.stage = static_cast<int>(config.integer(Knob::zero_stage).value_or(0));
  for (const auto& [knob, value] : config.values()) {
    const KnobRow& row = knob_row(knob);
    if (!std::holds_alternative<Auto>(value) || !needs_hidden_size(row.automatic)) continue;
    config.set(row.id, fitted(row, sized_value(row.automatic, arguments)));
  }
}

}  // namespace zeroplan
