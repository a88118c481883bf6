// Ranks beside each other: by hand, and random ones against the single rank.
#include "simulator/lockstep.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <vector>

#include "simulator/program_writer.hpp"
#include "simulator/rank_player.hpp"
#include "tests/catch.hpp"
#include "tests/simulator/random_rank.hpp"

using namespace zeroplan;
using namespace zeroplan::testing;

namespace {

simulator::Demands demand(simulator::SharedResource resource, float share) {
  simulator::Demands demands{};
  demands[static_cast<std::size_t>(resource)] = share;
  return demands;
}

// A rank under construction, times in milliseconds. Its steady step is what is written.
struct Script {
  simulator::RankProgram rank;
  simulator::ProgramWriter writer{rank.program};
  simulator::StreamId nccl = -1;

  Script() {
    writer.add_stream("compute");
    nccl = writer.add_stream("NCCL");
    rank.program.shared_stream = nccl;
  }
  simulator::TaskIndex task(simulator::TaskKind kind, double ms, simulator::Demands demands = {}) {
    return writer.add_task({"task", kind, {}, Seconds::of(ms * 1e-3), demands});
  }
  void kernel(double ms, simulator::Demands demands = {}) {
    writer.issue(task(simulator::TaskKind::kernel, ms, demands), simulator::kComputeStream);
  }
  // Behind what was computed; what is computed next waits for it.
  void collective(double ms, simulator::Demands demands = {}) {
    writer.wait_stream(nccl, simulator::kComputeStream);
    writer.issue(task(simulator::TaskKind::collective, ms, demands), nccl);
    writer.wait_stream(simulator::kComputeStream, nccl);
  }
  const simulator::RankProgram& done() {
    rank.steady.optimizer = writer.since(0);
    return rank;
  }
};

std::vector<simulator::RankSimulation> together(
    std::initializer_list<const simulator::RankProgram*> ranks,
    const simulator::SimulationOptions& options = {}) {
  std::vector<simulator::LockstepRank> list;
  for (const simulator::RankProgram* rank : ranks) list.push_back({rank});
  return simulator::simulate_ranks(list, options);
}

double step_ms(const simulator::RankSimulation& run) {
  return (run.step.end - run.step.begin) * 1e3;
}

double idle_ms(const simulator::RankSimulation& run, simulator::IdleCause cause) {
  return run.step.idle[static_cast<std::size_t>(cause)] * 1e3;
}

bool equal(const simulator::TimeAccount& a, const simulator::TimeAccount& b) {
  return a.begin == b.begin && a.end == b.end && a.phase == b.phase && a.idle == b.idle &&
         a.busy == b.busy && a.compute_busy == b.compute_busy && a.contention == b.contention &&
         a.dispatch == b.dispatch && a.launches == b.launches &&
         a.device_memory == b.device_memory && a.device_calls == b.device_calls;
}

constexpr int kRandom = 150;

}  // namespace

TEST_CASE("a rank that is early at a collective waits for the late one, and both end together") {
  Script early;
  Script late;
  early.kernel(2.0);
  late.kernel(3.0);
  for (Script* script : {&early, &late}) {
    script->collective(4.0);
    script->kernel(1.0);
  }
  const auto runs = together({&early.done(), &late.done()});
  CHECK(step_ms(runs[0]) == Approx(3.0 + 4.0 + 1.0));
  CHECK(step_ms(runs[1]) == Approx(3.0 + 4.0 + 1.0));
  CHECK(idle_ms(runs[0], simulator::IdleCause::communication) == Approx(1.0 + 4.0));
  CHECK(idle_ms(runs[1], simulator::IdleCause::communication) == Approx(4.0));
  CHECK(step_ms(simulator::simulate_rank(early.rank)) == Approx(2.0 + 4.0 + 1.0));
}

