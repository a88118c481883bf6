#include "evidence/validate.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "evidence/scenario_prediction.hpp"
#include "tests/catch.hpp"
#include "tests/evidence/measured_lines.hpp"

namespace {

using zeroplan::Json;
using zeroplan::Plan;
using zeroplan::Scenario;
using zeroplan::ScenarioKey;
using zeroplan::StepResult;
using zeroplan::evidence::ErrorSummary;
using zeroplan::evidence::Metric;
using zeroplan::evidence::parse_measurements;
using zeroplan::evidence::ScenarioPrediction;
using zeroplan::evidence::ValidatedRow;
using zeroplan::evidence::ValidateOptions;
using zeroplan::evidence::ValidationReport;
using zeroplan::test::kSoftware;
using zeroplan::test::kStated;
using zeroplan::test::line_of;
using zeroplan::test::scenario_of;
using zeroplan::test::simulated;

// A row as validate() makes it, from a prediction and a measurement.
ValidatedRow row(std::size_t scenario, Metric metric, double predicted, double measured) {
  ValidatedRow result;
  result.scenario = scenario;
  result.metric = metric;
  result.source = "s";
  result.predicted = predicted;
  result.measured = measured;
  result.likely = predicted;
  result.error = (predicted - measured) / measured;
  result.low = 0.9 * predicted;
  result.high = 1.1 * predicted;
  result.inside_interval = result.low <= measured && measured <= result.high;
  return result;
}

ValidatedRow verdict(std::size_t scenario, bool ran, double probability, double free_share = 0.0) {
  ValidatedRow result;
  result.scenario = scenario;
  result.metric = Metric::fits;
  result.measured = ran ? 1.0 : 0.0;
  result.probability = probability;
  result.inside_interval = (probability >= 0.5) == ran;
  result.free_share = free_share;
  return result;
}

ValidationReport report_of(const std::string& lines, const ValidateOptions& options = {}) {
  return zeroplan::evidence::validate({parse_measurements(lines, "m.jsonl")}, options);
}

const ValidatedRow& find_row(const ValidationReport& report, const std::string& id, Metric metric) {
  for (const ValidatedRow& found : report.rows) {
    if (found.id == id && found.metric == metric) return found;
  }
  FAIL("no row " << id);
  return report.rows.front();
}

std::string published() { return ZEROPLAN_SOURCE_DIR "/tests/evidence/data/published.jsonl"; }

}  // namespace

TEST_CASE("a summary has median and percentile of absolute errors, bias, coverage and width") {
  // Errors: -0.2, 0.05, 0.1, 0.5, in another order. Intervals are 10 % on each side of the
  // prediction.
  const ErrorSummary errors =
      zeroplan::evidence::summarize({row(0, Metric::step_seconds, 1.1, 1.0),
                                     row(1, Metric::step_seconds, 0.8, 1.0),
                                     row(2, Metric::step_seconds, 1.5, 1.0),
                                     row(3, Metric::step_seconds, 1.05, 1.0)});
  CHECK(errors.rows == 4);
  CHECK(errors.median_abs_error == Approx(0.15));  // between 0.1 and 0.2
  CHECK(errors.p95_abs_error == Approx(0.455));    // rank 2.85: 0.2 + 0.85 * 0.3
  CHECK(errors.median_error == Approx(0.075));     // between 0.05 and 0.1
  CHECK(errors.interval_coverage == Approx(0.5));  // 1.1 (from 0.99) and 1.05 cover 1
  CHECK(errors.median_half_width == Approx(0.1));
}

TEST_CASE("repeats count once, against their median") {
  // 2.0 against 1.0, 2.0 and 4.0: no error against the median.
  const std::vector<ValidatedRow> scored =
      zeroplan::evidence::scored_rows({row(0, Metric::peak_total_bytes, 2.0, 1.0),
                                       row(0, Metric::peak_total_bytes, 2.0, 4.0),
                                       row(1, Metric::peak_total_bytes, 3.0, 2.0),
                                       row(0, Metric::peak_total_bytes, 2.0, 2.0)});
  REQUIRE(scored.size() == 2);
  CHECK(scored[0].measured == 2.0);
  CHECK(*scored[0].error == 0.0);
  CHECK(scored[0].inside_interval);
  CHECK(*scored[1].error == Approx(0.5));
  CHECK(zeroplan::evidence::summarize(scored).median_abs_error == Approx(0.25));
}

