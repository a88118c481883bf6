// calibrate against measurements that the model itself made: changed coefficients come back,
// through noise and outliers, and a profile carries them into a prediction.
#include "evidence/calibrate/calibrate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <fmt/format.h>

#include "evidence/calibrate/observe.hpp"
#include "model/cost/collective.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/plan/software_sets.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

// Each shows in a third of the rows: CPU Adam, short steps, products.
const std::vector<CoefficientValue> kTruth = {
    {Coefficient::cpu_adam_dram_efficiency, "", 0.42, 0.4},
    {Coefficient::step_fixed_seconds, "", 0.06, 0.6},
    {Coefficient::matmul_sustained_derate, "a100", 1.25, 0.04},
};

std::string scenario_text(int i) {
  const char* const models[] = {"7B", "350M", "1.5B"};
  return fmt::format(
      R"({{"model":"{}","cluster":"8xA100-80G-SXM","workload":{{"sequence_length":{},)"
      R"("micro_batch_size":{}}},"ds_config":{{"bf16":{{"enabled":true}},)"
      R"("zero_optimization":{{"stage":{}{}}}}}}})",
      models[i % 3],
      i % 3 == 1 ? 256 + 8 * i : 512 + 64 * i,
      i % 3 == 1 ? 1 : 1 << (i % 5 / 2),
      i % 3 == 1 ? 1 : 2,
      i % 3 == 0 ? R"(,"offload_optimizer":{"device":"cpu"})" : "");
}

double seconds_of(const std::string& text, const std::vector<CoefficientValue>& changed) {
  Plan plan =
      resolve(with_reported_software(parse_scenario(parse_json(text, "s.json").root, "s.json")));
  plan.coefficients = Coefficients(plan.cluster.gpu.key, changed);
  return simulator::simulate(plan).step.total.seconds();
}

// Lines of two sources, of a machine with kTruth.
evidence::MeasurementFile synthetic(double noise, int outliers) {
  std::mt19937 random(11);
  std::normal_distribution<double> error(0.0, noise);
  std::string lines;
  for (int i = 0; i < 24; ++i) {
    double seconds = seconds_of(scenario_text(i), kTruth);
    if (noise > 0.0) seconds *= std::exp(error(random));
    if (outliers > 0 && i % outliers == 1) seconds *= 2.0;
    lines +=
        fmt::format(R"({{"id":"r{}","source":"owner/repository-{} table","tier":"A","scenario":{},)"
                    R"("measured":{{"step_seconds":{}}}}})"
                    "\n",
                    i,
                    i % 2,
                    scenario_text(i),
                    seconds);
  }
  return evidence::parse_measurements(lines, "synthetic.jsonl");
}

const evidence::FittedValue* found(const evidence::Calibration& calibration, Coefficient id) {
  for (const evidence::FittedValue& value : calibration.times.fitted) {
    if (value.id == id) return &value;
  }
  return nullptr;
}

// log of what was found over the truth; of the sustained derate and the isolated efficiency the
// data know the quotient alone.
double miss(const evidence::Calibration& calibration, const CoefficientValue& truth) {
  const evidence::FittedValue* const value = found(calibration, truth.id);
  if (value == nullptr) return std::numeric_limits<double>::infinity();
  if (truth.id != Coefficient::matmul_sustained_derate) {
    return std::log(value->value / truth.value);
  }
  const evidence::FittedValue* const level =
      found(calibration, Coefficient::matmul_isolated_efficiency);
  const double moved = level != nullptr ? level->value / level->prior : 1.0;
  return std::log(value->value / moved / truth.value);
}

// Fitted to lines without noise.
const evidence::Calibration& exact() {
  static const evidence::Calibration kCalibration = evidence::calibrate({synthetic(0.0, 0)}, {});
  return kCalibration;
}

}  // namespace

TEST_CASE("calibrate finds the coefficients that made the measurements") {
  const evidence::Calibration& calibration = exact();
  CHECK(calibration.times.converged);
  for (const CoefficientValue& truth : kTruth) {
    INFO(info(truth.id).name);
    // The priors of other kernels pull a little.
    CHECK(std::abs(miss(calibration, truth)) < 0.06);
  }
  CHECK(calibration.times.errors.front().rows == 24);
  CHECK(calibration.times.errors.front().before.median > 0.03);
  CHECK(calibration.times.errors.front().after.median < 0.012);
  CHECK(calibration.times.errors.front().has_left_out);
  CHECK(calibration.times.errors.front().left_out.median < 0.02);
  CHECK(calibration.times.errors.size() == 3);  // all, and two repositories
}

