// A step as it was measured beside the same step as it is simulated: the same tracks, and on them
// the same kernel calls in the same order.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/step_work.hpp"
#include "runtime/train/trainer.hpp"
#include "simulator/recording.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"
#include "tests/runtime/plan_training.hpp"

namespace zeroplan::runtime {
namespace {

Plan plan_of(int stage, bool fused_loss, const char* groups = nullptr) {
  const Json model = Json::object({{"model_type", "llama"},
                                   {"architectures", Json::array({"LlamaForCausalLM"})},
                                   {"hidden_size", 32},
                                   {"intermediate_size", 56},
                                   {"num_hidden_layers", 2},
                                   {"num_attention_heads", 4},
                                   {"num_key_value_heads", 2},
                                   {"vocab_size", 97},
                                   {"max_position_embeddings", 100},
                                   {"rms_norm_eps", 1e-5}});
  Json zero = Json::object({{"stage", stage}, {"reduce_bucket_size", 20'000}});
  if (groups != nullptr) zero[groups] = 2;
  const Json document = Json::object({{"model", model},
                                      {"cluster", groups != nullptr ? "1x4xcpu" : "1x2xcpu"},
                                      {"workload",
                                       Json::object({{"sequence_length", fused_loss ? 100 : 16},
                                                     {"fused_loss", fused_loss},
                                                     {"micro_batch_size", 2},
                                                     {"precision", "fp32"},
                                                     {"engine", "embedded"}})},
                                      {"ds_config", Json::object({{"zero_optimization", zero}})}});
  return resolve(parse_scenario(document, "test"));
}

std::string trace_of_run(const Plan& plan) {
  const StepWork work = step_work(plan);
  TrainingSetup setup = test::setup_of(plan, work);
  TrainingOptions options;
  options.steps = 3;
  options.trace = true;
  const TrainingReport report = train(setup, options, *random_tokens(1, 97, 16));
  REQUIRE(report.timeline.has_value());
  return report.timeline->chrome_trace("measured");
}

struct Trace {
  std::vector<std::string> kernels;  // of the graph, with the module they are for
  std::vector<std::string> phases;
  double largest_memory = 0.0;  // MiB
  int collectives = 0;
};

Trace trace_of(const std::string& text) {
  const Json root = parse_json(text, "trace").root;
  const auto text_at = [](const Json& event, const char* key) {
    const Json* value = event.find(key);
    return value != nullptr && value->is_string() ? value->as_string() : std::string();
  };
  Trace trace;
  for (const Json& event : root.find("traceEvents")->items()) {
    const std::string kind = text_at(event, "ph");
    const std::string name = text_at(event, "name");
    const std::string category = text_at(event, "cat");
    if (event.find("pid")->as_number() != 1.0) continue;  // another rank's
    if (kind == "X") CHECK(event.find("dur")->as_number() >= 0.0);
    if (kind == "X" && category.empty()) trace.phases.push_back(name);
    if (kind == "X" && category == "collective") ++trace.collectives;
    const bool of_graph = name.find("ward") != std::string::npos || name == "add";
    if (category == "kernel" && of_graph) {
      trace.kernels.push_back(name + " " + text_at(*event.find("args"), "for"));
    }
    if (kind != "C") continue;
    double sum = 0.0;
    for (const auto& [key, value] : event.find("args")->members()) {
      if (key != "not allocated") sum += value.as_number();
    }
    trace.largest_memory = std::max(trace.largest_memory, sum);
  }
  return trace;
}

TEST_CASE("the trace of a run has the simulator's tracks, kernel calls and peak") {
  const int stage = GENERATE(0, 2, 3);
  const bool fused_loss = GENERATE(false, true);
  CAPTURE(stage, fused_loss);
  const Plan plan = plan_of(stage, fused_loss);
  const Trace simulated = trace_of(simulator::record_run(plan, simulator::simulate(plan)).trace);
  const Trace measured = trace_of(trace_of_run(plan));
  CHECK(measured.kernels == simulated.kernels);
  CHECK(measured.kernels.size() > 50);
  CHECK(measured.phases == simulated.phases);
  CHECK(measured.collectives > 0);
  CHECK(std::abs(measured.largest_memory / simulated.largest_memory - 1.0) < 0.01);
}

TEST_CASE("the trace has what groups of ranks do, and no two collectives at once") {
  const char* const groups = GENERATE("zero_hpz_partition_size", "mics_shard_size");
  CAPTURE(groups);
  const Plan plan = plan_of(3, false, groups);
  const std::string text = trace_of_run(plan);
  const Trace measured = trace_of(text);
  const Trace simulated = trace_of(simulator::record_run(plan, simulator::simulate(plan)).trace);
  CHECK(measured.kernels == simulated.kernels);
  // One for one: gathers, reductions, norms. A sum over replicas is one for each stretch of
  // partitions, which is two more here than there are buckets.
  const bool shards = plan.engine.stage3.mics_shard_size > 0;
  CHECK(measured.collectives == simulated.collectives + (shards ? 2 : 0));
  CHECK(std::abs(measured.largest_memory / simulated.largest_memory - 1.0) < 0.01);
  double ended = 0.0;
  const Json root = parse_json(text, "trace").root;
  for (const Json& event : root.find("traceEvents")->items()) {
    const Json* category = event.find("cat");
    if (category == nullptr || category->as_string() != "collective") continue;
    CHECK(event.find("ts")->as_number() >= ended - 1e-3);
    ended = event.find("ts")->as_number() + event.find("dur")->as_number();
  }
}

}  // namespace
}  // namespace zeroplan::runtime
