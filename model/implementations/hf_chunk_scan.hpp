// Mamba 2's scan of transformers 5.17 and of 5.18 to 5.24 in PyTorch's own operations
// (modeling_mamba2.py, mamba2_chunk_scan; Bamba, Falcon-H1, Granite 4, Nemotron-H and Zamba 2 have
// the same), which runs where the package mamba_ssm is not installed.
#pragma once

#include <string_view>

#include "model/implementations/hf_common.hpp"

namespace zeroplan::hf {

struct ChunkScanInputs {
  Tensor x;                // (b, s, heads, d)
  Tensor dt;               // (b, s, heads)
  Tensor decay;            // (heads), in fp32
  Tensor written, read;    // B and C: (b, s, groups, states)
  Tensor residual, shift;  // D and dt_bias: (heads); undefined: none
  std::int64_t chunk = 0;  // positions of a chunk
  // torch.einsum computes sums over states and positions as matrix products, else they are sums of
  // whole products, of a dimension more.
  bool multiplies = false;
};

// The function's name in mamba_ssm, under which a traced document has it as one operation.
inline constexpr std::string_view kChunkScan = "mamba_chunk_scan_combined";

// (b, s, heads, d) in fp32.
Tensor mamba_chunk_scan(Tape& t, const ChunkScanInputs& given);

}  // namespace zeroplan::hf
