// GPUs that share one memory with the host (GB10).
#include <algorithm>
#include <string>

#include "base/json.hpp"
#include "model/hardware/cluster.hpp"
#include "model/hardware/known_hardware.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/predict.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"
#include "tuner/fit_question.hpp"
#include "tuner/remedies.hpp"

using namespace zeroplan;

namespace {

Scenario scenario_of(const std::string& model, const std::string& offload = "none") {
  const std::string text = R"({"model":")" + model +
                           R"(","cluster":"GB10","workload":{"sequence_length":1024,
      "micro_batch_size":1,"activation_checkpointing":"full"},"ds_config":{"bf16":{"enabled":true},
      "zero_optimization":{"stage":2,"offload_optimizer":{"device":")" +
                           offload + R"("}}}})";
  return parse_scenario(parse_json(text, "s.json").root, "s.json");
}

}  // namespace

TEST_CASE("host and GPU of a DGX Spark have one memory, and it is said") {
  for (const char* text : {"GB10", "1xGB10", "DGX Spark", "1x DGX Spark", "GB10-128G"}) {
    CAPTURE(text);
    const Cluster cluster = parse_cluster_text(text);
    CHECK(cluster.gpu.key == "gb10");
    CHECK(cluster.gpu.shares_host_memory());
    CHECK(cluster.node.host_memory.value == cluster.gpu.memory.value);
    CHECK(
        std::any_of(cluster.assumptions.begin(), cluster.assumptions.end(), [](const Phrase& said) {
          return said.english().find("one pool") != std::string::npos;
        }));
  }
  CHECK_FALSE(parse_cluster_text("1xGH200").gpu.shares_host_memory());
  const Cluster two = parse_cluster_text("2xGB10");
  CHECK(two.nodes == 2);
  CHECK(two.gpus_per_node() == 1);
  CHECK(two.inter_node.kind == LinkKind::roce);
}

TEST_CASE("what the host takes is not left for the GPU, whoever asks") {
  const Plan plan = resolve(scenario_of("qwen2.5-1.5b"));
  const Bytes pool = plan.cluster.gpu.memory.value - plan.cluster.gpu.pool_system->value;
  for (const StepResult& result : {predict(plan), simulator::simulate(plan)}) {
    CHECK(result.fits);
    CHECK(result.gpu.capacity + result.host.step_peak == pool);
    CHECK(result.gpu.peak_total + result.host.peak < pool);
    CHECK_FALSE(result.host_condition);
  }
}

TEST_CASE("an optimizer on the host makes the GPU's share smaller by as much") {
  const StepResult on_gpu = predict(resolve(scenario_of("qwen2.5-1.5b")));
  const StepResult on_host = predict(resolve(scenario_of("qwen2.5-1.5b", "cpu")));
  CHECK(on_host.host.step_peak > on_gpu.host.step_peak);
  CHECK(on_gpu.gpu.capacity - on_host.gpu.capacity ==
        on_host.host.step_peak - on_gpu.host.step_peak);
}

TEST_CASE("nothing is offloaded to the host where nothing is gained") {
  const Scenario scenario = scenario_of("qwen2.5-32b");
  for (const tuner::Strategy& strategy : tuner::strategies(tuner::ask(scenario))) {
    CHECK_FALSE(offloads_to_host(strategy));
  }
  const tuner::Variations variations(scenario);
  const StepResult result = tuner::played(variations.base(), {});
  REQUIRE_FALSE(result.fits);
  for (const tuner::TriedRemedy& one : tuner::find_remedies(variations, result, {}).tried) {
    INFO(one.change.english());
    CHECK(one.change.english().find("to the CPU") == std::string::npos);
    CHECK(one.change.english().find("host memory") == std::string::npos);
  }
}