TEST_CASE("a scenario counts with one time metric, and rates of work do not count") {
  const std::vector<ValidatedRow> scored =
      zeroplan::evidence::scored_rows({row(0, Metric::samples_per_second, 1, 1),
                                       row(0, Metric::tokens_per_second_per_gpu, 1, 1),
                                       row(0, Metric::mfu, 1, 1),
                                       row(1, Metric::tokens_per_second_per_gpu, 1, 1),
                                       row(1, Metric::step_seconds, 1, 1),
                                       row(1, Metric::static_allocated_bytes, 1, 1),
                                       row(2, Metric::samples_per_second, 1, 1),
                                       row(2, Metric::max_micro_batch_size, 1, 1)});
  REQUIRE(scored.size() == 4);
  CHECK(scored[0].metric == Metric::tokens_per_second_per_gpu);
  CHECK(scored[1].metric == Metric::step_seconds);
  CHECK(scored[2].metric == Metric::static_allocated_bytes);
  CHECK(scored[3].metric == Metric::samples_per_second);
}

TEST_CASE("verdicts are counted at probability 0.5, wrong ones at the confidence") {
  const zeroplan::evidence::VerdictSummary verdicts =
      zeroplan::evidence::summarize_verdicts({verdict(0, true, 0.6, 0.10),
                                              verdict(1, true, 0.4),
                                              verdict(2, false, 0.96),
                                              verdict(3, false, 0.94),
                                              verdict(4, false, 0.1),
                                              verdict(5, true, 0.99, 0.15),
                                              verdict(6, true, 0.90, 0.40),
                                              verdict(6, true, 0.90, 0.40)},
                                             0.95);
  CHECK(verdicts.rows == 7);
  CHECK(verdicts.right == 4);  // 0, 4, 5, 6
  CHECK(verdicts.failed == 3);
  CHECK(verdicts.wrong_fits == 1);  // 2
  CHECK(verdicts.with_room == 2);   // 5 and 6
  CHECK(verdicts.with_room_said == 1);
}

TEST_CASE("rows hold the simulation of the scenario against what was measured") {
  const std::string line =
      line_of("a",
              kStated,
              R"("peak_allocated_bytes":4000000000,"step_seconds":0.25,"samples_per_second":8,)"
              R"("tokens_per_second_per_gpu":2048,"mfu":0.1,"fits":true)");
  const ValidationReport report = report_of(line);
  REQUIRE(report.rows.size() == 6);
  CHECK(report.scenarios == 1);
  CHECK(report.skipped.empty());
  const StepResult result = simulated(scenario_of(line));

  const ValidatedRow& peak = find_row(report, "a", Metric::peak_allocated_bytes);
  const double bytes = static_cast<double>(result.gpu.peak_allocated.count());
  CHECK(peak.predicted == bytes);
  CHECK(*peak.error == Approx(bytes / 4e9 - 1.0));
  CHECK(peak.low == Approx(result.peak_allocated_interval.low.count()));
  CHECK(peak.high == Approx(result.peak_allocated_interval.high.count()));
  CHECK(peak.strategy == "ZeRO-2");

  const ValidatedRow& step = find_row(report, "a", Metric::step_seconds);
  CHECK(step.predicted == result.step.total.seconds());
  CHECK(step.high == Approx(result.step_interval.high.seconds()));
  // Two ranks, one sample each a step: the same time, turned over.
  const ValidatedRow& samples = find_row(report, "a", Metric::samples_per_second);
  CHECK(samples.predicted == Approx(2.0 / step.predicted));
  CHECK(samples.low == Approx(2.0 / step.high));
  CHECK(find_row(report, "a", Metric::tokens_per_second_per_gpu).predicted ==
        Approx(512.0 / step.predicted));

  const ValidatedRow& fits = find_row(report, "a", Metric::fits);
  CHECK_FALSE(fits.error);
  CHECK(fits.predicted == 1.0);
  // A published run's node has the usual host memory, which surely suffices here.
  CHECK(fits.probability == Approx(result.fit_probability).margin(1e-6));
  CHECK(fits.inside_interval);
}

