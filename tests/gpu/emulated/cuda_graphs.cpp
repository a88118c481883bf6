// Graphs of the emulated CUDA runtime: what was put on a stream while it was captured, in its
// order, done at each launch. What CUDA does not allow in a capture is refused with CUDA's codes,
// and breaks it. Source: CUDA Runtime API, cudaStreamBeginCapture, cudaStreamEndCapture,
// cudaThreadExchangeStreamCaptureMode.
#include <cstdlib>
#include <exception>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu/emulated/cuda_runtime.hpp"

namespace emulation = zeroplan::runtime::cuda::emulation;
using zeroplan::test::said;

namespace {

using Steps = std::vector<emulation::Work>;

struct Graphs {
  std::mutex mutex;
  std::set<Steps*> graphs, ready;  // captured; instantiated
};
Graphs& all_graphs() {
  static auto* all = new Graphs;
  return *all;
}

cudaError_t drop(std::set<Steps*>& from, void* handle) {
  const std::lock_guard lock(all_graphs().mutex);
  auto* steps = static_cast<Steps*>(handle);
  if (from.erase(steps) == 0) return said(cudaErrorInvalidValue);
  delete steps;
  return cudaSuccess;
}

}  // namespace

namespace zeroplan::test {

cudaError_t ordered(cudaStream_t stream, emulation::Work work) {
  try {
    emulation::order(stream, std::move(work));
    return cudaSuccess;
  } catch (const std::exception&) {
    return said(cudaErrorStreamCaptureInvalidated);
  }
}

bool may_not_allocate() {
  return emulation::break_captures([](const emulation::Capture& capture) {
    if (capture.mode == cudaStreamCaptureModeRelaxed) return false;
    const bool own = capture.by == std::this_thread::get_id();
    return own || capture.mode == cudaStreamCaptureModeGlobal;
  });
}

}  // namespace zeroplan::test

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (stream == nullptr) return said(cudaErrorStreamCaptureUnsupported);
  if (!zeroplan::test::stream_exists(stream)) return said(cudaErrorInvalidResourceHandle);
  return said(emulation::begin_capture(stream, mode) ? cudaSuccess : cudaErrorIllegalState);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!emulation::is_captured(stream)) return said(cudaErrorIllegalState);
  emulation::Capture capture = emulation::end_capture(stream);
  if (capture.broken) return said(cudaErrorStreamCaptureInvalidated);
  if (capture.mode != cudaStreamCaptureModeRelaxed && capture.by != std::this_thread::get_id()) {
    return said(cudaErrorStreamCaptureWrongThread);
  }
  const std::lock_guard lock(all_graphs().mutex);
  auto* const made = new Steps(std::move(capture.work));
  all_graphs().graphs.insert(made);
  *graph = reinterpret_cast<cudaGraph_t>(made);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* ready,
                                          cudaGraph_t graph,
                                          unsigned long long) {
  const std::lock_guard lock(all_graphs().mutex);
  auto* const steps = reinterpret_cast<Steps*>(graph);
  if (all_graphs().graphs.count(steps) == 0) return said(cudaErrorInvalidValue);
  auto* const made = new Steps(*steps);
  all_graphs().ready.insert(made);
  *ready = reinterpret_cast<cudaGraphExec_t>(made);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return drop(all_graphs().graphs, graph); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t ready) { return drop(all_graphs().ready, ready); }

cudaError_t cudaGraphLaunch(cudaGraphExec_t ready, cudaStream_t stream) {
  if (!zeroplan::test::stream_exists(stream)) return said(cudaErrorInvalidResourceHandle);
  if (std::getenv("ZEROPLAN_EMULATED_BROKEN_GRAPHS") != nullptr) return said(cudaErrorUnknown);
  Steps steps;
  {
    const std::lock_guard lock(all_graphs().mutex);
    auto* const found = reinterpret_cast<Steps*>(ready);
    if (all_graphs().ready.count(found) == 0) return said(cudaErrorInvalidValue);
    steps = *found;
  }
  for (emulation::Work& step : steps) emulation::order(stream, std::move(step));
  return cudaSuccess;
}
