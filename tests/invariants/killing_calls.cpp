// A library to preload: the N-th call of the program that changes a file or a folder is not made,
// because the program is killed at it.
//
//   ZEROPLAN_KILL_AT=N     the N-th of these calls; 0 or nothing: none
//   ZEROPLAN_COUNT_IN=F    the number of calls, written to F at the end
//
// Counted are open for writing, write to files, fsync, ftruncate, rename, link, unlink, mkdir and
// rmdir, under all names that the C library has for them.
#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

namespace {

std::uint64_t kill_at() {
  static const std::uint64_t number = [] {
    const char* at = std::getenv("ZEROPLAN_KILL_AT");
    return at == nullptr ? std::uint64_t{0} : std::strtoull(at, nullptr, 10);
  }();
  return number;
}

std::atomic<std::uint64_t>& count() {
  static constinit std::atomic<std::uint64_t> calls = 0;
  return calls;
}

void next_call() {
  if (++count() == kill_at()) raise(SIGKILL);
}

template <typename Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

// A regular file: standard streams, pipes and sockets are not what is to stay whole.
bool is_file(int descriptor) {
  struct stat facts {};
  return fstat(descriptor, &facts) == 0 && S_ISREG(facts.st_mode);
}

bool writes(int flags) { return (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0; }

struct AtEnd {
  ~AtEnd() {
    const char* const path = std::getenv("ZEROPLAN_COUNT_IN");
    if (path == nullptr) return;
    const std::uint64_t calls = count().load();
    if (FILE* const file = std::fopen(path, "w")) {
      std::fprintf(file, "%llu\n", static_cast<unsigned long long>(calls));
      std::fclose(file);
    }
  }
};
const AtEnd at_end;

mode_t mode_of(int flags, std::va_list& more) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
}

}  // namespace

// The C library's own declarations say more about these than is needed here.
#pragma GCC diagnostic ignored "-Wattributes"

extern "C" {

#define ZP_OPEN(name)                                                        \
  int name(const char* path, int flags, ...) {                               \
    std::va_list more;                                                       \
    va_start(more, flags);                                                   \
    const mode_t mode = mode_of(flags, more);                                \
    va_end(more);                                                            \
    if (writes(flags)) next_call();                                          \
    static const auto call = real<int (*)(const char*, int, mode_t)>(#name); \
    return call(path, flags, mode);                                          \
  }
ZP_OPEN(open)
ZP_OPEN(open64)

#define ZP_OPENAT(name)                                                           \
  int name(int folder, const char* path, int flags, ...) {                        \
    std::va_list more;                                                            \
    va_start(more, flags);                                                        \
    const mode_t mode = mode_of(flags, more);                                     \
    va_end(more);                                                                 \
    if (writes(flags)) next_call();                                               \
    static const auto call = real<int (*)(int, const char*, int, mode_t)>(#name); \
    return call(folder, path, flags, mode);                                       \
  }
ZP_OPENAT(openat)
ZP_OPENAT(openat64)

ssize_t write(int descriptor, const void* bytes, size_t size) {
  if (is_file(descriptor)) next_call();
  static const auto call = real<ssize_t (*)(int, const void*, size_t)>("write");
  return call(descriptor, bytes, size);
}

#define ZP_CALL(name, parameters, arguments)                 \
  int name parameters {                                      \
    next_call();                                             \
    static const auto call = real<int(*) parameters>(#name); \
    return call arguments;                                   \
  }
ZP_CALL(fsync, (int descriptor), (descriptor))
ZP_CALL(fdatasync, (int descriptor), (descriptor))
ZP_CALL(ftruncate, (int descriptor, off_t size), (descriptor, size))
ZP_CALL(ftruncate64, (int descriptor, off64_t size), (descriptor, size))
ZP_CALL(rename, (const char* from, const char* to), (from, to))
ZP_CALL(renameat, (int a, const char* from, int b, const char* to), (a, from, b, to))
ZP_CALL(renameat2,
        (int a, const char* from, int b, const char* to, unsigned int flags),
        (a, from, b, to, flags))
ZP_CALL(link, (const char* from, const char* to), (from, to))
ZP_CALL(linkat,
        (int a, const char* from, int b, const char* to, int flags),
        (a, from, b, to, flags))
ZP_CALL(unlink, (const char* path), (path))
ZP_CALL(unlinkat, (int folder, const char* path, int flags), (folder, path, flags))
ZP_CALL(mkdir, (const char* path, mode_t mode), (path, mode))
ZP_CALL(rmdir, (const char* path), (path))

}  // extern "C"
