// Weights on NVMe in the parameter coordinator: what is read when, and how many buffers it takes.
// The recordings (recorded_here_test.cpp) hold the real coordinator against it; here stand the
// rules by hand, and what holds for every pool.
#include <algorithm>
#include <set>
#include <vector>

#include "model/engine/fetch_coordinator.hpp"
#include "tests/catch.hpp"
#include "tests/engine/fetch_step.hpp"

namespace zeroplan {
namespace {

using Kind = FetchEventKind;

// Modules in a row, each with one weight; forward in order, backward in reverse.
struct Row {
  FetchModel model;
  std::vector<ModuleEvent> order;
};

Row row(const std::vector<std::int64_t>& numels, const std::vector<bool>& on_drive) {
  Row made;
  made.model.modules.push_back({});
  std::vector<ModuleEvent> back;
  made.order.push_back({ModuleEventKind::forward_enter, 0});
  for (std::size_t i = 0; i < numels.size(); ++i) {
    const auto module = static_cast<ModuleIndex>(i + 1);
    made.model.parameters.push_back({.numel = Elements::of(numels[i])});
    made.model.modules.push_back({{static_cast<ParameterIndex>(i)}, 0, false});
    made.order.push_back({ModuleEventKind::forward_enter, module});
    made.order.push_back({ModuleEventKind::forward_exit, module});
    back.insert(
        back.begin(),
        {{ModuleEventKind::backward_enter, module}, {ModuleEventKind::backward_exit, module}});
  }
  made.order.push_back({ModuleEventKind::forward_exit, 0});
  made.order.push_back({ModuleEventKind::backward_begin, 0});
  made.order.insert(made.order.end(), back.begin(), back.end());
  made.model.on_drive = on_drive;
  return made;
}

EngineConfig pool_of(int buffers, std::int64_t prefetch, std::int64_t reuse) {
  EngineConfig config;
  config.stage = 3;
  config.data_parallel_ranks = 2;
  config.overlap_comm = true;
  config.stage3.prefetch_bucket = Elements::of(prefetch);
  config.stage3.max_live_parameters = Elements::of(1'000'000);
  config.stage3.max_reuse_distance = Elements::of(reuse);
  config.offload_parameter.device = OffloadDevice::nvme;
  config.offload_parameter.buffer_count = buffers;
  return config;
}

struct Reads {
  std::vector<std::vector<ParameterIndex>> ahead, now;
};

Reads reads_of(const FetchLog& log) {
  Reads reads;
  for (const FetchEvent& event : log.events) {
    if (event.kind != Kind::swap_in) continue;
    const auto list = log.parameters_of(event);
    (event.asynchronous ? reads.ahead : reads.now).emplace_back(list.begin(), list.end());
  }
  return reads;
}

using Lists = std::vector<std::vector<ParameterIndex>>;

}  // namespace

TEST_CASE("without a trace every weight on NVMe is read when it is needed") {
  const Row model = row({10, 20, 30}, {true, false, true});
  FetchCoordinator coordinator(model.model, pool_of(1, 100, 0));
  FetchLog log;
  play_micro_step(coordinator, model.order, log);
  const Reads reads = reads_of(log);
  CHECK(reads.ahead.empty());
  CHECK(reads.now == Lists{{0}, {2}, {2}, {0}});
  CHECK(coordinator.swap_pool().most == 1);
  CHECK_FALSE(coordinator.swap_pool().short_of);
}

TEST_CASE("prefetch stops at a weight that is on the drive, which is read ahead instead") {
  const Row model = row({10, 20, 30, 40}, {false, false, true, false});
  FetchCoordinator coordinator(model.model, pool_of(2, 1000, 0));
  FetchLog log;
  play_micro_step(coordinator, model.order, log);
  log.clear();
  play_micro_step(coordinator, model.order, log);
  std::vector<std::vector<ParameterIndex>> prefetched;
  for (const FetchEvent& event : log.events) {
    if (event.kind != Kind::prefetch) continue;
    const auto list = log.parameters_of(event);
    prefetched.emplace_back(list.begin(), list.end());
  }
  // With the root: what comes before the third weight, which is read. With the first module that
  // is on its way, and goes with the fourth.
  REQUIRE(prefetched.size() >= 2);
  CHECK(prefetched[0] == std::vector<ParameterIndex>{0, 1});
  CHECK(prefetched[1] == std::vector<ParameterIndex>{2, 3});
  const Reads reads = reads_of(log);
  REQUIRE_FALSE(reads.ahead.empty());
  CHECK(reads.ahead[0] == std::vector<ParameterIndex>{2});
  CHECK(reads.now.empty());
}

TEST_CASE("weights that are kept for reuse keep their buffers, and the pool is short") {
  const Row model = row({10, 10, 10, 10}, {true, true, true, true});
  const auto use = [&](int buffers, std::int64_t reuse) {
    FetchCoordinator coordinator(model.model, pool_of(buffers, 10, reuse));
    FetchLog log;
    for (int step = 0; step < 3; ++step) play_micro_step(coordinator, model.order, log);
    return coordinator.swap_pool();
  };
  CHECK(use(2, 1000).short_of);  // all four stay from their forward to their backward
  CHECK(use(2, 1000).most > 2);
  CHECK_FALSE(use(4, 1000).short_of);
  CHECK(use(4, 1000).most == 4);
  CHECK_FALSE(use(2, 0).short_of);
}

TEST_CASE("every gather of a weight on NVMe has one read, and no buffer is lost") {
  for (const int buffers : {1, 2, 3, 8, 40}) {
    for (const std::int64_t prefetch : {0, 25, 90, 1000}) {
      for (const std::int64_t reuse : {0, 60, 1000}) {
        CAPTURE(buffers, prefetch, reuse);
        const Row model =
            row({10, 40, 7, 30, 30, 5, 22}, {true, true, false, true, true, false, true});
        FetchCoordinator coordinator(model.model, pool_of(buffers, prefetch, reuse));
        FetchLog log;
        for (int step = 0; step < 4; ++step) {
          log.clear();
          play_micro_step(coordinator, model.order, log);
          coordinator.begin_optimizer_step(log);
          coordinator.end_optimizer_step(log);
          std::multiset<ParameterIndex> read;
          std::set<ParameterIndex> arrived;
          int held = 0;
          for (const FetchEvent& event : log.events) {
            if (event.kind == Kind::swap_in) {
              for (const ParameterIndex p : log.parameters_of(event)) read.insert(p);
              held += event.count;
            }
            if (event.kind == Kind::swap_wait) arrived.insert(read.begin(), read.end());
            if (event.kind == Kind::collective) {
              for (const ParameterIndex p : log.parameters_of(event)) {
                if (!model.model.on_drive[static_cast<std::size_t>(p)]) continue;
                CHECK(arrived.count(p) == 1);
                CHECK(read.count(p) == 1);
              }
            }
            if (event.kind == Kind::release &&
                model.model.on_drive[static_cast<std::size_t>(event.subject)]) {
              read.erase(event.subject);
              arrived.erase(event.subject);
              --held;
            }
            if (!coordinator.swap_pool().short_of) CHECK(held <= buffers);
          }
          // What was read ahead and not gathered keeps its buffer to the next step.
          CHECK(held == static_cast<int>(read.size()));
          CHECK(held == 0);
        }
      }
    }
  }
}

}  // namespace zeroplan
