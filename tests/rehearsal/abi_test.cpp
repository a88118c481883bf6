// Numbers and layouts of rehearsal/libraries/cuda_abi.hpp against CUDA's own headers, where the
// machine has them.
#include "rehearsal/libraries/cuda_abi.hpp"

#if __has_include(<cuda_runtime_api.h>)
#include <cstddef>

#include <cuda_runtime_api.h>
#endif

#include "tests/catch.hpp"

using namespace zeroplan::gpu;

TEST_CASE("Releases of CUDA differ where the table says so") {
  CHECK(kProperties11.size < kProperties12.size);
  CHECK(kProperties13.processors != kProperties12.processors);
  CHECK(sizeof(PointerAttributes) == 24);
}

#ifdef CUDART_VERSION
static_assert(int{kOutOfMemory} == int{cudaErrorMemoryAllocation});
static_assert(int{kNotReady} == int{cudaErrorNotReady});
static_assert(int{kNotSupported} == int{cudaErrorNotSupported});
static_assert(int{kInvalidDevice} == int{cudaErrorInvalidDevice});
static_assert(static_cast<int>(Attribute::shared_opted_in) ==
              cudaDevAttrMaxSharedMemoryPerBlockOptin);
static_assert(static_cast<int>(Attribute::processors) == cudaDevAttrMultiProcessorCount);
static_assert(static_cast<int>(Attribute::memory_pools) == cudaDevAttrMemoryPoolsSupported);
static_assert(offsetof(LaunchConfiguration, stream) == offsetof(cudaLaunchConfig_t, stream));
static_assert(offsetof(FunctionAttributes, most_dynamic_shared) ==
              offsetof(cudaFuncAttributes, maxDynamicSharedSizeBytes));
static_assert(offsetof(PointerAttributes, host_pointer) ==
              offsetof(cudaPointerAttributes, hostPointer));

TEST_CASE("Properties stand where this machine's CUDA has them") {
  constexpr int kRelease = CUDART_VERSION / 1000;
  const PropertyPlaces& at = kRelease >= 13   ? kProperties13
                             : kRelease == 12 ? kProperties12
                                              : kProperties11;
  constexpr CommonPropertyPlaces common = kCommonPropertyPlaces;
  CHECK(common.memory == offsetof(cudaDeviceProp, totalGlobalMem));
  CHECK(common.block_shape == offsetof(cudaDeviceProp, maxThreadsDim));
  CHECK(common.grid_shape == offsetof(cudaDeviceProp, maxGridSize));
  CHECK(common.major == offsetof(cudaDeviceProp, major));
  CHECK(common.texture_pitch_alignment == offsetof(cudaDeviceProp, texturePitchAlignment));
  CHECK(at.size == sizeof(cudaDeviceProp));
  CHECK(at.processors == offsetof(cudaDeviceProp, multiProcessorCount));
  CHECK(at.bus == offsetof(cudaDeviceProp, pciBusID));
  CHECK(at.l2 == offsetof(cudaDeviceProp, l2CacheSize));
  CHECK(at.threads_per_processor == offsetof(cudaDeviceProp, maxThreadsPerMultiProcessor));
  CHECK(at.shared_per_processor == offsetof(cudaDeviceProp, sharedMemPerMultiprocessor));
  CHECK(at.shared_opted_in == offsetof(cudaDeviceProp, sharedMemPerBlockOptin));
  CHECK(at.reserved_shared == offsetof(cudaDeviceProp, reservedSharedMemPerBlock));
}
#endif
