#include "tuner/trade_offs.hpp"

#include <algorithm>
#include <atomic>

#include "model/plan/scenario_reader.hpp"
#include "tests/catch.hpp"
#include "tuner/search.hpp"

using namespace zeroplan;

namespace {

tuner::SearchSpace small_space() {
  const Scenario scenario =
      parse_scenario(Json::object({{"model", "llama-3.2-1b"},
                                   {"cluster", "4xA100-40G"},
                                   {"workload", Json::object({{"sequence_length", 512}})}}),
                     "test");
  tuner::SearchWords words;
  words.search = {"stage=1,3",
                  "micro_batch_size=1,2,4,8",
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
  return tuner::SearchSpace(scenario, tuner::read_request(words));
}

tuner::SearchOptions exact() {
  tuner::SearchOptions options;
  options.gap = 0.0;
  return options;
}

// The most tokens a second with at most so much memory.
double fastest_below(const std::vector<tuner::Evaluated>& points, Bytes most) {
  double best = 0.0;
  for (const tuner::Evaluated& item : points) {
    if (item.gpu_memory <= most) best = std::max(best, item.tokens_per_second);
  }
  return best;
}

}  // namespace

TEST_CASE(
    "the front goes from the fastest point to the one of least memory and rises with memory") {
  const tuner::SearchSpace space = small_space();
  const tuner::TradeOffs all = tuner::trade_offs(space, exact(), 4);
  tuner::SearchOptions everything = exact();
  everything.use_bounds = false;
  const std::vector<tuner::Evaluated> points = search(space, everything).fitting;
  REQUIRE(all.complete);
  REQUIRE(all.best);
  REQUIRE(all.front.size() >= 3);
  CHECK(all.front.front() == *all.best);
  const tuner::Evaluated& last = all.points[all.front.back()];
  const auto least =
      std::min_element(points.begin(), points.end(), [](const auto& a, const auto& b) {
        return a.gpu_memory < b.gpu_memory;
      });
  CHECK(last.gpu_memory == least->gpu_memory);
  for (std::size_t i = 1; i < all.front.size(); ++i) {
    const tuner::Evaluated& more = all.points[all.front[i - 1]];
    const tuner::Evaluated& less = all.points[all.front[i]];
    CHECK(less.gpu_memory < more.gpu_memory);
    CHECK(less.tokens_per_second < more.tokens_per_second);
  }
  // What was simulated is beaten by nothing in front of it, and the top is the top of the space.
  for (const tuner::Evaluated& item : all.points) {
    CHECK(fastest_below(all.points, item.gpu_memory) >= item.tokens_per_second);
  }
  CHECK(all.points[*all.best].tokens_per_second == fastest_below(points, Bytes::infinite()));
}

TEST_CASE("searches without time say that they were cut") {
  const tuner::SearchSpace space = small_space();
  tuner::SearchOptions options = exact();
  options.seconds = 1e-6;
  const tuner::TradeOffs all = tuner::trade_offs(space, options, 2);
  CHECK_FALSE(all.complete);
  CHECK_FALSE(all.best);
}
