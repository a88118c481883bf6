#include "evidence/calibrate/observe.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/check.hpp"
#include "base/parallel_for.hpp"
#include "evidence/calibrate/observed_rows.hpp"
#include "evidence/scenario_prediction.hpp"

namespace zeroplan::evidence {
namespace {

// One metric of one scenario.
struct Candidate {
  ObservedScenario observed;
  std::optional<Observation> row;
  Phrase reason;
};

void observe(Candidate& candidate) {
  const Scenario& scenario = candidate.observed.lines.front()->scenario;
  if (const auto missing = missing_key(scenario)) {
    candidate.reason = *missing;
    return;
  }
  const bool memory = is_observed_memory(candidate.observed.metric);
  try {
    Observation row =
        memory ? observed_memory(candidate.observed) : observed_step(candidate.observed);
    const double predicted = row.exact(row.table);
    if (std::isfinite(predicted) && !is_number_to_fit(row.measured, predicted)) {
      candidate.reason = "it is no number of seconds or bytes";
    } else if (std::isfinite(predicted) && predicted > 0.0) {
      candidate.row = std::move(row);
    } else {
      candidate.reason = memory ? "its memory is not predicted" : "its time is not predicted";
    }
  } catch (const InputError& error) {
    const Diagnostic& first = error.diagnostics().front();
    candidate.reason = first.got.english().ends_with("not modelled yet")
                           ? first.got
                           : phrase("expected {}, got {}", first.expected, first.got);
  } catch (const SizeOverflow&) {
    candidate.reason = "sizes too large to count";
  }
}

// The metrics that candidates are made of.
std::vector<Metric> observed_metrics(const Measured& measured) {
  std::vector<Metric> metrics = memory_metrics(measured);
  if (const std::optional<Metric> metric = time_metric(measured)) metrics.push_back(*metric);
  return metrics;
}

// One candidate for each scenario and metric, repeats together.
std::vector<Candidate> candidates_of(const std::vector<MeasurementFile>& files,
                                     const std::string& tiers,
                                     Observations& observations) {
  std::vector<Candidate> candidates;
  std::map<std::string, std::size_t> known;
  for (const MeasurementFile& file : files) {
    for (const Measurement& line : file.measurements) {
      if (!tiers.empty() && (line.tier.empty() || tiers.find(line.tier) == std::string::npos)) {
        continue;
      }
      if (!line.parts.collectives.empty()) observe_collectives(file, line, observations);
      const std::vector<Metric> metrics = observed_metrics(line.measured);
      if (metrics.empty() && line.parts.collectives.empty()) {
        observations.unused.push_back({file.file, line.id, "measures neither time nor memory"});
      }
      for (const Metric metric : metrics) {
        // Repeats that measured another metric are scenarios of their own kind.
        const std::string key = identity_of(line) + " " + std::string(name(metric));
        const auto [at, is_new] = known.emplace(key, candidates.size());
        if (is_new) candidates.push_back({{&file, {}, metric}, std::nullopt, ""});
        candidates[at->second].observed.lines.push_back(&line);
      }
    }
  }
  return candidates;
}

}  // namespace

Observations observe(const std::vector<MeasurementFile>& files,
                     const std::string& tiers,
                     std::int64_t jobs) {
  Observations observations;
  std::vector<Candidate> candidates = candidates_of(files, tiers, observations);
  parallel_for(candidates.size(), jobs, [&](std::size_t i) { observe(candidates[i]); });
  std::set<std::pair<std::string, const Measurement*>> told;  // a reason once a line
  for (Candidate& candidate : candidates) {
    const Measurement* const line = candidate.observed.lines.front();
    if (candidate.row) {
      observations.rows.push_back(std::move(*candidate.row));
    } else if (told.emplace(candidate.reason, line).second) {
      observations.unused.push_back({candidate.observed.file->file, line->id, candidate.reason});
    }
  }
  return observations;
}

}  // namespace zeroplan::evidence
