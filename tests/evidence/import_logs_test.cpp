#include <string>

#include "tests/catch.hpp"
#include "tests/evidence/import_support.hpp"

namespace {

using zeroplan::InputError;
using zeroplan::ScenarioKey;
using zeroplan::evidence::ImportedFile;
using zeroplan::evidence::Measurement;
using zeroplan::evidence::Metric;
using zeroplan::evidence::warm_up_steps;
using zeroplan::test::import_text;
using zeroplan::test::kMib;
using zeroplan::test::measure;
using zeroplan::test::notes_have;
using zeroplan::test::scenario_text;
using zeroplan::test::scenario_with;
using zeroplan::test::value_of;

std::string iteration(int number, const std::string& milliseconds, const std::string& label = "") {
  return label + " iteration " + std::to_string(number) +
         "/ 100 | consumed samples: 64 | elapsed time per iteration (ms): " + milliseconds +
         " | global batch size:    64 |\n";
}

std::string drawing(int tick, const std::string& rate, const std::string& name = "") {
  return name + "  5%|#    | " + std::to_string(tick) + "/100 [00:" + std::to_string(10 + tick) +
         "<12:00,  " + rate + "]\n";
}

constexpr const char* kTrainerSummary =
    "{'train_runtime': 200.0, 'train_samples_per_second': 4.864, 'train_steps_per_second': 0.25, "
    "'train_loss': 0.617, 'epoch': 1.0}\n";

}  // namespace

TEST_CASE("Warm-up is one step of a few, a fifth of many, ten at most") {
  CHECK(warm_up_steps(0) == 0);
  CHECK(warm_up_steps(1) == 0);
  CHECK(warm_up_steps(2) == 1);
  CHECK(warm_up_steps(9) == 1);
  CHECK(warm_up_steps(20) == 4);
  CHECK(warm_up_steps(1000) == 10);
}

TEST_CASE("Megatron's iterations are counted by their median after warm-up") {
  const Measurement run = *measure(iteration(1, "9000.0") + iteration(2, "2000.0") +
                                   iteration(3, "2100.0") + iteration(4, "2200.0"));
  CHECK(value_of(run, Metric::step_seconds) == Approx(2.1));
  CHECK(notes_have(run, "median of 3 (Megatron's iterations; the first 1 of 4 left out)"));
}

TEST_CASE("Times of several ranks are the lowest rank's, memory is the worst rank's") {
  const Measurement run = *measure(
      iteration(1, "2000.0", "[rank1]:") + iteration(1, "3000.0", "[rank0]:") +
      "[Rank 2] (after 1 iterations) memory (MB) | allocated: 100.5 | max allocated: 300.0 | "
      "reserved: 400.0 | max reserved: 450.0[Rank 6] (after 1 iterations) memory (MB) | "
      "allocated: 110.0 | max allocated: 200.0 | reserved: 400.0 | max reserved: 500.0\n");
  CHECK(value_of(run, Metric::step_seconds) == Approx(3.0));
  CHECK(value_of(run, Metric::peak_allocated_bytes) == Approx(300.0 * kMib));
  CHECK(value_of(run, Metric::peak_reserved_bytes) == Approx(500.0 * kMib));
  CHECK(value_of(run, Metric::static_allocated_bytes) == Approx(110.0 * kMib));
  CHECK(notes_have(run, "rank 2"));
}

TEST_CASE("Megatron-LM's rate is the model's, Megatron-DeepSpeed's counts recomputation") {
  CHECK(value_of(*measure(" iteration 1/ 9 | elapsed time per iteration (ms): 1.0 | throughput per "
                          "GPU (TFLOP/s/GPU): 118.7 |\n"),
                 Metric::model_tflops_per_gpu) == Approx(118.7));
  CHECK(value_of(*measure(" iteration 1/ 9 | elapsed time per iteration (ms): 1.0 | samples per "
                          "second: 7.003 | TFLOPs: 24.42 |\n"),
                 Metric::hardware_tflops_per_gpu) == Approx(24.42));
}

