// `zeroplan watch` says how far a run's log is, and what its memory does.
#include "evidence/run_status.hpp"

#include <string>

#include <fmt/format.h>

#include "evidence/importers/run_summary.hpp"
#include "tests/catch.hpp"
#include "tests/evidence/import_support.hpp"

namespace zeroplan::test {
namespace {

evidence::RunFindings findings_of(std::string_view text) {
  return import_text(text).runs.front().findings;
}

// DeepSpeed's throughput timer at every tenth step, memory held in hundredths of a GiB.
std::string deepspeed_log(int reports, int (*held)(int)) {
  std::string text;
  for (int i = 1; i <= reports; ++i) {
    text += fmt::format(
        "[timer.py:264:stop] epoch=0/micro_step={}/global_step={}, RunningAvgSamplesPerSec=14.1, "
        "CurrSamplesPerSec=13.9, MemAllocated={:.2f}GB, MaxMemAllocated=50.00GB\n",
        40 * i,
        10 * i,
        0.01 * held(i));
  }
  return text;
}

evidence::RunProgress progress_of(std::string_view text) {
  return findings_of(text).progress.value_or(evidence::RunProgress{-1, {}});
}

}  // namespace

TEST_CASE("how far a run is comes from whatever says it") {
  const evidence::RunProgress bar = progress_of(
      "  2%|#   | 1/42 [00:10<06:50, 10.0s/it]\n 12%|#   | 5/42 [00:50<06:10, 10.0s/it]\n");
  CHECK(bar.done == 5);
  CHECK(bar.total == 42);
  const evidence::RunProgress factory = progress_of(
      R"({"current_steps": 30, "total_steps": 90, "elapsed_time": "0:01:02", "loss": 1.0})"
      "\n");
  CHECK(factory.done == 30);
  CHECK(factory.total == 90);
  const evidence::RunProgress megatron = progress_of(
      " iteration       10/    5000 | consumed samples: 80 | elapsed time per iteration (ms): "
      "13065.4 |\n");
  CHECK(megatron.done == 10);
  CHECK(megatron.total == 5000);
  const evidence::RunProgress state = progress_of(
      R"({"global_step": 7, "max_steps": 70, "log_history": [], "train_batch_size": 2})");
  CHECK(state.done == 7);
  CHECK(state.total == 70);
  const evidence::RunProgress timer = progress_of(deepspeed_log(3, [](int) { return 1000; }));
  CHECK(timer.done == 30);
  CHECK_FALSE(timer.total.has_value());
}

TEST_CASE("a bar of an evaluation says nothing of the run") {
  const evidence::RunProgress bar = progress_of(
      " 12%|#   | 5/42 [00:50<06:10, 10.0s/it]\nevaluating:  50%|#   | 400/800 [00:50<06:10, "
      "10.0s/it]\n");
  CHECK(bar.done == 5);
  CHECK(bar.total == 42);
}

TEST_CASE("memory that a step leaves behind is told in steps, and noise is not") {
  const auto growth = [](const std::string& text) {
    return evidence::memory_growth(findings_of(text), nullptr);
  };
  const auto grows = growth(deepspeed_log(20, [](int i) { return 1000 + 20 * i; }));
  REQUIRE(grows.has_value());
  CHECK(grows->bytes_a_step == Approx(0.02 * kGib));  // 0.2 GiB a report, ten steps apart
  CHECK_FALSE(grows->full_at_step.has_value());
  CHECK_FALSE(growth(deepspeed_log(20, [](int) { return 1000; })).has_value());
  CHECK_FALSE(growth(deepspeed_log(20, [](int i) { return 1000 + 20 * (i % 3); })).has_value());
  CHECK_FALSE(growth(deepspeed_log(7, [](int i) { return 1000 + 20 * i; })).has_value());
  // Memory that grew at first and stays is no leak.
  CHECK_FALSE(
      growth(deepspeed_log(20, [](int i) { return 1000 + 20 * std::min(i, 5); })).has_value());
}

TEST_CASE("a run's status compares memory and step time with their prediction") {
  Scenario said = scenario_with(ScenarioKey::model, "gpt2");
  for (const auto& [key, text] : {std::pair(ScenarioKey::cluster, "1xA100-40G"),
                                  std::pair(ScenarioKey::sequence_length, "512"),
                                  std::pair(ScenarioKey::micro_batch_size, "2")}) {
    said.set(key, parse_flag(info(key), text), {"test", ""});
  }
  const std::string log = deepspeed_log(20, [](int i) { return 200 + 20 * i; }) +
                          "Saving model checkpoint to out/checkpoint-100\n"
                          "Saving model checkpoint to out/checkpoint-200\n";
  const evidence::RunFindings findings = import_text(log, said).runs.front().findings;
  const auto measured = evidence::measurement_of(findings, "run", "watch");
  REQUIRE(measured.has_value());
  const evidence::RunStatus alone = evidence::status_of(findings, *measured, nullptr);
  CHECK(alone.checkpoints == 2);
  CHECK(alone.last_checkpoint == "out/checkpoint-200");
  CHECK_FALSE(alone.metrics.front().predicted.has_value());
  const evidence::ScenarioPrediction prediction = evidence::predict_scenario(measured->scenario);
  const evidence::RunStatus beside = evidence::status_of(findings, *measured, &prediction);
  REQUIRE(beside.metrics.size() == 3);  // peak, held, one of the times
  for (const evidence::ComparedMetric& one : beside.metrics) CHECK(one.predicted.has_value());
  REQUIRE(beside.growth.has_value());
  // 50 GiB of 40 are in use already.
  CHECK(beside.growth->full_at_step == 200);
}

TEST_CASE("steps that a program measures itself say how far it is, and what each leaves behind") {
  std::string lines;
  for (std::int64_t step = 1; step <= 16; ++step) {
    lines += fmt::format(
        "{{\"zeroplan_step\": {}, \"steps\": 90, \"allocated_bytes\": {}, "
        "\"peak_allocated_bytes\": {}, \"peak_reserved_bytes\": 7000000000, \"seconds\": 0.5}}\n",
        step,
        1'000'000'000 + step * 50'000'000,
        5'000'000'000 + step * 50'000'000);
  }
  const evidence::RunFindings findings = findings_of(lines);
  REQUIRE(findings.progress.has_value());
  CHECK(findings.progress->done == 16);
  CHECK(findings.progress->total == 90);
  const auto growth = evidence::memory_growth(findings, nullptr);
  REQUIRE(growth.has_value());
  CHECK(growth->bytes_a_step == Approx(50e6));
  const auto measured = evidence::measurement_of(findings, "run", "watch");
  REQUIRE(measured.has_value());
  CHECK(measured->measured.number(evidence::Metric::peak_allocated_bytes) == 5'800'000'000.0);
  CHECK(measured->measured.number(evidence::Metric::step_seconds) == 0.5);
}

}  // namespace zeroplan::test
