#include "tuner/tune.hpp"

#include <atomic>

#include "base/diagnostic.hpp"
#include "model/plan/scenario_reader.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"
#include "tuner/fit_ranking.hpp"
#include "tuner/pareto.hpp"
#include "tuner/search.hpp"
#include "tuner/search_record.hpp"
#include "tuner/tune_reasons.hpp"

using namespace zeroplan;

namespace {

Scenario scenario_of(const char* model, const char* cluster) {
  return parse_scenario(Json::object({{"model", model},
                                      {"cluster", cluster},
                                      {"workload", Json::object({{"sequence_length", 512}})}}),
                        "test");
}

// A space of a few points.
tuner::TuneOptions small_options() {
  tuner::TuneOptions options;
  options.words.search = {"stage=1,3",
                          "micro_batch_size=1,4",
                          "gas=1",
                          "reduce_bucket_size=5e7,5e8",
                          "overlap_comm=true",
                          "round_robin_gradients=false",
                          "sub_group_size=1e9",
                          "stage3_prefetch_bucket_size=5e7",
                          "stage3_param_persistence_threshold=1e5",
                          "stage3_max_live_parameters=1e9",
                          "stage3_max_reuse_distance=1e9",
                          "offload_optimizer.device=none",
                          "offload_param.device=none"};
  return options;
}

tuner::Evaluated point_of(double speed, std::int64_t gpu, std::int64_t host) {
  tuner::Evaluated item;
  item.fits = true;
  item.tokens_per_second = speed;
  item.gpu_memory = Bytes::gib(gpu);
  item.host_memory = Bytes::gib(host);
  return item;
}

}  // namespace

TEST_CASE("the answer is a plan that simulate confirms") {
  const tuner::TuneAnswer answer = tuner::tune(scenario_of("gpt2", "4xA100-40G"), small_options());
  REQUIRE(answer.plan);
  // As the search plays it, one rank that stands in for all; and as it is shown, side by side.
  const StepResult again = simulator::simulate(*answer.plan, {.lockstep = false});
  CHECK(again.fits);
  CHECK(again.step.total.seconds() == answer.search.best->step.seconds());
  CHECK(again.gpu.peak_total == answer.search.best->gpu_memory);
  const StepResult shown = simulator::simulate(*answer.plan);
  CHECK(shown.fits);
  CHECK(shown.step.total.seconds() == answer.result.step.total.seconds());
  CHECK(shown.step.total.seconds() == Approx(answer.search.best->step.seconds()).epsilon(0.02));
  CHECK(answer.search.optimal);
  CHECK(answer.search.evaluated + answer.search.pruned == answer.search.points);
}

TEST_CASE("a point with room within reach comes before a faster one at the GPU's limit") {
  const tuner::TuneOptions usual = tuner::usual_tune_options(tuner::kTuneCounts, std::nullopt);
  CHECK(usual.search.room_share == tuner::kRoomShare);
  CHECK(tuner::usual_tune_options(tuner::kTuneCounts, 0.05).search.room_share >
        1.0);  // a gap is the whole rule
  const Scenario scenario = scenario_of("gpt2", "4xA100-40G");
  const tuner::SearchSpace space(scenario, tuner::read_request(small_options().words));
  const auto chosen = [&](double with_room, double room_share) {
    tuner::SearchOptions options;
    options.room_share = room_share;
    tuner::SearchRecord record(space, options);
    tuner::Evaluated full = point_of(100.0, 39, 10);
    full.at_limit = true;
    record.take(full);
    tuner::Evaluated roomy = point_of(with_room, 30, 10);
    roomy.point.batch = 1;
    record.take(roomy);
    return record.finish(0.0, false, false);
  };
  const tuner::SearchResult safe = chosen(80.0, tuner::kRoomShare);
  CHECK(safe.best->tokens_per_second == 80.0);
  CHECK(safe.top->tokens_per_second == 100.0);
  CHECK(safe.keeps_room);
  CHECK(safe.tally.count(Phrase("faster than the choice, at the GPU's limit")) == 1);
  CHECK(chosen(70.0, tuner::kRoomShare).best->at_limit);
  CHECK(chosen(80.0, 2.0).best->at_limit);
  CHECK_FALSE(chosen(99.0, tuner::kRoomShare).keeps_room);  // within the gap: simplest as ever
  CHECK(chosen(99.0, tuner::kRoomShare).best->tokens_per_second == 99.0);
}

