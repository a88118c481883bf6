#include "evidence/importers/run_findings.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "model/plan/scenario_reader.hpp"

namespace zeroplan::evidence {
namespace {

constexpr double kMostValue = 1e18;

std::string line_pointer(const LogPlace& place) {
  return place.line > 0 ? "line " + std::to_string(place.line) : "";
}

}  // namespace

void RunFindings::sample(const SeriesInfo& info, double value, const LogPlace& place) {
  if (!(value > 0.0) || value > kMostValue) return;
  const auto found = std::find_if(series_.begin(), series_.end(), [&](const Series& series) {
    return series.info.metric == info.metric && series.info.from == info.from;
  });
  Series& series = found == series_.end() ? series_.emplace_back(Series{info, {}}) : *found;
  series.samples.push_back({value, place.rank, place.line});
}

void RunFindings::keep(ScenarioKey key, Json value, const LogPlace& place) {
  const ExplicitValue* said = scenario_.find(key);
  if (said == nullptr) {
    scenario_.set(key, std::move(value), {file_, line_pointer(place)});
  } else if (!(said->value == value)) {
    note(fmt::format("{} is also given as {} in line {}",
                     info(key).flag.substr(2),
                     value.is_object() ? "another document" : value.dump(),
                     place.line));
  }
}

void RunFindings::state(ScenarioKey key, std::string_view text, const LogPlace& place) {
  try {
    keep(key, parse_flag(info(key), text), place);
  } catch (const InputError& error) {
    const Diagnostic& wrong = error.diagnostics().front();
    bad_.push_back({file_,
                    line_pointer(place),
                    std::string(info(key).flag.substr(2)) + " as " + wrong.expected,
                    wrong.got,
                    ""});
  }
}

void RunFindings::state_value(ScenarioKey key, Json value, const LogPlace& place) {
  keep(key, std::move(value), place);
}

void RunFindings::bad(const LogPlace& place, Phrase expected, std::string_view got, Phrase hint) {
  bad_.push_back(
      {file_, line_pointer(place), std::move(expected), in_quotes(got), std::move(hint)});
}

void RunFindings::note(std::string text) {
  if (std::find(notes_.begin(), notes_.end(), text) == notes_.end()) {
    notes_.push_back(std::move(text));
  }
}

void RunFindings::advance(RunProgress to) {
  const auto rank = [](const RunProgress& one) {
    return std::pair(one.total.has_value(), one.done);
  };
  if (!progress || rank(to) > rank(*progress)) progress = to;
}

// " to out/checkpoint-500" of the Trainer's line, ": out/global_step500/..." of DeepSpeed's.
void RunFindings::saved(std::string_view checkpoint) {
  for (const std::string_view word : {" ", ":", "to ", " "}) {
    if (checkpoint.starts_with(word)) checkpoint.remove_prefix(word.size());
  }
  std::string name = printable(checkpoint.substr(0, checkpoint.find_first_of(" \t,")));
  if (name == last_checkpoint) return;
  ++checkpoints;
  last_checkpoint = std::move(name);
}

void RunFindings::merge(const RunFindings& other) {
  for (const Series& series : other.series_) {
    for (const Sample& sample_of : series.samples) {
      sample(series.info, sample_of.value, {sample_of.rank, sample_of.line});
    }
  }
  for (const ScenarioKeyInfo& key : kScenarioKeys) {
    if (const ExplicitValue* said = other.scenario_.find(key.key)) keep(key.key, said->value, {});
  }
  for (const std::string& text : other.notes_) note(text);
  bad_.insert(bad_.end(), other.bad_.begin(), other.bad_.end());
  if (!gpus) gpus = other.gpus;
  if (!gpus_per_node) gpus_per_node = other.gpus_per_node;
  if (!gpu_name) gpu_name = other.gpu_name;
  if (!global_batch) global_batch = other.global_batch;
  if (other.progress) advance(*other.progress);
  checkpoints += other.checkpoints;
  if (!other.last_checkpoint.empty()) last_checkpoint = other.last_checkpoint;
  if (other.fits) fits = fits.value_or(true) && *other.fits;
  parts.collectives.insert(
      parts.collectives.end(), other.parts.collectives.begin(), other.parts.collectives.end());
  parts.kernels.insert(parts.kernels.end(), other.parts.kernels.begin(), other.parts.kernels.end());
}

}  // namespace zeroplan::evidence
