// Stages 1 and 2 (DeepSpeedZeroOptimizer). Sources: gradient_buckets.hpp.
#include <algorithm>
#include <utility>

#include "model/engine/gradient_buckets.hpp"
#include "model/releases.hpp"

namespace zeroplan {

namespace {

constexpr int kAllRanks = -1;  // in place of an owner

}  // namespace

// reduce_independent_p_g_buckets_and_remove_grads: the test is strict, so a bucket may fill
// exactly; a parameter larger than the bucket is held outside it and reduced alone at the next
// flush. The flush before it happens even where the bucket is empty. `joins_sum`: earlier
// micro-steps have left some of it.
void GradientReducer::add_zero12(int parameter, bool joins_sum, EngineActions& out) {
  const Elements numel = numel_of(parameter);
  // In the embedded runtime a gradient outside the bucket's buffer lives until what it gives is
  // kept.
  if (config_.embedded) drop_flushed(out);
  EngineAction ready = action(ActionKind::gradient_ready, EngineStream::compute);
  ready.parameter = parameter;
  ready.elements = numel;
  out.actions.push_back(ready);
  const bool flushes = bucket_elements_ + numel > config_.reduce_bucket;
  if (numel > Elements::zero() && flushes) {
    flush_zero12(out);
    // 0.17.5 to 0.18.4 (#7371, #7805): the compute stream waits for the reduction just launched, so
    // that nothing overlaps.
    if (contiguous() && config_.acts(ReleaseRule::waits_for_every_bucket)) wait_for_each_other(out);
  }
  if (joins_sum) accumulate(parameter, /*first=*/false, out);
  join_bucket(parameter, !reduces_in_hooks(micro_step_), out);
}

// What the rank owns of gradients without a bucket's buffer stays where autograd made it, so that
// its storage is the same under another name; beside a buffer the last gradients in storage of
// their own (stage 1) go behind it.
void GradientReducer::end_zero12(EngineActions& out) {
  if (config_.stage == 1 && !at_boundary()) return;
  if (!reduces_in_hooks(micro_step_)) {
    // reduce_gradients(): parameter-group order, declared and not round-robin; parameters without a
    // gradient are left out.
    for (const FlatGroup& group : partition_.groups) {
      for (int parameter : group.declared) {
        if (arrived_[static_cast<std::size_t>(parameter)]) add_zero12(parameter, false, out);
      }
    }
  }
  flush_zero12(out);
  if (reduce_stream_ == EngineStream::reduce) {
    out.actions.push_back(action(ActionKind::host_wait_device, EngineStream::compute));
  }
  if (at_boundary() && separate_accumulation()) {
    out.actions.push_back(action(ActionKind::release_gradients, EngineStream::compute));
  }
  if (clears_list_at_once()) drop_flushed(out);
  if (!contiguous()) drop_all(out);
  out.actions.push_back(action(ActionKind::make_owned, reduce_stream_));
  drop_all(out);
  if (at_boundary() && !offloads()) orthogonalize_zero12(out);
}

// get_flat_partition, group by group, on the compute stream: each parameter of which the rank owns
// a part, whole. Buckets and the gradients themselves go behind all of it.
void GradientReducer::orthogonalize_zero12(EngineActions& out) const {
  for (const OwnedSlice& slice : updates_for_busiest_ ? of_busiest_ : owned_) {
    const MuonMatrices& matrices = parameters_[static_cast<std::size_t>(slice.parameter)].muon;
    if (!matrices.any()) continue;
    EngineAction update = action(ActionKind::orthogonalize, EngineStream::compute);
    update.parameter = slice.parameter;
    update.group = slice.group;
    update.elements = numel_of(slice.parameter);
    update.dtype = config_.gradient_accumulation_dtype;
    update.matrices = matrices;
    out.actions.push_back(update);
  }
}

void GradientReducer::flush_zero12(EngineActions& out) {
  if (!bucket_.empty()) flush_event(out);
  if (contiguous()) {
    average_zero12(out);
  } else if (!bucket_.empty()) {
    reduce_whole_list(out);
  }
  if (contiguous() && keeps_for_slowest_) keep_of_slowest(out);
  if (contiguous() && !keeps_for_slowest_) keep_own(out);
  clear_bucket();
}

// The reduce stream waits for the compute stream and, not yet in 0.12.6, then the reverse; where
// there are two.
void GradientReducer::wait_for_each_other(EngineActions& out) const {
  if (reduce_stream_ != EngineStream::reduce) return;
  EngineAction wait = action(ActionKind::wait_stream, EngineStream::reduce);
  wait.other = EngineStream::compute;
  out.actions.push_back(wait);
  if (!config_.acts(ReleaseRule::waits_both_ways)) return;
  wait.stream = EngineStream::compute;
  wait.other = EngineStream::reduce;
  out.actions.push_back(wait);
}

// The parts of a parameter of which several ranks orthogonalise the whole, and need all of the sum;
// of others none (average_tensor, muon_copy_ranks).
std::vector<OwnerRun> GradientReducer::split_by_muon(int parameter) const {
  std::vector<OwnerRun> runs;
  if (!parameters_[static_cast<std::size_t>(parameter)].muon.any()) return runs;
  append_owner_runs(partition_, parameter, runs);
  if (runs.size() == 1) runs.clear();
  return runs;
}

// average_tensor. With overlap the reduce stream waits for the producers and, before the new
// reduction is queued, the compute stream waits for what the reduce stream did before: at most one
// bucket is in flight.
void GradientReducer::average_zero12(EngineActions& out) {
  wait_for_each_other(out);
  if (bucket_.empty()) return;
  if (!config_.reduce_scatter) {
    reduce_pieces(1, bucket_elements_, -1, out);
    return;
  }
  std::vector<OwnerRun> runs;
  for (int parameter : bucket_) {
    const std::vector<OwnerRun> split = split_by_muon(parameter);
    for (const OwnerRun& run : split) runs.push_back({.owner = kAllRanks, .numel = run.numel});
    if (split.empty()) append_owner_runs(partition_, parameter, runs);
  }
  if (config_.use_multi_rank_bucket_allreduce) {
    reduce_runs(runs, -1, out);
    return;
  }
  // One reduce per owner, owners in the order in which they first appear in the bucket; what Muon
  // updates on several ranks is reduced for all.
  std::vector<int> owners;
  std::vector<std::vector<OwnerRun>> by_owner;
  for (const OwnerRun& run : runs) {
    const auto found = std::find(owners.begin(), owners.end(), run.owner);
    const auto at = static_cast<std::size_t>(found - owners.begin());
    if (found == owners.end()) {
      owners.push_back(run.owner);
      by_owner.emplace_back();
    }
    by_owner[at].push_back(run);
  }
  for (std::size_t i = 0; i < owners.size(); ++i) reduce_runs(by_owner[i], owners[i], out);
}

// allreduce_and_scatter, allreduce_no_retain: runs are collected until their sum exceeds the bucket
// size (strictly), then reduced together.
void GradientReducer::reduce_runs(const std::vector<OwnerRun>& runs, int root, EngineActions& out) {
  int pieces = 0;
  Elements sum;
  for (const OwnerRun& run : runs) {
    ++pieces;
    sum += run.numel;
    if (sum > config_.reduce_bucket) {
      reduce_pieces(pieces, sum, root, out);
      pieces = 0;
      sum = Elements::zero();
    }
  }
  if (pieces > 0) reduce_pieces(pieces, sum, root, out);
}

// allreduce_bucket: a new flat buffer where there is more than one piece, a cast where the
// communication dtype differs (fp32 with sequence parallelism), the collective. The sum goes back
// to the owner's pieces alone (allreduce_and_copy_with_multiple_ranks), an Nth of them in the mean;
// without reduce_scatter to all.
void GradientReducer::reduce_pieces(int pieces, Elements elements, int root, EngineActions& out) {
  if (root >= 0 && reduce_stream_ == EngineStream::reduce) {
    out.actions.push_back(action(ActionKind::host_wait_device, EngineStream::compute));
  }
  if (pieces > 1) {
    EngineAction copy = action(ActionKind::flatten, reduce_stream_);
    copy.pieces = pieces;
    copy.elements = elements;
    copy.dtype = config_.model_dtype;
    out.actions.push_back(copy);
  }
  const bool force_fp32 =
      config_.sequence_parallel_ranks > 1 && (config_.reduce_scatter || !contiguous());
  const DType dtype = force_fp32 ? DType::fp32 : config_.communication_dtype;
  if (dtype != config_.model_dtype) {
    EngineAction cast = action(ActionKind::cast, reduce_stream_);
    cast.elements = elements;
    cast.dtype = dtype;
    out.actions.push_back(cast);
  }
  collective(root < 0 ? CollectiveKind::all_reduce : CollectiveKind::reduce, elements, dtype, out);
  out.actions.back().collective.root = root;
  if (pieces == 1 && dtype == config_.model_dtype) return;
  const bool own_alone = config_.reduce_scatter && !config_.embedded;
  copy_back(own_alone ? elements / std::max(1, partition_ranks(config_)) : elements, dtype, out);
}

// buffered_reduce_fallback (contiguous_gradients false): one flattened all-reduce per bucket, with
// overlap after a device synchronisation.
void GradientReducer::reduce_whole_list(EngineActions& out) {
  if (reduce_stream_ == EngineStream::reduce) {
    out.actions.push_back(action(ActionKind::host_wait_device, EngineStream::compute));
  }
  reduce_pieces(static_cast<int>(bucket_.size()), bucket_elements_, -1, out);
}

void GradientReducer::keep_own(EngineActions& out) {
  for (int parameter : bucket_) {
    const int slice = slice_of_[static_cast<std::size_t>(parameter)];
    if (slice >= 0) keep_zero12(owned_[static_cast<std::size_t>(slice)], out);
  }
}

// The slowest is who handles the most elements: parameters whole, and with offload his parts again.
void GradientReducer::keep_of_slowest(EngineActions& out) {
  std::vector<std::int64_t> handled(static_cast<std::size_t>(partition_.ranks));
  std::vector<std::pair<OwnerRun, int>> runs;  // with the parameter
  std::vector<OwnerRun> of_parameter;
  for (int parameter : bucket_) {
    of_parameter.clear();
    append_owner_runs(partition_, parameter, of_parameter);
    for (const OwnerRun& run : of_parameter) {
      const Elements parts = offloads() ? run.numel : Elements::zero();
      handled[static_cast<std::size_t>(run.owner)] += (numel_of(parameter) + parts).count();
      runs.emplace_back(run, parameter);
    }
  }
  const auto slowest =
      static_cast<int>(std::max_element(handled.begin(), handled.end()) - handled.begin());
  for (const auto& [run, parameter] : runs) {
    if (run.owner != slowest) continue;
    OwnedSlice slice;
    slice.parameter = parameter;
    slice.group = partition_.places[static_cast<std::size_t>(parameter)].group;
    slice.numel = run.numel;
    keep_zero12(slice, out);
  }
}

void GradientReducer::keep_zero12(const OwnedSlice& slice, EngineActions& out) {
  EngineAction own = action(ActionKind::keep_owned, reduce_stream_);
  own.parameter = slice.parameter;
  own.elements = numel_of(slice.parameter);
  own.dtype = config_.model_dtype;
  out.actions.push_back(own);
  drop_kept(slice.parameter, out);
  if (offloads()) offload_zero12(slice, out);
}

// copy_grads_in_partition with offload. The host accumulator holds the whole parameter in the model
// dtype; stage 1 has accumulated on the GPU. Releases up to 0.16 test gradient_accumulation_steps >
// 1 only, so stage 1 used it too there, once.
void GradientReducer::offload_zero12(const OwnedSlice& slice, EngineActions& out) {
  const Elements numel = numel_of(slice.parameter);
  const int window_step = config_.stage == 2 ? micro_step_ : 0;
  const bool accumulates = config_.acts(ReleaseRule::counts_micro_steps)
                               ? window_step > 0 || !at_boundary()
                               : config_.gradient_accumulation_steps > 1;
  EngineAction step = action(ActionKind::accumulate_on_host, reduce_stream_);
  step.parameter = slice.parameter;
  step.group = slice.group;
  step.pinned = config_.offload_optimizer.pin_memory;
  step.dtype = config_.model_dtype;
  if (accumulates) {
    step.pieces = window_step;
    step.elements = numel;
    out.actions.push_back(step);
    if (window_step > 0) {
      step.kind = ActionKind::copy_to_device;
      out.actions.push_back(step);
    }
    step.kind = ActionKind::copy_to_host;
    out.actions.push_back(step);
    step.pieces = 0;
  }
  if (!at_boundary()) return;
  step.elements = slice.numel;
  step.kind = ActionKind::norm;
  out.actions.push_back(step);
  step.kind = ActionKind::overflow_scan;  // of the whole gradient; its result is read on the host
  step.elements = numel;
  step.host_waits = true;
  out.actions.push_back(step);
  step.host_waits = false;
  step.kind = ActionKind::gradient_to_master;
  step.elements = slice.numel;
  step.dtype = config_.master_dtype;
  out.actions.push_back(step);
  step.kind = ActionKind::copy_to_host;
  out.actions.push_back(step);
}

}  // namespace zeroplan
