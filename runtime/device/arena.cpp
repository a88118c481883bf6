#include "runtime/device/arena.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iterator>

#include "base/check.hpp"

namespace zeroplan::runtime {

Arena::~Arena() {
  for (const auto& [data, bytes] : segments_) backend_.return_segment(data, bytes);
}

void Arena::drained() {
  if (!repeats_) return;  // else each fence is asked
  for (const auto& [size, data] : free_) blocks_.find(data)->second.fences.clear();
}

bool Arena::is_open(Block& block) {
  if (!repeats_) {
    std::erase_if(block.fences, [&](const Fence& fence) { return backend_.passed(fence); });
  }
  return !block.fences.empty();
}

// The smallest that fits and that nobody uses any more; else the smallest that fits.
Arena::Blocks::iterator Arena::find_free(Bytes bytes) {
  auto best = blocks_.end();
  for (auto at = free_.lower_bound({bytes, nullptr}); at != free_.end(); ++at) {
    const auto block = blocks_.find(at->second);
    if (!is_open(block->second)) return block;
    if (best == blocks_.end()) best = block;
  }
  return best;
}

std::byte* Arena::allocate(Bytes bytes, Queue queue) {
  ZP_CHECK(bytes > Bytes::zero() && bytes.count() % 512 == 0, "the arena gives multiples of 512");
  auto at = find_free(bytes);
  if (at == blocks_.end()) {
    if (!grow(bytes)) return nullptr;
    at = find_free(bytes);
  }
  Block& block = at->second;
  take_from_free(at);
  if (block.size > bytes) {
    Block rest{
        .size = block.size - bytes, .segment = block.segment, .free = true, .fences = block.fences};
    const auto behind = blocks_.emplace(at->first + bytes.count(), std::move(rest)).first;
    free_.insert({behind->second.size, behind->first});
    block.size = bytes;
  }
  for (const Fence& fence : block.fences) backend_.wait(Queue::compute, fence);
  block.fences.clear();
  block.free = false;
  block.queues = 0;
  if (queue != Queue::compute) {
    // Behind who had it before on the compute queue, and behind those fences.
    backend_.wait(queue, backend_.record(Queue::compute));
    touch(at->first, queue);
  }
  return at->first;
}

void Arena::touch(const std::byte* data, Queue queue) {
  if (queue == Queue::compute || data == nullptr) return;
  auto at = blocks_.upper_bound(const_cast<std::byte*>(data));
  if (at == blocks_.begin()) return;
  --at;
  Block& block = at->second;
  if (data >= at->first + block.size.count() || block.free) return;
  block.queues |= 1U << static_cast<unsigned>(queue);
}

bool Arena::holds(const std::byte* data) const {
  auto at = segments_.upper_bound(const_cast<std::byte*>(data));
  if (at == segments_.begin()) return false;
  --at;
  return data < at->first + at->second.count();
}

void Arena::release(std::byte* data) noexcept {
  const auto at = blocks_.find(data);
  if (at == blocks_.end() || at->second.free) {
    std::fprintf(stderr, "zeroplan: the device gets back what it did not give\n");
    return;
  }
  Block& block = at->second;
  try {
    for (std::size_t q = 0; q < kQueueCount; ++q) {
      if ((block.queues >> q & 1U) != 0) {
        block.fences.push_back(backend_.record(static_cast<Queue>(q)));
      }
    }
  } catch (const std::exception& error) {
    // The device has failed; who uses it next hears of it.
    std::fprintf(stderr, "zeroplan: %s\n", error.what());
  }
  block.free = true;
  block.queues = 0;
  put_free(at);
}

// Joins free neighbours of the same segment.
void Arena::put_free(Blocks::iterator at) {
  const auto join = [&](Blocks::iterator first, Blocks::iterator second) {
    first->second.size += second->second.size;
    auto& fences = first->second.fences;
    fences.insert(fences.end(), second->second.fences.begin(), second->second.fences.end());
    blocks_.erase(second);
  };
  const auto joins = [&](Blocks::iterator other) {
    return other->second.free && other->second.segment == at->second.segment;
  };
  const auto next = std::next(at);
  if (next != blocks_.end() && joins(next)) {
    take_from_free(next);
    join(at, next);
  }
  if (at != blocks_.begin() && joins(std::prev(at))) {
    const auto before = std::prev(at);
    take_from_free(before);
    join(before, at);
    at = before;
  }
  free_.insert({at->second.size, at->first});
}

// A segment, as large as usual where that fits, else as large as needed, else after those that
// hold nothing went back.
bool Arena::grow(Bytes bytes) {
  constexpr std::int64_t kPage = 2 << 20;  // of a GPU
  const Bytes least =
      segment_ < Bytes::of(kPage) ? bytes : Bytes::of(round_up(bytes.count(), kPage));
  const auto take = [&](Bytes size) {
    std::byte* data = backend_.take_segment(size);
    if (data == nullptr) return false;
    segments_[data] = size;
    reserved_ += size;
    blocks_.emplace(data, Block{.size = size, .segment = data, .free = true});
    free_.insert({size, data});
    return true;
  };
  if (take(std::max(least, segment_)) || (least < segment_ && take(least))) return true;
  return_unused_segments();
  return take(least);
}

void Arena::return_unused_segments() {
  backend_.drain();
  for (auto segment = segments_.begin(); segment != segments_.end();) {
    const auto block = blocks_.find(segment->first);
    if (!block->second.free || block->second.size != segment->second) {
      ++segment;
      continue;
    }
    take_from_free(block);
    blocks_.erase(block);
    backend_.return_segment(segment->first, segment->second);
    reserved_ -= segment->second;
    segment = segments_.erase(segment);
  }
}

}  // namespace zeroplan::runtime
