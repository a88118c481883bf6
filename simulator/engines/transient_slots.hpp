// Tensors of a DeepSpeed engine that no buffer holds: they live for one kernel, for the flush at
// hand, or for the optimizer's group at hand. Slots of what has gone are used again.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "model/newton_schulz.hpp"
#include "simulator/program_writer.hpp"
#include "simulator/task_table.hpp"

namespace zeroplan::simulator {

class TransientSlots {
 public:
  // A tensor, the task that writes it, and on which stream.
  struct Made {
    Bytes bytes;
    Purpose purpose;
    StreamId stream = kComputeStream;
    TaskIndex task = -1;
    MemoryCategory category = MemoryCategory::temporaries;
  };

  // Both must outlive it.
  TransientSlots(ProgramWriter& writer, TaskTable& tasks) : writer_(writer), tasks_(tasks) {}

  // Until release_all().
  void make(const Made& made);
  // The same in the place of all that make() made before.
  void make_instead(const Made& made);
  // Goes again once the kernel is launched.
  void make_for_a_kernel(const Made& made);

  // Casts of gradients one by one, until a flat copy of the last `count` is made.
  void make_cast(const Made& made);
  void release_casts(int count);

  // Stage 3 with offload, of the parameter at hand (stage3.py partition_grads): its partition back
  // on the GPU, and that in the master's dtype. A new one takes the place of both.
  void make_partition(const Made& made);
  void make_partition_cast(const Made& made);
  void release_partition_cast();

  // fp32 gradients of a bucket, until NVMe's swapper has them.
  void make_handed(const Made& made);
  void release_handed();

  // What the scan of a gradient for inf and nan makes: x.float(), isnan, isinf (of absolute
  // values), their union, that in fp32 (stage_1_and_2.py _has_inf_or_nan). `scan.bytes`: at most.
  void make_for_a_scan(const Made& scan, Elements elements);

  // Tensors of one update by Muon; `update` makes the last of them, the update itself.
  void make_for_newton_schulz(const Made& made,
                              std::span<const TensorEvent> tensors,
                              const std::function<void()>& update);

  // All but what is handed over.
  void release_all();

 private:
  SlotIndex write(const Made& made);
  SlotIndex free_slot();  // of what has gone, or a new one
  void release(SlotIndex slot);
  void release(std::optional<SlotIndex>& slot);

  ProgramWriter& writer_;
  TaskTable& tasks_;
  std::vector<SlotIndex> made_;
  std::vector<SlotIndex> casts_;
  std::vector<SlotIndex> handed_;
  std::optional<SlotIndex> partition_;
  std::optional<SlotIndex> partition_cast_;
  std::vector<SlotIndex> free_;
};

}  // namespace zeroplan::simulator
