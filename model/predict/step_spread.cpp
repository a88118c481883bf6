#include "model/predict/step_spread.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <vector>

namespace zeroplan {
namespace {

using C = Coefficient;

// In this order: collectives; what every step may have; offload.
constexpr std::array kMoved = {C::nccl_base_seconds,
                               C::nccl_hop_seconds,
                               C::nccl_gather_efficiency,
                               C::nccl_scatter_efficiency,
                               C::nccl_reduce_efficiency,
                               C::nccl_pair_efficiency,
                               C::nccl_sharp_gain,
                               C::nccl_gather_ramp_seconds,
                               C::nccl_scatter_ramp_seconds,
                               C::nccl_reduce_ramp_seconds,
                               C::nccl_sharp_ramp_seconds,
                               C::nccl_small_protocol_share,
                               C::cube_mesh_pair_efficiency,
                               C::cube_mesh_quad_efficiency,
                               C::pcie_peer_pair_efficiency,
                               C::pcie_peer_efficiency,
                               C::pcie_cross_socket_efficiency,
                               C::pcie_bridge_efficiency,
                               C::pcie_host_efficiency,
                               C::pcie_host_dram_passes,
                               C::pcie_collective_base_seconds,
                               C::pcie_collective_hop_seconds,
                               C::pcie_ramp_seconds,
                               C::network_collective_efficiency,
                               C::omnipath_collective_efficiency,
                               C::tcp_collective_efficiency,
                               C::nccl_bulk_hop_seconds,
                               C::network_bulk_hop_seconds,
                               C::network_ramp_seconds,
                               C::cpu_rank_collective_efficiency,
                               C::cpu_rank_hop_seconds,
                               // every step
                               C::host_seconds_per_zero3_tensor,
                               C::host_module_hook_seconds,
                               C::host_zero3_gradient_seconds,
                               C::host_gradient_hook_seconds,
                               C::zero3_blocking_host_share,
                               C::host_collective_call_seconds,
                               C::compute_slowdown_under_communication,
                               C::collective_slowdown_under_compute,
                               C::collective_memory_passes,
                               C::scaling_loss_per_doubling,
                               C::adam_bandwidth_efficiency,
                               C::adam_foreach_traffic_ratio,
                               C::step_fixed_seconds,
                               C::micro_step_fixed_seconds,
                               C::native_step_seconds,
                               C::native_micro_step_seconds,
                               C::composer_step_seconds,
                               // offload
                               C::pcie_copy_efficiency,
                               C::pageable_copy_slowdown,
                               C::copy_dram_share,
                               C::copy_fixed_seconds,
                               C::cpu_adam_bytes_per_parameter,
                               C::cpu_adam_dram_efficiency,
                               C::cpu_adam_parameters_per_second_per_core,
                               C::cpu_adam_process_rate,
                               C::cpu_adam_unbound_slowdown,
                               C::host_pass_dram_efficiency,
                               C::host_pass_rate_per_core,
                               C::nvme_efficiency,
                               C::nvme_request_seconds};
constexpr std::size_t place_of(C id) {
  return static_cast<std::size_t>(std::find(kMoved.begin(), kMoved.end(), id) - kMoved.begin());
}
constexpr std::size_t kFirstOfEveryStep = place_of(C::host_seconds_per_zero3_tensor);
constexpr std::size_t kFirstOfOffload = place_of(C::pcie_copy_efficiency);
static_assert(kFirstOfEveryStep < kFirstOfOffload && kFirstOfOffload < kMoved.size());

bool offloads(const StepTraffic& traffic) {
  return traffic.device_to_host + traffic.host_to_device + traffic.host_to_device_pageable >
             Bytes::zero() ||
         traffic.cpu_optimizer > Elements::zero();
}

bool communicates(const Degrees& degrees) {
  return degrees.data > 1 || degrees.tensor > 1 || degrees.pipeline > 1;
}

// The sum of squares of what each change does to the step.
class Spread {
 public:
  Spread(const StepEvaluation& evaluate, const Plan& plan, double base)
      : evaluate_(evaluate), plan_(plan), base_(base) {}

  void move(Coefficient id, bool link) {
    const double sd = plan_.coefficients.relative_sd(id);
    if (sd == 0.0) return;
    Coefficients moved = plan_.coefficients;
    moved.set(id, moved[id] * (1.0 + sd));
    take(evaluate_(moved, unmoved(), link));
  }

