#include "base/process_memory.hpp"

#include <cstdlib>  // defines __GLIBC__ where there is one

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace zeroplan {

void keep_freed_memory() {
#if defined(__GLIBC__)
  constexpr int kLargest = 32 << 20;     // what mallopt(3) allows on 64 bits
  constexpr int kNever = 2'000'000'000;  // bytes at the end of the heap
  mallopt(M_MMAP_THRESHOLD, kLargest);
  mallopt(M_TRIM_THRESHOLD, kNever);
#endif
}

}  // namespace zeroplan
