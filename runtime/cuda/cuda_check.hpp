// Errors of CUDA's calls as exceptions. For sources of runtime/cuda alone.
#pragma once

#include <cuda_runtime_api.h>

namespace zeroplan::runtime::cuda {

// Throws DeviceError: the call, the error's name and sentence, which device. An error that CUDA
// keeps (a kernel that failed) comes with the next call, whichever that is, and the message says
// so.
void check(cudaError_t status, const char* call);

// In destructors: an error is written to standard error once, not thrown.
void log_if_failed(cudaError_t status, const char* call) noexcept;

}  // namespace zeroplan::runtime::cuda

#define ZP_CUDA(call) ::zeroplan::runtime::cuda::check((call), #call)
#define ZP_CUDA_LOG(call) ::zeroplan::runtime::cuda::log_if_failed((call), #call)
