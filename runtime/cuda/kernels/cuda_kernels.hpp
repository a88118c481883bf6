// The kernels of the embedded runtime on a CUDA device, and what the engine does there with flat
// memory. Everything is put on a stream and returns before the work is done. No CUDA header is
// needed to include this.
//
// The same bits come out of every run with the same sizes on the same kind of GPU: no sum is taken
// by atomics, and grids follow the sizes alone. Only attention's library may take sums in any order
// (AttentionBy).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/units.hpp"
#include "model/dtype.hpp"
#include "model/engine/engine_action.hpp"
#include "runtime/cuda/kernels/stream.hpp"
#include "runtime/kernels/kernels.hpp"
#include "runtime/optimizer/adamw.hpp"

namespace zeroplan::runtime::cuda {

// On the device that is current, where `stream` is. Limits (ZP_CHECK): head_dim <= 256.
std::unique_ptr<Kernels> cuda_kernels(Stream stream, const KernelOptions& options = {});

// Who has computed attention in this process, and why not the library: "forward: cuDNN 9.19.0;
// backward: own kernels (...)". Empty where nothing was.
std::string attention_by();
// Who computes it from here on is said, and what was before is not.
void forget_attention_by();

// Scratch memory that calls of one stream share: cuBLASLt's and cuDNN's workspace, partial sums.
// One a device and stream: what lend_workspace says, or what the first call that needs it takes.
// release_workspace waits for the stream, and frees what was not lent.
Bytes workspace_bytes();
void lend_workspace(Stream stream, std::byte* memory);
void release_workspace(Stream stream);

// As runtime/engine/tensor_ops.hpp and runtime/optimizer/adamw.hpp. dtypes: fp32, bf16, fp16.
void convert(Stream stream,
             const std::byte* from,
             DType from_dtype,
             std::byte* to,
             DType to_dtype,
             Elements count,
             double factor);
void add_to(Stream stream,
            std::byte* to,
            DType to_dtype,
            const std::byte* from,
            DType from_dtype,
            Elements count);
// *device_sum += the sum of squares, in fp64.
void add_squares_of(
    Stream stream, const std::byte* data, DType dtype, Elements count, double* device_sum);
// *device_flag = max(*device_flag, 1) where there is an infinity or a NaN.
void find_overflow(
    Stream stream, const std::byte* data, DType dtype, Elements count, double* device_flag);
// To the bit what the CPU's adamw gives; of 16-bit states each element as fp32, rounded once.
void adamw(Stream stream,
           const UpdateState& state,
           const AdamWOptions& options,
           std::int64_t step,
           double gradient_scale);

// to[i] = inputs[0][i] + inputs[1][i] + ... in that order, as collectives' combine does, to the
// bit: in fp32 (fp64 and int64 in their own type; uint8: maximum alone), rounded once. For ranks
// that share one device. `device_inputs` is an array on the host of pointers to device memory, not
// kept; `to` may be one of them. At most kMostRanks (ZP_CHECK).
inline constexpr int kMostRanks = 128;
void sum_of_ranks(Stream stream,
                  const std::byte* const* device_inputs,
                  int ranks,
                  std::byte* to,
                  DType dtype,
                  Elements count,
                  ReduceOperation operation);

// Does nothing: for measuring launches.
void run_empty_kernel(Stream stream);

}  // namespace zeroplan::runtime::cuda
