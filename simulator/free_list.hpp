// The free blocks of one pool and one stream, ordered by size and then by their place among equals,
// so that the first block at or above a size is the best fit and ties go to the lowest place: its
// address, or what stands for its segment's age and its address in it.
//
// Bins of sizes, sixteen between two powers of two, each a sorted array; a bitmap says which are
// not empty. A bin rarely holds more than a few blocks, so that a look-up is some bit operations
// and a short scan. A model of many experts frees tens of thousands of blocks of one size: a bin is
// cut into chunks, so that a change moves no more than one of them. Nothing is allocated once the
// bins have grown.
// Source of the order: BlockComparatorSize, from torch 2.12 on BlockComparatorSizeCounterAddress,
// of c10/cuda/CUDACachingAllocator.cpp.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

namespace zeroplan::simulator {

class FreeList {
 public:
  // Sizes are multiples of 512, up to this one.
  static constexpr std::int64_t kUnit = 512;
  static constexpr std::int64_t kLargestSize =
      std::int64_t{std::numeric_limits<std::int32_t>::max()} * kUnit;

  struct Entry {
    std::int64_t order = 0;  // its place among blocks of its size
    std::int32_t units = 0;  // size / 512
    std::int32_t block = -1;
    std::int64_t size() const { return units * kUnit; }
  };

  // A place in the order. Invalid after a change.
  struct Position {
    std::uint32_t bin = 0;
    std::uint32_t chunk = 0;
    std::uint32_t slot = 0;
    friend bool operator==(Position, Position) = default;
  };

  bool empty() const { return count_ == 0; }
  std::int64_t count() const { return count_; }

  // The first entry not before (size, order); the size may be beyond the largest.
  Position lower_bound(std::int64_t size, std::int64_t order = 0) const;
  Position begin() const { return first_from(0); }
  Position end() const { return {kBins, 0, 0}; }
  Position next(Position position) const {
    const Bin& bin = bins_[position.bin];
    if (++position.slot < bin[position.chunk].size()) return position;
    if (++position.chunk < bin.size()) return {position.bin, position.chunk, 0};
    return first_from(position.bin + 1);
  }
  Position previous(Position position) const;  // not of begin()
  const Entry& operator[](Position position) const {
    return bins_[position.bin][position.chunk][position.slot];
  }

  void insert(std::int64_t size, std::int64_t order, std::int32_t block);  // not there yet
  void erase(Position position);
  void erase(std::int64_t size, std::int64_t order);  // is there

  // The most entries that one change moves.
  static constexpr std::size_t kChunk = 128;

 private:
  using Chunk = std::vector<Entry>;
  // In order. None is empty, but the only one of a bin that was used before.
  using Bin = std::vector<Chunk>;

  static constexpr int kSteps = 4;  // log2 of the bins between two powers of two
  // Sizes of less than 16 units have a bin each; 2^30 units begin the last sixteen.
  static constexpr std::uint32_t kBins = (30 - kSteps + 2) << kSteps;
  static constexpr std::uint32_t kWords = (kBins + 63) / 64;

  static std::uint32_t bin_of(std::uint32_t units) {
    const int extra = std::bit_width(units >> kSteps);  // of the bits beyond the first five
    if (extra == 0) return units;
    return (static_cast<std::uint32_t>(extra) << kSteps) +
           ((units >> (extra - 1)) & ((1u << kSteps) - 1));
  }
  // The first entry of the first bin at or above one.
  Position first_from(std::uint32_t bin) const {
    std::uint32_t w = bin / 64;
    if (w >= kWords) return end();
    std::uint64_t word = occupied_[w] >> (bin % 64) << (bin % 64);
    while (word == 0) {
      if (++w == kWords) return end();
      word = occupied_[w];
    }
    return {w * 64 + static_cast<std::uint32_t>(std::countr_zero(word)), 0, 0};
  }
  // Where (units, order) is or would be: behind the last of its bin, if all are before it.
  // Precondition: the bin has a chunk.
  Position place_of(std::uint32_t bin, std::int32_t units, std::int64_t order) const;
  bool is_entry(Position position) const {
    return position.slot < bins_[position.bin][position.chunk].size();
  }
  void split(Position position);

  std::array<std::uint64_t, kWords> occupied_{};
  std::vector<Bin> bins_ = std::vector<Bin>(kBins);
  std::vector<Chunk> spare_;  // empty, with room
  std::int64_t count_ = 0;
};

}  // namespace zeroplan::simulator
