// A run that is interrupted goes on as if it had not been, under another stage and number of ranks.
#include "runtime/train/checkpoint.hpp"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "model/diagnostic.hpp"
#include "model/engine/embedded.hpp"
#include "runtime/data/safetensors.hpp"
#include "runtime/train/trainer.hpp"
#include "tests/catch.hpp"
#include "tests/runtime/test_model.hpp"

namespace zeroplan::runtime {
namespace {

namespace fs = std::filesystem;

// A folder that goes with the test.
struct Folder {
  fs::path path =
      fs::temp_directory_path() / ("zeroplan_checkpoint_" + std::to_string(std::rand()));
  Folder() { fs::create_directories(path); }
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

TEST_CASE("a checkpoint is resumed under any stage and number of ranks") {
  Folder folder;
  Small whole = make(0, 1);
  const std::vector<double> expected = losses_of(whole, {.steps = 6});
  const int stage = GENERATE(0, 1, 2, 3);
  for (const int ranks : {1, 2, 4}) {
    CAPTURE(stage, ranks);
    Small first = make(stage, ranks);
    losses_of(first, {.steps = 3, .save = folder / "checkpoint"});
    CHECK_FALSE(fs::exists(folder / "checkpoint.tmp"));
    for (const int next_stage : {0, 2, 3}) {
      Small second = make(next_stage, next_stage == 0 ? 1 : 8 / ranks);
      Checkpoint checkpoint = open_checkpoint(folder / "checkpoint", second.small.model);
      CHECK(checkpoint.progress.steps == 3);
      CHECK(checkpoint.progress.rows == 24);
      second.setup.weights = checkpoint.weights;
      second.setup.resumed = checkpoint.state;
      second.setup.begun = checkpoint.progress;
      const std::vector<double> losses = losses_of(second, {.steps = 3});
      for (std::size_t i = 0; i < losses.size(); ++i) {
        CHECK(std::abs(losses[i] / expected[i + 3] - 1.0) < 1e-6);
      }
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