TEST_CASE("the written scenario plans the same run again") {
  const tuner::TuneAnswer answer = tuner::tune(scenario_of("gpt2", "4xA100-40G"), small_options());
  REQUIRE(answer.plan);
  const Plan again =
      resolve(parse_scenario(scenario_document(*answer.plan, answer.scenario), "written"));
  CHECK(simulator::simulate(again).step.total.seconds() == answer.result.step.total.seconds());
}

TEST_CASE("headroom is the largest micro-batch that fits") {
  const tuner::TuneAnswer answer = tuner::tune(scenario_of("gpt2", "4xA100-40G"), small_options());
  REQUIRE(answer.headroom);
  const tuner::SearchSpace space(scenario_of("gpt2", "4xA100-40G"),
                                 tuner::read_request(small_options().words));
  const tuner::Point point = answer.search.best->point;
  const auto fits = [&](std::int64_t n) {
    return simulator::simulate(space.plan_with(point, ScenarioKey::micro_batch_size, n)).fits;
  };
  CHECK(fits(answer.headroom->largest_micro_batch));
  CHECK_FALSE(fits(answer.headroom->largest_micro_batch + 1));
}

TEST_CASE("what matters names at most three keys, the strongest first") {
  const tuner::TuneAnswer answer = tuner::tune(scenario_of("gpt2", "4xA100-40G"), small_options());
  REQUIRE_FALSE(answer.impacts.empty());
  CHECK(answer.impacts.size() <= 3);
  for (std::size_t i = 1; i < answer.impacts.size(); ++i) {
    CHECK(std::abs(answer.impacts[i - 1].speed_change) >= std::abs(answer.impacts[i].speed_change));
  }
}

TEST_CASE("a wish that no point grants is given up first") {
  tuner::TuneOptions options = small_options();
  options.search.limits.tokens_per_second = 1e9;
  const tuner::TuneAnswer answer = tuner::tune(scenario_of("gpt2", "4xA100-40G"), options);
  CHECK_FALSE(answer.plan);
  CHECK_FALSE(answer.search.optimal);
  REQUIRE(answer.nearest);
  CHECK(answer.nearest->change == "without --min-throughput");
  CHECK(answer.nearest->result.fits);
}

TEST_CASE("the least memory is found, and more throughput costs more of it") {
  tuner::TuneOptions options = small_options();
  options.objective = tuner::Objective::memory;
  const tuner::TuneAnswer least = tuner::tune(scenario_of("gpt2", "4xA100-40G"), options);
  const tuner::TuneAnswer fastest = tuner::tune(scenario_of("gpt2", "4xA100-40G"), small_options());
  REQUIRE(least.search.best);
  REQUIRE(fastest.search.best);
  CHECK(least.search.best->gpu_memory <= fastest.search.best->gpu_memory);
  CHECK(least.search.best->tokens_per_second <= fastest.search.best->tokens_per_second);
}

TEST_CASE("the fewest GPUs are those with which something fits") {
  tuner::TuneOptions options = small_options();
  options.objective = tuner::Objective::gpus;
  const tuner::TuneAnswer answer = tuner::tune(scenario_of("gpt2", "4xA100-40G"), options);
  REQUIRE(answer.plan);
  CHECK(answer.plan->degrees.world == 1);
  CHECK(answer.fewest_gpus == 1);
}

