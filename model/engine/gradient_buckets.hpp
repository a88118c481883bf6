// Gradient reduction: which bucket a gradient joins, when buckets are reduced, with which
// collectives, on which stream, and what copies that takes.
//
// The caller feeds gradients in the order in which autograd finishes them and gets EngineActions in
// the order in which DeepSpeed issues them. Cost is O(1) per gradient, plus the owners a parameter
// spans. Nothing here knows time.
//
// Sources (DeepSpeed 0.19.6):
//   stages 1, 2   runtime/zero/stage_1_and_2.py reduce_independent_p_g_buckets_and_remove_grads,
//                 reduce_ipg_grads, average_tensor, allreduce_and_scatter, allreduce_no_retain,
//                 copy_grads_in_partition, independent_gradient_partition_epilogue,
//                 _clear_previous_reduced_grads, get_flat_partition (Muon)
//   stage 3       runtime/zero/stage3.py __add_grad_to_ipg_bucket,
//   __reduce_and_partition_ipg_grads,
//                 __avg_scatter_grads, __avg_scatter_contiguous_grads, partition_grads;
//                 runtime/comm/coalesced_collectives.py reduce_scatter_coalesced;
//                 runtime/zero/mics.py allreduce_mics_shard_grads
//   stage 0       runtime/engine.py allreduce_gradients, buffered_allreduce_fallback;
//                 runtime/bf16_optimizer.py get_grads_for_reduction
// Not described: MoE groups; the all-to-all path of quantised gradients replaces each
// stage-3 reduce-scatter on more than one node and is given as all_to_all collectives per tensor.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "model/engine/engine_action.hpp"
#include "model/engine/engine_config.hpp"
#include "model/engine/partition.hpp"
#include "model/engine/swapping.hpp"

namespace zeroplan {

// Stages 1 and 2 up to 0.17 make their buckets in optimizer.backward(), before autograd runs,
// beside what the loss holds; later the first gradient's hook makes them. Sources: stage_1_and_2.py
// backward_prologue of 0.14.2, 0.16.4 and 0.17.6, setup_buckets of 0.18.4 and 0.19.6 (0.18.0 to
// 0.18.2 are like 0.17).
bool makes_buckets_before_backward(const EngineConfig& config);

class GradientReducer {
 public:
  GradientReducer(const EngineConfig& config, std::span<const EngineParameter> parameters);

  // Do gradients of this micro-step reach a bucket from autograd's hooks, in autograd's order?
  // Otherwise they wait for end_backward(), which takes them in parameter-group order.
  bool reduces_in_hooks(int micro_step) const;

  void begin_backward(int micro_step);
  // Autograd finished a trainable parameter's gradient. To be called in every micro-step; where the
  // hooks reduce nothing it joins the sum of the window.
  void gradient_ready(int parameter, EngineActions& out);
  // The end of a micro-step's backward: what is left is reduced, streams are joined.
  void end_backward(EngineActions& out);

  // Stages 1 and 2: from now on what a bucket's owners do with their gradients is given as that of
  // the bucket's slowest owner, whoever that is, in place of this rank's own. Peers wait for him at
  // the next collective, so this is what the time of a pass is made of.
  void keep_for_slowest_owner() { keeps_for_slowest_ = updates_for_busiest_ = true; }
  // Muon's updates alone are given as those of the rank with the most of them.
  void update_for_busiest_owner() { updates_for_busiest_ = true; }

  const FlatPartition& partition() const { return partition_; }
  // Are gradients copied into a bucket's buffer? Stages 1 and 2 with offload do, whatever is said.
  bool contiguous() const;
  // Stages 1 and 2 where gradients wait for the end of the pass: how many of `waiting` bytes have
  // left their own storage for the bucket's buffer when that is full for the first time.
  Bytes moved_into_bucket(Bytes waiting) const;