TEST_CASE("Megatron's arguments are the scenario; GPT-2's shape is its model") {
  const std::string arguments =
      "------ arguments ------\n  bf16 ...................... True\n"
      "  data_parallel_size ........ 2\n  global_batch_size ......... 64\n"
      "  hidden_size ............... 2048\n  micro_batch_size .......... 4\n"
      "  num_attention_heads ....... 16\n  num_layers ................ 24\n"
      "  padded_vocab_size ......... 50304\n  seq_length ................ 1024\n";
  const std::string end = "------ end of arguments ------\n" + iteration(1, "10.0");
  const Measurement run = *measure(arguments + end);
  CHECK(scenario_text(run, ScenarioKey::gradient_accumulation_steps) == "8");
  CHECK(scenario_text(run, ScenarioKey::sequence_length) == "1024");
  CHECK(scenario_text(run, ScenarioKey::precision) == "\"bf16\"");
  CHECK(scenario_text(run, ScenarioKey::engine) == "\"megatron\"");
  CHECK(run.scenario.find(ScenarioKey::model)->value.find("n_embd")->as_integer() == 2048);
  const Measurement swiglu = *measure(arguments + "  swiglu .................... True\n" + end);
  CHECK(swiglu.scenario.find(ScenarioKey::model) == nullptr);
  CHECK(notes_have(swiglu, "24 layers, hidden size 2048"));
}

TEST_CASE("The Trainer's header gives the batch and how many GPUs shared it") {
  const Measurement run = *measure(
      "***** Running training *****\n  Num examples = 20,000\n"
      "  Instantaneous batch size per device = 2\n"
      "  Total train batch size (w. parallel, distributed & accumulation) = 64\n"
      "  Gradient Accumulation steps = 4\n  Total optimization steps = 3,750\n" +
      std::string(kTrainerSummary));
  CHECK(scenario_text(run, ScenarioKey::micro_batch_size) == "2");
  CHECK(scenario_text(run, ScenarioKey::gradient_accumulation_steps) == "4");
  CHECK(scenario_text(run, ScenarioKey::frontend) == "\"hf-trainer\"");
  CHECK(notes_have(run, "it ran on 8 GPUs"));
  CHECK(value_of(run, Metric::step_seconds) == Approx(4.0));
  CHECK(value_of(run, Metric::samples_per_second) == Approx(4.864));
}

TEST_CASE("transformers 5 prints the summary's numbers as strings") {
  const Measurement run = *measure(
      "{'train_runtime': '976.5', 'train_samples_per_second': '4.864', "
      "'train_steps_per_second': '0.304', 'epoch': '1'}\n");
  CHECK(value_of(run, Metric::samples_per_second) == Approx(4.864));
}

TEST_CASE("The Trainer's memory metrics add up to the peak") {
  const Measurement run = *measure(
      "***** train metrics *****\n  before_init_mem_gpu        =        2MB\n"
      "  init_mem_gpu_alloc_delta   =      230MB\n  train_mem_gpu_alloc_delta  =      693MB\n"
      "  train_mem_gpu_peaked_delta =       70MB\n  train_runtime            = 0:01:36.71\n"
      "  train_samples_per_second =      7.941\n  train_steps_per_second   =      0.125\n");
  CHECK(value_of(run, Metric::peak_allocated_bytes) == Approx(995.0 * kMib));
  CHECK(value_of(run, Metric::step_seconds) == Approx(8.0));
}

TEST_CASE("Evaluations inside the run are taken off the Trainer's time") {
  const Measurement run = *measure(
      R"({"global_step": 300, "train_batch_size": 2, "log_history": [
          {"loss": 1.3, "step": 50}, {"eval_runtime": 40.0, "step": 150},
          {"train_runtime": 1000.0, "train_samples_per_second": 4.8, "train_steps_per_second": 0.3,
           "step": 300}, {"eval_runtime": 70.0, "step": 300}]})");
  CHECK(value_of(run, Metric::step_seconds) == Approx(960.0 / 300.0));
  CHECK(value_of(run, Metric::samples_per_second) == Approx(5.0));
  CHECK(scenario_text(run, ScenarioKey::micro_batch_size) == "2");
}

TEST_CASE("A Trainer's state of a run that had not ended measures nothing") {
  CHECK_FALSE(measure(R"({"global_step": 50, "log_history": [{"loss": 1.3, "step": 50}]})"));
}

TEST_CASE("Five ticks of the Trainer's bar go before its summary, fewer do not") {
  std::string bars;
  for (int tick = 1; tick <= 5; ++tick) bars += drawing(tick, tick == 1 ? "9.00s/it" : "3.00s/it");
  CHECK(value_of(*measure(bars + kTrainerSummary), Metric::step_seconds) == Approx(3.0));
  CHECK(value_of(*measure(drawing(1, "3.00s/it") + kTrainerSummary), Metric::step_seconds) ==
        Approx(4.0));
}

