// A library to preload: operator new and aligned_alloc, one call of which fails, or all from one
// on.
//
//   ZEROPLAN_FAIL_AT=N     the N-th allocation of the program fails; 0 or nothing: none
//   ZEROPLAN_FAIL_ALL=1    and all that follow
//   ZEROPLAN_COUNT_IN=F    the number of allocations, written to F at the end
//   ZEROPLAN_COUNT_WHAT=W  what is counted and fails: new (the default), or memory: aligned_alloc,
//                          where ranks have their memory from
//
// malloc itself stays: who throws needs some, and so does what the program is linked with.
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

namespace {

struct Plan {
  std::uint64_t fail_at = 0;
  bool fail_all = false;
  char what = 'n';  // its first letter
};

const Plan& plan() {
  static const Plan plan = [] {
    Plan said;
    const char* at = std::getenv("ZEROPLAN_FAIL_AT");
    const char* what = std::getenv("ZEROPLAN_COUNT_WHAT");
    said.fail_at = at == nullptr ? 0 : std::strtoull(at, nullptr, 10);
    said.fail_all = std::getenv("ZEROPLAN_FAIL_ALL") != nullptr;
    if (what != nullptr) said.what = *what;
    return said;
  }();
  return plan;
}

std::atomic<std::uint64_t>& count() {
  static constinit std::atomic<std::uint64_t> allocations = 0;
  return allocations;
}

bool fails(char what) {
  const Plan& said = plan();
  if (what != said.what) return false;
  const std::uint64_t number = ++count();
  return said.fail_at != 0 && (number == said.fail_at || (said.fail_all && number > said.fail_at));
}

void* allocate(std::size_t size, std::size_t alignment) noexcept {
  if (fails('n')) return nullptr;
  size = size == 0 ? 1 : size;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(size);
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, size) == 0 ? memory : nullptr;
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* memory = allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// The function of that name that would be called without this library.
template <class Call>
Call* next(const char* name) {
  void* const symbol = dlsym(RTLD_NEXT, name);
  Call* found = nullptr;
  static_assert(sizeof found == sizeof symbol);
  std::memcpy(&found, &symbol, sizeof found);
  return found;
}

struct Lifetime {
  // What the program starts is left alone.
  Lifetime() {
    plan();
    unsetenv("LD_PRELOAD");
  }
  ~Lifetime() {
    const char* path = std::getenv("ZEROPLAN_COUNT_IN");
    if (path == nullptr) return;
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    char digits[24];
    char* begin = digits + sizeof digits;
    *--begin = '\n';
    for (std::uint64_t rest = count(); rest > 0; rest /= 10) {
      *--begin = static_cast<char>('0' + rest % 10);
    }
    const auto size = static_cast<std::size_t>(digits + sizeof digits - begin);
    if (file < 0 || write(file, begin, size) < 0) return;
    close(file);
  }
};
const Lifetime lifetime;

}  // namespace

extern "C" void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  static const auto real = next<void*(std::size_t, std::size_t)>("aligned_alloc");
  return fails('m') ? nullptr : real(alignment, size);
}

extern "C" int pthread_create(pthread_t* thread,
                              const pthread_attr_t* attributes,
                              void* (*body)(void*),
                              void* argument) noexcept {
  using Call = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = next<Call>("pthread_create");
  return fails('t') ? EAGAIN : real(thread, attributes, body, argument);
}

void* operator new(std::size_t size) { return allocate_or_throw(size, 0); }
void* operator new[](std::size_t size) { return allocate_or_throw(size, 0); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 0); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 0); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
