// What a rehearsed program writes, read back: phases, what is held between steps, and the scenario
// of what ran.
#include "model/plan/scenario.hpp"
#include "model/plan/scenario_reader.hpp"
#include "rehearsal/recorded_scenario.hpp"
#include "rehearsal/rehearse.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;
using namespace zeroplan::rehearsal;

namespace {

std::string row(const std::string& phase, int step, int allocated, int peak) {
  return R"({"kind":"phase","phase":")" + phase + R"(","step":)" + std::to_string(step) +
         R"(,"allocated":)" + std::to_string(allocated) + R"(,"peak_allocated":)" +
         std::to_string(peak) + R"(,"peak_reserved":)" + std::to_string(2 * peak) + "}\n";
}

std::string fact(const std::string& name, const std::string& value) {
  return R"({"kind":"fact","name":")" + name + R"(","value":)" + value + "}\n";
}

const std::string kModel =
    fact("model", R"({"model_type":"llama","hidden_size":64,"_x":1,"pad":null})");
const std::string kBatch = fact("ids", "[2,128]");

Json workload(const std::string& facts) {
  const RecordedScenario scenario =
      scenario_of(read_process_record(kModel + kBatch + facts, "test"), "1x8xA100-80G-SXM");
  REQUIRE(scenario.missing.empty());
  return *scenario.document.find("workload");
}

std::string text(const Json& object, const char* key) { return object.find(key)->as_string(); }

}  // namespace

TEST_CASE("Peaks are the largest of all phases, and a line that is cut off is left out") {
  const ProcessRecord process = read_process_record(
      row("model", 0, 10, 12) + row("backward", 0, 20, 90) + R"({"kind":"phase","phase":"opti)",
      "test");
  REQUIRE(process.rows.size() == 2);
  CHECK(peak_allocated(process) == Bytes::of(90));
  CHECK(peak_reserved(process) == Bytes::of(180));
  CHECK_FALSE(static_allocated(process));
  CHECK_FALSE(process.end);
}

TEST_CASE("What is held between steps is the least behind the last update, until work goes on") {
  const std::string first = row("optimizer", 0, 50, 60) + row("idle", 1, 30, 50);
  const std::string second = row("forward", 1, 90, 95) + row("optimizer", 1, 52, 60);
  CHECK(*static_allocated(read_process_record(first, "test")) == Bytes::of(30));
  CHECK(*static_allocated(read_process_record(first + second, "test")) == Bytes::of(52));
  const std::string later = second + row("idle", 2, 31, 52) + row("idle", 2, 33, 33);
  CHECK(*static_allocated(read_process_record(first + later, "test")) == Bytes::of(31));
  // What is freed when the program ends is held until then.
  CHECK(*static_allocated(read_process_record(first + later + row("end", 2, 0, 0), "test")) ==
        Bytes::of(31));
}

TEST_CASE("An out-of-memory error and its lines are read, and the program's end") {
  const ProcessRecord process = read_process_record(
      R"({"kind":"out_of_memory","requested":7,"free":3,"phase":"forward","step":1,"frames":[{"file":"a.py","line":3,"function":"f"}]})"
      "\n"
      R"({"kind":"error","type":"OutOfMemoryError","message":"CUDA out of memory.","out_of_memory":true,"frames":[]})"
      "\n"
      R"({"kind":"end","stopped":true,"steps":4,"rank":2,"ranks":8,"kernels":11,"unknown_functions":["cufftX"]})"
      "\n",
      "test");
  REQUIRE(process.out_of_memory);
  CHECK(process.out_of_memory->requested == Bytes::of(7));
  CHECK(process.out_of_memory->frames.at(0).line == 3);
  REQUIRE(process.error);
  CHECK(process.error->out_of_memory);
  REQUIRE(process.end);
  CHECK(process.end->stopped);
  CHECK(process.end->rank == 2);
  CHECK(process.end->counts.at("kernels") == 11);
  CHECK(process.end->unknown_functions == std::vector<std::string>{"cufftX"});
}

