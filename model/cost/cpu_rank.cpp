#include "model/cost/cpu_rank.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace zeroplan {
namespace {

using C = Coefficient;

constexpr double kTile = 128.0;   // rows and columns of a product's task (cpu_linear.cpp)
constexpr double kBlock = 64.0;   // queries and keys of attention's tasks (cpu_attention.cpp)
constexpr double kGrain = 16384;  // elements of a task (cpu_elementwise.cpp)

double real(std::int64_t count) { return static_cast<double>(count); }

double parts(double count, double grain) { return std::max(1.0, std::ceil(count / grain)); }

bool is_half(DType dtype) { return dtype == DType::bf16 || dtype == DType::fp16; }

// What a kernel that goes by elements takes for each, how its work is cut, and how often it reads
// and writes numbers of the model's type (16-bit ones are converted each time).
struct Rowwise {
  C seconds;
  double rows_of_task;  // 0: tasks of kGrain elements
  double reads, writes;
  double regions;
};

const Rowwise* rowwise_of(const KernelCall& call) {
  static constexpr Rowwise kRmsNorm{C::cpu_rms_norm_seconds, 8, 3, 1, 1};
  static constexpr Rowwise kRmsNormBackward{C::cpu_rms_norm_backward_seconds, 8, 8, 1, 2};
  static constexpr Rowwise kLayerNorm{C::cpu_layer_norm_seconds, 8, 5, 1, 1};
  static constexpr Rowwise kLayerNormBackward{C::cpu_layer_norm_backward_seconds, 8, 8, 1, 2};
  static constexpr Rowwise kSwiglu{C::cpu_swiglu_seconds, 0, 2, 1, 1};
  static constexpr Rowwise kSwigluBackward{C::cpu_swiglu_backward_seconds, 0, 3, 2, 1};
  static constexpr Rowwise kGelu{C::cpu_gelu_seconds, 0, 1, 1, 1};
  static constexpr Rowwise kGeluBackward{C::cpu_gelu_backward_seconds, 0, 2, 1, 1};
  static constexpr Rowwise kExactGelu{C::cpu_exact_gelu_seconds, 0, 1, 1, 1};
  static constexpr Rowwise kExactGeluBackward{C::cpu_exact_gelu_backward_seconds, 0, 2, 1, 1};
  static constexpr Rowwise kSoftmax{C::cpu_softmax_seconds, 4, 2, 0, 1};
  static constexpr Rowwise kSoftmaxBackward{C::cpu_softmax_backward_seconds, 4, 1, 1, 1};
  switch (call.kernel) {
    case Kernel::rms_norm_forward:
      return &kRmsNorm;
    case Kernel::rms_norm_backward:
      return &kRmsNormBackward;
    case Kernel::layer_norm_forward:
      return &kLayerNorm;
    case Kernel::layer_norm_backward:
      return &kLayerNormBackward;
    case Kernel::swiglu_forward:
      return &kSwiglu;
    case Kernel::swiglu_backward:
      return &kSwigluBackward;
    case Kernel::tanh_forward:  // one std::tanh an element, as GELU's
    case Kernel::gelu_forward:
      return call.exact_gelu ? &kExactGelu : &kGelu;
    case Kernel::gelu_backward:
      return call.exact_gelu ? &kExactGeluBackward : &kGeluBackward;
    case Kernel::cross_entropy_forward:
      return &kSoftmax;
    case Kernel::cross_entropy_backward:
      return &kSoftmaxBackward;
    default:
      return nullptr;
  }
}

struct Matrices {
  double m, n, k;
  bool a_transposed, b_transposed;
};

Matrices matrices_of(const KernelCall& call) {
  const double rows = real(call.rows), columns = real(call.columns), inner = real(call.inner);
  switch (call.kernel) {
    case Kernel::linear_backward_input:
      return {rows, inner, columns, false, call.transposed};
    case Kernel::linear_backward_weight:
      if (call.transposed) return {inner, columns, rows, true, false};
      return {columns, inner, rows, true, false};
    default:  // linear_forward
      return {rows, columns, inner, false, !call.transposed};
  }
}

}  // namespace

CpuShare cpu_share(const Node& node) {
  const std::int64_t cores = std::max<std::int64_t>(1, node.cpu_cores.value);
  const std::int64_t ranks = std::max<std::int64_t>(1, node.gpus_per_node);
  CpuShare share;
  share.ranks = real(ranks);
  share.threads = real(std::max<std::int64_t>(1, cores / ranks));
  share.slowdown = std::max(1.0, share.ranks * share.threads / real(cores));
  share.busy = real(std::min(ranks, cores));
  return share;
}

CpuRankTimes::CpuRankTimes(const Node& node, const Coefficients& coefficients)
    : share_(cpu_share(node)), coefficients_(coefficients) {}

