#include "runtime/cuda/graphed_kernels.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/diagnostic.hpp"
#include "runtime/cuda/cuda_check.hpp"
#include "runtime/data/fnv1a.hpp"

namespace zeroplan::runtime::cuda {
namespace {

bool same(const HeadLayout& a, const HeadLayout& b) {
  const auto& [row_a, head_a, offset_a] = a;
  const auto& [row_b, head_b, offset_b] = b;
  return std::tie(row_a, head_a, offset_a) == std::tie(row_b, head_b, offset_b);
}

// Everything that a kernel may read: a call with a member more does not compile here. Where the
// operands came from is said by the operands.
auto numbers_of(const KernelCall& call) {
  const auto& [kernel,
               operands,
               batch,
               sequence,
               rows,
               columns,
               inner,
               heads,
               kv_heads,
               head_dim,
               layout,
               chunk,
               epsilon,
               rotary_base,
               scale,
               causal,
               alibi,
               exact_gelu,
               transposed,
               accumulate] = call;
  static_cast<void>(operands);
  static_cast<void>(layout);  // by itself
  const auto& [first, all] = chunk;
  return std::tuple(kernel,
                    batch,
                    sequence,
                    rows,
                    columns,
                    inner,
                    heads,
                    kv_heads,
                    head_dim,
                    first,
                    all,
                    epsilon,
                    rotary_base,
                    scale,
                    causal,
                    alibi,
                    exact_gelu,
                    transposed,
                    accumulate);
}

bool same(const KernelCall& a, const KernelCall& b) {
  return numbers_of(a) == numbers_of(b) && same(a.layout, b.layout);
}

bool same(const Operand& a, const Operand& b) {
  const auto& [data_a, elements_a, dtype_a] = a;
  const auto& [data_b, elements_b, dtype_b] = b;
  return std::tie(data_a, elements_a, dtype_a) == std::tie(data_b, elements_b, dtype_b);
}

template <typename Calls>
std::size_t hash_of(const Calls& calls) {
  Fnv1a hash;
  for (const auto& each : calls) {
    hash.add(static_cast<std::uint64_t>(each.call.kernel));
    hash.add(static_cast<std::uint64_t>(each.call.rows));
    for (const Operand& operand : each.operands) {
      hash.add(reinterpret_cast<std::uintptr_t>(operand.data));
    }
  }
  return static_cast<std::size_t>(hash.value());
}

// "12 kernel calls, rms_norm_forward to add"
template <typename Calls>
std::string text_of(const Calls& calls) {
  return fmt::format("{} kernel calls, {} to {}",
                     calls.size(),
                     name(calls.front().call.kernel),
                     name(calls.back().call.kernel));
}

std::string text_of(cudaError_t status, const char* call) {
  return fmt::format("{}: {} ({})", call, cudaGetErrorName(status), cudaGetErrorString(status));
}

}  // namespace

bool graphs_asked() {
  const std::string variable(kGraphsVariable);
  const char* value = std::getenv(variable.c_str());
  const std::string_view text = value == nullptr ? "" : value;
  if (text.empty() || text == "off") return false;
  if (text == "on") return true;
  throw InputError(Diagnostic{.file = "environment",
                              .pointer = variable,
                              .expected = "on or off",
                              .got = std::string(text),
                              .hint = "without it kernels are launched one by one"});
}

GraphedKernels::GraphedKernels(CudaDevice& device,
                               std::unique_ptr<Kernels> kernels,
                               std::size_t most_segments)
    : device_(device), kernels_(std::move(kernels)), most_segments_(most_segments) {
  device_.hold(this);
}

GraphedKernels::~GraphedKernels() {
  device_.hold(nullptr);
  // A graph that still runs goes when it is done.
  while (!segments_.empty()) drop_oldest();
}

// Slots are filled again and again: a step in which everything repeats asks for no memory.
void GraphedKernels::run(const KernelCall& call, std::span<const Operand> operands) {
  if (held_ == calls_.size()) calls_.emplace_back();
  Call& slot = calls_[held_++];
  slot.call = call;
  slot.operands.assign(operands.begin(), operands.end());
  if (held_ == kMostCalls) order();
}

void GraphedKernels::use_workspace(std::byte* memory) {
  if (memory == nullptr) {
    held_ = 0;  // as in the destructor
  } else {
    order();
  }
  while (!segments_.empty()) drop_oldest();
  kernels_->use_workspace(memory);
}

void GraphedKernels::order() {
  const std::size_t count = std::exchange(held_, 0);
  if (count > 0) order_segment(std::span<const Call>(calls_).first(count));
}

void GraphedKernels::order_segment(std::span<const Call> calls) {
  use_.calls += static_cast<std::int64_t>(calls.size());
  if (calls.size() < kLeastCalls) {
    launch(calls);
    return;
  }
  const std::size_t hash = hash_of(calls);
  Segment* const known = find(calls, hash);
  if (known == nullptr) {
    launch(calls);
    keep(calls, hash);
    return;
  }
  if (known->graph == nullptr && !known->refused) capture(*known);
  if (known->graph == nullptr) {
    launch(calls);
  } else {
    replay(*known);
  }
}

void GraphedKernels::launch(std::span<const Call> calls) {
  for (const Call& each : calls) kernels_->run(each.call, each.operands);
}

void GraphedKernels::replay(const Segment& segment) {
  const cudaError_t status = cudaGraphLaunch(segment.graph, device_.stream(Queue::compute));
  if (status != cudaSuccess) {
    check(status, ("cudaGraphLaunch of " + text_of(segment.calls)).c_str());
  }
  ++use_.replays;
  use_.replayed_calls += static_cast<std::int64_t>(segment.calls.size());
}

void GraphedKernels::capture(Segment& segment) {
  std::string why;
  segment.graph = captured(segment.calls, why);
  if (segment.graph != nullptr) {
    ++use_.captured;
    ++use_.graphs;
    return;
  }
  segment.refused = true;
  ++use_.refused;
  if (std::exchange(said_, true)) return;
  std::fprintf(
      stderr, "zeroplan: no CUDA graph of %s: %s\n", text_of(segment.calls).c_str(), why.c_str());
}

// Relaxed: other ranks of this process, and libraries that load a kernel late, may ask for memory
// meanwhile.
cudaGraphExec_t GraphedKernels::captured(std::span<const Call> calls, std::string& why) {
  cudaStream_t stream = device_.stream(Queue::compute);
  const auto failed = [&why](cudaError_t status, const char* call) {
    if (status == cudaSuccess) return false;
    (void)cudaGetLastError();
    if (why.empty()) why = text_of(status, call);
    return true;
  };
  if (failed(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed),
             "cudaStreamBeginCapture")) {
    return nullptr;
  }
  try {
    launch(calls);
  } catch (const std::exception& error) {
    why = error.what();
  }
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t made = nullptr;
  if (!failed(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture") && why.empty()) {
    if (failed(cudaGraphInstantiateWithFlags(&made, graph, 0), "cudaGraphInstantiate")) {
      made = nullptr;
    }
  }
  if (graph != nullptr) ZP_CUDA_LOG(cudaGraphDestroy(graph));
  return made;
}

GraphedKernels::Segment* GraphedKernels::find(std::span<const Call> calls, std::size_t hash) {
  const auto [first, last] = known_.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    const bool found = std::equal(
        calls.begin(),
        calls.end(),
        at->second->calls.begin(),
        at->second->calls.end(),
        [](const Call& a, const Call& b) {
          return same(a.call, b.call) &&
                 std::equal(a.operands.begin(),
                            a.operands.end(),
                            b.operands.begin(),
                            b.operands.end(),
                            [](const Operand& x, const Operand& y) { return same(x, y); });
        });
    if (!found) continue;
    segments_.splice(segments_.begin(), segments_, at->second);
    return &segments_.front();
  }
  return nullptr;
}

void GraphedKernels::keep(std::span<const Call> calls, std::size_t hash) {
  while (!segments_.empty() && segments_.size() >= most_segments_) drop_oldest();
  segments_.push_front({.calls = {calls.begin(), calls.end()}, .hash = hash});
  known_.emplace(hash, segments_.begin());
}

void GraphedKernels::drop_oldest() {
  const auto oldest = std::prev(segments_.end());
  const auto [first, last] = known_.equal_range(oldest->hash);
  for (auto at = first; at != last; ++at) {
    if (at->second != oldest) continue;
    known_.erase(at);
    break;
  }
  if (oldest->graph != nullptr) {
    --use_.graphs;
    ZP_CUDA_LOG(cudaGraphExecDestroy(oldest->graph));
  }
  segments_.erase(oldest);
}

}  // namespace zeroplan::runtime::cuda
