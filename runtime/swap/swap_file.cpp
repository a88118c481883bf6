#include "runtime/swap/swap_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <list>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/check.hpp"
#include "base/diagnostic.hpp"

namespace zeroplan::runtime {
namespace {

constexpr std::int64_t kLargestBlock = std::int64_t{1} << 30;

std::string reason(int error) {
  return error == 0 ? "the file ends there" : std::generic_category().message(error);
}

[[noreturn]] void refuse_folder(const std::string& folder, const std::string& pointer, int error) {
  throw InputError(Diagnostic{.file = "ds_config",
                              .pointer = pointer,
                              .expected = "a folder that can be written to",
                              .got = in_quotes(folder) + ": " + reason(error),
                              .hint = "name a folder on a local drive"});
}

// As pread and pwrite through the page cache, whole; errno, 0 where all was moved.
int zero_page(int descriptor) {
  void* page = std::aligned_alloc(kSwapPage, kSwapPage);
  if (page == nullptr) return ENOMEM;
  std::memset(page, 0, kSwapPage);
  const ssize_t written = pwrite(descriptor, page, kSwapPage, 0);
  const int error = written == kSwapPage ? 0 : (written < 0 ? errno : EIO);
  std::free(page);
  return error;
}

// Room on the drive, where the file system can promise it; else a longer file.
int extend(int descriptor, std::int64_t from, std::int64_t bytes) {
  for (;;) {
    if (fallocate(descriptor, 0, from, bytes) == 0) return 0;
    if (errno == EINTR) continue;
    if (errno != EOPNOTSUPP && errno != ENOSYS) return errno;
    return ftruncate(descriptor, from + bytes) == 0 ? 0 : errno;
  }
}

}  // namespace

void require_swap_folder(const std::string& folder, const std::string& pointer) {
  if (folder.empty()) {
    throw InputError(Diagnostic{.file = "ds_config",
                                .pointer = pointer,
                                .expected = "a folder on the drive",
                                .got = "none",
                                .hint = "device nvme swaps to files in nvme_path"});
  }
  // Not made where it is missing: a drive that is not mounted must not become a folder beside it.
  std::error_code error;
  const auto status = std::filesystem::status(folder, error);
  if (error) refuse_folder(folder, pointer, error.value());
  if (!std::filesystem::is_directory(status)) refuse_folder(folder, pointer, ENOTDIR);
  if (access(folder.c_str(), W_OK | X_OK) != 0) refuse_folder(folder, pointer, errno);
}

SwapFile::SwapFile(const SwapOptions& options)
    : name_(fmt::format("{} ({})", options.folder, options.what)),
      block_(
          std::clamp(options.io.block.count() / kSwapPage * kSwapPage, kSwapPage, kLargestBlock)) {
  require_swap_folder(options.folder, options.pointer);
  open_in(options);
  try {
    start(options);
  } catch (...) {
    close_files();
    throw;
  }
}

void SwapFile::start(const SwapOptions& options) {
  try {
    if (options.engine != SwapEngine::threads && !options.io.call) {
      io_ = uring_io(queue_, options.io);
    }
    if (io_) {
      engine_ = SwapEngine::io_uring;
      return;
    }
    if (options.engine == SwapEngine::io_uring) {
      throw SwapError("no io_uring: not built in, or refused by the kernel");
    }
    io_ = thread_io(queue_, options.io);
  } catch (const std::system_error& error) {
    throw SwapError(fmt::format(
        "cannot start a thread for swap file {}: {}", name_, reason(error.code().value())));
  }
}

void SwapFile::close_files() {
  close(cached_);
  if (direct_descriptor_ >= 0) close(direct_descriptor_);
}

SwapFile::~SwapFile() {
  queue_.close();
  io_.reset();
  close_files();
}

void SwapFile::open_in(const SwapOptions& options) {
  std::string path = options.folder + "/zeroplan_swap_XXXXXX";
  cached_ = mkostemp(path.data(), O_CLOEXEC);
  if (cached_ < 0 && (errno == EMFILE || errno == ENFILE)) {
    throw SwapError(fmt::format("cannot open swap file {}: {}", name_, reason(errno)));
  }
  if (cached_ < 0) refuse_folder(options.folder, options.pointer, errno);
  direct_descriptor_ = open(path.c_str(), O_RDWR | O_CLOEXEC | O_DIRECT);
  unlink(path.c_str());
  direct_ = direct_descriptor_ >= 0;
}

// Some file systems take the flag and refuse the write.
void SwapFile::try_direct() {
  if (direct_) direct_ = zero_page(direct_descriptor_) == 0;
}

Bytes SwapFile::reserve(Bytes bytes) {
  const std::int64_t begin = end_;
  const std::int64_t size = round_up(bytes.count(), kSwapPage);
  if (size == 0) return Bytes::of(begin);
  const int error = extend(cached_, begin, size);
  if (error != 0) {
    throw SwapError(fmt::format("cannot make room in swap file {} for {} bytes at offset {}: {}",
                                name_,
                                size,
                                begin,
                                reason(error)));
  }
  end_ = begin + size;
  if (begin == 0) try_direct();
  return Bytes::of(begin);
}

SwapFile::Ticket SwapFile::read(Bytes offset, std::byte* to, Bytes bytes) {
  return start(false, offset, to, bytes);
}

SwapFile::Ticket SwapFile::write(Bytes offset, const std::byte* from, Bytes bytes) {
  return start(true, offset, const_cast<std::byte*>(from), bytes);
}

SwapFile::Ticket SwapFile::start(bool write, Bytes offset, std::byte* data, Bytes bytes) {
  const std::int64_t begin = offset.count();
  const std::int64_t end = begin + bytes.count();
  ZP_CHECK(begin >= 0 && end <= end_, "a transfer stays in what was reserved");
  auto ticket = std::make_shared<SwapTransfer>();
  ticket->write = write;
  ticket->offset = begin;
  ticket->bytes = bytes.count();
  const std::int64_t first = std::min(round_up(begin, kSwapPage), end);
  const std::int64_t last = std::max(end / kSwapPage * kSwapPage, first);
  const auto address = reinterpret_cast<std::uintptr_t>(data + (first - begin));
  const bool pages = direct_ && address % kSwapSector == 0;
  std::list<SwapBlock> blocks;
  const auto cut = [&](std::int64_t from, std::int64_t to, bool direct) {
    for (; from < to; from += block_) {
      blocks.push_back({.transfer = ticket,
                        .descriptor = direct ? direct_descriptor_ : cached_,
                        .cached = cached_,
                        .direct = direct,
                        .data = data + (from - begin),
                        .offset = from,
                        .bytes = std::min(block_, to - from)});
    }
  };
  cut(begin, first, false);
  cut(first, last, pages);
  cut(last, end, false);
  queue_.push(std::move(blocks));
  return ticket;
}

void SwapFile::wait(const Ticket& ticket) {
  if (!ticket) return;
  queue_.wait(*ticket);
  if (ticket->failure) failed(ticket->write, *ticket->failure);
}

bool SwapFile::done(const Ticket& ticket) { return !ticket || queue_.done(*ticket); }

void SwapFile::failed(bool write, const IoFailure& failure) const {
  throw SwapError(fmt::format("cannot {} swap file {}, {} bytes at offset {}: {}",
                              write ? "write" : "read",
                              name_,
                              failure.bytes,
                              failure.offset,
                              reason(failure.error)));
}

void SwapFile::flush() {
  if (fdatasync(cached_) == 0) return;
  throw SwapError(fmt::format("cannot write swap file {}: {}", name_, reason(errno)));
}

void SwapFile::forget_cached() { posix_fadvise(cached_, 0, 0, POSIX_FADV_DONTNEED); }

}  // namespace zeroplan::runtime
