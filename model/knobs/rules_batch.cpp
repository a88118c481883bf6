// Rules about batch sizes; see rules.hpp.
#include <array>

#include "base/units.hpp"
#include "model/knobs/rule_view.hpp"

namespace zeroplan::rules {
namespace {

constexpr std::array kBatchKeys = {Knob::train_batch_size,
                                   Knob::train_micro_batch_size_per_gpu,
                                   Knob::gradient_accumulation_steps};

// train = micro * accumulation * ranks, with missing members filled by integer division. Where the
// ranks are not known, no number of them may be able to make it hold.
void batch_identity(const View& view, Report& report) {
  const auto train = view.integer(Knob::train_batch_size);
  const auto micro = view.integer(Knob::train_micro_batch_size_per_gpu);
  const auto steps = view.integer(Knob::gradient_accumulation_steps);
  if (!train || view.is_on(Knob::elasticity_enabled)) return;
  // A member that is "auto" is the Trainer's to fill, not DeepSpeed's.
  for (const Knob knob : kBatchKeys) {
    if (view.config().is_auto(knob)) return;
  }
  const bool known = view.context().ranks_known;
  const std::int64_t ranks = known ? view.data_parallel() : 1;
  const std::int64_t factor =
      detail::checked_product(detail::checked_product(micro.value_or(1), ranks), steps.value_or(1));
  const bool all_given = micro && steps && known;
  const bool holds = all_given ? *train == factor : *train >= factor && *train % factor == 0;
  if (holds) return;
  const std::string wanted = std::to_string(all_given ? factor : round_up(*train, factor));
  report.at(Knob::train_batch_size,
            {std::to_string(*train),
             std::to_string(micro.value_or(1)),
             std::to_string(steps.value_or(1)),
             std::to_string(ranks),
             std::to_string(factor),
             wanted},
            !known      ? 2
            : all_given ? 0
                        : 1);
}

void batch_missing(const View& view, Report& report) {
  if (view.context().style == ConfigStyle::hf_trainer || view.is_on(Knob::elasticity_enabled)) {
    return;
  }
  if (view.config().is_set(Knob::train_batch_size) ||
      view.config().is_set(Knob::train_micro_batch_size_per_gpu)) {
    return;
  }
  report.at(Knob::train_micro_batch_size_per_gpu);
}

void elasticity_batch_keys(const View& view, Report& report) {
  if (!view.is_on(Knob::elasticity_enabled) ||
      view.is_on(Knob::elasticity_ignore_non_elastic_batch_info)) {
    return;
  }
  for (const Knob knob : kBatchKeys) {
    if (view.config().is_set(knob)) report.at(knob, {quoted(knob)});
  }
}

// What the Trainer compares with its own arguments, where the file says a value.
void trainer_values(const View& view, Report& report) {
  if (view.context().style != ConfigStyle::hf_trainer) return;
  std::string keys;
  std::string_view first;
  for (const auto& [knob, value] : view.config().values()) {
    const KnobRow& row = knob_row(knob);
    if (!row.trainer_owned || view.config().is_auto(knob)) continue;
    if (first.empty()) first = row.pointer;
    keys += (keys.empty() ? "" : ", ") + std::string(row.pointer.substr(1));
  }
  if (!keys.empty()) report.at(first, {keys});
}

constexpr std::array kBatchRules = {
    Rule{{.code = "batch-identity",
          .severity = Severity::error,
          .summary = "train_batch_size = micro-batch x accumulation x data-parallel ranks",
          .cost = "DeepSpeed stops with \"Check batch related parameters\"",
          .texts = {{"train_batch_size is {0} but micro-batch x accumulation x ranks is {1} x {2} "
                     "x {3} data-parallel ranks = {4}",
                     "leave train_batch_size out, or make it {5}"},
                    {"train_batch_size is {0} but micro-batch x accumulation x ranks is {1} x {2} "
                     "x {3} data-parallel ranks = {4}, which does not divide it",
                     "leave train_batch_size out, or make it {5}"},
                    {"train_batch_size is {0}, which micro-batch x accumulation = {1} x {2} does "
                     "not divide: no number of GPUs makes them agree",
                     "leave train_batch_size out"}},
          .source = "runtime/config.py:_batch_assertion"},
         batch_identity},
    Rule{{.code = "batch-missing",
          .severity = Severity::error,
          .summary = "without the Trainer train_batch_size or train_micro_batch_size_per_gpu is "
                     "given",
          .cost = "DeepSpeed stops: one of the two is needed",
          .texts = {{"neither train_batch_size nor train_micro_batch_size_per_gpu is given",
                     "give train_micro_batch_size_per_gpu"}},
          .source = "runtime/config.py:_set_batch_related_parameters"},
         batch_missing},
    Rule{{.code = "elasticity-batch-keys",
          .severity = Severity::error,
          .summary = "with elasticity no batch key is given",
          .cost = "DeepSpeed stops with an ElasticityConfigError",
          .texts = {{"{0} is given although elasticity chooses it",
                     "remove it or set elasticity.ignore_non_elastic_batch_info"}},
          .source = "runtime/config.py:DeepSpeedConfig.__init__"},
         elasticity_batch_keys},
    Rule{{.code = "trainer-values",
          .severity = Severity::info,
          .use = RuleUse::advice,
          .summary = "under the Trainer what it owns is \"auto\"",
          .cost = "the Trainer stops (\"Please correct the following DeepSpeed config values that "
                  "mismatch TrainingArguments\") when its arguments differ by anything",
          .texts = {{"these must equal the Trainer's arguments exactly: {0}",
                     "write \"auto\" for each"}},
          .source = "transformers/integrations/deepspeed.py:HfTrainerDeepSpeedConfig.fill_match"},
         trainer_values},
};

}  // namespace

std::span<const Rule> batch_rules() { return kBatchRules; }

}  // namespace zeroplan::rules
