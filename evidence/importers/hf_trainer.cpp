#include <array>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "evidence/importers/hf_lines.hpp"

namespace zeroplan::evidence {
namespace {

constexpr std::string_view kTrainer = "the Trainer's summary";
constexpr SeriesInfo kTrainerStep{Metric::step_seconds, kTrainer, 5, 0.0, true};
constexpr SeriesInfo kTrainerSamples{Metric::samples_per_second, kTrainer, 5, 5e-4, true};
constexpr SeriesInfo kTrainerTokens{Metric::tokens_per_second_per_gpu, kTrainer, 5, 5e-4, true};
constexpr SeriesInfo kPeak{
    Metric::peak_allocated_bytes, "the Trainer's memory metrics", 3, 0.0, true};

// What the Trainer says at its end, from wherever it was read.
struct TrainerSummary {
  std::optional<double> runtime, samples_rate, steps_rate, tokens_rate;
  std::optional<double> before_init, init_delta, train_delta, train_peaked;  // bytes
};

// Peak = what was there before, what loading and training left, and what training had above that.
std::optional<double> peak_of(const TrainerSummary& summary) {
  if (!summary.train_peaked || !summary.train_delta) return std::nullopt;
  return summary.before_init.value_or(0.0) + summary.init_delta.value_or(0.0) +
         *summary.train_delta + *summary.train_peaked;
}

void add_rates(const TrainerSummary& summary, const LogPlace& place, RunFindings& findings) {
  if (summary.samples_rate) findings.sample(kTrainerSamples, *summary.samples_rate, place);
  if (summary.tokens_rate) findings.sample(kTrainerTokens, *summary.tokens_rate, place);
  if (const auto peak = peak_of(summary)) findings.sample(kPeak, *peak, place);
  if (summary.samples_rate || summary.tokens_rate) {
    findings.note(
        "the Trainer's summary counts the whole run: warm-up, logging and saving included");
  }
}

// --- lines

class TrainerLines : public LogLineReader {
 public:
  LineOutcome read(std::string_view line, const LogPlace& place, RunFindings& findings) override;
  void finish(RunFindings& findings) override;

 private:
  bool read_header(std::string_view line, const LogPlace& place, RunFindings& findings);
  bool read_table(std::string_view line, const LogPlace& place);