TEST_CASE("lines with the same scenario are repeats, whatever the order of their keys") {
  const std::string one = R"({"id":"a","source":"x","scenario":{"cluster":"8xH100","model":"gpt2",)"
                          R"("workload":{"sequence_length":128,"micro_batch_size":1}},)"
                          R"("measured":{"step_seconds":1}})";
  const std::string two =
      R"({"id":"b","source":"y","scenario":{"id":"b","model":"gpt2","cluster":"8xH100",)"
      R"("workload":{"micro_batch_size":1,"sequence_length":128}},"measured":{"step_seconds":3}})";
  const std::string three =
      R"({"id":"c","source":"y","scenario":{"model":"gpt2","cluster":"8xH100",)"
      R"("workload":{"micro_batch_size":2,"sequence_length":128}},"measured":{"step_seconds":3}})";
  const ValidationReport report = report_of(one + "\n" + two + "\n" + three);
  REQUIRE(report.rows.size() == 3);
  CHECK(report.scenarios == 2);
  CHECK(report.rows[0].scenario == report.rows[1].scenario);
  CHECK(report.rows[0].scenario != report.rows[2].scenario);
  // Source "*" has two scenarios, the first measured as 1 and 3; each source has its own.
  REQUIRE(report.summary.size() == 3);
  CHECK(report.summary[0].source == "*");
  CHECK(report.summary[0].errors.rows == 2);
  CHECK(report.summary[1].source == "x");
  CHECK(report.summary[1].errors.rows == 1);
  CHECK(report.summary[2].source == "y");
  CHECK(report.summary[2].errors.rows == 2);
  CHECK(zeroplan::evidence::scored_rows(report.rows)[0].measured == 2.0);
}

TEST_CASE("a scenario without model, GPU, sequence length or micro-batch is skipped") {
  const auto reason = [](const std::string& scenario) {
    const ValidationReport report = report_of(R"({"id":"a","source":"x","scenario":{)" + scenario +
                                              R"(},"measured":{"step_seconds":1}})");
    CHECK(report.rows.empty());
    REQUIRE(report.skipped.size() == 1);
    CHECK(report.skipped[0].id == "a");
    return report.skipped[0].reason;
  };
  const std::string work = R"("workload":{"sequence_length":128,"micro_batch_size":1})";
  CHECK(reason(R"("cluster":"8xH100",)" + work) == "model not stated");
  CHECK(reason(R"("model":"gpt2",)" + work) == "GPU not stated");
  CHECK(reason(R"("model":"gpt2","cluster":{"nodes":2,"gpus_per_node":8},)" + work) ==
        "GPU not stated");
  CHECK(reason(R"("model":"gpt2","cluster":"8xH100","workload":{"micro_batch_size":1})") ==
        "sequence length not stated");
  CHECK(reason(R"("model":"gpt2","cluster":"8xH100","workload":{"sequence_length":128})") ==
        "micro-batch not stated");
  CHECK(reason(R"("model":"gpt2","cluster":"8xH100","workload":{"sequence_length":128,)"
               R"("micro_batch_size":1,"engine":"internevo"})") ==
        "engine internevo, which is not modelled yet");
}

TEST_CASE("a micro-batch in the ds_config is stated") {
  const ValidationReport report =
      report_of(line_of("a",
                        R"("precision":"bf16")",
                        R"("step_seconds":1)",
                        R"(,"ds_config":{"train_micro_batch_size_per_gpu":4})"));
  CHECK(report.skipped.empty());
  CHECK(report.rows.size() == 1);
}

TEST_CASE("the largest micro-batch is searched, and needs none stated") {
  const std::string line = line_of("a",
                                   R"("gradient_accumulation_steps":1,"precision":"bf16")",
                                   R"("max_micro_batch_size":100)");
  const ValidationReport report = report_of(line);
  REQUIRE(report.rows.size() == 1);
  const ValidatedRow& found = report.rows[0];
  REQUIRE(found.predicted >= 1.0);
  const auto probability = [&](double size) {
    Scenario scenario = scenario_of(line);
    scenario.set(ScenarioKey::micro_batch_size, Json(static_cast<std::int64_t>(size)), {"", ""});
    return simulated(scenario).fit_probability;
  };
  CHECK(probability(found.predicted) >= 0.5);
  CHECK(probability(found.predicted + 1) < 0.5);
  CHECK(found.low <= found.predicted);
  CHECK(found.high >= found.predicted);
}

