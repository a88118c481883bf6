#include "tuner/fit_ranking.hpp"

#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

struct Row {
  double speed = 1000.0;
  bool fits = true;
  OffloadDevice optimizer = OffloadDevice::none;
  double gpu_share = 0.5;  // of the GPU
  double host_gib = 10.0;  // of a node that usually has 64
  int stage = 3;
};

tuner::StrategyResult row_of(const Row& row) {
  tuner::StrategyResult result;
  result.strategy.stage = row.stage;
  result.strategy.offload_optimizer = row.optimizer;
  result.plan.cluster.node.host_memory.confidence = Confidence::assumed;
  result.plan.ds_config.set(Knob::zero_stage, std::int64_t{row.stage});
  result.simulated = true;
  StepResult& step = result.result;
  step.fits = row.fits;
  step.step.tokens_per_second_per_gpu = row.speed;
  step.step.total = Seconds::of(1.0);
  step.gpu.capacity = Bytes::gib(80);
  step.gpu.peak_total = Bytes::nearest(row.gpu_share * 80.0 * 1073741824.0);
  step.host.capacity = Bytes::gib(64);
  step.host.peak = Bytes::nearest(row.host_gib * 1073741824.0);
  if (!row.fits) step.limits.push_back({.resource = Resource::host_memory});
  return result;
}

std::vector<tuner::StrategyResult> rows_of(const std::vector<Row>& rows) {
  std::vector<tuner::StrategyResult> all;
  for (const Row& row : rows) all.push_back(row_of(row));
  return all;
}

}  // namespace

TEST_CASE("the fastest that fits is recommended") {
  CHECK(best_of(rows_of({{.speed = 900}, {.speed = 1000}, {.speed = 2000, .fits = false}})) == 1U);
  CHECK_FALSE(best_of(rows_of({{.fits = false}})).has_value());
  CHECK_FALSE(tuner::best_of({}).has_value());
}

TEST_CASE("where lengths are told the shortest job is recommended") {
  std::vector<tuner::StrategyResult> rows = rows_of({{.speed = 1000}, {.speed = 900, .stage = 2}});
  for (tuner::StrategyResult& row : rows) row.result.job.emplace();
  (*rows[0].result.job)[JobPart::steps] = Seconds::of(7200.0);
  (*rows[1].result.job)[JobPart::steps] = Seconds::of(3600.0);
  CHECK(best_of(rows) == 0U);
  for (tuner::StrategyResult& row : rows) row.result.job->padding_share = 0.3;
  CHECK(best_of(rows) == 1U);
  CHECK(tuner::is_preferred(rows[1], rows[0]));
}

TEST_CASE("of what is about as fast the less offloaded is recommended") {
  CHECK(best_of(rows_of({{.speed = 1010, .optimizer = OffloadDevice::cpu}, {.speed = 1000}})) ==
        1U);
  CHECK(best_of(rows_of({{.speed = 1100, .optimizer = OffloadDevice::cpu}, {.speed = 1000}})) ==
        0U);
}

TEST_CASE("a full GPU is recommended only where room costs much") {
  CHECK(best_of(rows_of({{.speed = 1000, .gpu_share = 0.99}, {.speed = 950}})) == 1U);
  CHECK(best_of(rows_of({{.speed = 1000, .gpu_share = 0.99}, {.speed = 780}})) == 1U);
  CHECK(best_of(rows_of({{.speed = 1000, .gpu_share = 0.99}, {.speed = 700}})) == 0U);
  CHECK_FALSE(tuner::is_at_limit(row_of({.gpu_share = 0.94}).result));
  CHECK(tuner::is_at_limit(row_of({.gpu_share = 0.96}).result));
}

TEST_CASE("runners-up are other placements, the fastest first") {
  const auto rows = rows_of({{.speed = 1000},
                             {.speed = 990},
                             {.speed = 500, .optimizer = OffloadDevice::cpu},
                             {.speed = 700, .stage = 2},
                             {.speed = 600, .fits = false, .stage = 1}});
  CHECK(tuner::runners_up(rows, 0) == std::vector<std::size_t>{3, 2});
}

TEST_CASE("faster strategies that lack host memory alone are named, where it is unspecified") {
  auto rows = rows_of({{.speed = 100},
                       {.speed = 900, .fits = false, .host_gib = 200},
                       {.speed = 2000, .fits = false, .host_gib = 400},
                       {.speed = 105, .fits = false, .host_gib = 150}});
  CHECK(behind_host_memory(rows, 0) == std::vector<std::size_t>{1, 2});
  CHECK(behind_host_memory(rows, std::nullopt) == std::vector<std::size_t>{3, 2});
  rows[1].result.limits.push_back({.resource = Resource::gpu_memory});
  CHECK(behind_host_memory(rows, 0) == std::vector<std::size_t>{2});
  rows[2].plan.cluster.node.host_memory.confidence = Confidence::stated;
  CHECK(behind_host_memory(rows, 0).empty());
}

TEST_CASE("enough host memory leaves room for the system, in steps of 16 GiB") {
  CHECK(tuner::enough_host_memory(Bytes::gib(91)) == Bytes::gib(128));
  CHECK(tuner::enough_host_memory(Bytes::gib(164)) == Bytes::gib(208));
}
