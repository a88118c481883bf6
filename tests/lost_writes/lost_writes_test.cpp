// Power that fails at any moment, and calls that fail: what was there before, or what was to be
// there, is there afterwards.
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/output_file.hpp"
#include "cli/write_kit.hpp"
#include "model/engine/embedded.hpp"
#include "runtime/train/checkpoint_folder.hpp"
#include "runtime/train/trainer.hpp"
#include "tests/catch.hpp"
#include "tests/lost_writes/journal.hpp"
#include "tests/runtime/test_model.hpp"

namespace zeroplan::test {
namespace {

namespace fs = std::filesystem;

// Folders that go with the test: one that is written to, one for what is found after a loss.
class Folders {
 public:
  Folders() {
    std::string name = (fs::temp_directory_path() / "zeroplan_lost_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
    fs::create_directory(written());
  }
  ~Folders() { fs::remove_all(path_); }
  Folders(const Folders&) = delete;
  Folders& operator=(const Folders&) = delete;

  std::string written() const { return (path_ / "written").string(); }
  // Empty whenever it is asked for.
  std::string found() const {
    const fs::path folder = path_ / "found";
    fs::remove_all(folder);
    fs::create_directory(folder);
    return folder.string();
  }

 private:
  fs::path path_;
};

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Every kind of loss, the random ones with several seeds.
std::vector<Loss> losses(int seeds) {
  using Names = Loss::Names;
  using Bytes = Loss::Bytes;
  std::vector<Loss> all = {{Names::sure, Bytes::sure},
                           {Names::sure, Bytes::all},
                           {Names::all, Bytes::sure},
                           {Names::all, Bytes::all}};
  for (int seed = 1; seed <= seeds; ++seed) {
    all.push_back({Names::some, Bytes::some, static_cast<std::uint64_t>(seed)});
    all.push_back({Names::some, Bytes::sure, static_cast<std::uint64_t>(seed)});
    all.push_back({Names::all, Bytes::some, static_cast<std::uint64_t>(seed)});
  }
  return all;
}

TEST_CASE("a file that is replaced is the old one or the new one after any loss") {
  const Folders folders;
  const std::string path = folders.written() + "/a";
  Journal journal(folders.written());
  replace_file(path, "the first text");
  const std::size_t first = journal.operations().size();
  replace_file(path, "the second text, which is longer");
  const std::size_t second = journal.operations().size();
  for (std::size_t count = 0; count <= second; ++count) {
    for (const Loss& loss : losses(8)) {
      const std::string found = folders.found();
      journal.restore(count, loss, found);
      const std::string text = text_of(found + "/a");
      CAPTURE(count, first, second, text, loss.seed);
      const bool old = text == "the first text";
      const bool now = text == "the second text, which is longer";
      if (count >= first) REQUIRE((old || now));
      if (count == second) REQUIRE(now);
      if (count < first) REQUIRE((old || !fs::exists(found + "/a")));
    }
  }
}

TEST_CASE("a line that was added is there after any loss, and so are those before") {
  const Folders folders;
  const std::string path = folders.written() + "/lines";
  Journal journal(folders.written());
  const std::vector<std::string> lines = {"{\"one\":1}", "{\"two\":2}", "{\"three\":3}"};
  std::vector<std::size_t> done;
  for (const std::string& line : lines) {
    append_line(path, line);
    done.push_back(journal.operations().size());
  }
  for (std::size_t count = 0; count <= done.back(); ++count) {
    for (const Loss& loss : losses(8)) {
      const std::string found = folders.found();
      journal.restore(count, loss, found);
      std::string expected;
      for (std::size_t i = 0; i < lines.size(); ++i) {
        if (count >= done[i]) expected += lines[i] + "\n";
      }
      CAPTURE(count, loss.seed);
      REQUIRE(text_of(found + "/lines").starts_with(expected));
    }
  }
}

std::vector<tuner::KitFile> kit_of(const std::string& what) {
  return {{"PLAN.md", "the plan of " + what},
          {"ds_config.json", "{\"" + what + "\": 1}"},
          {"model/config.json", "{\"model\": \"" + what + "\"}"},
          {"run.sh", "echo " + what, true}};
}

void write_kit_of(const std::string& what, const std::string& folder, bool force = false) {
  std::ostringstream log;
  cli::write_kit(kit_of(what), folder, force, log, cli::Translation(cli::Language::en));
}

TEST_CASE("a kit whose writing fails leaves the files that were there, and no others") {
  const Folders folders;
  const std::string folder = folders.written() + "/kit";
  write_kit_of("old", folder);
  const std::vector<std::string> names = names_in(folder);
  const int error = GENERATE(ENOSPC, EIO);
  bool went_through = false;
  int failed = 0;
  for (int call = 0; !went_through; ++call) {
    Journal journal(folders.written());
    journal.fail_at(call, error, error == ENOSPC);
    bool threw = false;
    try {
      write_kit_of("new", folder);
    } catch (const InputError&) {
      threw = true;
    }
    journal.fail_no_more();
    went_through = !journal.failed() && !threw;
    CAPTURE(call, error);
    if (went_through) break;
    // What failed was not needed: a lock.
    if (!threw) write_kit_of("old", folder);
    if (!threw) continue;
    ++failed;
    for (const tuner::KitFile& file : kit_of("old")) {
      REQUIRE(text_of(folder + "/" + file.path) == file.text);
    }
    // The list of what is ours may know the new files already.
    REQUIRE(names_in(folder) == names);
  }
  CHECK(failed > 10);
  for (const tuner::KitFile& file : kit_of("new"))
    CHECK(text_of(folder + "/" + file.path) == file.text);
  write_kit_of("newer", folder);
}

TEST_CASE(
    "no file of a kit is half written after any loss, and the next kit takes it for its own") {
  const Folders folders;
  const std::string folder = folders.written() + "/kit";
  fs::create_directories(folder + "/model");
  Journal journal(folder);
  write_kit_of("old", folder);
  const std::size_t first = journal.operations().size();
  write_kit_of("new", folder);
  const std::vector<DiskOperation>& operations = journal.operations();
  const std::size_t last = operations.size();
  for (std::size_t count = first; count <= last; ++count) {
    for (const Loss& loss : losses(3)) {
      const std::string found = folders.found();
      fs::create_directories(found + "/model");
      journal.restore(count, loss, found);
      CAPTURE(count, first, last, loss.seed);
      for (std::size_t i = 0; i < kit_of("old").size(); ++i) {
        const std::string path = kit_of("old")[i].path;
        if (!fs::exists(found + "/" + path)) continue;  // between its two names
        const std::string text = text_of(found + "/" + path);
        const bool old = text == kit_of("old")[i].text;
        const bool now = text == kit_of("new")[i].text;
        REQUIRE((old || now));
        if (count == last) REQUIRE(now);
      }
    }
  }
}

// --- checkpoints

using runtime::CheckpointFolder;
using runtime::open_checkpoint;
using runtime::TrainingSetup;

struct Small {
  runtime::test::SmallModel small;
  TrainingSetup setup;
};

Small make() {
  Small result;
  result.small = runtime::test::small_model({.batch = 2, .hidden = 8, .layers = 1});
  EngineConfig& config = result.setup.config;
  config.stage = 1;
  config.data_parallel_ranks = 1;
  config.model_dtype = config.communication_dtype = DType::fp32;
  config.gradient_accumulation_dtype = DType::fp32;
  make_embedded(config);
  for (const Parameter& p : result.small.model.parameters) {
    result.setup.parameters.push_back({.numel = p.numel, .matrix = p.shape.size() > 1});
  }
  result.setup.micro_batch = 2;
  result.setup.sequence = 8;
  result.setup.kernels = [](int) { return runtime::test::plain_kernels(); };
  return result;
}

// Trains and saves after every step; `done` gets where each checkpoint was whole.
void train_and_save(Small& run,
                    const std::string& folder,
                    int steps,
                    const std::function<void(int step)>& done) {
  run.setup.model = &run.small.model;
  run.setup.graph = &run.small.graph;
  runtime::TrainingOptions options{.steps = steps};
  options.save = folder;
  options.save_every = 1;
  options.keep = 2;
  // Called behind each step, before it is saved: all before are whole.
  options.progress = [&](int step, double) { done(step - 1); };
  runtime::train(run.setup, options, *runtime::random_tokens(3, 24, 32));
  done(steps);
}

TEST_CASE("after any loss the last checkpoint that was whole is gone on from, or a later one") {
  const Folders folders;
  Small run = make();
  constexpr int kSteps = 4;
  std::vector<std::size_t> done(kSteps + 1, 0);
  Journal journal(folders.written());
  train_and_save(run, folders.written(), kSteps, [&](int step) {
    done[static_cast<std::size_t>(step)] = journal.operations().size();
  });
  const std::size_t last = journal.operations().size();
  REQUIRE(last > 100);
  int resumed = 0;
  for (std::size_t count = 0; count <= last; ++count) {
    int whole = 0;
    while (whole < kSteps && done[static_cast<std::size_t>(whole) + 1] <= count) ++whole;
    for (const Loss& loss : losses(2)) {
      const std::string found = folders.found();
      journal.restore(count, loss, found);
      CAPTURE(count, last, whole, loss.seed, names_in(found));
      std::int64_t steps = 0;
      try {
        steps = open_checkpoint(found, run.small.model).progress.steps;
        ++resumed;
      } catch (const InputError& error) {
        CAPTURE(error.what());
        REQUIRE(whole == 0);
        continue;
      }
      REQUIRE(steps >= whole);
      REQUIRE(steps <= whole + 1);
    }
  }
  CHECK(resumed > 100);
}

TEST_CASE("what a killed run left is cleared away by the next, and what it keeps is whole") {
  const Folders folders;
  Small run = make();
  Journal journal(folders.written());
  train_and_save(run, folders.written(), 3, [](int) {});
  const std::size_t last = journal.operations().size();
  for (std::size_t count = 5; count <= last; count += 7) {
    const std::string found = folders.found();
    journal.restore(count, {Loss::Names::all, Loss::Bytes::some, count}, found);
    CAPTURE(count, names_in(found));
    if (!fs::exists(found + "/.zeroplan-checkpoints")) continue;
    Small next = make();
    next.setup.model = &next.small.model;
    next.setup.graph = &next.small.graph;
    runtime::TrainingOptions options{.steps = 1};
    options.save = found;
    runtime::train(next.setup, options, *runtime::random_tokens(3, 24, 32));
    for (const std::string& name : names_in(found)) {
      REQUIRE_FALSE(name.starts_with(".zeroplan-saving"));
      REQUIRE_FALSE(name.starts_with(".zeroplan-removing"));
    }
    REQUIRE(open_checkpoint(found, next.small.model).progress.steps == 1);
  }
}

TEST_CASE("a call that fails while a checkpoint is written ends the run; those before stay whole") {
  const Folders folders;
  const int error = GENERATE(ENOSPC, EIO, EDQUOT);
  Small run = make();
  train_and_save(run, folders.written(), 2, [](int) {});
  bool went_through = false;
  int failed = 0;
  for (int call = 0; !went_through; ++call) {
    Small next = make();
    next.setup.model = &next.small.model;
    next.setup.graph = &next.small.graph;
    runtime::resume(next.setup,
                    open_checkpoint(folders.written() + "/global_step2", next.small.model));
    Journal journal(folders.written());
    journal.fail_at(call, error, true);
    runtime::TrainingOptions options{.steps = 1};
    options.save = folders.written();
    std::string message;
    try {
      runtime::train(next.setup, options, *runtime::random_tokens(3, 24, 32));
    } catch (const WriteError& thrown) {
      message = thrown.what();
    }
    journal.fail_no_more();
    went_through = !journal.failed();
    CAPTURE(call, error, message, names_in(folders.written()));
    if (went_through) break;
    ++failed;
    REQUIRE(message.starts_with("cannot write " + folders.written()));
    REQUIRE(open_checkpoint(folders.written() + "/global_step2", run.small.model).progress.steps ==
            2);
    const std::int64_t steps = open_checkpoint(folders.written(), run.small.model).progress.steps;
    // Where only the pointer's own folder could not be flushed the new one is there already.
    REQUIRE((steps == 2 || steps == 3));
    for (const std::string& name : names_in(folders.written())) {
      REQUIRE_FALSE(name.starts_with(".zeroplan-saving"));
      REQUIRE_FALSE(name.starts_with(".latest."));
    }
  }
  CHECK(failed > 10);
}

}  // namespace
}  // namespace zeroplan::test
