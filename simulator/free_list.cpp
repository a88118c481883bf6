#include "simulator/free_list.hpp"

#include <algorithm>

#include "model/check.hpp"

namespace zeroplan {

std::uint32_t FreeList::slot_of(const std::vector<Entry>& bin,
                                std::int32_t units,
                                std::int64_t address) {
  const auto is_before = [&](const Entry& entry) {
    return entry.units < units || (entry.units == units && entry.address < address);
  };
  constexpr std::size_t kScanned = 8;
  if (bin.size() > kScanned) {
    const auto at = std::partition_point(bin.begin(), bin.end(), is_before);
    return static_cast<std::uint32_t>(at - bin.begin());
  }
  std::uint32_t slot = 0;
  while (slot < bin.size() && is_before(bin[slot])) ++slot;
  return slot;
}

FreeList::Position FreeList::lower_bound(std::int64_t size, std::int64_t address) const {
  if (size > kLargestSize) return end();
  const auto units = static_cast<std::int32_t>((size + kUnit - 1) / kUnit);
  const std::uint32_t bin = bin_of(static_cast<std::uint32_t>(units));
  const std::uint32_t slot = slot_of(bins_[bin], units, address);
  if (slot < bins_[bin].size()) return {bin, slot};
  return first_from(bin + 1);
}

FreeList::Position FreeList::previous(Position position) const {
  if (position.slot > 0) return {position.bin, position.slot - 1};
  std::uint32_t bin = position.bin - 1;
  while ((occupied_[bin / 64] >> (bin % 64) & 1) == 0) --bin;
  return {bin, static_cast<std::uint32_t>(bins_[bin].size()) - 1};
}

void FreeList::insert(std::int64_t size, std::int64_t address, std::int32_t block) {
  ++count_;
  const auto units = static_cast<std::int32_t>(size / kUnit);
  const std::uint32_t at = bin_of(static_cast<std::uint32_t>(units));
  std::vector<Entry>& bin = bins_[at];
  occupied_[at / 64] |= std::uint64_t{1} << (at % 64);
  bin.insert(bin.begin() + slot_of(bin, units, address), {address, units, block});
}

void FreeList::erase(Position position) {
  --count_;
  std::vector<Entry>& bin = bins_[position.bin];
  bin.erase(bin.begin() + position.slot);
  if (bin.empty()) occupied_[position.bin / 64] &= ~(std::uint64_t{1} << (position.bin % 64));
}

void FreeList::erase(std::int64_t size, std::int64_t address) {
  const auto units = static_cast<std::int32_t>(size / kUnit);
  const std::uint32_t at = bin_of(static_cast<std::uint32_t>(units));
  const std::uint32_t slot = slot_of(bins_[at], units, address);
  ZP_CHECK(slot < bins_[at].size() && bins_[at][slot].units == units &&
               bins_[at][slot].address == address,
           "a free block is not in its list");
  erase({at, slot});
}

}  // namespace zeroplan
