// The rules of the fetch coordinator, one sentence each. Rules in the real engine: recordings.
#include "model/engine/fetch_coordinator.hpp"

#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/engine/fetch_step.hpp"

namespace zeroplan {
namespace {

using Kind = FetchEventKind;

EngineConfig config_for(int ranks = 4) {
  EngineConfig config;
  config.stage = 3;
  config.overlap_comm = true;
  config.data_parallel_ranks = ranks;
  config.stage3.prefetch_bucket = Elements::zero();
  config.stage3.max_reuse_distance = Elements::zero();
  config.stage3.parameter_persistence_threshold = Elements::zero();
  return config;
}

// A root (module 0) that calls modules 1, 2, …, each with parameters of the given sizes.
struct Chain {
  FetchModel model;
  std::vector<ModuleEvent> order;
};

Chain chain(const std::vector<std::vector<std::int64_t>>& sizes, bool with_backward = true) {
  Chain result;
  result.model.modules.push_back({});
  for (const auto& module : sizes) {
    FetchModule made;
    made.parent = 0;
    for (const std::int64_t numel : module) {
      made.parameters.push_back(static_cast<ParameterIndex>(result.model.parameters.size()));
      result.model.parameters.push_back({.numel = Elements::of(numel)});
    }
    result.model.modules.push_back(made);
  }
  const auto count = static_cast<ModuleIndex>(sizes.size());
  result.order.push_back({ModuleEventKind::forward_enter, 0});
  for (ModuleIndex m = 1; m <= count; ++m) {
    result.order.push_back({ModuleEventKind::forward_enter, m});
    result.order.push_back({ModuleEventKind::forward_exit, m});
  }
  result.order.push_back({ModuleEventKind::forward_exit, 0});
  result.order.push_back({ModuleEventKind::backward_begin, -1});
  for (ModuleIndex m = count; with_backward && m >= 1; --m) {
    result.order.push_back({ModuleEventKind::backward_enter, m});
    result.order.push_back({ModuleEventKind::backward_exit, m});
  }
  return result;
}

std::vector<FetchEvent> only(std::span<const FetchEvent> events, Kind kind) {
  std::vector<FetchEvent> found;
  for (const FetchEvent& event : events) {
    if (event.kind == kind) found.push_back(event);
  }
  return found;
}

std::vector<ParameterIndex> released(std::span<const FetchEvent> events) {
  std::vector<ParameterIndex> found;
  for (const FetchEvent& event : only(events, Kind::release)) found.push_back(event.subject);
  return found;
}

// The parameters of every gather of a kind.
std::vector<std::vector<ParameterIndex>> gathers(const FetchLog& log, Kind kind) {
  std::vector<std::vector<ParameterIndex>> found;
  for (const FetchEvent& event : only(log.events, kind)) {
    const auto list = log.parameters_of(event);
    found.emplace_back(list.begin(), list.end());
  }
  return found;
}

// The log of the micro-step after `before` others.
FetchLog micro_step_after(const Chain& chain, const EngineConfig& config, int before) {
  FetchCoordinator coordinator(chain.model, config);
  FetchLog log;
  for (int i = 0; i <= before; ++i) {
    log.clear();
    play_micro_step(coordinator, chain.order, log);
  }
  return log;
}

using Lists = std::vector<std::vector<ParameterIndex>>;

}  // namespace

TEST_CASE("fetch: one parameter is gathered in place of itself, several share a buffer") {
  const FetchLog log = micro_step_after(chain({{10}, {10, 7}}, false), config_for(4), 0);
  const auto collectives = only(log.events, Kind::collective);
  REQUIRE(collectives.size() == 2);
  CHECK(collectives[0].elements == Elements::of(12));  // padded to a multiple of the ranks
  CHECK_FALSE(collectives[0].in_place);
  CHECK(collectives[1].elements == Elements::of(12 + 8));
  CHECK(collectives[1].in_place);
  CHECK(collectives[1].asynchronous);
  CHECK(collectives[1].stream == FetchStream::gather);
  // The second copy is unpadded, in as many pieces as hold any element: 7 of 2, 2, 2 and 1.
  const auto copies = only(log.events, Kind::copy);
  REQUIRE(copies.size() == 2);
  CHECK(copies[0].elements + copies[1].elements == Elements::of(17));
  CHECK(copies[0].count == 4);
  CHECK(only(log.events, Kind::bucket_done).at(0).elements == Elements::of(20));
}

TEST_CASE("fetch: a tiny parameter comes in fewer pieces than there are ranks") {
  const FetchLog log = micro_step_after(chain({{3, 100}}, false), config_for(64), 0);
  for (const FetchEvent& copy : only(log.events, Kind::copy)) {
    CHECK(copy.count == (copy.subject == 0 ? 3 : 50));
  }
}

TEST_CASE("fetch: a sequential gather has one collective a parameter and no copy") {
  EngineConfig config = config_for(4);
  config.stage3.allgather_sequential = true;
  const FetchLog log = micro_step_after(chain({{10, 7}}, false), config, 0);
  CHECK(only(log.events, Kind::collective).size() == 2);
  CHECK(only(log.events, Kind::copy).empty());
  CHECK(only(log.events, Kind::wait).size() == 2);
}

TEST_CASE("fetch: all-reduce serves gathers of several parameters only, and they stay views") {
  EngineConfig config = config_for(4);
  config.stage3.use_all_reduce_for_fetch = true;
  const FetchLog log = micro_step_after(chain({{10}, {10, 7}}, false), config, 0);
  const auto collectives = only(log.events, Kind::collective);
  REQUIRE(collectives.size() == 2);
  CHECK(collectives[0].op == FetchCollective::all_gather);
  CHECK(collectives[1].op == FetchCollective::all_reduce);
  CHECK(collectives[1].elements == Elements::of(20));
  CHECK(only(log.events, Kind::copy).empty());
  // The flat buffer goes with the last of its parameters.
  CHECK(log.events.back().kind == Kind::backward);
  const auto done = only(log.events, Kind::bucket_done);
  REQUIRE(done.size() == 1);
  CHECK(done[0].elements == Elements::of(20));
}

TEST_CASE("fetch: a single rank gathers nothing and waits by synchronising the stream") {
  const FetchLog log = micro_step_after(chain({{10}, {10, 7}}, false), config_for(1), 0);
  CHECK(only(log.events, Kind::collective).empty());
  CHECK(only(log.events, Kind::wait).size() == 3);
  CHECK(only(log.events, Kind::host_waits_stream).size() == 2);
  CHECK(only(log.events, Kind::load).empty());
  EngineConfig offloaded = config_for(1);
  offloaded.offload_parameter.device = OffloadDevice::cpu;
  CHECK(only(micro_step_after(chain({{10}}, false), offloaded, 0).events, Kind::load).size() == 1);
}

TEST_CASE("fetch: the first micro-step records, later ones prefetch by the recorded order") {
  EngineConfig config = config_for();
  config.stage3.prefetch_bucket = Elements::of(1);
  const Chain model = chain({{10}, {20}, {30}});
  CHECK(gathers(micro_step_after(model, config, 0), Kind::prefetch).empty());
  const FetchLog log = micro_step_after(model, config, 1);
  // One a call, as one parameter exceeds the bucket.
  CHECK(gathers(log, Kind::prefetch) == Lists{{0}, {1}, {2}, {1}, {0}});
  // The last weight's use in backward was popped while it was there, but a use in the very next
  // module protects it only through the reuse distance, which is zero here.
  CHECK(gathers(log, Kind::fetch) == Lists{{2}});
}

TEST_CASE("prefetch: the budget is the bucket or what is left of max_live, a call at a time") {
  EngineConfig config = config_for();
  config.stage3.prefetch_bucket = Elements::of(25);
  const Chain model = chain({{10}, {10}, {10}, {10}}, false);
  // Stops only once the budget is reached: 10 + 10 < 25, so a third one is taken.
  CHECK(gathers(micro_step_after(model, config, 1), Kind::prefetch).front() ==
        std::vector<ParameterIndex>{0, 1, 2});
  config.stage3.max_live_parameters = Elements::of(20);
  CHECK(gathers(micro_step_after(model, config, 1), Kind::prefetch).front() ==
        std::vector<ParameterIndex>{0, 1});
  config.stage3.max_live_parameters = Elements::zero();
  CHECK(gathers(micro_step_after(model, config, 1), Kind::prefetch).empty());
  config.stage3.prefetch_bucket = Elements::zero();
  config.stage3.max_live_parameters = Elements::of(1000);
  CHECK(gathers(micro_step_after(model, config, 1), Kind::prefetch).empty());
}

TEST_CASE("max_live never stops a fetch that a module needs") {
  EngineConfig config = config_for();
  config.stage3.max_live_parameters = Elements::zero();
  const FetchLog log = micro_step_after(chain({{10}, {10}}, false), config, 1);
  CHECK(gathers(log, Kind::fetch) == Lists{{0}, {1}});
}

TEST_CASE("release: a parameter that is used again within max_reuse_distance stays") {
  const Chain model = chain({{10}, {20}, {30}});
  EngineConfig config = config_for();
  // After module 2's forward come module 3's forward and backward, 60 elements, then its own use.
  config.stage3.max_reuse_distance = Elements::of(60);
  const FetchLog below = micro_step_after(model, config, 1);
  CHECK(released(below.events) == std::vector<ParameterIndex>{0, 1, 2, 1, 0});
  config.stage3.max_reuse_distance = Elements::of(61);
  const FetchLog within = micro_step_after(model, config, 1);
  CHECK(released(within.events) == std::vector<ParameterIndex>{0, 2, 1, 0});
  config.stage3.max_reuse_distance = Elements::infinite();
  const FetchLog all = micro_step_after(model, config, 1);
  CHECK(released(all.events) == std::vector<ParameterIndex>{2, 1, 0});
}

TEST_CASE("release: while the trace is recorded everything goes, persistent parameters too") {
  Chain model = chain({{10}, {20}});
  model.model.persistent = {true, false};
  EngineConfig config = config_for();
  config.stage3.max_reuse_distance = Elements::infinite();
  const FetchLog recording = micro_step_after(model, config, 0);
  CHECK(released(recording.events) == std::vector<ParameterIndex>{0, 1, 1, 0});
  // The next micro-step fetches the persistent one once and keeps it, though it is not resident
  // before the first step.
  const FetchLog second = micro_step_after(model, config, 1);
  CHECK(released(second.events) == std::vector<ParameterIndex>{1});
}

TEST_CASE("release: a parameter shared by two active modules waits for the last of them") {
  Chain model = chain({{10}, {20}}, false);
  model.model.modules[0].parameters = {0};  // the root uses the first module's weight as well
  const FetchLog log = micro_step_after(model, config_for(), 0);
  CHECK(released(log.events) == std::vector<ParameterIndex>{1, 0});
}

TEST_CASE("a module whose backward never ends is released when the backward pass is over") {
  Chain model = chain({{10}, {20}});
  model.order.pop_back();  // module 1 has no gradient in its input
  const FetchLog log = micro_step_after(model, config_for(), 0);
  const auto& events = log.events;
  REQUIRE(events.size() >= 2);
  CHECK(events[events.size() - 2].kind == Kind::leftovers);
  CHECK(events.back().kind == Kind::release);
  CHECK(events.back().subject == 0);
}

TEST_CASE("the optimizer step releases everything and gathers persistent parameters one by one") {
  Chain model = chain({{10}, {20}, {30}});
  model.model.persistent = {true, true, false};
  const FetchSchedule schedule = schedule_fetches(model.model, config_for(), model.order);
  const auto first = schedule.first.optimizer_step();
  const auto gathered = only(first, Kind::collective);
  REQUIRE(gathered.size() == 2);
  CHECK(gathered[0].asynchronous);
  CHECK(gathered[0].stream == FetchStream::compute);
  CHECK(first.back().kind == Kind::device_synchronize);
  const auto steady = schedule.steady.optimizer_step();
  CHECK(steady.front().kind == Kind::release_all);
  CHECK(released(steady) == std::vector<ParameterIndex>{0, 1});
}

TEST_CASE("a single persistent parameter is gathered by a blocking collective") {
  Chain model = chain({{10}, {20}});
  model.model.persistent = {true, false};
  const FetchSchedule schedule = schedule_fetches(model.model, config_for(), model.order);
  const auto gathered = only(schedule.first.optimizer_step(), Kind::collective);
  REQUIRE(gathered.size() == 1);
  CHECK_FALSE(gathered[0].asynchronous);
}

TEST_CASE("a step that is skipped leaves persistent parameters released") {
  Chain model = chain({{10}, {20}});
  model.model.persistent = {true, false};
  FetchCoordinator coordinator(model.model, config_for());
  FetchLog log;
  play_micro_step(coordinator, model.order, log);
  coordinator.begin_optimizer_step(log);
  CHECK(coordinator.live() == Elements::zero());
  CHECK(coordinator.allocated() == Elements::zero());
  coordinator.end_optimizer_step(log);
  CHECK(coordinator.live() == Elements::of(10));
  CHECK(coordinator.allocated() == Elements::of(12));
}

TEST_CASE("completing the trace costs six broadcasts, starting to record two") {
  const Chain model = chain({{10}, {20, 30}});
  FetchCoordinator coordinator(model.model, config_for());
  FetchLog log;
  const std::vector<std::vector<std::int64_t>> expected = {{1, 0}, {1, 5, 1, 6, 1, 6}, {}};
  for (const auto& sizes : expected) {
    log.clear();
    play_micro_step(coordinator, model.order, log);
    std::vector<std::int64_t> found;
    for (const FetchEvent& event : only(log.events, Kind::agreement)) {
      found.push_back(event.elements.count());
    }
    CHECK(found == sizes);
  }
}

TEST_CASE("another module order drops the trace, and the next micro-step records again") {
  const Chain model = chain({{10}, {20}, {30}}, false);
  EngineConfig config = config_for();
  config.stage3.prefetch_bucket = Elements::of(1000);
  FetchCoordinator coordinator(model.model, config);
  FetchLog log;
  play_micro_step(coordinator, model.order, log);
  coordinator.begin_micro_step(log);
  CHECK(coordinator.trace_mode() == TraceMode::complete);
  coordinator.enter(0, FetchPass::forward, log);
  CHECK(coordinator.live() == Elements::of(60));  // all prefetched
  log.clear();
  coordinator.enter(2, FetchPass::forward, log);
  CHECK(coordinator.trace_mode() == TraceMode::invalid);
  CHECK(log.events.front().kind == Kind::invalidated);
  CHECK(released(log.events) == std::vector<ParameterIndex>{0, 1, 2});
  CHECK(gathers(log, Kind::fetch) == Lists{{1}});
  coordinator.exit(2, FetchPass::forward, log);
  CHECK(coordinator.live() == Elements::zero());
  coordinator.begin_micro_step(log);
  CHECK(coordinator.trace_mode() == TraceMode::recording);
}

TEST_CASE("a frozen parameter of a recomputation stays with the module in backward") {
  Chain model = chain({{10}, {20}});
  model.model.parameters[0].trainable = false;
  FetchCoordinator coordinator(model.model, config_for());
  FetchLog log;
  coordinator.begin_micro_step(log);
  coordinator.begin_backward(log);
  coordinator.enter(2, FetchPass::backward, log);
  coordinator.enter(1, FetchPass::forward, log);
  coordinator.exit(1, FetchPass::forward, log);
  CHECK(coordinator.live() == Elements::of(30));
  coordinator.exit(2, FetchPass::backward, log);
  CHECK(coordinator.live() == Elements::zero());
}

TEST_CASE("with hpZ weights come from the node's copy until the optimizer step") {
  EngineConfig config = config_for(8);
  config.stage3.hpz_partition_size = 2;
  const Chain model = chain({{100, 50}});
  const FetchSchedule schedule = schedule_fetches(model.model, config, model.order);
  // Initialisation left copies behind, so the very first gathers stay in the node already.
  for (const FetchEvent& event : only(schedule.first.micro_step(0), Kind::collective)) {
    CHECK(event.group == 2);
    CHECK(event.elements == Elements::of(104 + 56));
  }
  const auto steady = schedule.steady.micro_step(0);
  const auto gathered = only(steady, Kind::collective);
  REQUIRE(gathered.size() == 2);
  CHECK(gathered[0].group == 8);
  CHECK(gathered[1].group == 2);
  const auto made = only(steady, Kind::secondary);
  REQUIRE(made.size() == 2);
  CHECK(made[0].elements + made[1].elements == Elements::of((104 + 56) / 2));
}

TEST_CASE("a leaf module gathers its whole subtree at once") {
  Chain model = chain({{10}, {20}, {30}}, false);
  model.model.modules[2].leaf = true;
  model.model.modules[3].parent = 2;  // has no hooks of its own
  model.order.erase(model.order.begin() + 5, model.order.begin() + 7);
  const FetchLog log = micro_step_after(model, config_for(), 0);
  CHECK(gathers(log, Kind::fetch) == Lists{{0}, {1, 2}});
}

TEST_CASE("persistence goes by parameter order and stops at the threshold of the model") {
  FetchModel model;
  for (const std::int64_t numel : {5, 20, 10, 10, 4}) {
    model.parameters.push_back({.numel = Elements::of(numel)});
  }
  EngineConfig config = config_for();
  config.stage3.parameter_persistence_threshold = Elements::of(10);
  mark_persistent(model, config);
  CHECK(model.persistent == std::vector<bool>{true, false, true, true, true});
  config.stage3.model_persistence_threshold = Elements::of(20);
  mark_persistent(model, config);
  CHECK(model.persistent == std::vector<bool>{true, false, true, false, true});
}

TEST_CASE("a family's model becomes modules with parents, tied weights in both users") {
  Model model;
  model.parameters = {{.name = "embed.weight", .shape = {4, 3}, .numel = Elements::of(12)},
                      {.name = "norm.weight", .shape = {3}, .numel = Elements::of(3)}};
  model.modules = {{"", "Model", {}, -1},
                   {"embed", "Embedding", {0}, 0},
                   {"norm", "RMSNorm", {1}, 0},
                   {"lm_head", "Linear", {0}, 0}};
  EngineConfig config = config_for();
  config.stage3.parameter_persistence_threshold = Elements::of(3);
  const FetchModel made =
      make_fetch_model(model, {{.numel = Elements::of(12)}, {.numel = Elements::of(3)}}, config);
  REQUIRE(made.modules.size() == 4);
  CHECK(made.modules[3].parameters == std::vector<ParameterIndex>{0});
  CHECK(made.modules[3].parent == 0);
  CHECK(made.persistent == std::vector<bool>{false, true});
}

TEST_CASE("what a micro-step allocates and frees is what the coordinator holds") {
  EngineConfig config = config_for(4);
  config.stage3.prefetch_bucket = Elements::of(40);
  for (const bool all_reduce : {false, true}) {
    config.stage3.use_all_reduce_for_fetch = all_reduce;
    const Chain model = chain({{10, 3}, {20}, {30, 7, 9}, {5}});
    FetchCoordinator coordinator(model.model, config);
    for (int step = 0; step < 4; ++step) {
      FetchLog log;
      play_micro_step(coordinator, model.order, log);
      Elements held;
      for (const FetchEvent& event : log.events) {
        if (event.kind == Kind::collective || event.kind == Kind::copy) held += event.elements;
        if (event.kind == Kind::release) held -= event.buffer;
        if (event.kind == Kind::bucket_done) held -= event.elements;
      }
      CHECK(held == coordinator.allocated());
      CHECK(held == Elements::zero());
      CHECK(coordinator.live() == Elements::zero());
    }
  }
}

}  // namespace zeroplan
