// calibrate against peaks of memory that the model itself made: changed coefficients come back,
// through noise and outliers; what the peaks say nothing of stays.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "evidence/calibrate/calibrate.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/plan/software_sets.hpp"
#include "model/predict/memory.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

const std::vector<CoefficientValue> kTruth = {
    {Coefficient::cuda_context_bytes_per_sm, "h100", 7.5e6, 0.15},
    {Coefficient::nccl_ring_bytes, "", 1.0e9, 0.15},
    {Coefficient::nccl_light_bytes, "", 6.0e8, 0.8},
    {Coefficient::host_process_bytes, "", 6.0e9, 0.4},
    {Coefficient::allocator_fragmentation, "", 0.2, 0.6},
};

// By turns one GPU, a node, two nodes, states on the host, and states on drives that nobody
// described, whose reserved memory has an analytic estimate.
std::string scenario_text(int i) {
  const char* const clusters[] = {
      "1xH100-80G-SXM", "8xH100-80G-SXM", "2x8xH100-80G-SXM", "8xH100-80G-SXM", "8xV100-32G-SXM2"};
  const char* const zero[] = {
      R"("stage":0)",
      R"("stage":2)",
      R"("stage":2)",
      R"("stage":2,"offload_optimizer":{"device":"cpu"})",
      R"("stage":3,"offload_optimizer":{"device":"nvme","nvme_path":"/n"})"};
  return fmt::format(
      R"({{"model":"gpt2","cluster":"{}","workload":{{"sequence_length":{},"micro_batch_size":{},)"
      R"("attention":"sdpa","activation_checkpointing":"none"}},)"
      R"("software":{{"torch":"2.4","transformers":"4.50","deepspeed":"0.19"}},)"
      R"("ds_config":{{"bf16":{{"enabled":true}},"gradient_accumulation_steps":1,)"
      R"("zero_optimization":{{{}}}}}}})",
      clusters[i % 5],
      256 + 32 * (i / 5),
      1 + i % 2 + i % 5 / 4 * 6,
      zero[i % 5]);
}

const char* metric_of(int i) {
  const char* const metrics[] = {"peak_total_bytes",
                                 "peak_total_bytes",
                                 "peak_total_bytes",
                                 "host_peak_bytes",
                                 "peak_reserved_bytes"};
  return metrics[i % 5];
}

double bytes_of(int i, const std::vector<CoefficientValue>& changed) {
  const std::string text = scenario_text(i);
  Plan plan =
      resolve(with_reported_software(parse_scenario(parse_json(text, "s.json").root, "s.json")));
  plan.coefficients = Coefficients(plan.cluster.gpu.key, changed);
  const StepResult result = simulator::simulate(plan);
  const std::string metric = metric_of(i);
  if (metric == "host_peak_bytes") return static_cast<double>(result.host.peak.count());
  const Bytes peak =
      metric == "peak_total_bytes" ? result.gpu.peak_total : result.gpu.peak_reserved;
  return static_cast<double>(peak.count());
}

constexpr int kRows = 40;

// Lines of as many sources, of a machine with kTruth. `step`: with a time beside the memory.
evidence::MeasurementFile synthetic(double noise, int outliers, bool step = false) {
  std::mt19937 random(7);
  std::normal_distribution<double> error(0.0, noise);
  std::string lines;
  for (int i = 0; i < kRows; ++i) {
    double bytes = bytes_of(i, kTruth);
    if (noise > 0.0) bytes *= std::exp(error(random));
    if (outliers > 0 && i % outliers == 2) bytes *= 2.0;
    lines += fmt::format(
        R"({{"id":"r{}","source":"owner/repository-{} table","tier":"A","uncertainty":{},)"
        R"("scenario":{},)"
        R"("measured":{{"{}":{:.0f}{}}}}})"
        "\n",
        i,
        i,
        std::max(noise, 0.005),
        scenario_text(i),
        metric_of(i),
        bytes,
        step ? R"(,"step_seconds":0.25)" : "");
  }
  return evidence::parse_measurements(lines, "synthetic.jsonl");
}

const evidence::FittedValue* found(const evidence::CoefficientFit& fit, Coefficient id) {
  for (const evidence::FittedValue& value : fit.fitted) {
    if (value.id == id) return &value;
  }
  return nullptr;
}

const evidence::Calibration& exact() {
  static const evidence::Calibration kCalibration = evidence::calibrate({synthetic(0.0, 0)}, {});
  return kCalibration;
}

}  // namespace

TEST_CASE("calibrate finds the coefficients of memory that made the peaks") {
  const evidence::CoefficientFit& fit = exact().memory;
  CHECK(fit.converged);
  for (const CoefficientValue& truth : kTruth) {
    INFO(info(truth.id).name);
    const evidence::FittedValue* const value = found(fit, truth.id);
    REQUIRE(value != nullptr);
    CHECK(value->gpu == truth.gpu_key_prefix);
    CHECK(value->value == Approx(truth.value).epsilon(0.05));
    CHECK(value->determined > 0.5);
  }
  REQUIRE(fit.errors.size() == kRows + 1);  // all, and each repository
  CHECK(fit.errors.front().rows == kRows);
  CHECK(fit.errors.front().before.median > 0.05);
  CHECK(fit.errors.front().after.median < 0.01);
  CHECK(fit.errors.front().has_left_out);
  CHECK(fit.errors.front().left_out.median < 0.02);
  // Lines without a time: nothing of times.
  CHECK(exact().times.rows.empty());
  CHECK(exact().times.fitted.empty());
  CHECK(exact().gpus == std::vector<std::string>{"h100_sxm", "v100_sxm2_32gb"});
}

