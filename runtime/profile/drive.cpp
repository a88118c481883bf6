// A drive through a file in one of its folders: writes and reads by block size and by requests in
// flight (a thread each), past the page cache (O_DIRECT) where the file system allows it.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "model/diagnostic.hpp"
#include "runtime/kernels/thread_pool.hpp"
#include "runtime/profile/machine_profile.hpp"

namespace zeroplan::runtime {
namespace {

constexpr std::int64_t kAlignment = 4096;  // of O_DIRECT's buffers, offsets and lengths

struct FreeBuffer {
  void operator()(void* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<void, FreeBuffer>;

// A file that is gone when the measurement ends, however it ends.
class ScratchFile {
 public:
  ScratchFile(const std::string& folder) {
    std::string path = folder + "/zeroplan_profile_XXXXXX";
    descriptor_ = mkstemp(path.data());
    if (descriptor_ < 0) {
      throw InputError({"command line",
                        "--nvme-path",
                        "a folder that can be written to",
                        in_quotes(folder) + ": " + std::strerror(errno),
                        ""});
    }
    unlink(path.c_str());
    const int flags = fcntl(descriptor_, F_GETFL);
    direct_ = fcntl(descriptor_, F_SETFL, flags | O_DIRECT) == 0;
  }
  ~ScratchFile() { close(descriptor_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  int descriptor() const { return descriptor_; }
  bool direct() const { return direct_; }
  // Some file systems take the flag and refuse the write.
  void give_up_direct() {
    fcntl(descriptor_, F_SETFL, fcntl(descriptor_, F_GETFL) & ~O_DIRECT);
    direct_ = false;
  }

 private:
  int descriptor_ = -1;
  bool direct_ = false;
};

struct Pattern {
  bool write = false;
  std::int64_t bytes = 0;  // of the file
  std::int64_t block = 0;
  std::int64_t requests = 1;  // in flight
};

class Drive {
 public:
  Drive(const ProfileScale& scale, const std::string& folder)
      : scale_(scale), folder_(folder), file_(folder) {}

  std::vector<ProfileRow> measure() {
    probe();
    for (const std::int64_t block : {128 << 10, 1 << 20, 8 << 20}) {
      for (const std::int64_t requests : {1, 4}) {
        if (block * requests > scale_.file_bytes) continue;
        add({true, scale_.file_bytes, block, requests});
        add({false, scale_.file_bytes, block, requests});
      }
    }
    return std::move(rows_);
  }

 private:
  void probe() {
    const Buffer buffer = buffer_of(kAlignment);
    if (file_.direct() && pwrite(file_.descriptor(), buffer.get(), kAlignment, 0) != kAlignment) {
      file_.give_up_direct();
    }
  }

  static Buffer buffer_of(std::int64_t bytes) {
    Buffer buffer(std::aligned_alloc(kAlignment, static_cast<std::size_t>(bytes)));
    if (buffer == nullptr) throw std::bad_alloc();
    std::memset(buffer.get(), 0x5a, static_cast<std::size_t>(bytes));
    return buffer;
  }

  void add(const Pattern& pattern) {
    std::vector<Buffer> buffers;
    for (std::int64_t i = 0; i < pattern.requests; ++i) buffers.push_back(buffer_of(pattern.block));
    ThreadPool pool(static_cast<int>(pattern.requests));
    Repetition repetition = scale_.repetition;
    repetition.discard = 1;
    repetition.least = 3;
    const auto work = [&] {
      pool.run(pattern.requests, [&](std::int64_t i) {
        pass(pattern, i, buffers[static_cast<std::size_t>(i)].get());
      });
      if (pattern.write) fdatasync(file_.descriptor());
    };
    const auto forget = [&] {
      if (!pattern.write) posix_fadvise(file_.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
    };
    failed_ = 0;
    const std::vector<double> seconds = repeat(work, repetition, forget);
    if (failed_ != 0) {
      throw InputError({"command line",
                        "--nvme-path",
                        "room for a file of " + std::to_string(pattern.bytes) + " bytes",
                        in_quotes(folder_) + ": " + std::strerror(failed_),
                        ""});
    }
    rows_.push_back(
        {pattern.write ? "drive_write" : "drive_read",
         {{"block_bytes", Json(pattern.block)},
          {"requests", Json(pattern.requests)},
          {"file_bytes", Json(pattern.bytes)},
          {"direct", Json(file_.direct())}},
         "bytes/s",
         spread_of(rates(static_cast<double>(pattern.bytes), seconds), repetition.discard)});
  }

  // Every requests-th block from the i-th on.
  void pass(const Pattern& pattern, std::int64_t i, void* buffer) {
    const auto size = static_cast<std::size_t>(pattern.block);
    for (std::int64_t at = i * pattern.block; at + pattern.block <= pattern.bytes;
         at += pattern.requests * pattern.block) {
      const ssize_t done = pattern.write ? pwrite(file_.descriptor(), buffer, size, at)
                                         : pread(file_.descriptor(), buffer, size, at);
      if (done == static_cast<ssize_t>(size)) continue;
      failed_ = done < 0 ? errno : ENOSPC;
      return;
    }
  }

  const ProfileScale& scale_;
  const std::string folder_;
  ScratchFile file_;
  std::atomic<int> failed_{0};
  std::vector<ProfileRow> rows_;
};

}  // namespace

std::vector<ProfileRow> measure_drive(const ProfileScale& scale, const std::string& folder) {
  return Drive(scale, folder).measure();
}

}  // namespace zeroplan::runtime
