#include "model/implementations/loss_chunks.hpp"

#include <algorithm>
#include <bit>

#include "base/units.hpp"

namespace zeroplan {

std::int64_t liger_loss_rows(const LossSizes& sizes) {
  const std::int64_t wanted = ceil_div(sizes.tokens, ceil_div(sizes.vocabulary, sizes.hidden));
  const std::uint64_t rows = std::bit_ceil(static_cast<std::uint64_t>(wanted));
  return std::min(static_cast<std::int64_t>(rows), sizes.tokens);
}

std::int64_t embedded_loss_rows(const LossSizes& sizes, bool on_gpu) {
  constexpr std::int64_t kTile = 128;
  constexpr std::int64_t kGpuRows = 2048;
  const std::int64_t most = std::max(liger_loss_rows(sizes), on_gpu ? kGpuRows : kTile);
  const std::int64_t chunks = ceil_div(sizes.tokens, most);
  return std::min(round_up(ceil_div(sizes.tokens, chunks), kTile), sizes.tokens);
}

}  // namespace zeroplan
