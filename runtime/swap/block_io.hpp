// How bytes go between memory and a swap file: requests of one block each, several in flight.
//
// Flow: SwapFile cuts a transfer into blocks and pushes them into the BlockQueue; a BlockIo has
// threads that take blocks from it and say when they are done. Two implementations: io_uring
// (uring_io.cpp, where liburing was found and the kernel lets us), and pread and pwrite in threads
// (thread_io.cpp), which everybody has. What a system call gave is judged in one place, progress().
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>

#include "base/units.hpp"

namespace zeroplan::runtime {

// Where a transfer stopped.
struct IoFailure {
  int error = 0;  // errno; 0: the file ends there
  std::int64_t offset = 0;
  std::int64_t bytes = 0;  // that were not moved
};

// A read or write of any length; its fields belong to the queue until it is finished.
struct SwapTransfer {
  bool write = false;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  std::int64_t blocks_left = 0;
  std::optional<IoFailure> failure;  // of the first block that failed
  Seconds begin, end;                // by the steady clock: pushed, last block done
};

struct SwapBlock {
  std::shared_ptr<SwapTransfer> transfer;
  int descriptor = -1;  // of the file, past the page cache where `direct`
  int cached = -1;      // of the same file through the page cache
  bool direct = false;
  std::byte* data = nullptr;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};

// Blocks that wait for a thread. Used by any thread.
class BlockQueue {
 public:
  void push(std::list<SwapBlock> blocks) noexcept;
  // The next block. Where there is none it waits for one if `wait` says so; nothing then: the queue
  // was closed. Needs no memory, as everything that the threads call.
  std::optional<SwapBlock> take(bool wait) noexcept;
  void finish(const SwapBlock& block, const std::optional<IoFailure>& failure);
  // Returns when the transfer is done, well or not.
  void wait(const SwapTransfer& transfer);
  bool done(const SwapTransfer& transfer);
  // What is in the queue is still carried out.
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable come_, done_;
  std::list<SwapBlock> blocks_;
  bool closed_ = false;
};

// pread or pwrite of a block: the bytes moved, or -errno.
std::int64_t call_system(const SwapBlock& block);

// Throws std::system_error: no thread could be started.
[[noreturn]] void no_thread();

enum class BlockState { done, again, failed };

// Alignment of what goes past the page cache: pages of the file, sectors of memory.
inline constexpr std::int64_t kSwapPage = 4096;
inline constexpr std::int64_t kSwapSector = 512;

// What a call's result (bytes, or -errno) means for the block, which moves on behind what was done:
// a short one and an interrupted one go on (again). A direct request that the file system refuses
// (EINVAL), or whose rest is not aligned, goes on through the page cache.
BlockState progress(SwapBlock& block, std::int64_t result, IoFailure& failure);

struct IoOptions {
  // The `aio` section of ds_config.
  Bytes block = Bytes::mib(1);
  int queue_depth = 8;         // requests in flight of one thread
  int threads = 1;             // intra_op_parallelism
  bool single_submit = false;  // io_uring: a system call for each request
  bool overlap_events = true;  // io_uring: new requests while others are in flight
  // For tests: instead of pread and pwrite in threads; as io_uring, bytes or -errno.
  std::function<std::int64_t(const SwapBlock& block)> call;
};

// Threads that serve a queue. Destroyed when the queue is closed: waits for what is in it.
class BlockIo {
 public:
  virtual ~BlockIo() = default;
};

// queue_depth times `threads` threads, at most 64, each with one request; fewer where the machine
// has no more. Throws std::system_error where there is none.
std::unique_ptr<BlockIo> thread_io(BlockQueue& queue, const IoOptions& options);
// `threads` rings of queue_depth requests. Null where the program was built without liburing or the
// kernel refuses (too old, switched off, seccomp).
std::unique_ptr<BlockIo> uring_io(BlockQueue& queue, const IoOptions& options);

}  // namespace zeroplan::runtime
