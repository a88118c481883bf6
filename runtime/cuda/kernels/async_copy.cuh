// Copies from global to shared memory that go on beside the thread (PTX ISA, cp.async), in groups.
// A thread's copy has arrived after its wait, and is seen by others behind the barrier that
// follows. Compute capability 8.0 and later.
#pragma once

#include "runtime/cuda/kernels/device.cuh"

namespace zeroplan::runtime::cuda {

#if defined(__CUDACC__)

// kBytes, 4 or 16, both addresses multiples of them. 16 go past the L1 cache. Where `there` is
// false nothing is read and zeros arrive; `from` is an address of the kernel's operands all the
// same.
template <int kBytes>
__device__ __forceinline__ void begin_copy(void* to, const void* from, bool there) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const int given = there ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(address), "l"(from), "r"(given)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :
                 : "r"(address), "l"(from), "n"(kBytes), "r"(given)
                 : "memory");
  }
}
// Ends a group; an empty one counts.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" : : : "memory");
}
// Until at most kPending of this thread's groups are under way.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
}

#else

template <int kBytes>
void begin_copy(void* to, const void* from, bool there) {
  emulation::copy_async(to, from, kBytes, there ? kBytes : 0, {__FILE__, __LINE__});
}
inline void commit_copies() { emulation::commit_copies(); }
template <int kPending>
void wait_for_copies() {
  emulation::wait_copies(kPending);
}

#endif

}  // namespace zeroplan::runtime::cuda
