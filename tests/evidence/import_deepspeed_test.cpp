#include <string>

#include "tests/catch.hpp"
#include "tests/evidence/import_support.hpp"

namespace {

using zeroplan::ScenarioKey;
using zeroplan::evidence::ImportedFile;
using zeroplan::evidence::Measurement;
using zeroplan::evidence::Metric;
using zeroplan::test::import_text;
using zeroplan::test::kGib;
using zeroplan::test::measure;
using zeroplan::test::notes_have;
using zeroplan::test::scenario_text;
using zeroplan::test::scenario_with;
using zeroplan::test::value_of;

std::string memory_lines(const std::string& message,
                         const std::string& held,
                         const std::string& peak) {
  return "[INFO] [utils.py:781:see_memory_usage] " + message +
         "\n[INFO] [utils.py:782:see_memory_usage] MA " + held + " GB         Max_MA " + peak +
         " GB         CA 30.5 GB         Max_CA 31 GB \n" +
         "[INFO] [utils.py:789:see_memory_usage] CPU Virtual Memory:  used = 72.17 GB, percent = "
         "7.2%\n";
}

std::string step_line(double forward, double backward, double step) {
  return "[Rank 0] time (ms) | fwd: " + std::to_string(forward) +
         " | bwd: " + std::to_string(backward) +
         " | bwd_inner: 1.0 | bwd_allreduce: 2.0 | step: " + std::to_string(step) + "\n";
}

}  // namespace

TEST_CASE("The largest peak that see_memory_usage printed in training is the run's") {
  const Measurement run =
      *measure(memory_lines("After initializing ZeRO optimizer", "16.0", "40.5") +
               memory_lines("Engine after step", "16.02", "31.5") +
               memory_lines("Engine after step", "16.05", "31.87"));
  CHECK(value_of(run, Metric::peak_allocated_bytes) == Approx(40.5 * kGib));
  CHECK(value_of(run, Metric::peak_reserved_bytes) == Approx(31.0 * kGib));
  CHECK(value_of(run, Metric::static_allocated_bytes) == Approx(16.05 * kGib));
  CHECK(value_of(run, Metric::host_peak_bytes) == Approx(72.17 * kGib));
  // Max_CA is a whole number of GiB: half of one is a deviation of .5 / sqrt(3) / 31.
  CHECK(*run.uncertainty.of(Metric::peak_reserved_bytes) == Approx(0.0093).margin(1e-4));
}

TEST_CASE("Peaks of initialisation alone are no peak of a step") {
  const Measurement run = *measure(memory_lines("Stage 3 initialize beginning", "3.27", "3.78"));
  CHECK_FALSE(run.measured.has(Metric::peak_allocated_bytes));
  CHECK(run.measured.has(Metric::host_peak_bytes));
  CHECK(notes_have(run, "while initialising only (peak 3.78 GiB allocated)"));
}

TEST_CASE("Lines of DeepSpeed 0.19 have no logger's prefix and read the same") {
  const Measurement run = *measure(
      "Engine after step\nMA 16.02 GB         Max_MA 31.5 GB         CA 30.5 GB         Max_CA 31 "
      "GB \n");
  CHECK(value_of(run, Metric::peak_allocated_bytes) == Approx(31.5 * kGib));
}

TEST_CASE("A memory line without its numbers is a bad line and the others count") {
  const ImportedFile file = import_text("MA ? GB Max_MA 1 GB CA 2 GB Max_CA 2 GB\n" +
                                        memory_lines("after backward", "16.0", "20.0"));
  REQUIRE(file.runs.front().findings.bad_lines().size() == 1);
  CHECK(file.runs.front().findings.bad_lines().front().pointer == "line 1");
}

TEST_CASE("A step is forward, backward and step; what is inside backward is not added again") {
  const Measurement run =
      *measure(step_line(900, 900, 900) + step_line(100, 200, 30) + step_line(102, 204, 30));
  CHECK(value_of(run, Metric::step_seconds) == Approx(0.333));
  CHECK(run.measured.fits());
}

TEST_CASE("Micro-steps add up by the accumulation steps that are given") {
  std::string log;
  for (int i = 0; i < 8; ++i) {
    log +=
        "rank=0 time (ms) | forward_microstep: 100.00 | backward_microstep: 200.00 | "
        "backward_inner_microstep: 199.00 | backward_allreduce_microstep: 0.05 | step_microstep: ";
    log += i % 4 == 3 ? "50.00\n" : "1.00\n";
  }
  const Measurement unknown = *measure("0/50, SamplesPerSec=8.5, MemAllocated=1GB\n" + log);
  CHECK_FALSE(unknown.measured.has(Metric::step_seconds));
  CHECK(notes_have(unknown, "8 micro-steps were timed"));
  const Measurement known =
      *measure(log, scenario_with(ScenarioKey::gradient_accumulation_steps, "4"));
  CHECK(value_of(known, Metric::step_seconds) == Approx(1.253));
}

