// NVMe: which tensors leave host memory, in which pools they pass through it, and how much is read
// and written.
//
// Sources (DeepSpeed 0.19.6): runtime/swap_tensor/utils.py MIN_AIO_BYTES, AIO_ALIGNED_BYTES,
// SwapBufferManager; swap_tensor/optimizer_utils.py OptimizerSwapper (is_swappable_tensor,
// _adjust_for_misaligned_lengths, _swap_out_gradients); swap_tensor/async_swapper.py
// AsyncTensorSwapper; swap_tensor/partitioned_optimizer_swapper.py _swap_in_parameter,
// _swap_in_gradients, _swap_out_optimizer_state; swap_tensor/partitioned_param_swapper.py (buffers,
// swappable_tensor, _allocate_and_return_buffers_for_swap_in, reserve_partitioned_swap_space,
// swap_out_partitioned_params); zero/stage3.py _create_param_groups_fp16_flat_cpu_memory,
// _create_fp16_partitions_with_defragmentation, _move_to_flat_buffer, _partitioned_params_swap_out.
#pragma once

#include <span>
#include <vector>

#include "base/units.hpp"
#include "model/engine/engine_config.hpp"
#include "model/engine/partition.hpp"

namespace zeroplan {

// Elements rounded up to what one aligned request of every I/O thread holds (1024 bytes a thread).
Elements io_aligned(Elements numel, DType dtype, const EngineConfig& config);

// Tensors below max(1 MiB, aio.block_size) are never swapped.
bool swappable(Elements numel, DType dtype, const EngineConfig& config);

// Elements of a gradient partition that are written; the rest stays on the GPU to the step: the
// aligned part, where that is swappable, and what remains is a small tensor of its own.
Elements swapped_gradient(Elements part, const EngineConfig& config);

// offload_optimizer.device = nvme.
struct OptimizerSwap {
  std::vector<bool> swapped;  // per sub-group: its master weights and states live on NVMe
  Elements buffer;            // aligned largest sub-group: size of one pool buffer
  int buffers = 0;            // of the pool
  int buffers_needed = 0;     // at the same time; above `buffers` DeepSpeed raises
  Elements gradients_on_gpu;  // fp32 gradients of which pieces are too small to swap: kept on the
                              // GPU to the step
  Elements swapped_elements;  // of this rank's sub-groups that are swapped
  // Per sub-group, in the master's dtype; zero where it is not swapped. Whole aligned tensors.
  std::vector<Elements> read;  // before its update: master weights, states, the gradient's pieces
  std::vector<Elements> written;  // behind it: master weights and states
  std::vector<Elements> copied;   // of the gradient, from the GPU to what was read
  int tensors = 0;                // master weights and states: how many
};

OptimizerSwap optimizer_swap(const EngineConfig& config,
                             std::span<const EngineParameter> parameters,
                             std::span<const SubGroup> groups);

// Gradients on their way to the drive: they are put into pinned buffers of the pool, and a buffer
// is written when the next gradient has no room in it. The writes run beside the backward pass
// until no buffer is free.
class GradientBatches {
 public:
  // `buffer`: elements that one holds. Both at least 1.
  GradientBatches(Elements buffer, int buffers) : buffer_(buffer), buffers_(buffers) {}

  struct Write {
    Elements elements;   // zero: nothing is written
    bool waits = false;  // the host waits until everything is on the drive
  };
  // One more gradient: what is written to make room for it. Precondition: it fits into a buffer.
  Write add(Elements elements);
  // What is left, before the first sub-group is read.
  Write flush();

 private:
  Elements buffer_;
  int buffers_ = 0;
  int in_flight_ = 0;  // buffers that are being written
  Elements filled_;    // of the current one
};

// offload_param.device = nvme.
struct ParameterSwap {
  std::vector<bool> swapped;           // per parameter: its partition has a file
  std::vector<bool> kept;              // per sub-group: it stays in its group's host buffer all the
                                       // same, the files are not read
  std::vector<Elements> read;          // per parameter: for each gather, aligned; zero where host
                                       // memory has it. Frozen ones belong to no sub-group
  std::vector<Elements> written;       // per sub-group: of its weights, behind its update
  Elements pool;                       // pinned pool: buffer_count aligned buffers
  std::vector<Elements> host_buffers;  // per optimizer group: pinned part kept in host memory
  Elements write_back;                 // staging of updated weights: the largest sub-group, and by
                                       // its full (not partitioned) element counts
  Elements swapped_elements;
};

ParameterSwap parameter_swap(const EngineConfig& config,
                             std::span<const EngineParameter> parameters,
                             std::span<const SubGroup> groups);

}  // namespace zeroplan
