// pread and pwrite, one request a thread.
#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

#include "runtime/swap/block_io.hpp"

namespace zeroplan::runtime {
namespace {

constexpr int kMostThreads = 64;

std::int64_t call_system(const SwapBlock& block) {
  const auto size = static_cast<std::size_t>(block.bytes);
  const ssize_t moved = block.transfer->write
                            ? pwrite(block.descriptor, block.data, size, block.offset)
                            : pread(block.descriptor, block.data, size, block.offset);
  return moved < 0 ? -errno : moved;
}

class ThreadIo : public BlockIo {
 public:
  ThreadIo(BlockQueue& queue, const IoOptions& options)
      : queue_(queue), call_(options.call ? options.call : call_system) {
    const int threads = std::clamp(options.queue_depth * options.threads, 1, kMostThreads);
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ThreadIo(const ThreadIo&) = delete;
  ThreadIo& operator=(const ThreadIo&) = delete;
  ~ThreadIo() override {
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void work() {
    for (;;) {
      std::vector<SwapBlock> taken = queue_.take(1, true);
      if (taken.empty()) return;
      SwapBlock& block = taken.front();
      IoFailure failure;
      BlockState state = BlockState::again;
      while (state == BlockState::again) state = progress(block, call_(block), failure);
      queue_.finish(block,
                    state == BlockState::failed ? std::optional<IoFailure>(failure) : std::nullopt);
    }
  }

  BlockQueue& queue_;
  std::function<std::int64_t(const SwapBlock&)> call_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<BlockIo> thread_io(BlockQueue& queue, const IoOptions& options) {
  return std::make_unique<ThreadIo>(queue, options);
}

}  // namespace zeroplan::runtime
