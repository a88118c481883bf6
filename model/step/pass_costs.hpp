// What the passes of a graph cost on one machine, by what decides it: so that a coefficient can be
// moved without asking for every kernel again.
#pragma once

#include <array>
#include <vector>

#include "model/cost/attention.hpp"
#include "model/cost/kernel_time.hpp"
#include "model/graph/graph.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan {

// A cause of time; each goes with the coefficient(s) of its row in pass_costs.cpp.
enum class CostClass {
  matmul,
  attention,
  pointwise,
  reduction,
  softmax,
  norm,
  copy,
  gather,
  scatter,
  ranks,  // what a pass moves between ranks of tensor parallelism and pipeline stages
  kernel_floor,
  host_forward,
  host_backward,
  host_view,
  host_launch,
};
inline constexpr std::size_t kCostClassCount = 15;
constexpr bool is_host(CostClass cost) { return cost >= CostClass::host_forward; }

using ClassSeconds = std::array<double, kCostClassCount>;

// GPU and host seconds of each pass of micro_batch(graph), equal ones once.
struct PassCosts {
  std::vector<ClassSeconds> distinct;
  std::vector<std::int32_t> of_pass;  // index into `distinct`
};

AttentionSoftware attention_software(const Plan& plan);
// Between which ranks the plan's operations go.
Transfers transfers_of(const Plan& plan);
PassCosts pass_costs(const Plan& plan, const ModelGraph& graph);

// The coefficient behind a class on this plan's GPU and graph, and how its time follows it.
struct ClassCoefficient {
  Coefficient id;
  bool inverse = false;  // time goes with 1 / coefficient
};
ClassCoefficient coefficient_of(CostClass cost, const Plan& plan, const ModelGraph& graph);

}  // namespace zeroplan
