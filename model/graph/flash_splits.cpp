#include "model/graph/flash_splits.hpp"

#include <algorithm>
#include <cmath>

#include "base/units.hpp"

namespace zeroplan {
namespace {

constexpr std::int64_t kQueriesOfBlock = 64;
constexpr std::int64_t kBlocksOfMultiprocessor = 2;
constexpr std::int64_t kMostSplits = 128;
constexpr float kFull = 0.8F;         // so many multiprocessors at work are enough
constexpr float kGoodEnough = 0.85F;  // of the best efficiency

std::int64_t keys_of_block(std::int64_t head_dim) {
  if (head_dim <= 64) return 256;
  return head_dim <= 128 ? 128 : 64;
}

}  // namespace

std::int64_t flash_splits(std::int64_t multiprocessors,
                          std::int64_t batch,
                          std::int64_t heads,
                          std::int64_t queries,
                          std::int64_t keys,
                          std::int64_t head_dim) {
  if (multiprocessors <= 0) return 1;
  const std::int64_t slots = multiprocessors * kBlocksOfMultiprocessor;
  const std::int64_t blocks = batch * heads * ceil_div(queries, kQueriesOfBlock);
  const std::int64_t key_blocks = ceil_div(keys, keys_of_block(head_dim));
  if (static_cast<float>(blocks) >= kFull * static_cast<float>(slots)) return 1;
  // A number that leaves each part as many blocks as one part less does is not looked at.
  const auto is_looked_at = [key_blocks](std::int64_t splits) {
    return splits == 1 || ceil_div(key_blocks, splits) != ceil_div(key_blocks, splits - 1);
  };
  const auto efficiency = [blocks, slots](std::int64_t splits) {
    const float waves = static_cast<float>(blocks * splits) / static_cast<float>(slots);
    return waves / std::ceil(waves);
  };
  const std::int64_t most = std::min({kMostSplits, slots, key_blocks});
  float best = 0.0F;
  for (std::int64_t splits = 1; splits <= most; ++splits) {
    if (is_looked_at(splits)) best = std::max(best, efficiency(splits));
  }
  for (std::int64_t splits = 1; splits <= most; ++splits) {
    if (is_looked_at(splits) && efficiency(splits) >= kGoodEnough * best) return splits;
  }
  return 1;
}

}  // namespace zeroplan
