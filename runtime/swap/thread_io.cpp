// pread and pwrite, one request a thread.
#include <algorithm>
#include <utility>

#include "base/parallel_for.hpp"
#include "runtime/swap/block_io.hpp"

namespace zeroplan::runtime {
namespace {

constexpr std::int64_t kMostThreads = 64;

class ThreadIo : public BlockIo {
 public:
  ThreadIo(BlockQueue& queue, const IoOptions& options)
      : queue_(queue), call_(options.call ? options.call : call_system) {
    const std::int64_t asked = std::int64_t{options.queue_depth} * options.threads;
    const auto threads = static_cast<std::size_t>(std::clamp<std::int64_t>(asked, 1, kMostThreads));
    if (threads_.start(threads, [this](std::size_t) { work(); }) == 0) no_thread();
  }

 private:
  void work() {
    while (std::optional<SwapBlock> block = queue_.take(true)) {
      IoFailure failure;
      BlockState state = BlockState::again;
      while (state == BlockState::again) state = progress(*block, call_(*block), failure);
      queue_.finish(*block,
                    state == BlockState::failed ? std::optional<IoFailure>(failure) : std::nullopt);
    }
  }

  BlockQueue& queue_;
  std::function<std::int64_t(const SwapBlock&)> call_;
  Threads threads_;
};

}  // namespace

std::unique_ptr<BlockIo> thread_io(BlockQueue& queue, const IoOptions& options) {
  return std::make_unique<ThreadIo>(queue, options);
}

}  // namespace zeroplan::runtime