double CpuRankTimes::conversions(const KernelCall& call, DType dtype) const {
  if (!is_half(dtype)) return 0.0;
  double reads = 0.0, writes = 0.0;
  if (const Rowwise* row = rowwise_of(call)) {
    const double elements = real(call.rows) * real(call.columns);
    reads = row->reads * elements;
    writes = row->writes * elements;
  } else {
    for (const OperandUse& use : operand_uses(call)) {
      if (use.type != OperandUse::Type::model) continue;
      if (use.access != Access::write) reads += real(use.elements);
      if (use.access != Access::read) writes += real(use.elements);
    }
  }
  const CpuRankTimes& c = *this;
  // What moves more than it computes converts in vectors, as the engine's casts do.
  const bool turns =
      call.kernel == Kernel::rotary_forward || call.kernel == Kernel::rotary_backward;
  const bool computes = rowwise_of(call) != nullptr || turns;
  const C bf16 = computes ? C::cpu_bf16_seconds : C::cpu_cast_seconds;
  return dtype == DType::bf16 ? writes * c[bf16] : (reads + writes) * c[C::cpu_fp16_seconds];
}

CpuRankTimes::Work CpuRankTimes::product(const KernelCall& call, DType dtype) const {
  const CpuRankTimes& c = *this;
  const Matrices x = matrices_of(call);
  const double converted = dtype == DType::fp16 ? c[C::cpu_fp16_seconds] : 0.0;
  const auto pack = [&](double numbers, bool transposed) {
    return numbers *
           (converted + c[transposed ? C::cpu_strided_pack_seconds : C::cpu_pack_seconds]);
  };
  Work work;
  work.tasks = parts(x.m, kTile) * parts(x.n, kTile);
  work.seconds = 2.0 * x.m * x.n * x.k / c[C::cpu_product_rate] +
                 pack(x.m * x.k * parts(x.n, kTile), x.a_transposed) +
                 pack(x.k * x.n * parts(x.m, kTile), x.b_transposed);
  return work;
}

CpuRankTimes::Work CpuRankTimes::attention(const KernelCall& call, DType dtype) const {
  const CpuRankTimes& c = *this;
  const double s = real(call.sequence), d = real(call.head_dim);
  const double whole = std::floor(s / kBlock), rest = s - whole * kBlock;
  const double diagonal = whole * kBlock * kBlock + rest * rest;
  const double scores =
      real(call.batch) * real(call.heads) * (call.causal ? (s * s + diagonal) / 2.0 : s * s);
  const bool backward = call.kernel == Kernel::attention_backward;
  const double converted = dtype == DType::fp16 ? c[C::cpu_fp16_seconds] : 0.0;
  const double packed = scores * (backward ? 4.0 : 2.0) * d / kBlock;
  Work work;
  work.tasks = real(call.batch) * real(call.heads) * parts(s, kBlock);
  work.regions = backward ? 3.0 : 1.0;
  work.seconds = scores * ((backward ? 14.0 : 4.0) * d / c[C::cpu_product_rate] +
                           (backward ? 2.0 : 1.0) * c[C::cpu_score_seconds]) +
                 packed * (c[C::cpu_pack_seconds] + converted);
  return work;
}

CpuRankTimes::Work CpuRankTimes::rowwise(const KernelCall& call, DType dtype) const {
  const CpuRankTimes& c = *this;
  const Rowwise& row = *rowwise_of(call);
  const double elements = real(call.rows) * real(call.columns);
  Work work;
  work.tasks =
      row.rows_of_task > 0.0 ? parts(real(call.rows), row.rows_of_task) : parts(elements, kGrain);
  work.regions = row.regions;
  work.seconds = elements * c[row.seconds] + conversions(call, dtype);
  return work;
}

// Lookups, sums, rotations: what moves more than it computes, and the gradients of tables, which
// are cleared first.
CpuRankTimes::Work CpuRankTimes::streamed(const KernelCall& call, DType dtype) const {
  const CpuRankTimes& c = *this;
  const double rows = real(call.rows), columns = real(call.columns);
  const double bytes = real(width(dtype));
  Work work;
  switch (call.kernel) {
    case Kernel::embedding_backward:
    case Kernel::position_backward: {
      const double cleared = call.accumulate ? 0.0 : real(call.inner) * columns * bytes;
      work.tasks = call.kernel == Kernel::embedding_backward ? rows : real(call.sequence);
      work.seconds = rows * columns * c[C::cpu_table_gradient_seconds];
      if (is_half(dtype)) {
        work.seconds +=
            rows * columns * c[dtype == DType::bf16 ? C::cpu_bf16_seconds : C::cpu_fp16_seconds];
      }
      // Cleared by one thread, whatever the others do.
      const double share = std::ceil(work.tasks / share_.threads) / work.tasks;
      work.seconds += cleared / c[C::cpu_stream_rate] / share;
      return work;
    }
    case Kernel::rotary_forward:
    case Kernel::rotary_backward: {
      const double pairs = rows * real(call.head_dim) / 2.0;
      work.tasks = parts(rows, 8.0);
      work.regions = 2.0;
      work.seconds = pairs * (2.0 * c[C::cpu_rotary_angle_seconds] +
                              real(call.heads + call.kv_heads) * c[C::cpu_rotary_pair_seconds]) +
                     conversions(call, dtype);
      return work;
    }
    default:
      break;
  }
  // Rows of a table that are looked up, not all of it; sums by columns read once.
  double traffic = 0.0;
  const std::vector<OperandUse> uses = operand_uses(call);
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (uses[i].type == OperandUse::Type::int64) continue;
    const double once = std::min(real(uses[i].elements), rows * columns) * bytes;
    traffic += uses[i].access == Access::update ? 2.0 * once : once;
  }
  work.tasks = call.kernel == Kernel::linear_backward_bias ? parts(columns, 32.0)
               : call.kernel == Kernel::add                ? parts(rows * columns, kGrain)
                                                           : parts(rows, 8.0);
  work.seconds = traffic / c[C::cpu_stream_rate];
  const bool copies = call.kernel == Kernel::embedding_forward;  // numbers as they are
  if (!copies) work.seconds += conversions(call, dtype);
  return work;
}

