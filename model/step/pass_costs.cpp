#include "model/step/pass_costs.hpp"

#include "model/cost/host_time.hpp"

namespace zeroplan {
namespace {

CostClass class_of(OpKind kind) {
  switch (kind) {
    case OpKind::matmul:
      return CostClass::matmul;
    case OpKind::attention:
      return CostClass::attention;
    case OpKind::reduction:
      return CostClass::reduction;
    case OpKind::softmax:
      return CostClass::softmax;
    case OpKind::norm:
      return CostClass::norm;
    case OpKind::copy:
    case OpKind::exchange:
    case OpKind::host_copy:
      return CostClass::copy;
    case OpKind::tensor_reduce:
    case OpKind::tensor_gather:
    case OpKind::stage_transfer:
      return CostClass::ranks;
    case OpKind::gather:
      return CostClass::gather;
    case OpKind::scatter:
      return CostClass::scatter;
    case OpKind::pointwise:
    case OpKind::fill:
    case OpKind::view:
      return CostClass::pointwise;
  }
  return CostClass::pointwise;
}

double& at(ClassSeconds& seconds, CostClass cost) {
  return seconds[static_cast<std::size_t>(cost)];
}

// Evaluates operations; products of one shape stand together, so the last few are remembered.
class Evaluation {
 public:
  Evaluation(const Plan& plan, const HostCosts& host)
      : host_(host),
        kernels_(plan.cluster.gpu,
                 plan.coefficients,
                 attention_software(plan),
                 /*allow_tf32=*/false,
                 transfers_of(plan)),
        floor_(kernels_.on_cpu() ? 0.0 : plan.coefficients[Coefficient::kernel_floor_seconds]) {}

  ClassSeconds pass(const Block& block, Pass which) {
    ClassSeconds seconds{};
    for (const Event& event : block.of(which)) {
      if (event.kind != EventKind::operation) continue;
      add(block, block.operations[static_cast<std::size_t>(event.index)], which, seconds);
    }
    return seconds;
  }

 private:
  void add(const Block& block, const Operation& operation, Pass which, ClassSeconds& seconds) {
    const auto times = static_cast<double>(operation.times);
    const double total = gpu_seconds(block, operation);
    const CostClass cost = class_of(operation.kind);
    if (cost == CostClass::matmul || cost == CostClass::attention || cost == CostClass::ranks) {
      at(seconds, cost) += total;
    } else if (total > 0.0) {
      const double floors = floor_ * static_cast<double>(operation.kernels) * times;
      at(seconds, CostClass::kernel_floor) += floors;
      at(seconds, cost) += total - floors;
    }
    if (operation.kind == OpKind::view || operation.kernels <= 0) {
      at(seconds, CostClass::host_view) += host_.view.seconds() * times;
      return;
    }
    const bool backward = which == Pass::backward;
    at(seconds, backward ? CostClass::host_backward : CostClass::host_forward) +=
        (backward ? host_.backward_operation : host_.forward_operation).seconds() * times;
    at(seconds, CostClass::host_launch) +=
        host_.launch.seconds() * static_cast<double>(operation.kernels - 1) * times;
  }

  double gpu_seconds(const Block& block, const Operation& operation) {
    // Calls on CPU ranks differ by more than their shape.
    const bool by_shape = operation.kind == OpKind::matmul && !kernels_.on_cpu();
    if (!by_shape) return kernels_.of(block, operation).seconds.seconds();
    const MatrixProduct& product = block.products[static_cast<std::size_t>(operation.shape)];
    for (const auto& [known, seconds] : known_) {
      if (known.batch == product.batch && known.m == product.m && known.n == product.n &&
          known.k == product.k && known.dtype == product.dtype) {
        return seconds * static_cast<double>(operation.times);
      }
    }
    const double seconds = kernels_.of(block, operation).seconds.seconds();
    known_.emplace_back(product, seconds / static_cast<double>(operation.times));
    return seconds;
  }