TEST_CASE("the owners of one bucket after the other are all waited for") {
  // What one rank has to do behind each collective adds up, though no rank does more than its own.
  std::vector<Script> scripts(3);
  std::vector<simulator::LockstepRank> ranks;
  for (std::size_t own = 0; own < scripts.size(); ++own) {
    for (std::size_t bucket = 0; bucket < scripts.size(); ++bucket) {
      scripts[own].collective(1.0);
      if (own == bucket) scripts[own].kernel(5.0);
    }
    scripts[own].collective(1.0);
    ranks.push_back({&scripts[own].done()});
  }
  for (const simulator::RankSimulation& run : simulator::simulate_ranks(ranks)) {
    CHECK(step_ms(run) == Approx(4 * 1.0 + 3 * 5.0));
    CHECK(idle_ms(run, simulator::IdleCause::communication) == Approx(4 * 1.0 + 2 * 5.0));
  }
}

TEST_CASE("a collective that waits for peers holds its multiprocessors and no bandwidth") {
  simulator::Demands both = demand(simulator::SharedResource::multiprocessors, 0.25F);
  both[static_cast<std::size_t>(simulator::SharedResource::gpu_memory)] = 1.0F;
  Script early;
  Script late;
  for (Script* script : {&early, &late}) {
    if (script == &late) script->kernel(4.0);
    script->writer.wait_stream(script->nccl, simulator::kComputeStream);
    script->writer.issue(script->task(simulator::TaskKind::collective, 2.0, both), script->nccl);
  }
  // Beside it: compute goes at 1 / 1.25 from the start, a copy in memory as fast as alone.
  early.kernel(2.0, demand(simulator::SharedResource::multiprocessors, 1.0F));
  early.kernel(1.5, demand(simulator::SharedResource::gpu_memory, 1.0F));
  const auto runs = together({&early.done(), &late.done()});
  CHECK(step_ms(runs[0]) == Approx(4.0 + 2.0));
  CHECK(runs[0].step.contention * 1e3 == Approx(0.25 * 2.0));
  CHECK(runs[0].step.compute_busy * 1e3 == Approx(2.5 + 1.5));
}

TEST_CASE("a collective ends on every rank when the slowest rank's part has ended") {
  Script free;
  Script busy;
  const simulator::Demands memory = demand(simulator::SharedResource::gpu_memory, 1.0F);
  for (Script* script : {&free, &busy}) {
    script->writer.issue(script->task(simulator::TaskKind::collective, 2.0, memory), script->nccl);
    if (script == &busy) script->kernel(2.0, memory);
    script->writer.wait_stream(simulator::kComputeStream, script->nccl);
    script->kernel(1.0);
  }
  // The busy one shares its memory with a kernel: both take 4 ms.
  const auto runs = together({&free.done(), &busy.done()});
  CHECK(step_ms(runs[0]) == Approx(4.0 + 1.0));
  CHECK(step_ms(runs[1]) == Approx(4.0 + 1.0));
  CHECK(idle_ms(runs[0], simulator::IdleCause::communication) == Approx(4.0));
}

TEST_CASE("ranks that disagree in number or kind of their collectives are an error") {
  Script two;
  Script one;
  Script other;
  two.collective(1.0);
  two.collective(2.0);
  one.collective(1.0);
  other.collective(2.0);
  other.collective(1.0);
  CHECK_THROWS_AS(together({&two.done(), &one.done()}), std::logic_error);
  CHECK_THROWS_AS(together({&two.done(), &other.done()}), std::logic_error);
}

