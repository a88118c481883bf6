#include "simulator/free_list.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace zeroplan::simulator {

FreeList::Position FreeList::place_of(std::uint32_t bin,
                                      std::int32_t units,
                                      std::int64_t order) const {
  const auto is_before = [&](const Entry& entry) {
    return entry.units < units || (entry.units == units && entry.order < order);
  };
  const Bin& chunks = bins_[bin];
  std::uint32_t at = 0;
  if (chunks.size() > 1) {
    const auto found =
        std::partition_point(chunks.begin(), chunks.end() - 1, [&](const Chunk& chunk) {
          return is_before(chunk.back());
        });
    at = static_cast<std::uint32_t>(found - chunks.begin());
  }
  const Chunk& chunk = chunks[at];
  constexpr std::size_t kScanned = 8;
  if (chunk.size() > kScanned) {
    const auto found = std::partition_point(chunk.begin(), chunk.end(), is_before);
    return {bin, at, static_cast<std::uint32_t>(found - chunk.begin())};
  }
  std::uint32_t slot = 0;
  while (slot < chunk.size() && is_before(chunk[slot])) ++slot;
  return {bin, at, slot};
}

FreeList::Position FreeList::lower_bound(std::int64_t size, std::int64_t order) const {
  if (size > kLargestSize) return end();
  const auto units = static_cast<std::int32_t>((size + kUnit - 1) / kUnit);
  const std::uint32_t bin = bin_of(static_cast<std::uint32_t>(units));
  if (bins_[bin].empty()) return first_from(bin + 1);
  const Position place = place_of(bin, units, order);
  return is_entry(place) ? place : first_from(bin + 1);
}

FreeList::Position FreeList::previous(Position position) const {
  if (position.slot > 0) return {position.bin, position.chunk, position.slot - 1};
  std::uint32_t bin = position.bin;
  std::uint32_t chunk = position.chunk;
  if (chunk == 0) {
    --bin;
    while ((occupied_[bin / 64] >> (bin % 64) & 1) == 0) --bin;
    chunk = static_cast<std::uint32_t>(bins_[bin].size());
  }
  --chunk;
  return {bin, chunk, static_cast<std::uint32_t>(bins_[bin][chunk].size()) - 1};
}

void FreeList::insert(std::int64_t size, std::int64_t order, std::int32_t block) {
  ++count_;
  const auto units = static_cast<std::int32_t>(size / kUnit);
  const std::uint32_t bin = bin_of(static_cast<std::uint32_t>(units));
  occupied_[bin / 64] |= std::uint64_t{1} << (bin % 64);
  if (bins_[bin].empty()) bins_[bin].emplace_back();
  const Position place = place_of(bin, units, order);
  Chunk& chunk = bins_[bin][place.chunk];
  chunk.insert(chunk.begin() + place.slot, {order, units, block});
  if (chunk.size() > kChunk) split(place);
}

// The upper half of a full chunk becomes one of its own.
void FreeList::split(Position position) {
  Chunk upper;
  if (!spare_.empty()) {
    upper = std::move(spare_.back());
    spare_.pop_back();
  }
  Bin& bin = bins_[position.bin];
  Chunk& lower = bin[position.chunk];
  const auto middle = lower.begin() + kChunk / 2;
  upper.assign(middle, lower.end());
  lower.erase(middle, lower.end());
  bin.insert(bin.begin() + position.chunk + 1, std::move(upper));
}

void FreeList::erase(Position position) {
  --count_;
  Bin& bin = bins_[position.bin];
  Chunk& chunk = bin[position.chunk];
  chunk.erase(chunk.begin() + position.slot);
  if (!chunk.empty()) return;
  if (bin.size() == 1) {
    occupied_[position.bin / 64] &= ~(std::uint64_t{1} << (position.bin % 64));
    return;
  }
  spare_.push_back(std::move(chunk));
  bin.erase(bin.begin() + position.chunk);
}

void FreeList::erase(std::int64_t size, std::int64_t order) {
  const auto units = static_cast<std::int32_t>(size / kUnit);
  const std::uint32_t bin = bin_of(static_cast<std::uint32_t>(units));
  const Position place = bins_[bin].empty() ? end() : place_of(bin, units, order);
  ZP_CHECK(place != end() && is_entry(place) && (*this)[place].units == units &&
               (*this)[place].order == order,
           "a free block is not in its list");
  erase(place);
}

}  // namespace zeroplan::simulator
