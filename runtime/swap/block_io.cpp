#include "runtime/swap/block_io.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include <unistd.h>

namespace zeroplan::runtime {
namespace {

Seconds now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return Seconds::of(std::chrono::duration<double>(since).count());
}

bool is_aligned(const SwapBlock& block) {
  const auto address = reinterpret_cast<std::uintptr_t>(block.data);
  return block.offset % kSwapPage == 0 && block.bytes % kSwapPage == 0 &&
         address % kSwapSector == 0;
}

}  // namespace

void BlockQueue::push(std::list<SwapBlock> blocks) noexcept {
  const std::lock_guard lock(mutex_);
  const Seconds begin = now();
  for (const SwapBlock& block : blocks) {
    block.transfer->begin = begin;
    ++block.transfer->blocks_left;
  }
  blocks_.splice(blocks_.end(), blocks);
  come_.notify_all();
}

std::optional<SwapBlock> BlockQueue::take(bool wait) noexcept {
  std::unique_lock lock(mutex_);
  if (wait) come_.wait(lock, [&] { return closed_ || !blocks_.empty(); });
  if (blocks_.empty()) return std::nullopt;
  std::optional<SwapBlock> taken(std::move(blocks_.front()));
  blocks_.pop_front();
  return taken;
}

void BlockQueue::finish(const SwapBlock& block, const std::optional<IoFailure>& failure) {
  const std::lock_guard lock(mutex_);
  SwapTransfer& transfer = *block.transfer;
  if (failure && !transfer.failure) transfer.failure = failure;
  if (--transfer.blocks_left > 0) return;
  transfer.end = now();
  done_.notify_all();
}

void BlockQueue::wait(const SwapTransfer& transfer) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return transfer.blocks_left == 0; });
}

bool BlockQueue::done(const SwapTransfer& transfer) {
  const std::lock_guard lock(mutex_);
  return transfer.blocks_left == 0;
}

void BlockQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  come_.notify_all();
}

std::int64_t call_system(const SwapBlock& block) {
  const auto size = static_cast<std::size_t>(block.bytes);
  const ssize_t moved = block.transfer->write
                            ? pwrite(block.descriptor, block.data, size, block.offset)
                            : pread(block.descriptor, block.data, size, block.offset);
  return moved < 0 ? -errno : moved;
}

void no_thread() {
  throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
}

BlockState progress(SwapBlock& block, std::int64_t result, IoFailure& failure) {
  if (result == -EINTR || result == -EAGAIN) return BlockState::again;
  if (result == -EINVAL && block.direct) {
    block.direct = false;
    block.descriptor = block.cached;
    return BlockState::again;
  }
  if (result <= 0) {
    // Nothing written and no reason: as full.
    const int silent = block.transfer->write ? ENOSPC : 0;
    failure = {.error = result < 0 ? static_cast<int>(-result) : silent,
               .offset = block.offset,
               .bytes = block.bytes};
    return BlockState::failed;
  }
  const std::int64_t moved = std::min(result, block.bytes);
  block.data += moved;
  block.offset += moved;
  block.bytes -= moved;
  if (block.bytes == 0) return BlockState::done;
  if (block.direct && !is_aligned(block)) {
    block.direct = false;
    block.descriptor = block.cached;
  }
  return BlockState::again;
}

}  // namespace zeroplan::runtime
