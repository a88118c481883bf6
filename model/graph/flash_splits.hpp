// Into how many parts FlashAttention-2 cuts the keys of a forward call.
#pragma once

#include <cstdint>

namespace zeroplan {

// Where a call's blocks of queries would leave multiprocessors idle, each part of the keys is
// attended to by blocks of its own, into fp32 accumulators that a second kernel adds up. 1: they
// are not cut. `multiprocessors` <= 0: unknown, not cut. Without dropout only. Source: flash-attn's
// flash_api.cpp, set_params_splitkv and num_splits_heuristic (2.3 and later; PyTorch's own copy of
// it, aten/native/transformers/cuda/flash_attn).
std::int64_t flash_splits(std::int64_t multiprocessors,
                          std::int64_t batch,
                          std::int64_t heads,
                          std::int64_t queries,
                          std::int64_t keys,
                          std::int64_t head_dim);

}  // namespace zeroplan
