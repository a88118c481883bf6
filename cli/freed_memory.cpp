#include "cli/freed_memory.hpp"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace zeroplan {

void keep_freed_memory() {
#if defined(__GLIBC__)
  constexpr int kKept = 256 << 20;
  mallopt(M_MMAP_THRESHOLD, kKept);
  mallopt(M_TRIM_THRESHOLD, kKept);
#endif
}

}  // namespace zeroplan
