// The pipeline as data: who has which layers, 1F1B's order, and how long it takes.
#include "model/engine/pipeline_schedule.hpp"

#include <algorithm>
#include <vector>

#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

std::vector<std::int64_t> counts(std::int64_t layers, std::int64_t stages, StageWeights weights) {
  std::vector<std::int64_t> result;
  std::int64_t next = 0;
  for (const LayerRange& range : partition_layers(layers, stages, weights)) {
    CHECK(range.first == next);
    next += range.count;
    result.push_back(range.count);
  }
  CHECK(next == layers);
  return result;
}

double span(const std::vector<StageSeconds>& stages, std::int64_t micro_batches) {
  return pipeline_span(stages, micro_batches).seconds;
}

}  // namespace

TEST_CASE("Layers are dealt out evenly, what is left over to the first stages") {
  CHECK(counts(64, 16, StageWeights::layers) == std::vector<std::int64_t>(16, 4));
  CHECK(counts(7, 3, StageWeights::layers) == std::vector<std::int64_t>{3, 2, 2});
  CHECK(counts(5, 5, StageWeights::layers) == std::vector<std::int64_t>(5, 1));
  CHECK(counts(9, 1, StageWeights::layers_and_ends) == std::vector<std::int64_t>{9});
}

// BLOOM's 70 layers on 12 stages (bigscience, train/tr11-176B-ml/README.md).
TEST_CASE("Embedding and head may count as a layer each") {
  std::vector<std::int64_t> expected(12, 6);
  expected.front() = expected.back() = 5;
  CHECK(counts(70, 12, StageWeights::layers_and_ends) == expected);
  // No stage is left without a layer.
  CHECK(counts(4, 4, StageWeights::layers_and_ends) == std::vector<std::int64_t>(4, 1));
}

TEST_CASE("A stage has min(m, p - stage) micro-batches alive, and runs each once each way") {
  for (const std::int64_t m : {1, 2, 3, 8, 31}) {
    for (const std::int64_t p : {1, 2, 4, 7}) {
      for (std::int64_t stage = 0; stage < p; ++stage) {
        std::int64_t alive = 0, most = 0, forward = 0, backward = 0;
        for (const PipelineSlot& slot : pipeline_slots(m, p, stage)) {
          CHECK(slot.micro_batch == (slot.forward ? forward++ : backward++));
          alive += slot.forward ? 1 : -1;
          CHECK(alive >= 0);
          most = std::max(most, alive);
        }
        CHECK(forward == m);
        CHECK(backward == m);
        CHECK(most == std::min(m, p - stage));
        CHECK(most == live_micro_batches(m, p, stage));
      }
    }
  }
}

TEST_CASE("Equal stages take (m + p - 1) (f + b)") {
  for (const std::int64_t m : {1, 3, 16, 64}) {
    for (const std::size_t p : {1, 2, 5, 12}) {
      const std::vector<StageSeconds> stages(p, {0.25, 0.5});
      CHECK(span(stages, m) == Approx(0.75 * static_cast<double>(m + static_cast<int>(p) - 1)));
    }
  }
}

TEST_CASE("A slower stage decides, a stage without work costs nothing") {
  std::vector<StageSeconds> stages(4, {1.0, 2.0});
  const double even = span(stages, 32);
  stages[2] = {2.0, 4.0};
  // It works all the time but while the first micro-batch comes and the last gradient goes.
  CHECK(span(stages, 32) >= 32.0 * 6.0);
  CHECK(span(stages, 32) <= 32.0 * 6.0 + even / 32.0 * 4.0);
  stages[2] = {0.0, 0.0};
  CHECK(span(stages, 32) == Approx(3.0 * (32 + 2)));
  CHECK(pipeline_span(stages, 32).forward_share == Approx(1.0 / 3.0));
}