TEST_CASE("where one rank runs out of memory, all stop, and its result says so") {
  Script small;
  Script large;
  for (Script* script : {&small, &large}) {
    const simulator::SlotIndex slot = script->writer.new_slot();
    script->collective(1.0);
    script->writer.allocate(slot,
                            script == &large ? Bytes::gib(2) : Bytes::mib(10),
                            MemoryCategory::gradients,
                            simulator::kComputeStream);
    script->collective(1.0);
    script->writer.release(slot);
  }
  simulator::SimulationOptions options;
  options.available = Bytes::gib(1);
  const auto runs = together({&small.done(), &large.done()}, options);
  CHECK_FALSE(runs[0].out_of_memory.has_value());
  REQUIRE(runs[1].out_of_memory.has_value());
  CHECK(runs[1].out_of_memory->category == MemoryCategory::gradients);
  std::vector<simulator::LockstepRank> unlimited = {{&small.rank},
                                                    {&large.rank, /*has_no_limit=*/true}};
  for (const simulator::RankSimulation& run : simulator::simulate_ranks(unlimited, options)) {
    CHECK_FALSE(run.out_of_memory.has_value());
  }
}

TEST_CASE("a rank whose peers keep up is simulated as it was before there was a lockstep") {
  // Seconds as the event loop had them before ranks could meet: step, lost to sharing, and the step
  // on a GPU of little room (-1: out of memory).
  struct Simulated {
    double step, contention, limited;
  };
  constexpr Simulated kBefore[] = {
      {0.097537261108827711, 0.0038564611088276624, 0.097478789859342663},
      {0.10338721728034053, 0.010565817280340475, -1},
      {0.32723433951065561, 0.022260339510655758, 0.3286025574447633},
      {0.27819844981288816, 0.0050764498128885388, -1},
      {0.12574108401999468, 0.011306284019994553, 0.12584108401999466},
      {0.32891892881850532, 0.031989324809815999, 0.3325624263661876},
      {0.47294192700087778, 0.00051772700087821541, 0.47324492700087784},
      {0.17964123041992167, 0.013721849423145941, 0.17985159036416978},
      {0.30242809446849817, 0.029740494468498049, 0.30242809446849822},
      {0.59968860000000546, 5.9379584582686107e-15, -1},
      {0.52308332268531887, 0.0028109226853188477, -1},
      {0.33129465636939742, 0.003522256369397334, -1},
  };
  const auto same = [](double a, double b) { return std::abs(a - b) <= 1e-13; };
  for (std::size_t i = 0; i < std::size(kBefore); ++i) {
    CAPTURE(i);
    simulator::RankProgram rank = random_rank(1000 + i, i % 3);
    rank.program.device_memory = {};  // what the driver takes was not in the clocks then
    const simulator::RankSimulation free = simulator::simulate_rank(rank);
    CHECK(same(step_ms(free) * 1e-3, kBefore[i].step));
    CHECK(same(free.step.contention, kBefore[i].contention));
    simulator::SimulationOptions options;
    options.available = free.stats.peak_allocated() + Bytes::mib(20);
    const simulator::RankSimulation limited = simulator::simulate_rank(rank, options);
    CHECK(same(limited.out_of_memory ? -1.0 : step_ms(limited) * 1e-3, kBefore[i].limited));
  }
}

TEST_CASE("equal ranks in lockstep run as one alone, to the last bit") {
  int compared = 0;
  for (int seed = 0; seed < kRandom; ++seed) {
    CAPTURE(seed);
    const simulator::RankProgram rank = random_rank(static_cast<std::uint64_t>(seed));
    simulator::SimulationOptions options;
    const simulator::RankSimulation free = simulator::simulate_rank(rank);
    // And on a GPU on which the allocator waits for streams in the middle of an allocation.
    for (const bool limited : {false, true}) {
      if (limited) options.available = free.stats.peak_allocated() + Bytes::mib(20);
      for (const bool fold : {true, false}) {
        options.fold = fold;
        const simulator::RankSimulation alone = simulator::simulate_rank(rank, options);
        const auto runs = together({&rank, &rank, &rank}, options);
        if (alone.out_of_memory) {  // the first to run out stops the others
          CHECK(std::any_of(runs.begin(), runs.end(), [](const simulator::RankSimulation& run) {
            return run.out_of_memory.has_value();
          }));
          continue;
        }
        for (const simulator::RankSimulation& run : runs) {
          CHECK(equal(run.step, alone.step));
          CHECK(run.stats == alone.stats);
          CHECK(run.static_allocated == alone.static_allocated);
          CHECK_FALSE(run.out_of_memory.has_value());
          ++compared;
        }
      }
    }
  }
  CHECK(compared > 6 * kRandom);
}