  const HostCosts& host_;
  KernelTimes kernels_;
  double floor_;
  std::vector<std::pair<MatrixProduct, double>> known_;
};

// The first fused call decides: a model has one kind of attention head.
const AttentionCall* attention_of(const ModelGraph& graph) {
  for (const Block& block : graph.blocks) {
    if (!block.attentions.empty()) return &block.attentions.front();
  }
  return nullptr;
}

Coefficient attention_coefficient(const Plan& plan, const AttentionCall& call) {
  const bool narrow = call.head_dim <= 64;
  const bool wide = call.head_dim > 128;
  switch (attention_kernel(call, attention_software(plan), plan.cluster.gpu)) {
    case AttentionKernel::flash1:
      return narrow ? Coefficient::flash1_efficiency_64 : Coefficient::flash1_efficiency_128;
    case AttentionKernel::triton:
      return narrow ? Coefficient::triton_attention_efficiency_64
                    : Coefficient::triton_attention_efficiency_128;
    case AttentionKernel::flash2:
      return narrow ? Coefficient::flash2_efficiency_64
             : wide ? Coefficient::flash2_efficiency_256
                    : Coefficient::flash2_efficiency_128;
    case AttentionKernel::flash3:
      return narrow ? Coefficient::flash3_efficiency_64
             : wide ? Coefficient::flash3_efficiency_256
                    : Coefficient::flash3_efficiency_128;
    case AttentionKernel::cudnn:
      return narrow ? Coefficient::cudnn_attention_efficiency_64
                    : Coefficient::cudnn_attention_efficiency_128;
    case AttentionKernel::cutlass:
    case AttentionKernel::math:
      return narrow ? Coefficient::cutlass_attention_efficiency_64
                    : Coefficient::cutlass_attention_efficiency_128;
  }
  return Coefficient::flash2_efficiency_128;
}

// On CPU ranks a class holds several kernels: the one that most of a step's time of the class is.
ClassCoefficient cpu_coefficient(CostClass cost) {
  switch (cost) {
    case CostClass::matmul:
    case CostClass::attention:
      return {Coefficient::cpu_product_rate, true};
    case CostClass::norm:
      return {Coefficient::cpu_rms_norm_backward_seconds};
    case CostClass::softmax:
      return {Coefficient::cpu_softmax_seconds};
    case CostClass::scatter:
      return {Coefficient::cpu_table_gradient_seconds};
    case CostClass::pointwise:
      return {Coefficient::cpu_swiglu_backward_seconds};
    default:
      return {Coefficient::cpu_stream_rate, true};
  }
}

}  // namespace

AttentionSoftware attention_software(const Plan& plan) {
  return {plan.workload.attention,
          plan.workload.implementation,
          plan.software.torch,
          plan.software.torch_said,
          plan.workload.engine == TrainingEngine::embedded,
          plan.software.switched};
}

Transfers transfers_of(const Plan& plan) {
  return {&plan.cluster,
          plan.layout(),
          runs_on_cpu_ranks(plan) ? std::optional(plan.engine.model_dtype) : std::nullopt};
}

PassCosts pass_costs(const Plan& plan, const ModelGraph& graph) {
  HostSoftware software;
  software.engine = plan.workload.engine;
  software.frontend = plan.workload.frontend;
  software.implementation = plan.workload.implementation;
  software.launches = !runs_on_cpu_ranks(plan);
  const HostCosts host = host_costs(software, plan.coefficients);
  Evaluation evaluation(plan, host);
  std::vector<std::int32_t> known(graph.blocks.size() * kPassCount, -1);
  PassCosts costs;
  for (const PassStep& step : micro_batch(graph)) {
    const auto block = graph.instances[static_cast<std::size_t>(step.instance)].block;
    std::int32_t& index =
        known[static_cast<std::size_t>(block) * kPassCount + static_cast<std::size_t>(step.pass)];
    if (index < 0) {
      index = static_cast<std::int32_t>(costs.distinct.size());
      costs.distinct.push_back(
          evaluation.pass(graph.blocks[static_cast<std::size_t>(block)], step.pass));
    }
    costs.of_pass.push_back(index);
  }
  return costs;
}

ClassCoefficient coefficient_of(CostClass cost, const Plan& plan, const ModelGraph& graph) {
  if (runs_on_cpu_ranks(plan)) return cpu_coefficient(cost);
  switch (cost) {
    case CostClass::matmul:
      return {Coefficient::matmul_sustained_derate};
    case CostClass::attention: {
      const AttentionCall* call = attention_of(graph);
      const Coefficient id =
          call == nullptr ? Coefficient::flash2_efficiency_128 : attention_coefficient(plan, *call);
      return {id, true};
    }
    case CostClass::pointwise:
      return {Coefficient::pointwise_bandwidth_efficiency, true};
    case CostClass::reduction:
      return {Coefficient::reduction_bandwidth_efficiency, true};
    case CostClass::softmax:
      return {Coefficient::softmax_bandwidth_efficiency, true};
    case CostClass::norm:
      return {Coefficient::norm_bandwidth_efficiency, true};
    case CostClass::copy:
      return {Coefficient::copy_bandwidth_efficiency, true};
    case CostClass::gather:
      return {Coefficient::gather_bandwidth_efficiency, true};
    case CostClass::scatter:
      return {Coefficient::scatter_bandwidth_efficiency, true};
    case CostClass::ranks:
      return {Coefficient::nccl_reduce_efficiency, true};
    case CostClass::kernel_floor:
      return {Coefficient::kernel_floor_seconds};
    case CostClass::host_forward:
      return {Coefficient::host_forward_operation_seconds};
    case CostClass::host_backward:
      return {Coefficient::host_backward_operation_seconds};
    case CostClass::host_view:
      return {Coefficient::host_view_seconds};
    case CostClass::host_launch:
      return {Coefficient::host_launch_seconds};
  }
  return {Coefficient::matmul_sustained_derate};
}

}  // namespace zeroplan