TEST_CASE("The optimizer's timers say where a step of micro-steps ends") {
  std::string log;
  for (int i = 0; i < 7; ++i) {
    if (i % 2 == 0) log += "time (ms) | optimizer_gradients: 6.43 | optimizer_step: 23.44\n";
    log += "time (ms) | fwd_microstep: 100.0 | bwd_microstep: 200.0 | step_microstep: " +
           std::string(i % 2 == 0 ? "40.0\n" : "0.0\n");
  }
  // The first line ends a step whose beginning is not there.
  const Measurement run = *measure(log);
  CHECK(value_of(run, Metric::step_seconds) == Approx(0.64));
  CHECK(notes_have(run, "median of 2"));
}

TEST_CASE("The throughput timer's current rate goes before its running average") {
  const Measurement run = *measure(
      "epoch=0/micro_step=2/global_step=2, RunningAvgSamplesPerSec=-inf, CurrSamplesPerSec=inf, "
      "MemAllocated=1.0GB, MaxMemAllocated=2.0GB\n"
      "epoch=0/micro_step=4/global_step=4, RunningAvgSamplesPerSec=40.0, CurrSamplesPerSec=39.0, "
      "MemAllocated=1.5GB, MaxMemAllocated=2.5GB\n"
      "epoch=0/micro_step=6/global_step=6, RunningAvgSamplesPerSec=41.0, CurrSamplesPerSec=43.0, "
      "MemAllocated=1.5GB, MaxMemAllocated=2.5GB\n");
  CHECK(value_of(run, Metric::samples_per_second) == Approx(43.0));
  CHECK(value_of(run, Metric::peak_allocated_bytes) == Approx(2.5 * kGib));
  CHECK(value_of(run, Metric::static_allocated_bytes) == Approx(1.5 * kGib));
}

TEST_CASE("The pipeline engine prints the time of a step and the job's rate") {
  const Measurement run =
      *measure("steps: 10 loss: 7.2 iter time (s): 3.460 samples/sec: 18.497\n");
  CHECK(value_of(run, Metric::step_seconds) == Approx(3.46));
  CHECK(value_of(run, Metric::samples_per_second) == Approx(18.497));
}

TEST_CASE("A pipeline stage's timers are no step") {
  const ImportedFile file = import_text(
      "rank=0 time (ms) | train_batch: 0.00 | batch_input: 7.57 | forward: 519.08 | "
      "backward_microstep: 1815.10 | backward: 1814.87 | comms: 126.14 | step: 18.64\n");
  CHECK(file.skipped == 0);
  CHECK(file.runs.front().findings.series().empty());
}

TEST_CASE("The hosts that pdsh writes in front of lines are taken off") {
  std::string log;
  for (int tick = 1; tick <= 6; ++tick) {
    log += "worker-" + std::to_string(tick % 2) + ":   5%|#    | " + std::to_string(tick) +
           "/100 [00:10<12:00,  4.00s/it]\n";
  }
  CHECK(value_of(*measure(log), Metric::step_seconds) == Approx(4.0));
}

TEST_CASE("The flops profiler's latency has the unit it is printed with") {
  const std::string headline = "-------------- DeepSpeed Flops Profiler --------------\n";
  CHECK(value_of(*measure(headline + "iter latency:    1.02 s\n"), Metric::step_seconds) ==
        Approx(1.02));
  CHECK(value_of(*measure(headline + "iter latency:    184.73 ms\n"), Metric::step_seconds) ==
        Approx(0.18473));
}

TEST_CASE("The printed configuration becomes the scenario's ds_config") {
  const Measurement run = *measure(
      "[INFO] DeepSpeed info: version=0.16.4+cu121, git-hash=unknown\n"
      "[INFO] [config.py:1004:print]   world_size ................... 8\n"
      "[INFO] [config.py:990:print_user_config]   json = {\n"
      "    \"train_micro_batch_size_per_gpu\": 2, \n"
      "    \"zero_optimization\": {\n        \"stage\": 2, \n"
      "        \"reduce_bucket_size\": 5.000000e+08\n    }, \n"
      "    \"comment\": \"a } in a string\", \n    \"steps_per_print\": inf\n}\n" +
      step_line(1, 2, 3));
  CHECK(scenario_text(run, ScenarioKey::deepspeed_version) == "\"0.16.4\"");
  const zeroplan::Json& config = run.scenario.find(ScenarioKey::ds_config)->value;
  CHECK(config.find("zero_optimization")->find("reduce_bucket_size")->as_number() == 5e8);
  CHECK(config.find("steps_per_print") == nullptr);
  CHECK(notes_have(run, "it ran on 8 GPUs"));
  CHECK_FALSE(notes_have(run, "--micro-batch-size"));
}

TEST_CASE("A configuration that is broken off is a bad line") {
  const ImportedFile file =
      import_text("[INFO]   json = {\n    \"train_batch_size\": 16, \n" + step_line(1, 2, 3));
  REQUIRE(file.runs.front().findings.bad_lines().size() == 1);
  CHECK(file.runs.front().findings.bad_lines().front().pointer == "line 1");
}