 private:
  bool at_boundary() const { return micro_step_ == config_.gradient_accumulation_steps - 1; }
  bool offloads() const { return config_.offload_optimizer.device != OffloadDevice::none; }
  Elements numel_of(int parameter) const {
    return parameters_[static_cast<std::size_t>(parameter)].numel;
  }
  EngineAction action(ActionKind kind, EngineStream stream) const;
  // Divides by the ranks first.
  void collective(CollectiveKind kind, Elements elements, DType dtype, EngineActions& out) const;
  void copy_back(Elements elements, DType dtype, EngineActions& out) const;
  void flush_event(EngineActions& out);
  void clear_bucket();
  // Gradients in their own storage: which of those that were flushed go, and when.
  void drop(std::span<const int> gradients, EngineActions& out) const;
  void drop_flushed(EngineActions& out);
  void drop_kept(int parameter, EngineActions& out);
  void drop_all(EngineActions& out);
  bool clears_list_at_once() const;
  // Does the window's sum have another type than autograd's gradients?
  bool separate_accumulation() const;
  void accumulate(int parameter, bool first, EngineActions& out) const;
  void join_bucket(int parameter, bool from_sum, EngineActions& out);

  // stages 1 and 2
  bool owns(int parameter) const { return slice_of_[static_cast<std::size_t>(parameter)] >= 0; }
  void end_zero12(EngineActions& out);
  void add_zero12(int parameter, bool joins_sum, EngineActions& out);
  void flush_zero12(EngineActions& out);
  void wait_for_each_other(EngineActions& out) const;
  void average_zero12(EngineActions& out);
  void reduce_runs(const std::vector<OwnerRun>& runs, int root, EngineActions& out);
  void reduce_pieces(int pieces, Elements elements, int root, EngineActions& out);
  void reduce_whole_list(EngineActions& out);
  void keep_zero12(const OwnedSlice& slice, EngineActions& out);
  void keep_own(EngineActions& out);
  void keep_of_slowest(EngineActions& out);
  void offload_zero12(const OwnedSlice& slice, EngineActions& out);
  std::vector<OwnerRun> split_by_muon(int parameter) const;
  void orthogonalize_zero12(EngineActions& out) const;

  // stage 3
  void add_zero3(int parameter, EngineActions& out);
  void flush_zero3(EngineActions& out);
  void all_reduce_zero3(EngineActions& out);
  void reduce_scatter_zero3(std::vector<int>& members, EngineActions& out);
  void quantized_exchange_zero3(const std::vector<int>& members, EngineActions& out);
  void keep_zero3(const std::vector<int>& members, bool padded, EngineActions& out);
  void offload_zero3(int parameter, Elements kept, EngineActions& out);
  void swap_gradient(EngineAction master, EngineActions& out);
  void write_gradients(const GradientBatches::Write& write, EngineActions& out);
  void replicate_mics(const std::vector<int>& members, EngineActions& out);

  // stage 0 and BF16_Optimizer
  void add_to_master_gradients(EngineActions& out) const;
  void end_dense(EngineActions& out);
  void reduce_dense(std::span<const Elements> tensors, DType dtype, EngineActions& out);

  EngineConfig config_;
  std::vector<EngineParameter> parameters_;
  OptimizerWrapper wrapper_;
  FlatPartition partition_;             // stages 1, 2 and BF16_Optimizer
  std::vector<int> slice_of_;           // parameter -> index into owned_, or -1
  std::vector<OwnedSlice> owned_;       // of this rank
  std::vector<OwnedSlice> of_busiest_;  // what the rank owns whose updates by Muon take longest
  bool keeps_for_slowest_ = false;
  bool updates_for_busiest_ = false;
  EngineStream reduce_stream_ = EngineStream::compute;
  int micro_step_ = 0;
  std::vector<bool> arrived_;         // parameters with a gradient in this window
  std::vector<int> bucket_;           // parameters
  std::vector<bool> outside_buffer_;  // of bucket_: gradient stayed in its own storage
  Elements bucket_elements_;
  std::vector<int> flushed_;  // gradients in their own storage whose bucket is or was reduced
  // Stage 3 with the optimizer on NVMe.
  std::vector<int> swapped_group_;  // by parameter: its sub-group, -1 where that is not swapped
  std::optional<GradientBatches> gradient_batches_;
};

}  // namespace zeroplan
