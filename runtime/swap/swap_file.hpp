// A file on a drive that holds what does not stay in memory: reserved piece by piece, read and
// written asynchronously in aligned blocks past the page cache.
//
// Flow: reserve() gives a piece its place, read() and write() start transfers, wait() ends them.
// Requests are cut at pages of the file: whole pages go past the page cache (O_DIRECT) where the
// file system allows it and the memory is aligned to 512 bytes, the edges through it. Pieces begin
// at a page, so that no page is the edge of two.
//
// The file has no name from the start: nothing stays behind, however the process ends. A SwapFile
// is used by one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "runtime/swap/block_io.hpp"

namespace zeroplan::runtime {

// "cannot read swap file /local_nvme (optimizer states of rank 0), 1048576 bytes at offset 0: the
// file ends there": path, what it is for, bytes, offset, the system's reason.
class SwapError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class SwapEngine { automatic, io_uring, threads };

struct SwapOptions {
  std::string folder;
  std::string pointer;  // of the folder's key in ds_config, for errors
  std::string what;     // "optimizer states of rank 0"
  IoOptions io;
  SwapEngine engine = SwapEngine::automatic;  // automatic: io_uring where there is one
};

// Throws InputError where the folder is not given, is none, or cannot be written to; `pointer`: its
// key in ds_config.
void require_swap_folder(const std::string& folder, const std::string& pointer);

class SwapFile {
 public:
  using Ticket = std::shared_ptr<SwapTransfer>;

  // Throws as require_swap_folder(); SwapError for SwapEngine::io_uring where there is none.
  explicit SwapFile(const SwapOptions& options);
  SwapFile(const SwapFile&) = delete;
  SwapFile& operator=(const SwapFile&) = delete;
  // Waits for what was started.
  ~SwapFile();

  // Offset of a new piece; reads as zero until it is written. Throws SwapError where the drive has
  // no room for it.
  Bytes reserve(Bytes bytes);

  // The memory stays as it is until the transfer was waited for. Within one piece.
  Ticket read(Bytes offset, std::byte* to, Bytes bytes);
  Ticket write(Bytes offset, const std::byte* from, Bytes bytes);
  // Throws SwapError where it failed. Null: nothing to wait for.
  void wait(const Ticket& ticket);
  bool done(const Ticket& ticket);

  SwapEngine engine() const { return engine_; }  // which one it is
  bool direct() const { return direct_; }        // past the page cache
  // On the drive when it returns.
  void flush();
  // What the page cache knows of it, where the kernel can: for measurements through it.
  void forget_cached();

 private:
  void open_in(const SwapOptions& options);
  void start(const SwapOptions& options);
  void close_files();
  void try_direct();
  Ticket start(bool write, Bytes offset, std::byte* data, Bytes bytes);
  [[noreturn]] void failed(bool write, const IoFailure& failure) const;

  std::string name_;  // for errors: folder and what
  std::int64_t block_;
  int cached_ = -1;
  int direct_descriptor_ = -1;
  bool direct_ = false;
  std::int64_t end_ = 0;
  SwapEngine engine_ = SwapEngine::threads;
  BlockQueue queue_;
  std::unique_ptr<BlockIo> io_;
};

}  // namespace zeroplan::runtime
