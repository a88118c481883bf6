// States and weights on a drive: the losses are those of states and weights in host memory, to the
// bit; what is read and written is what the policy says; runs end cleanly when the drive does not
// play along.
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/step_work.hpp"
#include "runtime/train/trainer.hpp"
#include "simulator/recording.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"
#include "tests/runtime/plan_training.hpp"
#include "tests/runtime/swap_folder.hpp"

namespace zeroplan::runtime {
namespace {

using test::SwapFolder;

constexpr int kRows = 4;
constexpr int kSteps = 3;

struct Point {
  int ranks = 1;
  int accumulation = 1;
  const char* states = "nvme";
  const char* weights = "none";
  const char* precision = "fp32";
  std::int64_t sub_group = 300'000;
  bool read_ahead = false, write_behind = false;
  std::int64_t parallelism = 1;
  std::int64_t block = 64 << 10;
  std::int64_t max_in_cpu = 0;
  std::int64_t pool = 2;  // buffers for weights
  std::int64_t persistent = 300;
  std::int64_t prefetch = 300'000;
  bool overlap = false;

  Plan plan() const {
    const Json model = test::wide_llama();
    Json zero = Json::object({{"stage", 3},
                              {"reduce_bucket_size", 400'000},
                              {"overlap_comm", overlap},
                              {"sub_group_size", sub_group},
                              {"stage3_prefetch_bucket_size", prefetch},
                              {"stage3_param_persistence_threshold", persistent},
                              {"stage3_max_live_parameters", 2'000'000},
                              {"stage3_max_reuse_distance", 100'000}});
    const int buffers = 4 + (read_ahead ? 4 : 0) + (write_behind ? 3 : 0);
    if (std::string(states) != "none") {
      zero["offload_optimizer"] = Json::object({{"device", states},
                                                {"buffer_count", buffers},
                                                {"pipeline_read", read_ahead},
                                                {"pipeline_write", write_behind}});
    }
    if (std::string(weights) != "none") {
      zero["offload_param"] = Json::object({{"device", weights},
                                            {"buffer_count", pool},
                                            {"buffer_size", 1'100'000},
                                            {"max_in_cpu", max_in_cpu}});
    }
    Json ds_config = Json::object(
        {{"zero_optimization", zero},
         {"aio", Json::object({{"block_size", block}, {"intra_op_parallelism", parallelism}})}});
    const std::string format = precision;
    if (format != "fp32") ds_config[format] = Json::object({{"enabled", true}});
    const Json workload = Json::object({{"sequence_length", 8},
                                        {"micro_batch_size", kRows / ranks / accumulation},
                                        {"gradient_accumulation_steps", accumulation},
                                        {"precision", precision},
                                        {"engine", "embedded"},
                                        {"frontend", "native"}});
    return resolve(parse_scenario(Json::object({{"model", model},
                                                {"cluster", "1x" + std::to_string(ranks) + "xcpu"},
                                                {"workload", workload},
                                                {"ds_config", ds_config}}),
                                  "test"));
  }
  std::string text() const {
    return std::to_string(ranks) + " ranks, G " + std::to_string(accumulation) + ", states " +
           states + ", weights " + weights + ", " + precision + ", sub-groups of " +
           std::to_string(sub_group) + (read_ahead ? ", reads ahead" : "") +
           (write_behind ? ", writes behind" : "") + ", parallelism " +
           std::to_string(parallelism) + ", in cpu " + std::to_string(max_in_cpu) + ", pool " +
           std::to_string(pool) + ", persistent " + std::to_string(persistent) + ", prefetch " +
           std::to_string(prefetch);
  }
};

TrainingSetup setup_of(const Plan& plan, const StepWork& work, const std::string& folder) {
  TrainingSetup setup = test::setup_of(plan, work);
  setup.swap.optimizer_folder = setup.swap.parameter_folder = folder;
  setup.swap.io.block = plan.engine.aio_block_size;
  setup.swap.io.threads = plan.engine.aio_parallelism;
  return setup;
}

TrainingReport train_plan(const Plan& plan,
                          const std::string& folder,
                          SwapEngine engine = SwapEngine::automatic,
                          bool trace = false) {
  const StepWork work = step_work(plan);
  TrainingSetup setup = setup_of(plan, work, folder);
  setup.swap.engine = engine;
  TrainingOptions options;
  options.steps = kSteps;
  options.trace = trace;
  options.patience = std::chrono::seconds(60);
  return train(setup, options, *random_tokens(1, 4201, 16));
}

// The same configuration with everything in host memory.
Point in_memory(Point point) {
  if (std::string(point.states) == "nvme") point.states = "cpu";
  if (std::string(point.weights) == "nvme") point.weights = "cpu";
  return point;
}

// How reads and writes go about it makes no difference in memory: trained once.
const TrainingReport& reference(Point point) {
  static std::map<std::string, TrainingReport> known;
  point = in_memory(point);
  point.read_ahead = point.write_behind = false;
  point.pool = 1;
  point.parallelism = 1;
  const auto [found, is_new] = known.try_emplace(point.text());
  if (is_new) found->second = train_plan(point.plan(), "");
  return found->second;
}

void check_same(const Point& point, const SwapFolder& folder) {
  INFO(point.text());
  const TrainingReport swapped = train_plan(point.plan(), folder.path());
  const TrainingReport& held = reference(point);
  CHECK(swapped.losses == held.losses);
  CHECK(swapped.gradient_norms == held.gradient_norms);
  // Something was swapped.
  Bytes on_drive;
  for (const RankReport& rank : swapped.ranks) on_drive += rank.memory.of(Place::file).peak;
  CHECK(on_drive > Bytes::zero());
  CHECK(folder.empty());
  CHECK(folder.open_files().empty());
}

TEST_CASE("states on a drive train what states in memory train, to the bit") {
  SwapFolder folder;
  for (const int ranks : {1, 2, 4}) {
    for (const int pipeline : {0, 1, 2, 3}) {
      check_same({.ranks = ranks,
                  .sub_group = 200'000,
                  .read_ahead = pipeline % 2 == 1,
                  .write_behind = pipeline >= 2},
                 folder);
    }
    check_same({.ranks = ranks, .sub_group = 700'000}, folder);
    check_same({.ranks = ranks, .sub_group = 1'000'000'000, .read_ahead = true}, folder);
  }
}

TEST_CASE("weights on a drive train what weights in memory train, to the bit") {
  SwapFolder folder;
  for (const int ranks : {1, 2, 4}) {
    for (const char* states : {"none", "cpu", "nvme"}) {
      const std::int64_t pool = ranks == 2 ? 1 : 3;
      check_same({.ranks = ranks, .states = states, .weights = "nvme", .pool = pool}, folder);
    }
  }
}

TEST_CASE("16 bits, accumulation, overlap and other knobs swap as well, to the bit") {
  SwapFolder folder;
  std::mt19937 random(20261122);
  const auto pick = [&](std::initializer_list<std::int64_t> values) {
    return *(values.begin() + random() % values.size());
  };
  for (int i = 0; i < 10; ++i) {
    Point point;
    point.ranks = static_cast<int>(pick({1, 2, 3, 4}));
    point.accumulation = point.ranks < 3 ? static_cast<int>(pick({1, 2})) : 1;
    point.states = pick({0, 1}) == 1 ? "nvme" : "cpu";
    point.weights = pick({0, 1}) == 1 || std::string(point.states) == "cpu" ? "nvme" : "none";
    // In 16 bits a partition is half as large: those of four ranks stay in memory.
    const bool small = std::string(point.weights) == "nvme" && std::string(point.states) == "cpu";
    if (!small || point.ranks < 3) {
      point.precision = pick({0, 1}) == 1 ? "bf16" : pick({0, 1}) == 1 ? "fp16" : "fp32";
    }
    point.sub_group = pick({100'000, 300'000, 900'000, 1'000'000'000});
    point.read_ahead = pick({0, 1}) == 1;
    point.write_behind = pick({0, 1}) == 1;
    point.parallelism = pick({1, 2, 4});
    point.block = pick({4'096, 65'536, 1 << 20});
    point.pool = pick({1, 2, 5});
    point.persistent = pick({0, 300, 100'000});
    point.prefetch = pick({0, 100'000, 2'000'000});
    point.overlap = pick({0, 1}) == 1;
    check_same(point, folder);
  }
}

TEST_CASE("weights of sub-groups that fit into max_in_cpu stay there") {
  SwapFolder folder;
  const Point on_drive{.states = "cpu", .weights = "nvme", .sub_group = 700'000};
  for (const std::int64_t most : {1'500'000, 1'000'000'000}) {
    Point point = on_drive;
    point.max_in_cpu = most;
    check_same(point, folder);
  }
}

TEST_CASE("threads swap what io_uring swaps") {
  SwapFolder folder;
  const Point point{.ranks = 2, .weights = "nvme", .read_ahead = true, .write_behind = true};
  const Plan plan = point.plan();
  const TrainingReport threads = train_plan(plan, folder.path(), SwapEngine::threads);
  CHECK(threads.losses == train_plan(plan, folder.path()).losses);
}

// Alignment can get lost anywhere between the policy's sizes and the pool's addresses.
TEST_CASE("nearly all of what is swapped goes past the page cache") {
  SwapFolder folder;
  const Point point{.ranks = 2, .weights = "nvme", .sub_group = 200'000};
  const Plan plan = point.plan();
  const StepWork work = step_work(plan);
  TrainingSetup setup = setup_of(plan, work, folder.path());
  std::atomic<std::int64_t> direct{0};
  std::atomic<std::int64_t> cached{0};
  std::atomic<bool> refused{false};
  setup.swap.io.call = [&](const SwapBlock& block) -> std::int64_t {
    const auto size = static_cast<std::size_t>(block.bytes);
    const ssize_t moved = block.transfer->write
                              ? pwrite(block.descriptor, block.data, size, block.offset)
                              : pread(block.descriptor, block.data, size, block.offset);
    if (moved > 0) (block.direct ? direct : cached) += moved;
    if (moved < 0 && errno == EINVAL) refused = true;
    return moved < 0 ? -errno : moved;
  };
  train(
      setup, {.steps = kSteps, .patience = std::chrono::seconds(60)}, *random_tokens(1, 4201, 16));
  if (direct == 0 && cached > 0) {
    WARN("SKIPPED: the file system of " << folder.path() << " has no O_DIRECT");
    return;
  }
  CAPTURE(direct.load(), cached.load());
  CHECK_FALSE(refused);
  CHECK(static_cast<double>(cached) < 0.02 * static_cast<double>(direct));
}

// --- checkpoints

struct Leg {
  Point point;
  int steps = 3;
};

// Trains the first leg, saves, goes on with the second; the losses of the second.
std::vector<double> resumed(const Leg& first, const Leg& second, const SwapFolder& folder) {
  SwapFolder checkpoints;
  const std::string checkpoint = checkpoints.path() + "/checkpoint";
  const auto run = [&](const Leg& leg, bool goes_on) {
    const Plan plan = leg.point.plan();
    const StepWork work = step_work(plan);
    TrainingSetup setup = setup_of(plan, work, folder.path());
    if (goes_on) resume(setup, open_checkpoint(checkpoint, *plan.model));
    TrainingOptions options{.steps = leg.steps, .patience = std::chrono::seconds(60)};
    if (!goes_on) options.save = checkpoint;
    return train(setup, options, *random_tokens(1, 4201, 16)).losses;
  };
  run(first, false);
  return run(second, true);
}

TEST_CASE("a run with states on a drive goes on in memory, and back, as if it had not stopped") {
  SwapFolder folder;
  const Point on_drive{.ranks = 2, .weights = "nvme", .sub_group = 200'000, .read_ahead = true};
  const Point in_cpu = in_memory(on_drive);
  const Plan plan = in_cpu.plan();
  const StepWork work = step_work(plan);
  const std::vector<double> whole = train(setup_of(plan, work, ""),
                                          {.steps = 5, .patience = std::chrono::seconds(60)},
                                          *random_tokens(1, 4201, 16))
                                        .losses;
  const std::vector<double> rest(whole.begin() + 3, whole.end());
  CHECK(resumed({on_drive, 3}, {in_cpu, 2}, folder) == rest);
  CHECK(resumed({in_cpu, 3}, {on_drive, 2}, folder) == rest);
  CHECK(resumed({on_drive, 3}, {on_drive, 2}, folder) == rest);
  // Under another number of ranks sums are taken in another order.
  Point other = on_drive;
  other.ranks = 1;
  const std::vector<double> losses = resumed({on_drive, 3}, {other, 2}, folder);
  for (std::size_t i = 0; i < rest.size(); ++i) {
    CHECK(std::abs(losses[i] / rest[i] - 1.0) < 1e-6);
  }
  CHECK(folder.empty());
  CHECK(folder.open_files().empty());
}

// --- errors

// What the run ends with.
template <typename Error>
std::string error_of(const Point& point,
                     const SwapFolder& folder,
                     const TrainingOptions& options,
                     const std::string& swap_to) {
  const Plan plan = point.plan();
  const StepWork work = step_work(plan);
  std::string message;
  try {
    train(setup_of(plan, work, swap_to), options, *random_tokens(1, 4201, 16));
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK(folder.empty());
  CHECK(folder.open_files().empty());
  return message;
}

TEST_CASE("a swap file that is cut while the run goes on ends it with file, place and reason") {
  SwapFolder folder;
  const int ranks = GENERATE(1, 2);
  const bool weights = GENERATE(false, true);
  const Point point{.ranks = ranks,
                    .states = weights ? "cpu" : "nvme",
                    .weights = weights ? "nvme" : "none",
                    .read_ahead = true};
  TrainingOptions options{.steps = 3, .patience = std::chrono::seconds(60)};
  int cut = 0;
  options.progress = [&](int step, double) {
    if (step != 1) return;
    // A rank that has noticed by now has closed its files.
    for (const int file : folder.open_files()) cut += ftruncate(file, 300'000) == 0 ? 1 : 0;
  };
  const std::string message = error_of<SwapError>(point, folder, options, folder.path());
  CAPTURE(message);
  CHECK(cut > 0);
  CHECK(message.find("cannot read swap file " + folder.path() + " (") == 0);
  CHECK(message.find(weights ? "(weights of rank " : "(optimizer states of rank ") !=
        std::string::npos);
  CHECK(message.find(": the file ends there") != std::string::npos);
}

TEST_CASE("a drive without room ends the run before it trains, with what was asked for") {
  SwapFolder folder;
  const int ranks = GENERATE(1, 2);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit now{1'000'000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &now);
  const std::string message = error_of<SwapError>(
      {.ranks = ranks}, folder, {.steps = 1, .patience = std::chrono::seconds(60)}, folder.path());
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CAPTURE(message);
  CHECK(message.find("cannot make room in swap file " + folder.path() +
                     " (optimizer states of rank ") == 0);
  CHECK(message.find(": File too large") != std::string::npos);
}

TEST_CASE("a rank that fails for another reason leaves nothing on the drive") {
  SwapFolder folder;
  TrainingOptions options{.steps = 1, .capacity = Bytes::mib(3)};
  options.patience = std::chrono::seconds(60);
  CHECK(error_of<OutOfMemory>({.ranks = 2, .weights = "nvme"}, folder, options, folder.path())
            .find(": out of device memory in phase ") != std::string::npos);
}

TEST_CASE("a folder that is not there, or not said, is told with its key before anything else") {
  SwapFolder folder;
  const TrainingOptions options{.steps = 1, .patience = std::chrono::seconds(60)};
  CHECK(
      error_of<InputError>({}, folder, options, "") ==
      "error: ds_config: /zero_optimization/offload_optimizer/nvme_path: expected a folder on the "
      "drive, got none\nhint: device nvme swaps to files in nvme_path");
  const std::string message = error_of<InputError>(
      {.states = "none", .weights = "nvme"}, folder, options, folder.path() + "/none");
  CHECK(message.find("/zero_optimization/offload_param/nvme_path: expected a folder that can be "
                     "written to") != std::string::npos);
}

// --- traces

// Spans of the drive, by name.
std::map<std::string, int> drive_spans(const std::string& text) {
  std::map<std::string, int> spans;
  const Json root = parse_json(text, "trace").root;
  for (const Json& event : root.find("traceEvents")->items()) {
    const Json* category = event.find("cat");
    if (category == nullptr || category->as_string() != "NVMe") continue;
    CHECK(event.find("dur")->as_number() >= 0.0);
    ++spans[event.find("name")->as_string()];
  }
  return spans;
}

TEST_CASE("a trace has what was read and written, under the simulator's names") {
  SwapFolder folder;
  for (const bool ahead : {false, true}) {
    const Point point{.ranks = 2, .sub_group = 200'000, .read_ahead = ahead, .write_behind = ahead};
    const Plan plan = point.plan();
    const TrainingReport report = train_plan(plan, folder.path(), SwapEngine::automatic, true);
    REQUIRE(report.timeline.has_value());
    std::map<std::string, int> measured = drive_spans(report.timeline->chrome_trace("measured"));
    std::map<std::string, int> simulated =
        drive_spans(simulator::record_run(plan, simulator::simulate(plan)).trace);
    CHECK(simulated.at("NVMe read") >= 2);
    CHECK(measured.at("NVMe read") == simulated.at("NVMe read"));
    // Gradients in backward, too, of which several go together.
    CHECK(measured.at("NVMe write") == simulated.at("NVMe write"));
    CHECK(measured.at("NVMe write") > measured.at("NVMe read"));
  }
}

}  // namespace
}  // namespace zeroplan::runtime
