// What a verdict says to change.
#include "model/predict/verdict.hpp"

#include <string>

#include "model/json.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/predict.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

// Qwen2.5-7B on four GPUs of 48 GB, 4096 tokens a sequence.
StepResult predicted(const std::string& checkpointing, const std::string& micro_batch) {
  const std::string text =
      R"({"model":"qwen2.5-7b","cluster":"4xA6000",
          "ds_config":{"zero_optimization":{"stage":3},"bf16":{"enabled":true}},
          "workload":{"sequence_length":4096,"micro_batch_size":)" +
      micro_batch + R"(,"activation_checkpointing":")" + checkpointing + R"("}})";
  return predict(resolve(parse_scenario(parse_json(text, "s.json").root, "s.json")));
}

}  // namespace

TEST_CASE("checkpointing is named before offload where it makes the plan fit") {
  const StepResult without = predicted("none", "1");
  REQUIRE_FALSE(without.fits);
  // Activations are less than half of it, and checkpointing is enough all the same.
  const Bytes activations = at(without.gpu.breakdown_at_peak, MemoryCategory::activations) +
                            at(without.gpu.breakdown_at_peak, MemoryCategory::logits);
  REQUIRE(activations * 2 < without.gpu.peak_total);
  CHECK(without.limits.front().cheapest_change == "full activation checkpointing");
  CHECK(predicted("full", "1").fits);
}

TEST_CASE("where blocks are recomputed already, something else is named") {
  const StepResult result = predicted("full", "4");
  REQUIRE_FALSE(result.fits);
  CHECK(result.limits.front().cheapest_change == "offload the optimizer to the CPU");
}