  void move_class(CostClass cost, double sd) {
    if (sd == 0.0) return;
    ClassFactors factors = unmoved();
    factors[static_cast<std::size_t>(cost)] += sd;
    take(evaluate_(plan_.coefficients, factors, false));
  }

  // A figure of the machine that is unspecified: its value stands in these products only, so that
  // moving the coefficient moves the figure. `inverse`: in a quotient.
  template <typename T>
  void move(const Quantity<T>& figure,
            std::initializer_list<Coefficient> with,
            std::initializer_list<Coefficient> inverse = {}) {
    if (figure.confidence != Confidence::assumed || figure.relative_sd == 0.0) return;
    Coefficients moved = plan_.coefficients;
    const double factor = 1.0 + figure.relative_sd;
    for (const Coefficient id : with) moved.set(id, moved[id] * factor);
    for (const Coefficient id : inverse) moved.set(id, moved[id] / factor);
    take(evaluate_(moved, unmoved(), communicates(plan_.degrees)));
  }

  double squares() const { return squares_; }

 private:
  void take(const StepTime& moved) {
    squares_ += std::pow(moved.total.seconds() / base_ - 1.0, 2.0);
  }

  const StepEvaluation& evaluate_;
  const Plan& plan_;
  double base_;
  double squares_ = 0.0;
};

// Deviation of a class of kernels; matrix products have a level for single kernels and a derating
// for GPUs at work.
double class_sd(CostClass cost, const Plan& plan, const ModelGraph& graph) {
  const Coefficients& c = plan.coefficients;
  const double sd = c.relative_sd(coefficient_of(cost, plan, graph).id);
  if (cost != CostClass::matmul || runs_on_cpu_ranks(plan)) return sd;
  const bool fp32 = plan.engine.model_dtype == DType::fp32;
  const bool emulated = plan.engine.model_dtype == DType::bf16 && !plan.cluster.gpu.bf16_supported;
  if (fp32) return c.relative_sd(C::matmul_fp32_efficiency);
  if (emulated) return c.relative_sd(C::matmul_emulated_bf16_efficiency);
  return std::hypot(sd, c.relative_sd(C::matmul_isolated_efficiency));
}

void move_machine(Spread& spread, const Plan& plan) {
  const Node& node = plan.cluster.node;
  spread.move(node.pcie_bandwidth,
              {C::pcie_copy_efficiency,
               C::pcie_peer_pair_efficiency,
               C::pcie_peer_efficiency,
               C::pcie_cross_socket_efficiency,
               C::pcie_bridge_efficiency,
               C::pcie_host_efficiency});
  spread.move(node.host_memory_bandwidth,
              {C::cpu_adam_dram_efficiency,
               C::host_pass_dram_efficiency,
               C::copy_dram_share,
               C::cpu_rank_collective_efficiency},
              {C::pcie_host_dram_passes});
  if (plan.cluster.nodes > 1) {
    spread.move(plan.cluster.inter_node.bandwidth,
                {C::network_collective_efficiency,
                 C::omnipath_collective_efficiency,
                 C::tcp_collective_efficiency});
  }
  spread.move(node.cpu_cores,
              {C::cpu_adam_parameters_per_second_per_core, C::host_pass_rate_per_core});
  if (node.nvme) spread.move(node.nvme->read_bandwidth, {C::nvme_efficiency});
}

}  // namespace

std::span<const Coefficient> moved_coefficients() { return kMoved; }

StepPrediction with_spread(const StepEvaluation& evaluate,
                           const Plan& plan,
                           const ModelGraph& graph,
                           const StepTraffic& traffic) {
  StepPrediction prediction;
  prediction.time = evaluate(plan.coefficients, unmoved(), false);
  const double base = prediction.time.total.seconds();
  if (!std::isfinite(base) || base <= 0.0) return prediction;
  Spread spread(evaluate, plan, base);
  for (std::size_t i = 0; i < kCostClassCount; ++i) {
    const auto cost = static_cast<CostClass>(i);
    spread.move_class(cost, class_sd(cost, plan, graph));
  }
  const std::size_t first = communicates(plan.degrees) ? 0 : kFirstOfEveryStep;
  const std::size_t end = offloads(traffic) ? kMoved.size() : kFirstOfOffload;
  for (std::size_t i = first; i < end; ++i) spread.move(kMoved[i], i < kFirstOfEveryStep);
  move_machine(spread, plan);
  const double own = plan.coefficients[C::step_time_model_sd];
  prediction.relative_sd = std::sqrt(own * own + spread.squares());
  return prediction;
}

}  // namespace zeroplan
