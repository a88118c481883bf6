#include "tests/cuda_emulation/capture.hpp"

#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace zeroplan::runtime::cuda::emulation {
namespace {

struct Captures {
  std::mutex mutex;
  std::map<CUstream_st*, Capture> all;
};
Captures& captures() {
  static auto* held = new Captures;  // outlives every static that uses it
  return *held;
}

}  // namespace

void order(CUstream_st* stream, Work work) {
  {
    const std::lock_guard lock(captures().mutex);
    const auto found = captures().all.find(stream);
    if (found != captures().all.end()) {
      if (found->second.broken) {
        throw std::runtime_error("cudaLaunchKernelEx: cudaErrorStreamCaptureInvalidated");
      }
      found->second.work.push_back(std::move(work));
      return;
    }
  }
  work();
}

bool begin_capture(CUstream_st* stream, int mode) {
  const std::lock_guard lock(captures().mutex);
  const Capture begun{.work = {}, .mode = mode, .by = std::this_thread::get_id()};
  return captures().all.emplace(stream, begun).second;
}

bool is_captured(CUstream_st* stream) {
  const std::lock_guard lock(captures().mutex);
  return captures().all.count(stream) == 1;
}

void break_capture(CUstream_st* stream) {
  const std::lock_guard lock(captures().mutex);
  const auto found = captures().all.find(stream);
  if (found != captures().all.end()) found->second.broken = true;
}

Capture end_capture(CUstream_st* stream) {
  const std::lock_guard lock(captures().mutex);
  return std::move(captures().all.extract(stream).mapped());
}

bool break_captures(const std::function<bool(const Capture&)>& which) {
  const std::lock_guard lock(captures().mutex);
  bool any = false;
  for (auto& [stream, capture] : captures().all) {
    if (!which(capture)) continue;
    capture.broken = true;
    any = true;
  }
  return any;
}

}  // namespace zeroplan::runtime::cuda::emulation
