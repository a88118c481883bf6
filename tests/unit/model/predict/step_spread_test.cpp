// What makes a step's time uncertain: no coefficient that moves it is forgotten.
#include "model/predict/step_spread.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/step_time.hpp"
#include "model/predict/step_work.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

constexpr const char* kModel = R"({"model_type":"llama","architectures":["LlamaForCausalLM"],
  "hidden_size":1024,"intermediate_size":2816,"num_hidden_layers":4,"num_attention_heads":16,
  "num_key_value_heads":16,"vocab_size":8000,"max_position_embeddings":4096,
  "tie_word_embeddings":false,"rms_norm_eps":1e-6})";

struct Case {
  Case(const std::string& zero,
       const std::string& cluster,
       const std::string& workload = "",
       const std::string& model = kModel)
      : plan(resolve(parse_scenario(
            parse_json(std::string(R"({"model":)") + model + R"(,"cluster":)" + cluster +
                           R"(,"workload":{"sequence_length":512,"micro_batch_size":1)" + workload +
                           R"(},"ds_config":{"bf16":{"enabled":true},"zero_optimization":{)" +
                           zero + "}}}",
                       "s.json")
                .root,
            "s.json"))),
        work(step_work(plan)),
        traffic(step_traffic(plan, work)) {}
  double seconds(const Coefficients& c) const {
    Plan moved = plan;
    moved.coefficients = c;
    return step_time(moved, work.graph, traffic).total.seconds();
  }
  Plan plan;
  StepWork work;
  StepTraffic traffic;
};

// Steps that between them use every part of the cost model behind the kernels.
std::vector<Case> cases() {
  const std::string cpu = R"("offload_optimizer":{"device":"cpu"})";
  const std::string nvme = R"("stage":3,"offload_optimizer":{"device":"nvme","nvme_path":"/n"},)"
                           R"("offload_param":{"device":"nvme","nvme_path":"/n"})";
  std::vector<Case> list;
  list.emplace_back(R"("stage":3)", R"("1x8xH100-80G-SXM")");
  list.emplace_back(R"("stage":2)", R"("1x2xA100-80G-SXM")", R"(,"frontend":"native")");
  list.emplace_back(R"("stage":3)", R"("4x8xA100-80G-SXM")");
  list.emplace_back(R"("stage":2)", R"({"nodes":2,"gpus_per_node":4,"gpu":"A100-80G-SXM",
                    "inter_node":{"link":"tcp","bandwidth":1.25e9}})");
  list.emplace_back(R"("stage":2)", R"({"nodes":2,"gpus_per_node":4,"gpu":"V100-32G-SXM2",
                    "inter_node":{"link":"opa","bandwidth":5e10}})");
  list.emplace_back(R"("stage":2,)" + cpu, R"("1x4xRTX4090")");
  list.emplace_back(R"("stage":3,)" + cpu, R"("1x8xL40S")");
  list.emplace_back(R"("stage":3)", R"("1x4xL40S")");
  list.emplace_back(R"("stage":1)", R"("1x2xL40S")");
  list.emplace_back(R"("stage":1)", R"("1x8xV100-32G-SXM2")");
  list.emplace_back(R"("stage":1)", R"("1x4xV100-32G-SXM2")");
  list.emplace_back(nvme, R"("1x2xA100-80G-SXM")");
  list.emplace_back(R"("stage":3)", R"("1x8xA100-80G-SXM")", R"(,"engine":"fsdp")");
  list.emplace_back(R"("stage":0)", R"("1x8xA100-80G-SXM")", R"(,"engine":"ddp")");
  list.emplace_back(
      R"("stage":3)",
      R"("1x8xA100-80G-SXM")",
      R"(,"engine":"fsdp","implementation":"composer")",
      R"({"model_type":"mpt","d_model":1024,"n_heads":8,"n_layers":4,"max_seq_len":2048,
                    "vocab_size":8000,"expansion_ratio":4})");
  list.emplace_back(R"("stage":1)", R"("1x2xcpu")");
  const auto wired = [&](const std::string& cluster, Topology topology) {
    list.emplace_back(R"("stage":1)", cluster);
    list.back().plan.cluster.node.topology = topology;
  };
  wired(R"("1x2xV100-32G-SXM2")", Topology::hybrid_cube_mesh);
  wired(R"("1x4xV100-32G-SXM2")", Topology::hybrid_cube_mesh);
  wired(R"("1x4xA100-80G-PCIe")", Topology::nvlink_pairs);
  list.emplace_back(R"("stage":1)", R"({"gpu":"RTX4090","gpus_per_node":2,
                    "host_memory_bandwidth":1e13})");
  list.emplace_back(R"("stage":2,)" + cpu, R"({"gpu":"A100-80G-SXM","gpus_per_node":1,
                    "cpu_cores":1})");
  list.emplace_back(R"("stage":2,)" + cpu, R"({"gpu":"A100-80G-SXM","gpus_per_node":1,
                    "cpu_cores":128,"host_memory_bandwidth":1e13})");
  return list;
}

bool contains(const std::vector<Coefficient>& list, Coefficient id) {
  return std::find(list.begin(), list.end(), id) != list.end();
}

// Shapes of curves whose level is moved: see moved_coefficients().
bool shapes_a_kernel(const CoefficientInfo& row) {
  const std::string name(row.name);
  return name.starts_with("matmul_") || name.find("_prologue_keys") != std::string::npos ||
         name.find("_backward_rate") != std::string::npos || name.starts_with("l2_") ||
         name == "attention_fixed_seconds" || name == "nccl_small_protocol_bytes" ||
         name == "tensor_rank_wait_seconds";
}

}  // namespace

TEST_CASE("a coefficient that moves a step is among those whose spread counts") {
  const std::span<const Coefficient> moved = moved_coefficients();
  for (const Case& c : cases()) {
    std::vector<Coefficient> counted(moved.begin(), moved.end());
    for (std::size_t i = 0; i < kCostClassCount; ++i) {
      counted.push_back(coefficient_of(static_cast<CostClass>(i), c.plan, c.work.graph).id);
    }
    const double base = c.seconds(c.plan.coefficients);
    for (const CoefficientInfo& row : coefficient_rows()) {
      if (contains(counted, row.id) || shapes_a_kernel(row)) continue;
      Coefficients other = c.plan.coefficients;
      other.set(row.id, other[row.id] * 1.25);
      INFO(row.name << " on " << c.plan.cluster.gpu.name);
      CHECK(c.seconds(other) == base);
    }
  }
}

TEST_CASE("each of them moves a step somewhere") {
  const std::vector<Case> list = cases();
  for (const Coefficient id : moved_coefficients()) {
    const bool somewhere = std::any_of(list.begin(), list.end(), [&](const Case& c) {
      Coefficients other = c.plan.coefficients;
      other.set(id, other[id] * 1.5);
      return c.seconds(other) != c.seconds(c.plan.coefficients);
    });
    INFO(info(id).name);
    CHECK(somewhere);
  }
}

TEST_CASE("a machine that was assumed is less certain than the same one stated") {
  const Case assumed(R"("stage":2)", R"({"nodes":4,"gpus_per_node":8,"gpu":"A100-80G-SXM"})");
  Plan stated = assumed.plan;
  stated.cluster.inter_node.bandwidth.confidence = Confidence::stated;
  const double unsure =
      predict_step_time(assumed.plan, assumed.work.graph, assumed.traffic).relative_sd;
  const double sure = predict_step_time(stated, assumed.work.graph, assumed.traffic).relative_sd;
  CHECK(unsure > sure);
}
