#include "runtime/cuda/cuda_check.hpp"

#include <cstdio>
#include <string>

#include <fmt/format.h>

#include "runtime/device/device.hpp"

namespace zeroplan::runtime::cuda {
namespace {

// "cudaMalloc(&data, size)" -> "cudaMalloc"
std::string function_of(const char* call) {
  const std::string text = call;
  return text.substr(0, text.find('('));
}

// A context that such an error hit answers every later call with it.
bool stays(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
      return true;
    default:
      return false;
  }
}

std::string message(cudaError_t status, const char* call) {
  int device = -1;
  (void)cudaGetDevice(&device);
  std::string text = fmt::format("{}: {} ({}) on GPU {}",
                                 function_of(call),
                                 cudaGetErrorName(status),
                                 cudaGetErrorString(status),
                                 device);
  if (stays(status)) {
    text +=
        "; the call may report what an earlier kernel did: CUDA_LAUNCH_BLOCKING=1 or "
        "compute-sanitizer finds it";
  }
  return text;
}

}  // namespace

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  const std::string text = message(status, call);
  (void)cudaGetLastError();  // what can be forgotten is
  throw DeviceError(text);
}

void log_if_failed(cudaError_t status, const char* call) noexcept {
  static bool said = false;
  if (status == cudaSuccess || status == cudaErrorCudartUnloading || said) return;
  said = true;
  std::fprintf(stderr, "zeroplan: %s: %s\n", function_of(call).c_str(), cudaGetErrorName(status));
}

}  // namespace zeroplan::runtime::cuda