TEST_CASE(
    "LLaMA-Factory's log is timed from its first line to its last, anew when it begins anew") {
  const auto line = [](int steps, const std::string& clock) {
    return "{\"current_steps\": " + std::to_string(steps) +
           ", \"total_steps\": 300, \"loss\": 1.2, \"elapsed_time\": \"" + clock +
           "\", \"remaining_time\": \"0:29:58\"}\n";
  };
  const Measurement run =
      *measure(line(10, "0:00:50") + line(20, "0:01:20") + line(110, "0:05:50"));
  CHECK(value_of(run, Metric::step_seconds) == Approx(3.0));
  const Measurement resumed = *measure(line(10, "0:00:50") + line(20, "0:01:20") +
                                       line(20, "0:00:10") + line(30, "0:00:50"));
  CHECK(value_of(resumed, Metric::step_seconds) == Approx(4.0));
  CHECK(import_text(line(10, "soon") + line(20, "0:01:20") + line(30, "0:01:50"))
            .runs.front()
            .findings.bad_lines()
            .size() == 1);
}

TEST_CASE("Bars of loading, mapping and evaluating are no steps") {
  const std::string others = drawing(1, "50.0s/it", "Loading checkpoint shards: ") +
                             drawing(2, "50.0s/it", "Evaluating: ") +
                             drawing(3, "1234.5 examples/s", "Map: ");
  CHECK_FALSE(measure(others));
  const Measurement run = *measure(others + drawing(4, "2.00it/s", "Training: "));
  CHECK(value_of(run, Metric::step_seconds) == Approx(0.5));
  CHECK(notes_have(run, "\"Training\" of 100"));
}

TEST_CASE("A flops profile that is broken off takes no other format's lines") {
  const Measurement run =
      *measure("-------- DeepSpeed Flops Profiler --------\nNotations:\n" + drawing(1, "3.00s/it"));
  CHECK(value_of(run, Metric::step_seconds) == Approx(3.0));
}

TEST_CASE("A run that met an out-of-memory error does not fit") {
  const std::string error =
      "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 31.75 GiB total "
      "capacity; "
      "28.61 GiB already allocated; 1.02 GiB free; 29.60 GiB reserved in total by PyTorch)\n";
  const Measurement run = *measure(iteration(1, "10.0") + error);
  CHECK_FALSE(run.measured.fits());
  CHECK(notes_have(run, "it ran out of memory (gpu_allocator, line 2)"));
}

TEST_CASE("What the user says stands before what the file says, and the difference is noted") {
  const Measurement run =
      *measure("  Instantaneous batch size per device = 2\n" + iteration(1, "10.0"),
               scenario_with(ScenarioKey::micro_batch_size, "4"));
  CHECK(scenario_text(run, ScenarioKey::micro_batch_size) == "4");
  CHECK(notes_have(run, "micro-batch-size is also given as 2 in line 1"));
}

TEST_CASE("A cluster with another number of GPUs than the run's is noted") {
  const std::string log =
      "[INFO] [config.py:1004:print]   world_size ................... 16\n" + iteration(1, "10.0");
  CHECK(notes_have(*measure(log, scenario_with(ScenarioKey::cluster, "8xA100-80G")),
                   "it ran on 16 GPUs, the cluster has 8"));
  CHECK_FALSE(
      notes_have(*measure(log, scenario_with(ScenarioKey::cluster, "2x8xA100-80G")), "it ran on"));
}

TEST_CASE("Lines are counted by format, and what nobody knows is counted as skipped") {
  const ImportedFile file = import_text("hello\n\n" + iteration(1, "10.0") + "\rworld\n");
  CHECK(file.lines == 3);
  CHECK(file.skipped == 2);
  REQUIRE(file.formats.size() == 1);
  CHECK(file.formats.front().format == "megatron-iterations");
  CHECK(file.formats.front().count == 1);
}

TEST_CASE("Texts without a known line, packed files and other documents are refused with a hint") {
  CHECK_THROWS_AS(import_text("nothing here\n"), InputError);
  CHECK_THROWS_AS(import_text(""), InputError);
  CHECK_THROWS_AS(import_text("\x1f\x8b\x08"), InputError);
  try {
    import_text(R"({"zero_optimization": {"stage": 3}})");
    FAIL("a ds_config was imported");
  } catch (const InputError& error) {
    CHECK(error.diagnostics().front().hint.english().find("--ds-config") != std::string::npos);
  }
}

TEST_CASE("A measurement that was imported is read as the same measurement") {
  const Measurement run = *measure(iteration(1, "9000.0") + iteration(2, "2000.0"));
  const auto file = zeroplan::evidence::parse_measurements(to_json(run).dump() + "\n", "m.jsonl");
  REQUIRE(file.measurements.size() == 1);
  CHECK(file.bad_lines.empty());
  CHECK(file.ignored.empty());
  CHECK(file.measurements.front().measured == run.measured);
  CHECK(to_json(file.measurements.front()) == to_json(run));
}
