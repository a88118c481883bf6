#include "model/cost/kernel_time.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "model/cost/copies.hpp"

namespace zeroplan {
namespace {

Coefficient bandwidth_efficiency(OpKind kind) {
  switch (kind) {
    case OpKind::reduction:
      return Coefficient::reduction_bandwidth_efficiency;
    case OpKind::softmax:
      return Coefficient::softmax_bandwidth_efficiency;
    case OpKind::norm:
      return Coefficient::norm_bandwidth_efficiency;
    case OpKind::copy:
      return Coefficient::copy_bandwidth_efficiency;
    case OpKind::gather:
      return Coefficient::gather_bandwidth_efficiency;
    case OpKind::scatter:
      return Coefficient::scatter_bandwidth_efficiency;
    case OpKind::matmul:
    case OpKind::attention:
    case OpKind::pointwise:
    case OpKind::fill:
    case OpKind::exchange:
    case OpKind::tensor_reduce:
    case OpKind::tensor_gather:
    case OpKind::stage_transfer:
    case OpKind::host_copy:
    case OpKind::view:
      return Coefficient::pointwise_bandwidth_efficiency;
  }
  return Coefficient::pointwise_bandwidth_efficiency;
}

}  // namespace

KernelTimes::KernelTimes(const Gpu& gpu,
                         const Coefficients& coefficients,
                         const AttentionSoftware& software,
                         bool allow_tf32,
                         const Transfers& transfers)
    : gpu_(gpu),
      coefficients_(coefficients),
      software_(software),
      matmul_(gpu, coefficients, allow_tf32),
      floor_(coefficients[Coefficient::kernel_floor_seconds]),
      resident_bytes_(static_cast<double>(gpu.l2.value.count()) *
                      coefficients[Coefficient::l2_resident_share]),
      resident_ratio_(coefficients[Coefficient::l2_bandwidth_ratio]),
      transfers_(transfers) {
  if (transfers.cpu_calls) {
    ZP_CHECK(transfers.cluster != nullptr, "CPU ranks share a node");
    cpu_.emplace(transfers.cluster->node, coefficients);
  }
  for (std::size_t kind = 0; kind < seconds_per_byte_.size(); ++kind) {
    const Coefficient efficiency = bandwidth_efficiency(static_cast<OpKind>(kind));
    seconds_per_byte_[kind] = 1.0 / (gpu.memory_bandwidth.value.value() * coefficients[efficiency]);
  }
}

Seconds KernelTimes::streaming(OpKind kind, Bytes traffic, std::int64_t kernels) const {
  if (kernels <= 0) return {};
  const double bytes = static_cast<double>(traffic.count());
  double seconds = bytes * seconds_per_byte_[static_cast<std::size_t>(kind)];
  if (bytes / static_cast<double>(kernels) < resident_bytes_) seconds /= resident_ratio_;
  return Seconds::of(static_cast<double>(kernels) * floor_ + seconds);
}

Seconds KernelTimes::muon_update(const MuonMatrices& matrices,
                                 NewtonSchulz method,
                                 DType gradient) const {
  const NewtonSchulzProducts products = newton_schulz_products(matrices, method);
  const auto product = [&](std::int64_t columns, std::int64_t inner) {
    return matmul_.sustained(
        {.batch = matrices.count, .m = products.n, .n = columns, .k = inner, .dtype = DType::fp16});
  };
  // X X^T once a restart or step, and as often a product with X.
  const double half = static_cast<double>(products.wide) / 2.0;
  const NewtonSchulzTraffic traffic = newton_schulz_traffic(matrices, method, gradient);
  return product(products.n, products.m) * half + product(products.m, products.n) * half +
         product(products.n, products.n) * static_cast<double>(products.square) +
         streaming(OpKind::pointwise, traffic.bytes, traffic.kernels);
}

Seconds KernelTimes::exchange(Bytes bytes) const {
  ZP_CHECK(transfers_.cluster != nullptr, "an exchange needs a cluster");
  return collective_time(Collective::all_to_all,
                         bytes,
                         transfers_.layout.sequence_group(),
                         *transfers_.cluster,
                         coefficients_);
}

// A reduction stands between two stretches of computation that no rank ends at the same time as the
// others.
Seconds KernelTimes::among_tensor_ranks(Collective kind, Bytes bytes) const {
  ZP_CHECK(transfers_.cluster != nullptr, "tensor parallelism needs a cluster");
  const CollectiveGroup group = transfers_.layout.tensor_group();
  const Seconds time = collective_time(kind, bytes, group, *transfers_.cluster, coefficients_);
  if (kind != Collective::all_reduce || group.ranks() <= 1) return time;
  return time + Seconds::of(coefficients_[Coefficient::tensor_rank_wait_seconds]);
}

Seconds KernelTimes::stage_transfer(Bytes bytes) const {
  ZP_CHECK(transfers_.cluster != nullptr, "a pipeline needs a cluster");
  return collective_time(Collective::broadcast,
                         bytes,
                         transfers_.layout.adjacent_stages(),
                         *transfers_.cluster,
                         coefficients_);
}

// Tensor.cpu() and Tensor.to(device): pageable memory, all GPUs of the node at once.
Seconds KernelTimes::host_copy(Bytes bytes) const {
  ZP_CHECK(transfers_.cluster != nullptr, "a copy to the host needs a node");
  const CopyLoad load{.copying_gpus = transfers_.cluster->gpus_per_node(), .pinned = false};
  return copy_time(bytes, 1, transfers_.cluster->node, load, coefficients_);
}

KernelTime KernelTimes::of(const Block& block, const Operation& operation) const {
  KernelTime time = once(block, operation);
  time.seconds = time.seconds * static_cast<double>(operation.times);
  return time;
}

KernelTime KernelTimes::once(const Block& block, const Operation& operation) const {
  if (cpu_) {
    const auto index = static_cast<std::size_t>(&operation - block.operations.data());
    ZP_CHECK(index < block.calls.size(), "an operation of the embedded runtime has a call");
    return {cpu_->kernel(block.calls[index], *transfers_.cpu_calls), KernelBound::none};
  }
  switch (operation.kind) {
    case OpKind::exchange:
      return {exchange(operation.traffic), KernelBound::none};
    case OpKind::tensor_reduce:
      return {among_tensor_ranks(Collective::all_reduce, operation.traffic), KernelBound::none};
    case OpKind::tensor_gather:
      return {among_tensor_ranks(Collective::all_gather, operation.traffic), KernelBound::none};
    case OpKind::stage_transfer:
      return {stage_transfer(operation.traffic), KernelBound::none};
    case OpKind::host_copy:
      return {host_copy(operation.traffic), KernelBound::none};
    case OpKind::view:
      return {};
    case OpKind::matmul: {
      ZP_CHECK(operation.shape >= 0, "a matrix product without a shape");
      const auto& product = block.products[static_cast<std::size_t>(operation.shape)];
      return {matmul_.sustained(product), KernelBound::compute};
    }
    case OpKind::attention: {
      ZP_CHECK(operation.shape >= 0, "an attention call without a shape");
      const auto& call = block.attentions[static_cast<std::size_t>(operation.shape)];
      const AttentionKernel kernel = attention_kernel(call, software_, gpu_);
      return {attention_time(call, kernel, gpu_, coefficients_), KernelBound::compute};
    }
    default:
      return {streaming(operation.kind, operation.traffic, operation.kernels), KernelBound::memory};
  }
}

Seconds KernelTimes::pass(const Block& block, Pass which) const {
  Seconds total;
  for (const Event& event : block.of(which)) {
    if (event.kind != EventKind::operation) continue;
    total += of(block, block.operations[static_cast<std::size_t>(event.index)]).seconds;
  }
  return total;
}

}  // namespace zeroplan
