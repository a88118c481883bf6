// One buffer that a rank of a DeepSpeed engine holds: under which name, where, of how many bytes,
// and from when to when. The list of all of them: buffers.hpp.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "model/dtype.hpp"
#include "model/engine/buffer_name.hpp"
#include "model/engine/engine_config.hpp"
#include "model/memory_category.hpp"

namespace zeroplan {

enum class BufferPlace { gpu, host_pinned, host_pageable, nvme };

// From when to when. A window is the G micro-steps before one optimizer step; the boundary is its
// last micro-step.
enum class BufferLifetime {
  resident,           // from the end of initialisation on
  first_backward_on,  // made in the first backward, then kept
  first_boundary_on,  // made at the end of the first boundary's backward, then kept
  first_step_on,      // made in the first optimizer step, then kept
  between_steps,      // from the end of a step (not before the first) to the start of the next step
  backward,           // while any backward of the window runs
  boundary_backward,  // while the boundary's backward runs
  later_backward,     // while the backward of micro-step 1, 2, ... runs
  window,             // from the first backward to the end of the boundary's backward
  window_to_step,     // from the first backward until the step consumes it
  boundary_to_step,   // from the boundary's backward until the step consumes it
  // As the two above, but past the step until the next window's first backward begins:
  window_to_next_backward,  // zero_grad() comes behind the forward pass there
  boundary_to_next_backward,
  after_boundary,   // a window buffer handed to the step: from the end of the boundary's backward
                    // until the step consumes it
  updates_to_step,  // Muon's: made at the end of the boundary's backward, one by one, until the
                    // step consumes their group
  step              // while the step runs
};

// Moments between phases at which an engine can be looked at.
enum class EngineMoment {
  initialised,
  after_first_backward,  // of micro-step 0 of the first window
  before_first_step,     // after the boundary's backward of the first window
  before_step,           // the same in a later window
  after_step             // any step
};

struct EngineBuffer {
  BufferName name = BufferName::state;
  int index = -1;           // "[index]"
  int second_index = -1;    // "[second_index]"
  std::string_view suffix;  // ".grad", "[exp_avg]"
  BufferPlace place = BufferPlace::gpu;
  Elements elements;  // of the tensor under that path
  DType dtype = DType::fp32;
  Bytes bytes;      // of the storage as asked for
  Bytes allocated;  // host memory it takes: pinned allocations round up to a power of two
  MemoryCategory category = MemoryCategory::temporaries;
  BufferLifetime lifetime = BufferLifetime::resident;
  // Made when the first reduced gradient that this rank owns is copied into it, and not with the
  // first gradient (stage_1_and_2.py copy_grads_in_partition).
  bool made_by_flush = false;
  bool held_by_optimizer = true;  // false: module parameters and temporaries, which no attribute of
                                  // the optimizer leads to
};

// "single_partition_of_fp32_groups[0].grad"
std::string path(const EngineBuffer& buffer);

// Does a buffer of that lifetime exist at that moment? G: gradient accumulation steps.
bool exists(BufferLifetime lifetime, EngineMoment moment, int gradient_accumulation_steps);

// Gradients that autograd leaves in .grad (or that are summed in grad_accum) until the boundary:
// they appear one by one in the first backward of a window.
bool is_waiting_gradient(const EngineBuffer& buffer);

// 16-bit gradients that nothing frees before the next backward pass begins, so that they lie there
// in the forward pass: BF16_Optimizer's up to 0.17 (bf16_optimizer.py clear_lp_grads, which
// backward() calls first).
bool is_kept_gradient(const EngineBuffer& buffer);

// A bucket that gradients are copied into.
bool is_reduce_bucket(const EngineBuffer& buffer);

// The bound for gradients outside the bucket's buffer: those of a bucket without one
// (contiguous_gradients false), or the one that is larger.
bool is_outside_bucket(const EngineBuffer& buffer);

// The one gradient larger than a bucket, which waits for the next flush in its own storage: for
// those who follow gradients one by one, the list's bound for it is to be left out.
bool is_unbuffered_gradient(const EngineBuffer& buffer, const EngineConfig& config);

// A window's buffer and the one that the step reads in its place: the same tensor under another
// name, by index into the list.
struct HandedBuffer {
  std::size_t window = 0;
  std::size_t kept = 0;
};
// All of a list, by ascending `kept` (stage_1_and_2.py independent_gradient_partition_epilogue).
std::vector<HandedBuffer> handed_buffers(std::span<const EngineBuffer> buffers);

// Power-of-two rounding of torch's caching host allocator
// (aten/src/ATen/core/CachingHostAllocator.h), one allocation at a time.
Bytes pinned_allocation(Bytes requested, PinBackend backend);

}  // namespace zeroplan
