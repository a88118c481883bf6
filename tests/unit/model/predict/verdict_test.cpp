// What a verdict says of unspecified host memory.
#include "model/predict/verdict.hpp"

#include <string>

#include "base/json.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/predict.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

// Qwen1.5-14B's shape on a node of four V100, all states on the host.
StepResult offloaded(const std::string& host_memory) {
  const std::string text =
      R"({"model":"qwen2.5-14b","cluster":{"gpus_per_node":4,"gpu":"V100-32G")" + host_memory +
      R"(},"ds_config":{"zero_optimization":{"stage":3,"offload_optimizer":{"device":"cpu"},
          "offload_param":{"device":"cpu"}},"fp16":{"enabled":true}},
          "workload":{"sequence_length":512,"micro_batch_size":1,"activation_checkpointing":"full"}})";
  return predict(resolve(parse_scenario(parse_json(text, "s.json").root, "s.json")));
}

StepResult with_host(Bytes memory) {
  return offloaded(R"(,"host_memory_bytes":)" + std::to_string(memory.count()));
}

}  // namespace

TEST_CASE("unspecified host memory is a condition, and what it asks for suffices") {
  const StepResult open = offloaded("");
  REQUIRE(open.fits);
  REQUIRE(open.host_condition);
  const HostCondition& condition = *open.host_condition;
  CHECK(open.limits.empty());
  CHECK(condition.enough > open.host.capacity);
  CHECK(condition.enough - condition.margin == open.host.peak);
  const StepResult enough = with_host(condition.enough);
  CHECK(enough.fits);
  CHECK_FALSE(enough.host_condition);
  const StepResult usual = with_host(open.host.capacity);
  CHECK(usual.fit_probability == Approx(condition.usual_probability));
  CHECK_FALSE(usual.fits);
  // The same need, with its margin beside it.
  REQUIRE_FALSE(usual.limits.empty());
  CHECK(usual.limits.front().needed == open.host.peak);
  CHECK(usual.limits.front().enough() > usual.limits.front().available);
}

TEST_CASE("no node has ten times what is usual") {
  const std::string text =
      R"({"model":"llama-3.1-70b","cluster":"1xRTX-4090",
          "ds_config":{"zero_optimization":{"stage":3,"offload_optimizer":{"device":"cpu"},
          "offload_param":{"device":"cpu"}},"bf16":{"enabled":true}},
          "workload":{"sequence_length":512,"micro_batch_size":1,"activation_checkpointing":"full"}})";
  const StepResult result =
      predict(resolve(parse_scenario(parse_json(text, "s.json").root, "s.json")));
  REQUIRE_FALSE(result.fits);
  CHECK_FALSE(result.host_condition);
  const Limit& limit = result.limits.back();
  CHECK(limit.resource == Resource::host_memory);
  CHECK(limit.open);
  CHECK(limit.available == result.host.capacity * kOpenHostMemory);
}
