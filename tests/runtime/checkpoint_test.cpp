// A run that is interrupted goes on as if it had not been, under another stage and number of ranks.
#include "runtime/train/checkpoint.hpp"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <sys/stat.h>

#include "base/diagnostic.hpp"
#include "model/engine/embedded.hpp"
#include "model/plan/scenario_reader.hpp"
#include "runtime/data/disk_file.hpp"
#include "runtime/data/safetensors.hpp"
#include "runtime/train/checkpoint_folder.hpp"
#include "runtime/train/trainer.hpp"
#include "tests/catch.hpp"
#include "tests/runtime/plan_training.hpp"
#include "tests/runtime/test_model.hpp"

namespace zeroplan::runtime {
namespace {

namespace fs = std::filesystem;

// A folder that goes with the test; no other process of these tests has it.
struct Folder {
  fs::path path;
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "zeroplan_checkpoint_XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const char* name) const { return (path / name).string(); }
};

struct Small {
  test::SmallModel small;
  TrainingSetup setup;
};

// 8 rows a step.
Small make(int stage, int ranks) {
  Small result;
  result.small = test::small_model({.batch = 8 / ranks});
  EngineConfig& config = result.setup.config;
  config.stage = stage;
  config.data_parallel_ranks = ranks;
  config.model_dtype = config.communication_dtype = DType::fp32;
  config.gradient_accumulation_dtype = DType::fp32;
  config.reduce_bucket = Elements::of(300);
  config.stage3.parameter_persistence_threshold = Elements::of(20);
  config.stage3.sub_group_size = Elements::of(200);
  make_embedded(config);
  for (const Parameter& p : result.small.model.parameters) {
    result.setup.parameters.push_back({.numel = p.numel, .matrix = p.shape.size() > 1});
  }
  result.setup.micro_batch = 8 / ranks;
  result.setup.sequence = 8;
  result.setup.adamw.learning_rate = 0.002;
  result.setup.kernels = [](int) { return test::plain_kernels(); };
  return result;
}

std::vector<double> losses_of(Small& run, const TrainingOptions& options) {
  run.setup.model = &run.small.model;
  run.setup.graph = &run.small.graph;
  return train(run.setup, options, *random_tokens(3, 24, 32)).losses;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// What opening the checkpoint is refused with.
std::string refusal_of(const std::string& folder, const Model& model) {
  try {
    open_checkpoint(folder, model);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("a checkpoint of shards, or of secondary partitions, is one as any other") {
  Folder folder;
  Small whole = make(0, 1);
  const std::vector<double> expected = losses_of(whole, {.steps = 6});
  const auto grouped = [](int ranks, int shard, int secondary_partitions) {
    Small run = make(3, ranks);
    run.setup.config.stage3.mics_shard_size = shard;
    run.setup.config.stage3.hpz_partition_size = secondary_partitions;
    return run;
  };
  const auto resumed = [&](Small run) {
    resume(run.setup, open_checkpoint(folder / "checkpoint", run.small.model));
    const std::vector<double> losses = losses_of(run, {.steps = 3});
    for (std::size_t i = 0; i < losses.size(); ++i) {
      CHECK(std::abs(losses[i] / expected[i + 3] - 1.0) < 1e-6);
    }
  };
  struct Groups {
    int ranks, shard, secondary_partitions;
  };
  const Groups all[] = {{4, 1, 1}, {4, 2, 1}, {8, 4, 1}, {2, 2, 1}, {4, -1, 2}, {8, -1, 8}};
  for (const Groups& from : all) {
    CAPTURE(from.ranks, from.shard, from.secondary_partitions);
    Small first = grouped(from.ranks, from.shard, from.secondary_partitions);
    losses_of(first, {.steps = 3, .save = folder / "checkpoint"});
    for (const int stage : {0, 1, 3}) resumed(make(stage, stage == 0 ? 1 : 2));
    for (const Groups& to : all) resumed(grouped(to.ranks, to.shard, to.secondary_partitions));
  }
}

TEST_CASE("a checkpoint is resumed under any stage and number of ranks") {
  Folder folder;
  Small whole = make(0, 1);
  const std::vector<double> expected = losses_of(whole, {.steps = 6});
  const int stage = GENERATE(0, 1, 2, 3);
  for (const int ranks : {1, 2, 4}) {
    CAPTURE(stage, ranks);
    Small first = make(stage, ranks);
    losses_of(first, {.steps = 3, .save = folder / "checkpoint"});
    for (const int next_stage : {0, 2, 3}) {
      Small second = make(next_stage, next_stage == 0 ? 1 : 8 / ranks);
      Checkpoint checkpoint = open_checkpoint(folder / "checkpoint", second.small.model);
      CHECK(checkpoint.progress.steps == 3);
      CHECK(checkpoint.progress.rows == 24);
      resume(second.setup, checkpoint);
      const std::vector<double> losses = losses_of(second, {.steps = 3});
      for (std::size_t i = 0; i < losses.size(); ++i) {
        CHECK(std::abs(losses[i] / expected[i + 3] - 1.0) < 1e-6);
      }
    }
  }
}

TEST_CASE("bf16 masters and moments are resumed to the bit, and under another stage") {
  Folder folder;
  const auto train_some = [&](int stage, int ranks, int steps, bool resumes) {
    const Json bf16 = Json::object({{"enabled", true},
                                    {"bf16_master_weights_and_grads", true},
                                    {"bf16_optimizer_states", true}});
    const Json document =
        Json::object({{"model", test::wide_llama()},
                      {"cluster", "1x" + std::to_string(ranks) + "xcpu"},
                      {"workload",
                       Json::object({{"sequence_length", 8},
                                     {"micro_batch_size", 4 / ranks},
                                     {"precision", "bf16"},
                                     {"engine", "embedded"},
                                     {"frontend", "native"}})},
                      {"ds_config",
                       Json::object({{"bf16", bf16},
                                     {"zero_optimization", Json::object({{"stage", stage}})}})}});
    const Plan plan = resolve(parse_scenario(document, "test"));
    const StepWork work = step_work(plan);
    TrainingSetup setup = test::setup_of(plan, work);
    if (resumes) resume(setup, open_checkpoint(folder / "checkpoint", *plan.model));
    TrainingOptions options{.steps = steps};
    if (steps == 2 && !resumes) options.save = folder / "checkpoint";
    return train(setup, options, *random_tokens(1, 97, 16)).losses;
  };
  const std::vector<double> whole = train_some(2, 2, 4, false);
  train_some(2, 2, 2, false);
  const std::vector<double> same = train_some(2, 2, 2, true);
  const std::vector<double> other = train_some(3, 4, 2, true);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(same[i] == whole[i + 2]);
    CHECK(std::abs(other[i] / whole[i + 2] - 1.0) < 3e-3);
  }
}

// Losses and norms of gradients, to the bit.
struct Curve {
  std::vector<double> losses, norms;
};

struct Resumable {
  const char* precision;
  int stage, ranks;
  const char* offload;  // of the optimizer
};

// A LLaMA so small that fp16 overflows where its scale says so.
Plan plan_of(const Resumable& what) {
  const Json model = Json::object({{"model_type", "llama"},
                                   {"architectures", Json::array({"LlamaForCausalLM"})},
                                   {"hidden_size", 32},
                                   {"intermediate_size", 48},
                                   {"num_hidden_layers", 1},
                                   {"num_attention_heads", 2},
                                   {"vocab_size", 64},
                                   {"max_position_embeddings", 64},
                                   {"rms_norm_eps", 1e-5}});
  Json zero = Json::object({{"stage", what.stage}, {"reduce_bucket_size", 2000}});
  if (std::string_view(what.offload) != "none") {
    zero["offload_optimizer"] = Json::object({{"device", what.offload}});
  }
  Json ds_config = Json::object({{"zero_optimization", std::move(zero)}});
  if (std::string_view(what.precision) != "fp32") {
    ds_config[what.precision] = Json::object({{"enabled", true}});
  }
  return resolve(
      parse_scenario(Json::object({{"model", model},
                                   {"cluster", "1x" + std::to_string(what.ranks) + "xcpu"},
                                   {"workload",
                                    Json::object({{"sequence_length", 8},
                                                  {"micro_batch_size", 2},
                                                  {"precision", what.precision},
                                                  {"engine", "embedded"},
                                                  {"frontend", "native"}})},
                                   {"ds_config", std::move(ds_config)}}),
                     "test"));
}

TEST_CASE("a run that goes on from any step is the run that was not interrupted, to the bit") {
  constexpr int kSteps = 14;
  const Resumable all[] = {{"fp32", 0, 1, "none"},
                           {"fp32", 2, 2, "none"},
                           {"fp32", 3, 2, "cpu"},
                           {"bf16", 1, 2, "none"},
                           {"bf16", 2, 2, "cpu"},
                           {"bf16", 3, 2, "none"},
                           {"fp16", 0, 1, "none"},
                           {"fp16", 1, 2, "none"},
                           {"fp16", 2, 2, "none"},
                           {"fp16", 3, 2, "none"},
                           {"fp16", 3, 2, "cpu"}};
  for (const Resumable& what : all) {
    CAPTURE(what.precision, what.stage, what.ranks, what.offload);
    Folder folder;
    const Plan plan = plan_of(what);
    const StepWork work = step_work(plan);
    const auto train_from = [&](int begun) {
      TrainingSetup setup = test::setup_of(plan, work);
      setup.adamw.learning_rate = 0.01;
      // Overflows at once, then whenever the scale has grown again.
      if (std::string_view(what.precision) == "fp16") {
        setup.loss_scaling = {.initial = 1 << 22, .dynamic = true, .window = 3, .hysteresis = 2};
      }
      TrainingOptions options{.steps = kSteps - begun};
      if (begun == 0) {
        options.save = folder / "checkpoints";
        options.save_every = 1;
      } else {
        const std::string tag = "checkpoints/global_step" + std::to_string(begun);
        resume(setup, open_checkpoint(folder / tag.c_str(), *plan.model));
      }
      const TrainingReport report = train(setup, options, *random_tokens(1, 64, 16));
      return Curve{report.losses, report.gradient_norms};
    };
    const Curve whole = train_from(0);
    if (std::string_view(what.precision) == "fp16") {
      // Both are in what is compared: steps that were skipped, and steps that were not.
      const auto skipped = std::count(whole.norms.begin(), whole.norms.end(), 0.0);
      CAPTURE(whole.norms);
      CHECK((skipped >= 3 && skipped <= kSteps - 4));
    }
    for (int begun = 1; begun < kSteps; ++begun) {
      const Curve rest = train_from(begun);
      REQUIRE(rest.losses.size() == static_cast<std::size_t>(kSteps - begun));
      for (std::size_t i = 0; i < rest.losses.size(); ++i) {
        const std::size_t at = i + static_cast<std::size_t>(begun);
        CAPTURE(begun, at);
        REQUIRE(rest.losses[i] == whole.losses[at]);
        const bool same = rest.norms[i] == whole.norms[at] ||
                          (std::isnan(rest.norms[i]) && std::isnan(whole.norms[at]));
        REQUIRE(same);
      }
    }
  }
}

TEST_CASE("what is kept is the newest of the run's own; what is of other runs stays") {
  Folder folder;
  const std::string checkpoints = folder / "checkpoints";
  Small first = make(1, 2);
  losses_of(first, {.steps = 3, .save = checkpoints, .save_every = 1});
  CHECK(names_in(checkpoints) ==
        std::vector<std::string>{
            ".zeroplan-checkpoints", "global_step1", "global_step2", "global_step3", "latest"});
  // Somebody's note beside the files keeps the folder.
  write_text(checkpoints + "/global_step1/note.txt", "good one");
  Small other = make(1, 2);
  losses_of(other, {.steps = 4, .save = checkpoints, .save_every = 1, .keep = 2});
  CHECK(names_in(checkpoints) == std::vector<std::string>{".zeroplan-checkpoints",
                                                          "global_step1",
                                                          "global_step2",
                                                          "global_step3",
                                                          "global_step3.2",
                                                          "global_step4",
                                                          "latest"});
  CHECK(open_checkpoint(checkpoints, other.small.model).progress.steps == 4);
  // Who goes on is the same run, and its old ones count.
  Small next = make(1, 2);
  resume(next.setup, open_checkpoint(checkpoints, next.small.model));
  losses_of(next, {.steps = 1, .save = checkpoints, .keep = 1});
  CHECK(names_in(checkpoints) == std::vector<std::string>{".zeroplan-checkpoints",
                                                          "global_step1",
                                                          "global_step2",
                                                          "global_step3",
                                                          "global_step5",
                                                          "latest"});
  CHECK(open_checkpoint(checkpoints + "/global_step3", next.small.model).progress.steps == 3);
}

// What saving into the folder is refused with, before any step.
std::string refusal_to_save(const std::string& folder) {
  Small run = make(1, 1);
  try {
    losses_of(run, {.steps = 1, .save = folder});
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("a folder that is neither empty nor ours is refused, and left alone") {
  Folder folder;
  const std::string other = folder / "other";
  fs::create_directories(other + "/deep");
  write_text(other + "/latest", "global_step10");  // DeepSpeed's own
  CHECK(refusal_to_save(other) ==
        "error: " + other +
            ": expected an empty folder, a new one, or one with checkpoints of zeroplan run, got a "
            "folder that holds \"deep\"\nhint: name a folder of its own: --save " +
            other + "/checkpoints");
  CHECK(names_in(other) == std::vector<std::string>{"deep", "latest"});
  write_text(folder / "file", "mine");
  CHECK(refusal_to_save(folder / "file").find("got a file of that name") != std::string::npos);
  CHECK(text_of(folder / "file") == "mine");
  // The top folder of a drive.
  fs::create_directories(folder / "drive/lost+found");
  CHECK(refusal_to_save(folder / "drive").empty());
  CHECK(refusal_to_save(folder / "deep/new/one/").empty());
}

TEST_CASE("what only looks like a folder of checkpoints is not taken for one") {
  Folder folder;
  fs::create_directories(folder / "theirs");
  for (const char* text : {"notes", "{}", R"({"schema":"zeroplan.kit/1"})"}) {
    write_text(folder / "theirs/.zeroplan-checkpoints", text);
    CHECK(refusal_to_save(folder / "theirs").find("got a folder that holds") != std::string::npos);
    CHECK(text_of(folder / "theirs/.zeroplan-checkpoints") == text);
  }
  // A pipe would be waited for, a link's target is somebody else's.
  write_text(folder / "precious", "mine");
  for (const bool pipe : {true, false}) {
    const std::string save = folder / (pipe ? "pipe" : "link");
    CHECK(refusal_to_save(save).empty());
    fs::remove(save + "/latest");
    if (pipe) REQUIRE(mkfifo((save + "/latest").c_str(), 0600) == 0);
    if (!pipe) fs::create_symlink(folder / "precious", save + "/latest");
    CHECK(refusal_to_save(save).find("/latest: expected no such file") != std::string::npos);
  }
  CHECK(text_of(folder / "precious") == "mine");
  fs::create_symlink("loop", folder / "loop");
  CHECK_THROWS_AS(CheckpointFolder(folder / "loop", 0, ""), WriteError);
  CHECK_THROWS_AS(CheckpointFolder(folder / std::string(300, 'x').c_str(), 0, ""), WriteError);
}

TEST_CASE("a checkpoint beside which somebody keeps something is not removed") {
  Folder folder;
  const std::string checkpoints = folder / "checkpoints";
  Small run = make(1, 2);
  losses_of(run, {.steps = 2, .save = checkpoints, .save_every = 1});
  write_text(checkpoints + "/global_step1/notes.txt", "good one");
  resume(run.setup, open_checkpoint(checkpoints, run.small.model));
  losses_of(run, {.steps = 2, .save = checkpoints, .save_every = 1, .keep = 1});
  CHECK(
      names_in(checkpoints) ==
      std::vector<std::string>{".zeroplan-checkpoints", "global_step1", "global_step4", "latest"});
  CHECK(open_checkpoint(checkpoints + "/global_step1", run.small.model).progress.steps == 1);
  CHECK(text_of(checkpoints + "/global_step1/notes.txt") == "good one");
}

TEST_CASE("a checkpoint as releases before wrote it is gone on from, and stays") {
  Folder folder;
  const std::string checkpoints = folder / "checkpoints";
  Small run = make(2, 2);
  losses_of(run, {.steps = 2, .save = checkpoints});
  // The files in the folder itself, and a state without checksum and run.
  const std::string old = folder / "old";
  fs::rename(checkpoints + "/global_step2", old);
  std::string facts = text_of(old + "/state.json");
  facts.resize(facts.rfind(",\n  \"crc32\": "));
  facts += "\n}\n";
  const auto replace = [&](const std::string& what, const std::string& by) {
    const std::size_t at = facts.find(what);
    REQUIRE(at != std::string::npos);
    facts.replace(at, what.size(), by);
  };
  replace("zeroplan.checkpoint/2", "zeroplan.checkpoint/1");
  replace("\"loss_scaler\": null", "\"loss_scale\": 1.0");
  write_text(old + "/state.json", facts);
  Small next = make(2, 2);
  resume(next.setup, open_checkpoint(old, next.small.model));
  losses_of(next, {.steps = 1, .save = old, .keep = 1});
  CHECK(names_in(old) == std::vector<std::string>{".zeroplan-checkpoints",
                                                  "global_step3",
                                                  "latest",
                                                  "model.safetensors",
                                                  "optimizer.safetensors",
                                                  "state.json"});
}

TEST_CASE("a pointer that leads out of its folder is not followed") {
  Folder folder;
  const std::string checkpoints = folder / "checkpoints";
  Small run = make(1, 1);
  losses_of(run, {.steps = 1, .save = checkpoints});
  for (const char* name : {"../elsewhere",
                           "/etc",
                           "",
                           "global_step1/../..",
                           "global_step-1",
                           "global_step99999999999999999999",
                           "global_step2"}) {
    CAPTURE(name);
    write_text(checkpoints + "/latest", name);
    CHECK(refusal_of(checkpoints, run.small.model).find("latest: expected the name") !=
          std::string::npos);
  }
  fs::remove(checkpoints + "/latest");
  CHECK(open_checkpoint(checkpoints, run.small.model).progress.steps == 1);
}

TEST_CASE("a checkpoint that is not what was written is refused with the file and why") {
  Folder folder;
  const std::string checkpoint = folder / "checkpoint";
  Small run = make(2, 2);
  losses_of(run, {.steps = 1, .save = checkpoint});
  const Model& model = run.small.model;
  CHECK(refusal_of(checkpoint, model).empty());
  CHECK(refusal_of(checkpoint + "/", model).empty());
  const std::string tag = checkpoint + "/global_step1";
  const std::string weights = tag + "/model.safetensors";
  const std::string moments = tag + "/optimizer.safetensors";
  const std::string state = tag + "/state.json";

  const std::string whole = text_of(weights);
  std::string flipped = whole;
  flipped[whole.size() - 5] = static_cast<char>(flipped[whole.size() - 5] ^ 1);
  write_text(weights, flipped);
  CHECK(refusal_of(checkpoint, model) ==
        "error: " + weights +
            ": expected the bytes that were written, got others: the checksum (CRC-32) differs");
  write_text(weights, whole);

  const std::string second = text_of(moments);
  write_text(moments, second.substr(0, second.size() - 4));
  CHECK(refusal_of(checkpoint, model) ==
        "error: " + moments + ": expected " + std::to_string(second.size()) +
            " bytes, as were written, got " + std::to_string(second.size() - 4) + " bytes");
  fs::remove(moments);
  CHECK(refusal_of(checkpoint, model) ==
        "error: " + moments + ": expected a readable file, got No such file or directory");
  write_text(moments, second);

  const std::string facts = text_of(state);
  write_text(state, facts.substr(0, facts.size() / 2));
  CHECK(refusal_of(checkpoint, model).find("state.json: line") != std::string::npos);
  write_text(state, "{\"schema\": \"zeroplan.checkpoint/1\"}");
  CHECK(refusal_of(checkpoint, model).find("/steps: expected a whole number from 0 to 2^53") !=
        std::string::npos);
  CHECK(refusal_of(folder / "nowhere", model).find("nowhere/state.json") != std::string::npos);
  write_text(state, facts);
  CHECK(refusal_of(checkpoint, model).empty());
}

TEST_CASE("every byte of state.json counts") {
  Folder folder;
  const std::string checkpoint = folder / "checkpoint";
  Small run = make(2, 2);
  losses_of(run, {.steps = 1, .save = checkpoint});
  const std::string state = checkpoint + "/global_step1/state.json";
  const std::string facts = text_of(state);
  for (std::size_t i = 0; i < facts.size(); ++i) {
    std::string changed = facts;
    // Another digit, another letter: most of these are JSON.
    changed[i] = static_cast<char>(changed[i] ^ 1);
    write_text(state, changed);
    CAPTURE(i, changed);
    CHECK_FALSE(refusal_of(checkpoint, run.small.model).empty());
  }
}

// A text that says `key`: `value` in place of what was written, with a checksum that fits.
std::string resealed(std::string facts, const std::string& key, const std::string& value) {
  const std::size_t at = facts.find("\"" + key + "\": ") + key.size() + 4;
  facts.replace(at, facts.find_first_of(",\n", at) - at, value);
  const std::size_t sum = facts.rfind(",\n  \"crc32\": ");
  const auto body = std::as_bytes(std::span(facts.data(), sum));
  return facts.substr(0, sum) + ",\n  \"crc32\": " + std::to_string(crc32(body)) + "\n}\n";
}

TEST_CASE("a state with numbers that no run reaches is refused, whatever its checksum") {
  Folder folder;
  const std::string checkpoint = folder / "checkpoint";
  Small run = make(2, 2);
  losses_of(run, {.steps = 1, .save = checkpoint});
  const std::string state = checkpoint + "/global_step1/state.json";
  const std::string facts = text_of(state);
  write_text(state, resealed(facts, "rows", "8"));
  REQUIRE(refusal_of(checkpoint, run.small.model).empty());
  for (const char* key : {"rows", "steps", "updates"}) {
    for (const char* value :
         {"9223372036854775807", "-1", "1.5", "9007199254740993", "\"8\"", "1e400", "null", "[]"}) {
      CAPTURE(key, value);
      write_text(state, resealed(facts, key, value));
      const std::string refusal = refusal_of(checkpoint, run.small.model);
      CHECK(refusal.find(state) != std::string::npos);
    }
  }
}

// The process may write no file longer than that until this goes.
class LongestFile {
 public:
  explicit LongestFile(rlim_t bytes) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~LongestFile() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  LongestFile(const LongestFile&) = delete;
  LongestFile& operator=(const LongestFile&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST_CASE("a disk that takes no more ends the run; the checkpoint before stays whole") {
  Folder folder;
  const std::string checkpoint = folder / "checkpoint";
  const int ranks = GENERATE(1, 4);
  Small first = make(2, ranks);
  losses_of(first, {.steps = 2, .save = checkpoint});
  std::string message;
  {
    const LongestFile limit(4096);
    Small second = make(2, ranks);
    try {
      losses_of(second, {.steps = 1, .save = checkpoint});
    } catch (const WriteError& error) {
      message = error.what();
    }
  }
  CHECK(message.starts_with("cannot write " + checkpoint + "/.zeroplan-saving."));
  CHECK(message.ends_with("/model.safetensors: File too large"));
  CHECK(names_in(checkpoint) ==
        std::vector<std::string>{".zeroplan-checkpoints", "global_step2", "latest"});
  CHECK(open_checkpoint(checkpoint, first.small.model).progress.steps == 2);
}

TEST_CASE("a loss that is no number ends the run; the checkpoint before stays") {
  Folder folder;
  const std::string checkpoint = folder / "checkpoint";
  const int ranks = GENERATE(1, 4);
  Small run = make(3, ranks);
  run.setup.adamw.learning_rate = 1e30;
  std::string message;
  try {
    losses_of(run, {.steps = 50, .save = checkpoint, .save_every = 1});
  } catch (const NonFiniteLoss& error) {
    message = error.what();
  }
  // The first loss is that of the first weights.
  REQUIRE(message.find("the loss of step ") == 0);
  const Progress last = open_checkpoint(checkpoint, run.small.model).progress;
  CHECK(last.steps >= 1);
  CHECK(message.find("the loss of step " + std::to_string(last.steps + 1) + " is ") == 0);
}

TEST_CASE("a device that is too small is told with who asked, what for, and the prediction") {
  const int ranks = GENERATE(1, 4);
  Small run = make(2, ranks);
  run.setup.predicted_peak = Bytes::kib(100);
  std::string message;
  try {
    losses_of(run, {.steps = 1, .capacity = Bytes::kib(20)});
  } catch (const OutOfMemory& error) {
    message = error.what();
    CHECK(error.asked() > Bytes::zero());
  }
  CAPTURE(message);
  CHECK(message.find(": out of device memory in phase ") == 6);  // behind "rank N"
  CHECK(message.find(" asked for ") != std::string::npos);
  CHECK(message.find(" of 20480 bytes in use; the plan predicted a peak of 102400 bytes") !=
        std::string::npos);
}

TEST_CASE("the checksum is zlib's, however the bytes are cut") {
  const std::string text = "The quick brown fox jumps over the lazy dog";
  const auto bytes = std::as_bytes(std::span(text));
  CHECK(crc32({}) == 0);
  CHECK(crc32(std::as_bytes(std::span(text.data(), 9))) == 0x5f7e3064);  // zlib.crc32 says so too
  CHECK(crc32(bytes) == 0x414fa339);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    CHECK(crc32(bytes.subspan(cut), crc32(bytes.first(cut))) == 0x414fa339);
  }
}

TEST_CASE("the first steps are not counted: of many ten, of few two") {
  for (const auto& [steps, counted] : {std::pair{1, 1}, {2, 2}, {5, 3}, {20, 18}, {24, 14}}) {
    CAPTURE(steps);
    Small run = make(1, 2);
    run.setup.model = &run.small.model;
    run.setup.graph = &run.small.graph;
    const TrainingReport report = train(run.setup, {.steps = steps}, *random_tokens(3, 24, 32));
    for (const RankReport& rank : report.ranks) {
      CHECK(rank.steady_steps == counted);
      const Seconds mean = step_seconds(rank.steady);
      CHECK(rank.median_step > Seconds());
      // Half of the steps take as long or longer.
      CHECK(rank.median_step * (0.5 * counted) <= mean * (1.000001 * counted));
    }
  }
}

TEST_CASE("a checkpoint of another model is refused by name") {
  Folder folder;
  Small run = make(3, 2);
  losses_of(run, {.steps = 1, .save = folder / "checkpoint"});
  const test::SmallModel wider = test::small_model({.hidden = 32});
  std::string message;
  try {
    open_checkpoint(folder / "checkpoint", wider.model);
  } catch (const InputError& error) {
    message = error.what();
  }
  CHECK(message.find("/embed.weight/shape: expected the model's shape") != std::string::npos);
}

TEST_CASE("safetensors are read back in parts, and broken files refused") {
  Folder folder;
  const std::string path = folder / "a.safetensors";
  {
    SafetensorsWriter writer(path, {{"x", {2, 3}}, {"y", {2}}});
    const std::vector<float> x = {0, 1, 2, 3, 4, 5};
    const std::vector<float> y = {7, 8};
    writer.append(x);
    writer.append(y);
    writer.finish();
  }
  const SafetensorsFile file(path);
  REQUIRE(file.find("x") != nullptr);
  CHECK(file.find("x")->shape == std::vector<std::int64_t>{2, 3});
  CHECK(file.find("z") == nullptr);
  std::vector<float> part(3);
  file.read("x", Elements::of(2), part);
  CHECK(part == std::vector<float>{2, 3, 4});
  std::vector<float> last(1);
  file.read("y", Elements::of(1), last);
  CHECK(last[0] == 8.0F);
  // A file that became shorter since its header was read.
  fs::resize_file(path, fs::file_size(path) - 4);
  CHECK_THROWS_AS(file.read("y", Elements::of(0), std::span(part).first(2)), InputError);
  CHECK_NOTHROW(file.read("y", Elements::of(0), last));
  const auto refused = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    CHECK_THROWS_AS(SafetensorsFile(path), InputError);
  };
  refused("");
  refused(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + "{}");
  const auto with_header = [](std::string header) {
    std::string length(8, '\0');
    length[0] = static_cast<char>(header.size());
    return length + header;
  };
  refused(with_header(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"));
  refused(with_header(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})") + "12345678");
  refused(with_header(R"({"x":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})") + "12345678");
  refused(with_header("[]"));
}

}  // namespace
}  // namespace zeroplan::runtime