TEST_CASE("recomputation adds a forward pass of the blocks") {
  Scenario scenario = scenario_of(line_of("a", kStated, R"("mfu":0.1)"));
  CHECK(zeroplan::evidence::recomputation_factor(zeroplan::resolve(scenario)) == 1.0);
  scenario.set(ScenarioKey::activation_checkpointing, Json("full"), {"", ""});
  // gpt2: 12 blocks of 7,087,872 of 124,439,808 parameters, of which those of 1,024 positions are
  // in no product, hidden 768, 512 tokens.
  const double attention = 12.0 * 768.0 * 512.0;
  const double model = 6.0 * (124439808.0 - 1024.0 * 768.0) + 12.0 * attention;
  const double again = 2.0 * 12.0 * 7087872.0 + 4.0 * attention;
  CHECK(zeroplan::evidence::recomputation_factor(zeroplan::resolve(scenario)) ==
        Approx((model + again) / model));
}

TEST_CASE("bad lines are reported, and the others are validated") {
  const ValidationReport report = report_of(
      line_of("a", kStated, R"("step_seconds":1)") + "{\"id\":\n" +
      line_of("b", kStated, R"("step_seconds":-1)") + line_of("c", kStated, R"("step_seconds":2)"));
  CHECK(report.rows.size() == 2);
  REQUIRE(report.bad_lines.size() == 2);
  CHECK(report.bad_lines[1].pointer == "line 3: /measured/step_seconds");
}

TEST_CASE("tiers choose the measurements that count") {
  ValidateOptions options;
  options.tiers = "BC";
  const std::string line = line_of("a", kStated, R"("step_seconds":1)");
  CHECK(report_of(line, options).rows.empty());
  options.tiers = "AB";
  CHECK(report_of(line, options).rows.size() == 1);
}

TEST_CASE("published measurements give the same report on one thread and on three") {
  const zeroplan::evidence::MeasurementFile file =
      zeroplan::evidence::read_measurements(published());
  REQUIRE(file.bad_lines.empty());
  REQUIRE(file.measurements.size() == 8);
  ValidateOptions options;
  const ValidationReport one = zeroplan::evidence::validate({file}, options);
  options.jobs = 3;
  const ValidationReport three = zeroplan::evidence::validate({file}, options);
  CHECK(zeroplan::evidence::to_json(one).dump() == zeroplan::evidence::to_json(three).dump());
  CHECK(one.rows.size() + one.skipped.size() > 8);
  for (const ValidatedRow& found : one.rows) {
    INFO(found.id << " " << zeroplan::evidence::name(found.metric));
    CHECK(std::isfinite(found.predicted));
    if (found.metric == Metric::fits) continue;
    // The default may be nothing that can have run.
    CHECK(found.low <= found.likely);
    CHECK(found.likely <= found.high);
    CHECK_FALSE(found.why.empty());
  }
}

TEST_CASE("the document has the contract's fields") {
  const ValidationReport report =
      report_of(line_of("a", kStated, R"("step_seconds":1,"fits":true)") +
                line_of("b", R"("engine":"other","micro_batch_size":1)", R"("step_seconds":1)"));
  const Json document = zeroplan::evidence::to_json(report);
  CHECK(document.find("schema")->as_string() == "zeroplan.validate/1");
  REQUIRE(document.find("rows")->items().size() == 2);
  const Json& step = document.find("rows")->items()[0];
  CHECK(step.find("metric")->as_string() == "step_seconds");
  CHECK(step.find("measured")->as_number() == 1.0);
  CHECK(step.find("error")->as_number() == Approx(step.find("predicted")->as_number() - 1.0));
  CHECK(step.find("inside_interval")->is_boolean());
  CHECK(step.find("probability")->is_number());
  const Json& fits = document.find("rows")->items()[1];
  CHECK(fits.find("measured")->as_boolean());
  CHECK(fits.find("predicted")->is_boolean());
  CHECK(fits.find("error")->is_null());
  const Json& skipped = document.find("skipped")->items()[0];
  CHECK(skipped.find("id")->as_string() == "b");
  CHECK(skipped.find("reason")->as_string() == "engine other, which is not modelled yet");
  const Json& all = document.find("summary")->items()[0];
  CHECK(all.find("metric")->as_string() == "step_seconds");
  CHECK(all.find("source")->as_string() == "*");
  CHECK(all.find("rows")->as_integer() == 1);
  CHECK(all.find("p95_abs_error")->as_number() == all.find("median_abs_error")->as_number());
  CHECK(document.find("gates")->find("verdicts")->find("rows")->as_integer() == 1);
}