  TrainerSummary table_;  // of the lines "train_runtime = 0:16:16.51"
  LogPlace table_place_;
  std::optional<std::int64_t> micro_batch_, accumulation_;
};

bool TrainerLines::read_header(std::string_view line,
                               const LogPlace& place,
                               RunFindings& findings) {
  constexpr std::string_view kMicroBatch = "Instantaneous batch size per device =";
  constexpr std::string_view kTotal =
      "Total train batch size (w. parallel, distributed & accumulation) =";
  constexpr std::string_view kAccumulation = "Gradient Accumulation steps =";
  constexpr std::string_view kTrainable = "Number of trainable parameters =";
  if (line.find("Running training *****") != std::string_view::npos) {
    findings.state(ScenarioKey::frontend, "hf-trainer", place);
    return true;
  }
  if (const auto size = count_after(line, kMicroBatch)) {
    micro_batch_ = size;
    findings.state(ScenarioKey::micro_batch_size, std::to_string(*size), place);
    return true;
  }
  if (const auto total = count_after(line, kTotal)) {
    if (!findings.global_batch) findings.global_batch = total;
    return true;
  }
  if (const auto steps = count_after(line, kAccumulation)) {
    accumulation_ = steps;
    findings.state(ScenarioKey::gradient_accumulation_steps, std::to_string(*steps), place);
    return true;
  }
  constexpr std::string_view kSaving = "Saving model checkpoint";  // DeepSpeed's line, too
  if (const std::size_t at = line.find(kSaving); at != std::string_view::npos) {
    findings.saved(line.substr(std::min(line.size(), at + kSaving.size())));
    return true;
  }
  if (const auto total = count_after(line, "Total optimization steps =")) {
    findings.advance({0, total});
    return true;
  }
  if (const auto count = count_after(line, kTrainable)) {
    findings.note(fmt::format("{} trainable parameters, says the Trainer", *count));
    return true;
  }
  return false;
}

// "13036MB", where a megabyte is 2^20.
std::optional<double> megabytes_after(std::string_view line, std::string_view key) {
  const std::optional<double> number = number_after(line, key);
  constexpr double kMib = 1024.0 * 1024.0;
  return number ? std::optional(*number * kMib) : std::nullopt;
}

// A line of log_metrics' table: the name opens the line and " = " follows.
bool TrainerLines::read_table(std::string_view line, const LogPlace& place) {
  if (line.find(" = ") == std::string_view::npos) return false;
  struct Row {
    std::string_view name;
    std::optional<double> TrainerSummary::*value;
    bool is_memory;
  };
  constexpr std::array<Row, 7> kRows = {{
      {"train_samples_per_second", &TrainerSummary::samples_rate, false},
      {"train_steps_per_second", &TrainerSummary::steps_rate, false},
      {"train_tokens_per_second", &TrainerSummary::tokens_rate, false},
      {"before_init_mem_gpu", &TrainerSummary::before_init, true},
      {"init_mem_gpu_alloc_delta", &TrainerSummary::init_delta, true},
      {"train_mem_gpu_alloc_delta", &TrainerSummary::train_delta, true},
      {"train_mem_gpu_peaked_delta", &TrainerSummary::train_peaked, true},
  }};
  for (const Row& row : kRows) {
    if (!line.starts_with(row.name)) continue;
    table_.*row.value =
        row.is_memory ? megabytes_after(line, row.name) : number_after(line, row.name);
    table_place_ = place;
    return true;
  }
  return line.starts_with("train_runtime ") || line.starts_with("train_loss ");
}

LineOutcome TrainerLines::read(std::string_view line,
                               const LogPlace& place,
                               RunFindings& findings) {
  if (read_header(line, place, findings) || read_table(line, place)) return LineOutcome::understood;
  if (line.find("train_runtime'") == std::string_view::npos) {
    return line.starts_with("{'loss'") || line.starts_with("{'eval_") ? LineOutcome::understood
                                                                      : LineOutcome::not_mine;
  }
  TrainerSummary summary;
  summary.runtime = number_after(line, "'train_runtime'");
  summary.samples_rate = number_after(line, "'train_samples_per_second'");
  summary.steps_rate = number_after(line, "'train_steps_per_second'");
  summary.tokens_rate = number_after(line, "'train_tokens_per_second'");
  if (!summary.runtime) {
    findings.bad(place, "{'train_runtime': N, ...}", line);
    return LineOutcome::bad;
  }
  add_rates(summary, place, findings);
  if (summary.steps_rate && *summary.steps_rate > 0.0) {
    findings.sample(kTrainerStep, 1.0 / *summary.steps_rate, place);
  }
  return LineOutcome::understood;
}

void TrainerLines::finish(RunFindings& findings) {
  if (const auto peak = peak_of(table_)) findings.sample(kPeak, *peak, table_place_);
  const bool has_dictionary = [&] {
    for (const Series& series : findings.series()) {
      if (series.info.metric == kTrainerSamples.metric && series.info.from == kTrainer) return true;
    }
    return false;
  }();
  if (!has_dictionary) {
    table_.before_init = table_.init_delta = table_.train_delta = table_.train_peaked =
        std::nullopt;
    add_rates(table_, table_place_, findings);
    if (table_.steps_rate && *table_.steps_rate > 0.0) {
      findings.sample(kTrainerStep, 1.0 / *table_.steps_rate, table_place_);
    }
  }
  if (micro_batch_ && findings.global_batch && *micro_batch_ > 0 && !findings.gpus) {
    const std::int64_t per_gpu = *micro_batch_ * accumulation_.value_or(1);
    if (per_gpu > 0 && *findings.global_batch % per_gpu == 0) {
      findings.gpus = *findings.global_batch / per_gpu;
    }
  }
}

// --- documents

std::optional<double> summary_number(const Json& row, std::string_view key) {
  const Json* value = row.find(key);
  return value != nullptr && value->is_number() ? std::optional(value->as_number()) : std::nullopt;
}

TrainerSummary summary_of(const Json& row) {
  TrainerSummary summary;
  summary.runtime = summary_number(row, "train_runtime");
  summary.samples_rate = summary_number(row, "train_samples_per_second");
  summary.steps_rate = summary_number(row, "train_steps_per_second");
  summary.tokens_rate = summary_number(row, "train_tokens_per_second");
  summary.before_init = summary_number(row, "before_init_mem_gpu");
  summary.init_delta = summary_number(row, "init_mem_gpu_alloc_delta");
  summary.train_delta = summary_number(row, "train_mem_gpu_alloc_delta");
  summary.train_peaked = summary_number(row, "train_mem_gpu_peaked_delta");
  return summary;
}

}  // namespace

std::unique_ptr<LogLineReader> hf_trainer_lines() { return std::make_unique<TrainerLines>(); }

bool is_trainer_state(const Json& document) {
  return document.is_object() &&
         (document.find("log_history") != nullptr || document.find("train_runtime") != nullptr);
}

void read_trainer_state(const Json& document, RunFindings& findings) {
  findings.state(ScenarioKey::frontend, "hf-trainer", {});
  const auto done = summary_number(document, "global_step");
  const auto total = summary_number(document, "max_steps");
  if (done && total && *done >= 0.0 && *total < 1e15) {
    findings.advance({static_cast<std::int64_t>(*done), static_cast<std::int64_t>(*total)});
  }
  Json row = document;
  double evaluations = 0.0;
  if (const Json* history = document.find("log_history")) {
    row = Json::object();
    double so_far = 0.0;
    for (const Json& entry : history->items()) {
      so_far += summary_number(entry, "eval_runtime").value_or(0.0);
      if (entry.find("train_runtime") == nullptr) continue;
      row = entry;
      evaluations = so_far;
    }
  }
  const LogPlace place{std::nullopt, row.line()};
  const TrainerSummary summary = summary_of(row);
  // Below 4.37 the state holds no batch size; n_gpu devices of one process share it under
  // DataParallel, one each otherwise.
  if (const auto batch = summary_number(document, "train_batch_size"); batch && *batch >= 1.0) {
    findings.state(ScenarioKey::micro_batch_size, fmt::format("{:.0f}", *batch), place);
  }
  if (!summary.runtime) {
    findings.note("the run had not ended: no train_runtime among the rows of log_history");
    return;
  }
  TrainerSummary net = summary;
  const double share = *summary.runtime > evaluations ? *summary.runtime - evaluations : 0.0;
  if (evaluations > 0.0 && share > 0.0) {
    const double faster = *summary.runtime / share;
    for (auto* rate : {&net.samples_rate, &net.steps_rate, &net.tokens_rate}) {
      if (*rate) **rate *= faster;
    }
    findings.note(fmt::format("evaluations' {:.1f} s are taken off the run's time", evaluations));
  }
  add_rates(net, place, findings);
  // The rate has three digits behind the point; the steps themselves are counted where the run was
  // not resumed.
  if (net.steps_rate && done && *done > 0.0 &&
      std::abs(*done / *summary.runtime - *summary.steps_rate) <= 1e-3) {
    findings.sample(kTrainerStep, (share > 0.0 ? share : *summary.runtime) / *done, place);
  } else if (net.steps_rate && *net.steps_rate > 0.0) {
    findings.sample(kTrainerStep, 1.0 / *net.steps_rate, place);
  }
}

}  // namespace zeroplan::evidence