TEST_CASE("noise and outliers leave the coefficients within their standard errors") {
  const evidence::Calibration calibration = evidence::calibrate({synthetic(0.03, 8)}, {});
  for (const CoefficientValue& truth : kTruth) {
    INFO(info(truth.id).name);
    // Of products the table knows more than these rows.
    if (truth.id == Coefficient::matmul_sustained_derate) continue;
    const evidence::FittedValue* const value = found(calibration, truth.id);
    REQUIRE(value != nullptr);
    CHECK(std::abs(miss(calibration, truth)) < std::max(0.05, 2.5 * value->relative_sd));
  }
  for (const evidence::FittedRow& row : calibration.times.rows) {
    const bool outlier = row.measured / row.after > 1.6;
    INFO(row.id);
    CHECK((row.weight < 0.5) == outlier);
  }
}

TEST_CASE("what the data say nothing of stays at its prior and is reported") {
  const evidence::Calibration& calibration = exact();
  // One node, nothing on NVMe, no FlashAttention-3.
  for (const Coefficient id : {Coefficient::network_collective_efficiency,
                               Coefficient::nvme_efficiency,
                               Coefficient::flash3_efficiency_128}) {
    CHECK(found(calibration, id) == nullptr);
  }
  CHECK_FALSE(calibration.times.undetermined.empty());
  for (const evidence::UndeterminedValue& value : calibration.times.undetermined) {
    CHECK(found(calibration, value.id) == nullptr);
    CHECK(value.determined < 0.1);
    CHECK(value.rows > 0);
  }
}

TEST_CASE("a calibrated profile reaches a prediction, and its range is compared with the plan") {
  const evidence::Calibration& calibration = exact();
  evidence::CalibrateOptions options;
  options.name = "here";
  const Json document = evidence::profile_document(calibration, options);
  const auto with_profile = [&](const std::string& text) {
    Json scenario = parse_json(text, "s.json").root;
    scenario["profile"] = document;
    return resolve(with_reported_software(parse_scenario(scenario, "s.json")));
  };
  for (const int i : {0, 1, 5, 9}) {
    const double truth = seconds_of(scenario_text(i), kTruth);
    const Plan plan = with_profile(scenario_text(i));
    CHECK(simulator::simulate(plan).step.total.seconds() == Approx(truth).epsilon(0.03));
    CHECK(std::none_of(plan.warnings.begin(), plan.warnings.end(), [](const std::string& text) {
      return text.find("outside the range") != std::string::npos;
    }));
  }
  const Plan outside =
      with_profile(R"({"model":"13B","cluster":"8xH100","workload":{"sequence_length":1024}})");
  const auto warned = [&](const std::string& words) {
    return std::any_of(
        outside.warnings.begin(), outside.warnings.end(), [&](const std::string& text) {
          return text.find("outside the range of profile here: " + words) == 0;
        });
  };
  CHECK(warned("parameters"));
  CHECK(warned("GPU h100"));
  CHECK_FALSE(warned("sequence_length"));
}

TEST_CASE("a stated uncertainty of nothing, and a rate of nearly nothing, leave a fit possible") {
  const auto line = [](const std::string& measured, const std::string& uncertainty) {
    return R"({"id":"a","source":"log","scenario":)" + scenario_text(1) + R"(,"measured":)" +
           measured + R"(,"uncertainty":)" + uncertainty + "}\n";
  };
  for (const std::string stated : {"0", "1e-320", R"({"step_seconds":0.0})"}) {
    const evidence::MeasurementFile file =
        evidence::parse_measurements(line(R"({"step_seconds":0.25})", stated), "zero.jsonl");
    const evidence::Observations rows = evidence::observe({file}, "", 1);
    REQUIRE(rows.rows.size() == 1);
    CHECK(rows.rows.front().sd > 0.0);
    CHECK_NOTHROW(evidence::calibrate({file}, evidence::CalibrateOptions{}));
  }
  CHECK(evidence::observe(
            {evidence::parse_measurements(line(R"({"step_seconds":1e-320})", "0.02"), "s.jsonl")},
            "",
            1)
            .rows.empty());
  const evidence::Observations none =
      evidence::observe({evidence::parse_measurements(
                            line(R"({"samples_per_second":1e-320})", "0.02"), "slow.jsonl")},
                        "",
                        1);
  CHECK(none.rows.empty());
  REQUIRE(none.unused.size() == 1);
}

