// One scenario's lines as observations: observed_time.cpp and observed_memory.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "evidence/calibrate/observation.hpp"
#include "evidence/measurement.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan::evidence {

// A scenario with the lines that measured one metric of it.
struct ObservedScenario {
  const MeasurementFile* file = nullptr;
  std::vector<const Measurement*> lines;
  Metric metric = Metric::step_seconds;
};

// Everything but the value and what predicts it. `spread_of`: tier and stated uncertainty.
Observation header(const MeasurementFile& file, const Measurement& line, const std::string& gpu);
double spread_of(const Measurement& measurement, Metric metric);
double median_of(const std::vector<const Measurement*>& lines, Metric metric);
// Whether a fit can work with predicted / measured: not where it overflows.
bool is_number_to_fit(double measured, double predicted);
// Size of model and batch, and GPUs, for the range of the data.
void describe(const Plan& plan, Observation& row);
// What the line says, without its profile: the prior is the table's.
Scenario without_profile(const Scenario& scenario);

// The metric a scenario's time is taken from, if it has any.
std::optional<Metric> time_metric(const Measured& measured);
// Metrics of memory that are observed, and those of them that were measured.
bool is_observed_memory(Metric metric);
std::vector<Metric> memory_metrics(const Measured& measured);

// Throws InputError for what resolve() refuses, SizeOverflow for sizes too large to count.
Observation observed_step(const ObservedScenario& observed);
Observation observed_memory(const ObservedScenario& observed);

// Collectives beside a step, or alone as nccl-tests prints them.
void observe_collectives(const MeasurementFile& file,
                         const Measurement& line,
                         Observations& observations);

}  // namespace zeroplan::evidence