TEST_CASE("A run under DeepSpeed is its ds_config's scenario") {
  const std::string facts =
      fact("engine", R"("deepspeed")") + fact("gradient_accumulation_steps", "4") +
      fact(
          "ds_config",
          R"({"bf16":{"enabled":true},"optimizer":{"type":"Lion"},"steps_per_print":"inf","zero_optimization":{"stage":2}})") +
      fact("version/torch", R"("2.11.0")") + fact("checkpointing", "true") +
      fact("reentrant", "false");
  const RecordedScenario scenario =
      scenario_of(read_process_record(kModel + kBatch + facts, "test"), "8xA100");
  const Json& said = scenario.document;
  CHECK(said.find("model")->find("_x") == nullptr);
  CHECK(said.find("model")->find("pad") == nullptr);
  CHECK(said.find("ds_config")->find("steps_per_print") == nullptr);
  CHECK(said.find("software")->find("torch")->as_string() == "2.11.0");
  const Json& work = *said.find("workload");
  CHECK(work.find("micro_batch_size")->as_integer() == 2);
  CHECK(work.find("sequence_length")->as_integer() == 128);
  CHECK(work.find("gradient_accumulation_steps")->as_integer() == 4);
  CHECK(text(work, "precision") == "bf16");
  CHECK(text(work, "optimizer") == "lion");
  CHECK(text(work, "activation_checkpointing") == "full");
  CHECK_FALSE(work.find("checkpoint_reentrant")->as_boolean());
  CHECK(text(work, "frontend") == "native");
  CHECK_NOTHROW(parse_scenario(said, "test"));
}

TEST_CASE("A run whose ds_config names Muon is a scenario with it") {
  const std::string facts =
      fact("engine", R"("deepspeed")") +
      fact("ds_config", R"({"optimizer":{"type":"Muon"},"zero_optimization":{"stage":2}})");
  const RecordedScenario scenario =
      scenario_of(read_process_record(kModel + kBatch + facts, "test"), "8xA100");
  CHECK(text(*scenario.document.find("workload"), "optimizer") == "muon");
}

TEST_CASE("A run without an engine, of the Trainer and of FSDP2 say what they are") {
  const Json plain = workload(fact("parameter_dtypes", R"(["float32"])") +
                              fact("optimizer", R"("SGD")") + fact("attention", R"("eager")"));
  CHECK(text(plain, "engine") == "ddp");
  CHECK(text(plain, "precision") == "fp32");
  CHECK(text(plain, "optimizer") == "sgd");
  CHECK(text(plain, "attention") == "eager");
  const Json trainer =
      workload(fact("frontend", R"("hf-trainer")") + fact("mixed_precision", R"("bfloat16")") +
               fact("attention", R"("flash_attention_2")"));
  CHECK(text(trainer, "frontend") == "hf-trainer");
  CHECK(text(trainer, "precision") == "bf16");
  CHECK(text(trainer, "attention") == "flash");
  const Json lightning = workload(fact("frontend", R"("lightning")") + fact("engine", R"("ddp")"));
  CHECK(text(lightning, "frontend") == "native");
  CHECK(lightning.find("gradients_held")->as_boolean());
  CHECK_FALSE(lightning.find("outputs_held")->as_boolean());
  CHECK(plain.find("gradients_held") == nullptr);
  CHECK(plain.find("outputs_kept") == nullptr);
  // Whether a loop by hand had its outputs when backward began and when the next pass ended; the
  // Trainer's is known.
  const std::string seen = fact("outputs_held", "true") + fact("outputs_kept", "false");
  const Json by_hand = workload(seen);
  CHECK(by_hand.find("outputs_held")->as_boolean());
  CHECK_FALSE(by_hand.find("outputs_kept")->as_boolean());
  CHECK(workload(seen + fact("frontend", R"("hf-trainer")")).find("outputs_held") == nullptr);
  const Json sharded =
      workload(fact("engine", R"("fsdp2")") + fact("lora", R"({"rank":8,"targets":["q_proj"]})"));
  CHECK(text(sharded, "engine") == "fsdp");
  CHECK(sharded.find("method")->find("lora")->find("rank")->as_integer() == 8);
}

