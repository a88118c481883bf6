// Attention: a call's operands as data, and which kernels take it.
#include <array>
#include <atomic>
#include <mutex>
#include <set>

#include "runtime/cuda/kernels/attention.cuh"
#include "runtime/cuda/kernels/cuda_kernels.hpp"

namespace zeroplan::runtime::cuda {
namespace {

// delta = the sum over d of out * d_out, a warp for each row and head.
template <typename T>
__global__ void __launch_bounds__(kAttentionThreads)
    delta_kernel(Attention<T> p, std::int64_t rows) {
  const std::int64_t task = std::int64_t{blockIdx.x} * (kAttentionThreads / 32) + threadIdx.x / 32;
  if (task >= rows * p.shape.heads) return;  // the warp as a whole
  const std::int64_t row = task / p.shape.heads;
  const std::int64_t head = task % p.shape.heads;
  const T* out = p.out.at(row, head);
  const T* d_out = p.d_out.at(row, head);
  float sum = 0.0F;
  for (int d = static_cast<int>(threadIdx.x % 32); d < p.shape.dim; d += 32) {
    sum += value_of(out[d]) * value_of(d_out[d]);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 != 0) return;
  const std::int64_t batch = row / p.shape.sequence;
  p.delta[p.shape.statistic(batch, head) + row % p.shape.sequence] = sum;
}

template <typename T>
Heads<T> packs_of(Heads<T> heads, std::int64_t dim) {
  heads.by_packs = dim % kPack<T> == 0 && heads.row_step % kPack<T> == 0 &&
                   heads.head_step % kPack<T> == 0 && aligned(heads.data, 16);
  return heads;
}

template <typename T>
Heads<T> dense(const Run& run, std::size_t operand, std::int64_t heads) {
  const std::int64_t dim = run.call.head_dim;
  return packs_of<T>({run.at<T>(operand), heads * dim, dim, false}, dim);
}

// Of query (0), key (1) and value (2), or their gradients.
template <typename T>
Heads<T> input(const Run& run, std::size_t operand, std::size_t which) {
  const KernelCall& call = run.call;
  if (!call.layout.fused()) return dense<T>(run, operand, which == 0 ? call.heads : call.kv_heads);
  return packs_of<T>({run.at<T>(operand) + call.layout.offset[which],
                      call.layout.row_stride,
                      call.layout.head_stride,
                      false},
                     call.head_dim);
}

template <typename T>
Attention<T> attention_of(const Run& run, bool backward) {
  const KernelCall& call = run.call;
  Attention<T> p{};
  p.shape.sequence = static_cast<int>(call.sequence);
  p.shape.heads = static_cast<int>(call.heads);
  p.shape.kv_heads = static_cast<int>(call.kv_heads);
  p.shape.dim = static_cast<int>(call.head_dim);
  p.shape.scale = static_cast<float>(call.scale);
  p.shape.causal = call.causal;
  p.shape.alibi = call.alibi;
  const std::size_t inputs = backward ? 7 : 2;
  p.q = input<T>(run, inputs, 0);
  p.k = input<T>(run, inputs + 1, 1);
  p.v = input<T>(run, inputs + 2, 2);
  p.out = dense<T>(run, backward ? 5 : 0, call.heads);
  p.lse = run.at<float>(backward ? 6 : 1);
  if (!backward) return p;
  p.d_q = input<T>(run, 0, 0);
  p.d_k = input<T>(run, 1, 1);
  p.d_v = input<T>(run, 2, 2);
  p.delta = run.at<float>(3);
  p.d_out = dense<T>(run, 4, call.heads);
  return p;
}

// Sentences for attention_by(), each once.
struct Ledger {
  std::mutex mutex;
  std::set<std::string> lines;
};
Ledger& ledger() {
  static Ledger instance;
  return instance;
}
void note(bool backward, const std::string& by) {
  Ledger& held = ledger();
  const std::lock_guard lock(held.mutex);
  held.lines.insert((backward ? "backward: " : "forward: ") + by);
}

template <typename T>
HeadSteps steps(const Heads<T>& heads) {
  return {heads.row_step, heads.head_step};
}
template <typename T>
std::byte* bytes(const Heads<T>& heads) {
  return reinterpret_cast<std::byte*>(heads.data);
}

// By the library, or false; `why` says why not.
template <typename T>
bool run_by_library(const Run& run, const Attention<T>& p, bool backward, std::string& why) {
  const KernelCall& call = run.call;
  bool packs = p.q.by_packs && p.k.by_packs && p.v.by_packs && p.out.by_packs;
  if (backward) {
    packs = packs && p.d_q.by_packs && p.d_k.by_packs && p.d_v.by_packs && p.d_out.by_packs &&
            aligned(p.delta, 16);
  }
  if (call.alibi || call.head_dim > 128 || !packs || !aligned(p.lse, 16)) {
    why = "with ALiBi, head_dim above 128 or no multiple of 8, or off 16 bytes";
    return false;
  }
  // cuDNN 9.19 on an H200: inf and NaN. It takes the largest score before it scales, as it seems.
  if (call.scale <= 0.0) {
    why = "with a scale that is not above zero";
    return false;
  }
  const AttentionProblem problem{.backward = backward,
                                 .batch = call.batch,
                                 .sequence = call.sequence,
                                 .heads = call.heads,
                                 .kv_heads = call.kv_heads,
                                 .head_dim = call.head_dim,
                                 .q = steps(p.q),
                                 .k = steps(p.k),
                                 .v = steps(p.v),
                                 .out = steps(p.out),
                                 .scale = call.scale,
                                 .causal = call.causal,
                                 .dtype = std::is_same_v<T, Bf16> ? DType::bf16 : DType::fp16,
                                 .ordered = !backward};
  const AttentionMemory memory{.q = bytes(p.q),
                               .k = bytes(p.k),
                               .v = bytes(p.v),
                               .out = bytes(p.out),
                               .lse = reinterpret_cast<std::byte*>(p.lse),
                               .d_out = bytes(p.d_out),
                               .d_q = bytes(p.d_q),
                               .d_k = bytes(p.d_k),
                               .d_v = bytes(p.d_v),
                               .delta = reinterpret_cast<std::byte*>(p.delta)};
  if (run.library->run(problem, memory)) return true;
  why = run.library->refusal();
  return false;
}

}  // namespace

void forget_attention_by() {
  Ledger& held = ledger();
  const std::lock_guard lock(held.mutex);
  held.lines.clear();
}

std::string attention_by() {
  Ledger& held = ledger();
  const std::lock_guard lock(held.mutex);
  std::string text;
  for (auto line = held.lines.rbegin(); line != held.lines.rend(); ++line) {  // forward first
    text += (text.empty() ? "" : "; ") + *line;
  }
  return text;
}

namespace {

// mma of 16 x 8 x 16 and cp.async: the code that this device got was compiled for 8.0 or more,
// which a GPU may be without its code being.
template <typename T>
bool has_tensor_cores() {
#if defined(__CUDACC__)
  // Asked once for each device: the driver is not asked in every layer.
  constexpr std::size_t kMostDevices = 64;
  static std::array<std::atomic<int>, kMostDevices> known{};  // 0: not yet, 1: no, 2: yes
  const auto ask = [] {
    cudaFuncAttributes code{};
    return cudaFuncGetAttributes(&code, delta_kernel<T>) == cudaSuccess && code.ptxVersion >= 80;
  };
  const auto device = static_cast<std::size_t>(current_device());
  if (device >= kMostDevices) return ask();
  if (known[device] == 0) known[device] = ask() ? 2 : 1;
  return known[device] == 2;
#else
  return true;
#endif
}

}  // namespace

template <typename T>
void run_attention(const Run& run) {
  const KernelCall& call = run.call;
  ZP_CHECK(call.head_dim >= 1 && call.head_dim <= 256, "attention up to head_dim 256");
  ZP_CHECK(call.batch <= 65535 && call.heads <= 65535, "attention: batch and heads up to 65535");
  ZP_CHECK(call.sequence <= (std::int64_t{1} << 30), "attention: sequences up to 2^30");
  const bool backward = call.kernel == Kernel::attention_backward;
  const Attention<T> p = attention_of<T>(run, backward);
  std::string by = "own kernels";
  if constexpr (sizeof(T) == 2) {
    if (run.library != nullptr) {
      std::string why;
      if (run_by_library(run, p, backward, why)) return note(backward, run.library->name());
      by += " (" + why + ")";
    }
  }
  note(backward, by);
  if (backward) {
    const std::int64_t tasks = call.rows * call.heads;
    launch(delta_kernel<T>,
           grid_of(divide_up(tasks, kAttentionThreads / 32)),
           kAttentionThreads,
           0,
           run.stream,
           p,
           call.rows);
  }
  if constexpr (sizeof(T) == 2) {
    if (call.head_dim <= 128 && has_tensor_cores<T>()) {
      return attention_by_tensor_cores<T>(run.stream, p, call.batch, backward);
    }
  }
  attention_by_threads<T>(run.stream, p, call.batch, backward);
}

ZP_CUDA_KERNELS(run_attention);

}  // namespace zeroplan::runtime::cuda
