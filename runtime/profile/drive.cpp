// A drive through a swap file (runtime/swap) in one of its folders: what the embedded runtime swaps
// through, io_uring or threads, past the page cache where the file system allows it. Writes and
// reads by block size and by requests in flight: queue depth times threads.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "base/diagnostic.hpp"
#include "runtime/profile/machine_profile.hpp"
#include "runtime/swap/swap_file.hpp"

namespace zeroplan::runtime {
namespace {

struct FreeBuffer {
  void operator()(void* memory) const { std::free(memory); }
};
using Pages = std::unique_ptr<void, FreeBuffer>;

struct Pattern {
  std::int64_t block = 0;
  int depth = 1;  // requests in flight of one thread
  int threads = 1;

  std::int64_t in_flight() const { return block * depth * threads; }
};

[[noreturn]] void refuse(const std::string& folder, const Phrase& expected, const char* got) {
  throw InputError({"command line", "--nvme-path", expected, in_quotes(folder) + ": " + got, ""});
}

class Drive {
 public:
  Drive(const ProfileScale& scale, const std::string& folder) : scale_(scale), folder_(folder) {}

  std::vector<ProfileRow> measure() {
    constexpr std::int64_t kKiB = 1 << 10;
    for (const std::int64_t block : {128 * kKiB, 1024 * kKiB, 8192 * kKiB}) {
      for (const auto& [depth, threads] : {std::pair{1, 1}, {8, 1}, {32, 1}, {8, 2}}) {
        const Pattern pattern{block, depth, threads};
        // Most of the time that many are in flight.
        const bool alone = depth * threads == 1 && block <= scale_.file_bytes;
        if (alone || 4 * pattern.in_flight() <= scale_.file_bytes) add(pattern);
      }
    }
    return std::move(rows_);
  }

 private:
  void add(const Pattern& pattern) {
    SwapOptions options;
    options.folder = folder_;
    options.what = "profile";
    options.io.block = Bytes::of(pattern.block);
    options.io.queue_depth = pattern.depth;
    options.io.threads = pattern.threads;
    // Two windows: one is filled again while the other is on its way. They outlive the file, which
    // waits for what is under way.
    constexpr std::int64_t kLeast = 4 << 20;
    const std::int64_t window = std::min(std::max(kLeast, pattern.in_flight()), scale_.file_bytes);
    const Pages pages = pages_of(2 * window);
    try {
      SwapFile file(options);
      reserve(file);
      for (const bool write : {true, false}) {
        add(pattern, write, file, static_cast<std::byte*>(pages.get()), window);
      }
    } catch (const SwapError& error) {
      refuse(folder_, "a drive that can be measured", error.what());
    }
  }

  void reserve(SwapFile& file) const {
    try {
      file.reserve(Bytes::of(scale_.file_bytes));
    } catch (const SwapError& error) {
      const std::string room = "room for a file of " + std::to_string(scale_.file_bytes) + " bytes";
      refuse(folder_, room, error.what());
    }
  }

  static Pages pages_of(std::int64_t bytes) {
    Pages pages(
        std::aligned_alloc(kSwapPage, static_cast<std::size_t>(round_up(bytes, kSwapPage))));
    if (pages == nullptr) throw std::bad_alloc();
    std::memset(pages.get(), 0x5a, static_cast<std::size_t>(bytes));
    return pages;
  }

  void add(
      const Pattern& pattern, bool write, SwapFile& file, std::byte* data, std::int64_t window) {
    Repetition repetition = scale_.repetition;
    repetition.discard = 1;
    repetition.least = 3;
    const auto work = [&] {
      pass(write, file, data, window);
      if (write) file.flush();
    };
    const auto forget = [&] {
      if (!write) file.forget_cached();
    };
    const std::vector<double> seconds = repeat(work, repetition, forget);
    const bool uring = file.engine() == SwapEngine::io_uring;
    rows_.push_back(
        {write ? "drive_write" : "drive_read",
         {{"block_bytes", Json(pattern.block)},
          {"requests", Json(std::int64_t{pattern.depth} * pattern.threads)},
          {"queue_depth", Json(pattern.depth)},
          {"threads", Json(pattern.threads)},
          {"engine", Json(uring ? "io_uring" : "threads")},
          {"file_bytes", Json(scale_.file_bytes)},
          {"direct", Json(file.direct())}},
         "bytes/s",
         spread_of(rates(static_cast<double>(scale_.file_bytes), seconds), repetition.discard)});
  }

  // All of the file, window by window.
  void pass(bool write, SwapFile& file, std::byte* data, std::int64_t window) const {
    std::array<SwapFile::Ticket, 2> under_way;
    std::size_t turn = 0;
    for (std::int64_t at = 0; at < scale_.file_bytes; at += window, turn = 1 - turn) {
      file.wait(under_way[turn]);
      std::byte* memory = data + static_cast<std::int64_t>(turn) * window;
      const Bytes offset = Bytes::of(at);
      const Bytes bytes = Bytes::of(std::min(window, scale_.file_bytes - at));
      under_way[turn] =
          write ? file.write(offset, memory, bytes) : file.read(offset, memory, bytes);
    }
    for (const SwapFile::Ticket& ticket : under_way) file.wait(ticket);
  }

  const ProfileScale& scale_;
  const std::string folder_;
  std::vector<ProfileRow> rows_;
};

}  // namespace

std::vector<ProfileRow> measure_drive(const ProfileScale& scale, const std::string& folder) {
  try {
    return Drive(scale, folder).measure();
  } catch (const InputError& error) {
    // The folder is a flag's here, not a ds_config's.
    Diagnostic said = error.diagnostics().front();
    said.file = "command line";
    said.pointer = "--nvme-path";
    said.hint = "";
    throw InputError(said);
  }
}

}  // namespace zeroplan::runtime