TEST_CASE("timings of collectives are fitted too") {
  const Coefficients table("a100_sxm_80gb");
  std::string rows;
  const double faster = 1.08;
  const Json cluster = Json("8xA100-80G-SXM");
  Scenario scenario;
  scenario.set(ScenarioKey::cluster, cluster, {"", "/cluster"});
  const auto known = read_cluster_of(scenario, nullptr);
  Coefficients truth = table;
  truth.set(Coefficient::nccl_gather_efficiency,
            table[Coefficient::nccl_gather_efficiency] * faster);
  for (int power = 16; power <= 30; power += 2) {
    const Bytes bytes = Bytes::of(std::int64_t{1} << power);
    const double seconds =
        collective_time(Collective::all_gather, bytes, whole_cluster(*known), *known, truth)
            .seconds();
    rows += fmt::format(R"({}{{"operation":"all_gather","bytes":{},"ranks":8,"seconds":{}}})",
                        rows.empty() ? "" : ",",
                        bytes.count(),
                        seconds);
  }
  const evidence::MeasurementFile file = evidence::parse_measurements(
      R"({"id":"nccl","source":"here","scenario":{"cluster":"8xA100-80G-SXM"},"measured":{},)"
      R"("collectives":[)" +
          rows + "]}\n",
      "nccl.jsonl");
  REQUIRE(file.bad_lines.empty());
  const evidence::Calibration calibration = evidence::calibrate({file}, {});
  const evidence::FittedValue* const value =
      found(calibration, Coefficient::nccl_gather_efficiency);
  REQUIRE(value != nullptr);
  // The ramp takes a part: middle sizes tell both apart badly.
  CHECK(value->value > table[Coefficient::nccl_gather_efficiency] * 1.03);
  CHECK(calibration.times.errors.front().after.median <
        0.3 * calibration.times.errors.front().before.median);
}

TEST_CASE("a pipeline's time is what simulate says of it") {
  const std::string text =
      R"({"model":{"model_type":"gpt2","n_embd":1024,"n_layer":8,"n_head":16,"n_positions":2048,)"
      R"("vocab_size":50257},"cluster":"1x4xV100-32G-SXM2","workload":{"sequence_length":2048,)"
      R"("micro_batch_size":1,"gradient_accumulation_steps":2,"pipeline_parallel":4,)"
      R"("precision":"fp16","attention":"eager","frontend":"native","implementation":"megatron",)"
      R"("activation_checkpointing":"full"},)"
      R"("ds_config":{"fp16":{"enabled":true},"zero_optimization":{"stage":1}}})";
  const evidence::MeasurementFile file =
      evidence::parse_measurements(R"({"id":"p","source":"s","scenario":)" + text +
                                       R"(,"measured":{"step_seconds":1.0}})" + "\n",
                                   "pipeline.jsonl");
  const evidence::Observations observations = evidence::observe({file}, "", 1);
  REQUIRE(observations.rows.size() == 1);
  const evidence::Observation& row = observations.rows.front();
  CHECK(row.exact(row.table) == Approx(seconds_of(text, {})));
  CHECK(row.quick(row.table) == Approx(seconds_of(text, {})));
}

TEST_CASE("lines without anything that can be predicted are named, and none at all is an error") {
  const evidence::MeasurementFile file = evidence::parse_measurements(
      R"({"id":"m","source":"s","scenario":{"model":"7B","cluster":"8xA100-80G"},)"
      R"("measured":{"static_allocated_bytes":1000}})"
      "\n"
      R"({"id":"t","source":"s","scenario":{"model":"7B","cluster":"8xA100-80G"},)"
      R"("measured":{"step_seconds":1.0,"peak_total_bytes":1000}})"
      "\n",
      "none.jsonl");
  CHECK_THROWS_AS(evidence::calibrate({file}, {}), InputError);
  const evidence::Observations observations = evidence::observe({file}, "", 1);
  REQUIRE(observations.unused.size() == 2);
  CHECK(observations.unused[0].reason == "measures neither time nor memory");
  CHECK(observations.unused[1].reason == "sequence length not stated");
}
