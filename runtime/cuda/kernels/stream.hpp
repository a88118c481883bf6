// A CUDA stream by its handle, and how the kernels on it are chosen. No CUDA header is needed to
// include this.
#pragma once

struct CUstream_st;

namespace zeroplan::runtime::cuda {

using Stream = CUstream_st*;

// Who computes attention of 16-bit formats without ALiBi, head_dim a multiple of 8 up to 128.
// asked: as the environment's ZEROPLAN_ATTENTION says, by name; where it says nothing, the
// library where it is found. The library never where it has no plan in the stream's workspace.
// reproducible: as where nothing is said, but of the library those plans alone whose sums have one
// order.
enum class AttentionBy { asked, own, library, reproducible };

struct KernelOptions {
  // Matrix products of fp32 by TF32 tensor cores: a 10-bit fraction, so no comparison with a CPU
  // holds. PyTorch's default for linear layers is off, too.
  bool tf32 = false;
  AttentionBy attention = AttentionBy::asked;
};

}  // namespace zeroplan::runtime::cuda