TEST_CASE("noise and outliers leave the coefficients of memory within their standard errors") {
  const evidence::CoefficientFit fit = evidence::calibrate({synthetic(0.03, 8)}, {}).memory;
  for (const CoefficientValue& truth : kTruth) {
    INFO(info(truth.id).name);
    const evidence::FittedValue* const value = found(fit, truth.id);
    REQUIRE(value != nullptr);
    CHECK(std::abs(std::log(value->value / truth.value)) <
          std::max(0.05, 2.5 * value->relative_sd));
  }
  for (const evidence::FittedRow& row : fit.rows) {
    if (row.what == "host_peak_bytes") continue;  // wide: releases load in different ways
    INFO(row.id);
    CHECK((row.weight < 0.5) == (row.measured / row.after > 1.6));
  }
}

TEST_CASE("coefficients of memory that the peaks say nothing of stay and are listed") {
  const evidence::CoefficientFit& fit = exact().memory;
  // Every group has eight ranks and one communicator, torch is new.
  for (const Coefficient id : {Coefficient::nccl_pair_bytes,
                               Coefficient::nccl_further_bytes,
                               Coefficient::nccl_pcie_ring_bytes,
                               Coefficient::nccl_peer_bytes,
                               Coefficient::cuda_context_eager_ratio}) {
    INFO(info(id).name);
    CHECK(found(fit, id) == nullptr);
  }
  // One line: of context and ring the table knows more than it.
  const evidence::MeasurementFile file = evidence::parse_measurements(
      fmt::format(R"({{"id":"r","source":"s","tier":"C","scenario":{},)"
                  R"("measured":{{"peak_total_bytes":{:.0f}}}}})"
                  "\n",
                  scenario_text(1),
                  bytes_of(1, kTruth)),
      "one.jsonl");
  const evidence::CoefficientFit one = evidence::calibrate({file}, {}).memory;
  CHECK(one.fitted.empty());
  REQUIRE(one.undetermined.size() == 2);
  for (const evidence::UndeterminedValue& value : one.undetermined) {
    INFO(info(value.id).name);
    CHECK((value.id == Coefficient::cuda_context_bytes_per_sm ||
           value.id == Coefficient::nccl_ring_bytes));
    CHECK(value.rows == 1);
    CHECK(value.determined < 0.1);
  }
  CHECK_FALSE(one.errors.front().has_left_out);
}

TEST_CASE("times and memory of the same lines are fitted apart") {
  const evidence::MeasurementFile both = synthetic(0.0, 0, true);
  const evidence::Calibration calibration = evidence::calibrate({both}, {});
  CHECK(calibration.times.rows.size() == kRows * 4 / 5);  // drives nobody described have no time
  CHECK(calibration.memory.rows.size() == kRows);
  CHECK(calibration.sources == kRows);
  const std::span<const Coefficient> of_memory = memory_coefficients();
  const auto is_memory = [&](Coefficient id) {
    return std::find(of_memory.begin(), of_memory.end(), id) != of_memory.end();
  };
  for (const evidence::FittedValue& value : calibration.times.fitted)
    CHECK_FALSE(is_memory(value.id));
  for (const evidence::FittedValue& value : calibration.memory.fitted) CHECK(is_memory(value.id));
  // Times change nothing of memory's fit.
  REQUIRE(calibration.memory.fitted.size() == exact().memory.fitted.size());
  for (std::size_t i = 0; i < calibration.memory.fitted.size(); ++i) {
    CHECK(calibration.memory.fitted[i].value == exact().memory.fitted[i].value);
  }
}

TEST_CASE("a profile of memory reaches predictions, and its deviations their intervals") {
  const evidence::Calibration calibration = evidence::calibrate({synthetic(0.03, 0)}, {});
  Json document = evidence::profile_document(calibration, {});
  const auto with_profile = [&](int i) {
    Json scenario = parse_json(scenario_text(i), "s.json").root;
    scenario["profile"] = document;
    return resolve(with_reported_software(parse_scenario(scenario, "s.json")));
  };
  for (const int i : {0, 1, 2}) {
    const StepResult result = simulator::simulate(with_profile(i));
    CHECK(static_cast<double>(result.gpu.peak_total.count()) ==
          Approx(bytes_of(i, kTruth)).epsilon(0.03));
  }
  // Rows with a deviation of the model as their largest: it follows what was left out.
  REQUIRE_FALSE(calibration.memory.deviations.empty());
  for (const evidence::FittedDeviation& deviation : calibration.memory.deviations) {
    INFO(info(deviation.id).name);
    CHECK(deviation.rows >= 10);
    CHECK(deviation.value > 0.0);
    CHECK(with_profile(0).coefficients[deviation.id] ==
          Approx(std::clamp(deviation.value, info(deviation.id).low, info(deviation.id).high)));
  }
}
