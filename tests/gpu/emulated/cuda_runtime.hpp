// Between the sources of the emulated CUDA runtime.
#pragma once

#include <cuda_runtime_api.h>

#include "tests/cuda_emulation/capture.hpp"

namespace zeroplan::test {

// Keeps an error for cudaGetLastError, and gives it back.
cudaError_t said(cudaError_t error);
bool stream_exists(cudaStream_t stream);

// Puts a copy or a set on the stream, captured or not.
cudaError_t ordered(cudaStream_t stream, runtime::cuda::emulation::Work work);
// Somebody captures in a mode that forbids this thread to take and give back memory; that capture
// is broken by it.
bool may_not_allocate();

}  // namespace zeroplan::test