TEST_CASE("Weights in 16 bits without mixed precision have no others beside them") {
  const auto bf16 = [](const std::string& facts) {
    const RecordedScenario scenario =
        scenario_of(read_process_record(kModel + kBatch + facts, "test"), "8xA100");
    return *scenario.document.find("ds_config")->find("bf16");
  };
  const std::string half = fact("parameter_dtypes", R"(["bfloat16"])");
  CHECK(bf16(half).find("bf16_master_weights_and_grads")->as_boolean());
  CHECK(bf16(half).find("bf16_optimizer_states")->as_boolean());
  CHECK(
      bf16(half + fact("mixed_precision", R"("bfloat16")")).find("bf16_master_weights_and_grads") ==
      nullptr);
}

TEST_CASE("The last optimizer and engine that are said count, and TRL without Triton is named") {
  const std::string eight = fact("optimizer", R"("AdamW")") + fact("optimizer", R"("AdamW8bit")");
  CHECK(text(workload(eight), "optimizer") == "adamw8bit");
  const auto notes = [](const std::string& facts) {
    return scenario_of(read_process_record(kModel + kBatch + facts, "test"), "8xA100").notes.size();
  };
  const std::string trl = fact("trainer", R"({"grpo":{}})") + fact("version/trl", R"("1.16.0")");
  CHECK(notes(trl) == 1);
  CHECK(notes(trl + fact("version/triton", R"("3.6.0")")) == 0);
  CHECK(notes(fact("trainer", R"({"grpo":{}})") + fact("version/trl", R"("1.14.0")")) == 0);
}

TEST_CASE("A run that is no scenario says what was not seen") {
  CHECK(scenario_of(read_process_record(row("model", 0, 1, 1), "test"), "H100").missing ==
        "a model of transformers that was trained");
  CHECK(scenario_of(read_process_record(kModel, "test"), "H100").missing ==
        "the batch that the model got");
}

TEST_CASE("Launchers start a process for each rank, other programs are one rank") {
  CHECK(is_launcher({"/venv/bin/torchrun", "--nproc-per-node", "2", "train.py"}));
  CHECK(is_launcher({"deepspeed", "train.py"}));
  CHECK(is_launcher({"python3", "-u", "-m", "torch.distributed.run", "train.py"}));
  CHECK_FALSE(is_launcher({"python3", "train.py", "-m", "torch.distributed.run"}));
  CHECK_FALSE(is_launcher({"python3", "-m", "mine.train"}));
  CHECK_FALSE(is_launcher({"python3"}));
}

TEST_CASE("What lived when memory ran out, and lines that branch on unknown values, are read") {
  const ProcessRecord process = read_process_record(
      R"({"kind":"out_of_memory","requested":8,"free":2,"phase":"backward","step":1,"frames":[]})"
      "\n"
      R"({"kind":"living","rows":[{"kind":"parameters","bytes":90,"tensors":3},)"
      R"({"kind":"other","bytes":40,"tensors":2,"file":"m.py","line":7,"function":"forward","module":"MLP"}]})"
      "\n"
      R"({"kind":"unknown_value","what":"truth","file":"t.py","line":9,"function":"main","source":"if x:"})"
      "\n" +
          fact("skipped_steps", "2") + fact("skipped_steps", "3"),
      "test");
  REQUIRE(process.living.size() == 2);
  CHECK(process.living[0].kind == "parameters");
  CHECK(process.living[0].frame.file.empty());
  CHECK(process.living[1].module == "MLP");
  CHECK(process.living[1].frame.line == 7);
  CHECK(process.living[1].bytes == Bytes::of(40));
  REQUIRE(process.unknown_values.size() == 1);
  CHECK(process.unknown_values[0].what == "truth");
  CHECK(process.unknown_values[0].source == "if x:");
  CHECK(process.skipped_steps() == 3);
  CHECK(ProcessRecord{}.skipped_steps() == 0);
}