TEST_CASE("ranks that differ end, none before it would alone") {
  int waited = 0;
  for (int seed = 0; seed < kRandom; ++seed) {
    CAPTURE(seed);
    std::vector<simulator::RankProgram> ranks;
    for (std::uint64_t own = 0; own < 4; ++own) {
      ranks.push_back(random_rank(static_cast<std::uint64_t>(seed), own));
      // Sharing may put off a kernel to where it shares with less: without it, more to wait for
      // never makes anything earlier.
      for (simulator::Task& task : ranks.back().program.tasks) task.demands = {};
    }
    const auto runs = together({&ranks[0], &ranks[1], &ranks[2], &ranks[3]});
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const double alone = step_ms(simulator::simulate_rank(ranks[i]));
      CHECK(step_ms(runs[i]) >= alone * (1.0 - 1e-12));
      waited += step_ms(runs[i]) > alone * 1.01 ? 1 : 0;
    }
  }
  CHECK(waited > kRandom);
}

TEST_CASE("repetitions that are counted give what all of them give, for ranks that differ") {
  int counted = 0;
  for (int seed = 0; seed < kRandom; ++seed) {
    CAPTURE(seed);
    std::vector<simulator::RankProgram> ranks;
    for (std::uint64_t own = 0; own < 3; ++own) {
      ranks.push_back(random_rank(static_cast<std::uint64_t>(seed), own));
    }
    simulator::SimulationOptions unfolded;
    unfolded.fold = false;
    const auto some = together({&ranks[0], &ranks[1], &ranks[2]});
    const auto all = together({&ranks[0], &ranks[1], &ranks[2]}, unfolded);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      CHECK(step_ms(some[i]) == Approx(step_ms(all[i])).epsilon(1e-7));
      CHECK(some[i].step.launches == all[i].step.launches);
      CHECK(some[i].step.contention == Approx(all[i].step.contention).epsilon(1e-6).margin(1e-9));
      CHECK(some[i].stats.peak_reserved() == all[i].stats.peak_reserved());
      for (std::size_t cause = 0; cause < simulator::kIdleCauseCount; ++cause) {
        CHECK(some[i].step.idle[cause] ==
              Approx(all[i].step.idle[cause]).epsilon(1e-6).margin(1e-9));
      }
      counted += some[i].step.end != all[i].step.end ? 1 : 0;
    }
  }
  CHECK(counted > kRandom / 2);  // rounding tells that the sum was taken in another order
}

namespace {

// Two first steps and the steady one, of so many milliseconds and one of a collective each; every
// step makes its states anew.
simulator::RankProgram rank_of_steps(const std::vector<double>& ms) {
  Script script;
  const simulator::SlotIndex state = script.writer.new_slot();
  const auto make = [&] {
    script.writer.allocate(
        state, 3_MiB, MemoryCategory::optimizer_states, simulator::kComputeStream);
  };
  make();
  script.rank.initialisation = script.writer.since(0);
  std::vector<simulator::TaskIndex> tasks;  // equal work is one task
  for (std::size_t i = 0; i < ms.size(); ++i) {
    const auto same = std::find(ms.begin(), ms.end(), ms[i]) - ms.begin();
    const bool is_known = static_cast<std::size_t>(same) < i;
    tasks.push_back(is_known ? tasks[static_cast<std::size_t>(same)]
                             : script.task(simulator::TaskKind::kernel, ms[i]));
  }
  const simulator::TaskIndex together = script.task(simulator::TaskKind::collective, 1.0);
  std::vector<simulator::StepSections> steps;
  for (const simulator::TaskIndex task : tasks) {
    const std::size_t begin = script.writer.position();
    script.writer.release(state);
    make();
    script.writer.issue(task, simulator::kComputeStream);
    script.writer.wait_stream(script.nccl, simulator::kComputeStream);
    script.writer.issue(together, script.nccl);
    script.writer.host_wait_device();
    steps.push_back({{}, script.writer.since(begin)});
  }
  script.rank.steady = steps.back();
  steps.pop_back();
  script.rank.first_steps = std::move(steps);
  return script.rank;
}

simulator::SimulationOptions unfolded() {
  simulator::SimulationOptions options;
  options.fold = false;
  return options;
}

void check_same(const simulator::RankSimulation& counted, const simulator::RankSimulation& all) {
  CHECK(step_ms(counted) == Approx(step_ms(all)));
  CHECK(counted.step.begin == Approx(all.step.begin));
  CHECK(counted.step.launches == all.step.launches);
  CHECK(counted.static_allocated == all.static_allocated);
  CHECK(counted.stats.peak_reserved() == all.stats.peak_reserved());
}

}  // namespace