Seconds CpuRankTimes::kernel(const KernelCall& call, DType dtype) const {
  Work work;
  switch (call.kernel) {
    case Kernel::none:
      return {};
    case Kernel::linear_forward:
    case Kernel::linear_backward_input:
    case Kernel::linear_backward_weight:
      work = product(call, dtype);
      break;
    case Kernel::attention_forward:
    case Kernel::attention_backward:
      work = attention(call, dtype);
      break;
    default:
      work = rowwise_of(call) != nullptr ? rowwise(call, dtype) : streamed(call, dtype);
      break;
  }
  const double together = together_with(share_.threads);
  const double share =
      std::max(std::ceil(work.tasks / share_.threads) / work.tasks, 1.0 / together);
  const bool wakes = share_.threads > 1.0 && work.tasks > 1.0;
  const double woken = wakes ? work.regions * coefficients_[C::cpu_parallel_seconds] : 0.0;
  return Seconds::of((work.seconds * share + woken) * share_.slowdown);
}

Seconds CpuRankTimes::stream(Bytes traffic, Elements converted, DType type) const {
  const CpuRankTimes& c = *this;
  constexpr double kPiece = 1 << 19;  // bytes of 2^17 elements of fp32
  const double bytes = real(traffic.count());
  const double threads = std::clamp(std::floor(bytes / kPiece), 1.0, share_.threads);
  const double together = together_with(threads);
  const double own = bytes * share_.slowdown / (together * c[C::cpu_stream_rate]);
  const double past = (share_.ranks * bytes - c[C::cpu_cached_bytes]) / c[C::cpu_memory_rate];
  double seconds = std::max(own, past);
  if (is_half(type)) {
    seconds += real(converted.count()) * share_.slowdown *
               c[type == DType::bf16 ? C::cpu_cast_seconds : C::cpu_fp16_seconds] / together;
  }
  return Seconds::of(seconds);
}

// The ranks of a process meet, share the work, and part. One rank has nothing to do.
Seconds CpuRankTimes::collective(Collective kind,
                                 Bytes message,
                                 DType dtype,
                                 std::int64_t ranks) const {
  if (ranks <= 1 || message == Bytes::zero()) return {};
  const CpuRankTimes& c = *this;
  const double n = real(ranks), v = real(message.count());
  const bool sums = kind == Collective::all_reduce || kind == Collective::reduce_scatter;
  const double bytes = kind == Collective::reduce_scatter ? (n + 1.0) * v : 2.0 * n * v;
  double seconds = std::max(bytes / share_.busy / c[C::cpu_stream_rate],
                            (bytes - c[C::cpu_cached_bytes]) / c[C::cpu_memory_rate]);
  if (sums && is_half(dtype)) {
    seconds += bytes / real(width(dtype)) / share_.busy * c[C::cpu_half_sum_seconds];
  }
  return Seconds::of(c[C::cpu_collective_seconds] * share_.slowdown + seconds);
}

// Sixteen bytes of state and gradient a parameter.
Seconds CpuRankTimes::adamw(Elements parameters_of_a_rank, bool cached) const {
  const CpuRankTimes& c = *this;
  constexpr double kBytes = 16.0;
  constexpr double kThreaded = 1 << 18;  // elements from which a second thread takes part
  const double p = real(parameters_of_a_rank.count());
  const double threads = std::clamp(std::floor(p / kThreaded), 1.0, share_.threads);
  const double own = p * share_.slowdown / (threads * c[C::cpu_adamw_rate]);
  const double kept = cached ? c[C::cpu_cached_bytes] / kBytes : 0.0;
  const double past = (share_.ranks * p - kept) / c[C::cpu_adamw_memory_rate];
  return Seconds::of(std::max(own, past));
}

Seconds CpuRankTimes::first_touch(Bytes tensor) const {
  if (tensor <= Bytes::mib(32)) return {};
  return Seconds::of(real(tensor.count()) * share_.slowdown /
                     coefficients_[C::cpu_first_touch_rate]);
}

}  // namespace zeroplan
