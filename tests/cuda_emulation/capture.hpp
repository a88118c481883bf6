// What is put on a stream: done at once, or kept while the stream is captured, for a graph to do
// later. The emulated kernels and matrix products go through here; the emulated CUDA runtime
// (tests/gpu/emulated) says when a stream is captured, and by what rules.
#pragma once

#include <functional>
#include <thread>
#include <vector>

struct CUstream_st;

namespace zeroplan::runtime::cuda::emulation {

using Work = std::function<void()>;

struct Capture {
  std::vector<Work> work;
  int mode = 0;         // as the runtime's caller said it
  std::thread::id by;   // who began it
  bool broken = false;  // by a call that no capture may see: it ends without a graph
};

// Throws std::runtime_error on a stream whose capture is broken, as a launch would fail there.
void order(CUstream_st* stream, Work work);

// False where that stream is captured already.
bool begin_capture(CUstream_st* stream, int mode);
bool is_captured(CUstream_st* stream);
void break_capture(CUstream_st* stream);
// Precondition: is_captured().
Capture end_capture(CUstream_st* stream);
// Breaks every capture for which `which` holds; true where there was one.
bool break_captures(const std::function<bool(const Capture&)>& which);

}  // namespace zeroplan::runtime::cuda::emulation