TEST_CASE("steps that begin as the one before began, with its instructions, are counted") {
  const auto check = [](const std::vector<double>& ms, double last) {
    CAPTURE(last);
    const simulator::RankProgram rank = rank_of_steps(ms);
    simulator::RankPlayer player(rank, {}, simulator::Peers::keep_up);
    REQUIRE(player.go_on() == simulator::RankPlayer::Stop::equal_step);
    CHECK(player.last_step() == Approx(last * 1e-3));
    player.skip_steps(player.last_step());
    CHECK(player.go_on() == simulator::RankPlayer::Stop::end);
    CHECK(step_ms(player.result()) == Approx(last));
    check_same(player.result(), simulator::simulate_rank(rank, unfolded()));
  };
  check({2.0, 2.0, 2.0}, 3.0);  // behind the first
  check({2.0, 2.0, 4.0}, 5.0);  // not before the steady one was played
  check({4.0, 2.0, 2.0}, 3.0);
}

TEST_CASE("ranks that reach a steady state at different steps are played until all of them have") {
  const simulator::RankProgram early = rank_of_steps({2.0, 2.0, 2.0});
  const simulator::RankProgram late = rank_of_steps({2.0, 6.0, 4.0});
  const auto some = together({&early, &late});
  const auto all = together({&early, &late}, unfolded());
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(step_ms(some[i]) == Approx(5.0));
    check_same(some[i], all[i]);
  }
}

TEST_CASE("repetitions that are counted pay for each of the driver's calls once, on a full GPU") {
  int calls = 0;
  for (int seed = 600; seed < 800; ++seed) {
    CAPTURE(seed);
    std::vector<simulator::RankProgram> ranks;
    for (std::uint64_t own = 0; own < 3; ++own) {
      ranks.push_back(random_rank(static_cast<std::uint64_t>(seed), own));
    }
    Bytes most;
    for (const simulator::RankProgram& rank : ranks) {
      most = std::max(most, simulator::simulate_rank(rank).stats.peak_allocated());
    }
    simulator::SimulationOptions folded;
    folded.available = most + Bytes::mib(20);
    simulator::SimulationOptions unfolded = folded;
    unfolded.fold = false;
    const auto some = together({&ranks[0], &ranks[1], &ranks[2]}, folded);
    const auto all = together({&ranks[0], &ranks[1], &ranks[2]}, unfolded);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      REQUIRE(some[i].out_of_memory.has_value() == all[i].out_of_memory.has_value());
      CHECK(step_ms(some[i]) == Approx(step_ms(all[i])).epsilon(1e-7));
      CHECK(some[i].step.device_calls == all[i].step.device_calls);
      CHECK(some[i].step.device_memory ==
            Approx(all[i].step.device_memory).epsilon(1e-6).margin(1e-9));
      calls += all[i].step.device_calls > 0 ? 1 : 0;
    }
  }
  CHECK(calls > 50);
}