TEST_CASE("the cheapest cluster is the one with the fastest GPUs") {
  tuner::TuneOptions options = small_options();
  options.objective = tuner::Objective::cost;
  const tuner::TuneAnswer answer = tuner::tune(scenario_of("gpt2", "2x4xA100-40G"), options);
  REQUIRE(answer.plan);
  CHECK(answer.plan->cluster.nodes == 1);
}

TEST_CASE("an interrupted search says so and claims nothing") {
  const std::atomic<bool> interrupted = true;
  tuner::TuneOptions options = small_options();
  options.search.interrupted = &interrupted;
  const tuner::TuneAnswer answer = tuner::tune(scenario_of("gpt2", "4xA100-40G"), options);
  CHECK(answer.search.interrupted);
  CHECK_FALSE(answer.search.optimal);
}

TEST_CASE("no row of the front is as fast and as small as the answer") {
  const tuner::TuneAnswer answer = tuner::tune(scenario_of("gpt2", "4xA100-40G"), small_options());
  REQUIRE(answer.search.best);
  const tuner::Evaluated& best = *answer.search.best;
  bool there = false;
  for (const tuner::FrontPoint& row : answer.pareto) {
    there = there || row.seen.point == best.point;
    if (row.seen.point == best.point) continue;
    CHECK_FALSE((row.seen.tokens_per_second >= best.tokens_per_second &&
                 row.seen.gpu_memory <= best.gpu_memory));
  }
  CHECK(there);
}

TEST_CASE("what beats the answer within the gap counts as equal and leaves the front") {
  tuner::Evaluated best = point_of(100, 40, 10);
  tuner::Evaluated faster = point_of(103, 30, 50);
  faster.point.batch = 1;
  tuner::Evaluated larger = point_of(104, 60, 10);
  larger.point.batch = 2;
  const std::vector<tuner::Evaluated> front = tuner::front_beside(best, {best, faster, larger});
  REQUIRE(front.size() == 2);
  CHECK(front[0].point == larger.point);
  CHECK(front[1].point == best.point);
}

TEST_CASE("what stands beside the answer is left out when its time is over") {
  const Scenario said = scenario_of("gpt2", "2xA100-40G");
  const Prepared prepared = prepare(said);
  const tuner::SearchSpace space(said, {}, prepared);
  const tuner::Evaluated best = evaluate(space, tuner::Point{}, {});
  tuner::SearchOptions options;
  const tuner::Deadline over(0.0, nullptr);
  CHECK_FALSE(tuner::knob_impacts(space, best, options, 3, over));
  CHECK_FALSE(tuner::headroom_of(space, best, options, over));
  CHECK_FALSE(tuner::fewest_gpus(said, {}, prepared, options, over));
  options.limits.tokens_per_second = 1e12;
  CHECK_FALSE(tuner::nearest_fit(said, {}, prepared, options, over));
  const std::atomic<bool> interrupted = true;
  CHECK_FALSE(tuner::headroom_of(space, best, options, tuner::Deadline(&interrupted)));
}

TEST_CASE("clusters get smaller by halves of a node and by nodes") {
  const Plan plan = resolve(scenario_of("gpt2", "3x4xA100-40G"));
  std::vector<std::int64_t> gpus;
  for (const Cluster& cluster : tuner::smaller_clusters(plan.cluster))
    gpus.push_back(cluster.total_gpus());
  CHECK(gpus == std::vector<std::int64_t>{1, 2, 4, 8});
}

TEST_CASE("a front holds what nothing else beats in speed and both memories") {
  const std::vector<tuner::Evaluated> front = tuner::pareto_front({point_of(10.0, 5, 5),
                                                                   point_of(9.0, 6, 6),
                                                                   point_of(8.0, 4, 9),
                                                                   point_of(8.0, 4, 9),
                                                                   point_of(7.0, 9, 1)});
  REQUIRE(front.size() == 3);
  CHECK(front[0].tokens_per_second == 10.0);
  CHECK(front[1].tokens_per_second == 8.0);
  CHECK(front[2].tokens_per_second == 7.0);
}
