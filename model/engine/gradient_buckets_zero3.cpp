// Stage 3 and MiCS. Sources: gradient_buckets.hpp.
#include <algorithm>

#include "model/engine/gradient_buckets.hpp"
#include "model/releases.hpp"

namespace zeroplan {

namespace {

// stage3.py max_param_reduce_events
constexpr int kOutstandingReductions = 2;

}  // namespace

// reduce_independent_p_g_buckets_and_remove_grads, __add_grad_to_ipg_bucket. A gradient larger than
// the bucket stays in its own storage; whatever follows it flushes it.
void GradientReducer::add_zero3(int parameter, EngineActions& out) {
  const Elements numel = numel_of(parameter);
  EngineAction ready = action(ActionKind::gradient_ready, EngineStream::compute);
  ready.parameter = parameter;
  ready.elements = numel;
  out.actions.push_back(ready);
  if (bucket_elements_ > Elements::zero() && bucket_elements_ + numel > config_.reduce_bucket) {
    flush_zero3(out);
  }
  if (reduce_stream_ != EngineStream::compute) {
    EngineAction wait = action(ActionKind::wait_stream, reduce_stream_);
    wait.other = EngineStream::compute;
    out.actions.push_back(wait);
  }
  join_bucket(parameter, /*from_sum=*/false, out);
}

void GradientReducer::flush_zero3(EngineActions& out) {
  if (bucket_.empty()) return;
  flush_event(out);
  EngineAction throttle = action(ActionKind::throttle, reduce_stream_);
  throttle.pieces = kOutstandingReductions;
  out.actions.push_back(throttle);
  std::vector<int> members = bucket_;
  if (contiguous() && bucket_elements_ <= config_.reduce_bucket && !config_.reduce_scatter) {
    all_reduce_zero3(out);
    keep_zero3(members, true, out);
  } else {
    reduce_scatter_zero3(members, out);
    keep_zero3(members, false, out);
  }
  drop_all(out);  // params_in_ipg_bucket.clear()
  out.actions.push_back(action(ActionKind::record_event, reduce_stream_));
  clear_bucket();
}

// __avg_scatter_contiguous_grads. The multiplication after the sum is out of place, so the bucket
// is copied once more (postscale and predivide factor 1 != N).
void GradientReducer::all_reduce_zero3(EngineActions& out) {
  collective(CollectiveKind::all_reduce, bucket_elements_, config_.communication_dtype, out);
  out.actions.back().collective.ranks = reduction_ranks(config_);
  if (reduction_ranks(config_) != 1) {
    EngineAction copy = action(ActionKind::cast, reduce_stream_);
    copy.elements = bucket_elements_;
    copy.dtype = config_.communication_dtype;
    out.actions.push_back(copy);
  }
  if (config_.communication_dtype != config_.gradient_accumulation_dtype) {
    EngineAction cast = action(ActionKind::cast, reduce_stream_);
    cast.elements = bucket_elements_;
    cast.dtype = config_.gradient_accumulation_dtype;
    out.actions.push_back(cast);
  }
}

// __avg_scatter_grads, reduce_scatter_coalesced: members in parameter order; their partitions are
// concatenated rank by rank with padding, except for a single tensor that divides evenly.
void GradientReducer::reduce_scatter_zero3(std::vector<int>& members, EngineActions& out) {
  const int ranks = reduction_ranks(config_);
  Elements outside;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (outside_buffer_[i]) outside += numel_of(members[i]);
  }
  std::sort(members.begin(), members.end());
  if (config_.communication_dtype != config_.model_dtype && outside > Elements::zero()) {
    // Gradients in the bucket have the communication dtype already.
    EngineAction cast = action(ActionKind::cast, reduce_stream_);
    cast.elements = outside;
    cast.dtype = config_.communication_dtype;
    out.actions.push_back(cast);
  }
  if (config_.stage3.quantized_gradients && config_.data_parallel_ranks > config_.ranks_per_node) {
    quantized_exchange_zero3(members, out);
    return;
  }
  Elements partitioned;
  std::int64_t pieces = 0;
  for (int parameter : members) {
    const Elements numel = numel_of(parameter);
    const Elements part = partitioned_numel(numel, ranks);
    partitioned += part;
    // One piece per rank, and one of padding on every rank whose piece is short.
    const std::int64_t whole = part == Elements::zero() ? ranks : numel.count() / part.count();
    pieces += ranks + (ranks - whole);
  }
  const bool view = members.size() == 1 && numel_of(members[0]).count() % ranks == 0;
  if (!view) {
    EngineAction copy = action(ActionKind::concatenate, reduce_stream_);
    copy.pieces = static_cast<int>(pieces);
    copy.elements = partitioned * ranks;
    copy.dtype = config_.communication_dtype;
    out.actions.push_back(copy);
  }
  collective(CollectiveKind::reduce_scatter, partitioned * ranks, config_.communication_dtype, out);
  out.actions.back().collective.ranks = ranks;
  out.actions.back().collective.in_place = true;
  if (config_.communication_dtype != config_.gradient_accumulation_dtype) {
    EngineAction cast = action(ActionKind::cast, reduce_stream_);
    cast.elements = partitioned;
    cast.dtype = config_.gradient_accumulation_dtype;
    out.actions.push_back(cast);
  }
}

// coalesced_collectives.py all_to_all_quant_reduce: each tensor alone; 4-bit values (half a byte an
// element) exchanged within the node, then what is left of them between nodes. Vectors, and tensors
// that do not divide by 2N, are reduce-scattered one by one.
void GradientReducer::quantized_exchange_zero3(const std::vector<int>& members,
                                               EngineActions& out) {
  const int ranks = reduction_ranks(config_);
  const int local = config_.ranks_per_node;
  for (int parameter : members) {
    const std::int64_t numel = numel_of(parameter).count();
    const bool matrix = parameters_[static_cast<std::size_t>(parameter)].matrix;
    if (!matrix || numel % (2LL * ranks) != 0) {
      collective(CollectiveKind::reduce_scatter,
                 partitioned_numel(numel_of(parameter), ranks) * ranks,
                 config_.communication_dtype,
                 out);
      continue;
    }
    collective(CollectiveKind::all_to_all, Elements::of(numel / 2), DType::int8, out);
    out.actions.back().collective.ranks = local;
    collective(CollectiveKind::all_to_all, Elements::of(numel / 2 / local), DType::int8, out);
    out.actions.back().collective.ranks = ranks / local;
  }
}

// partition_grads. `padded`: the all-reduce path pads each kept partition to ceil(numel / N).
void GradientReducer::keep_zero3(const std::vector<int>& members, bool padded, EngineActions& out) {
  const int ranks = reduction_ranks(config_);
  const int rank = reduction_rank(config_);
  EngineAction keep = action(ActionKind::keep_partitions, reduce_stream_);
  keep.pieces = micro_step_;
  keep.dtype = config_.gradient_accumulation_dtype;
  keep.first_member = static_cast<std::int64_t>(out.members.size());
  keep.member_count = static_cast<std::int64_t>(members.size());
  out.members.insert(out.members.end(), members.begin(), members.end());
  for (int parameter : members) {
    keep.elements += real_partition_numel(numel_of(parameter), ranks, rank);
  }
  out.actions.push_back(keep);
  if (offloads()) {
    for (int parameter : members) {
      const Elements real = real_partition_numel(numel_of(parameter), ranks, rank);
      if (real == Elements::zero()) continue;
      offload_zero3(parameter, padded ? partitioned_numel(numel_of(parameter), ranks) : real, out);
    }
  }
  if (wrapper_ == OptimizerWrapper::mics) replicate_mics(members, out);
}

// The flat gradient buffer lies on the host. Micro-step 0 stores and fetches back what it stored;
// later ones fetch, add on the GPU, store. At the boundary the sum goes to the fp32 gradient.
void GradientReducer::offload_zero3(int parameter, Elements kept, EngineActions& out) {
  EngineAction copy = action(ActionKind::copy_to_host, reduce_stream_);
  copy.parameter = parameter;
  copy.elements = kept;
  copy.dtype = config_.gradient_accumulation_dtype;
  copy.pinned = config_.offload_optimizer.pin_memory;
  EngineAction fetch = copy;
  fetch.kind = ActionKind::copy_to_device;
  const bool stores_first = micro_step_ == 0;
  out.actions.push_back(stores_first ? copy : fetch);
  out.actions.push_back(stores_first ? fetch : copy);
  if (!at_boundary()) return;
  EngineAction norm = copy;
  norm.kind = ActionKind::norm;
  out.actions.push_back(norm);
  EngineAction master = copy;
  master.kind = ActionKind::gradient_to_master;
  master.dtype = config_.master_dtype;
  if (gradient_batches_) master.group = swapped_group_[static_cast<std::size_t>(parameter)];
  if (master.group >= 0) {
    swap_gradient(master, out);
    return;
  }
  out.actions.push_back(master);
  master.kind = ActionKind::copy_to_host;
  // fp32_grad_tensor.copy_(...) blocks up to 0.16. Until 0.14 its source is not cast first, so the
  // accumulation dtype crosses the bus into a pageable copy, which the host casts.
  if (!config_.acts(ReleaseRule::copies_gradient_in_background)) master.host_waits = true;
  if (!config_.acts(ReleaseRule::casts_gradient_on_gpu) &&
      config_.gradient_accumulation_dtype != config_.master_dtype) {
    master.dtype = config_.gradient_accumulation_dtype;
    master.pinned = false;
  }
  out.actions.push_back(master);
}

// optimizer_utils.py _swap_out_gradients: the aligned part is copied into the swapper's buffer,
// which blocks; the rest stays on the GPU.
void GradientReducer::swap_gradient(EngineAction master, EngineActions& out) {
  // The embedded runtime pads what the last rank lacks.
  const Elements part =
      config_.embedded ? partitioned_numel(numel_of(master.parameter), partition_ranks(config_))
                       : master.elements;
  const Elements swapped = swapped_gradient(part, config_);
  if (swapped > Elements::zero()) write_gradients(gradient_batches_->add(swapped), out);
  out.actions.push_back(master);
  if (swapped == Elements::zero() && !config_.embedded) return;
  master.kind = ActionKind::copy_to_host;
  master.elements = swapped;
  master.pinned = true;
  master.host_waits = true;
  out.actions.push_back(master);
}

void GradientReducer::write_gradients(const GradientBatches::Write& write, EngineActions& out) {
  if (write.elements == Elements::zero() && !write.waits) return;
  EngineAction swap = action(ActionKind::swap_out, reduce_stream_);
  swap.elements = write.elements;
  swap.dtype = config_.master_dtype;
  swap.host_waits = write.waits;
  out.actions.push_back(swap);
}

// mics.py allreduce_mics_shard_grads: at the boundary each bucket's partitions are summed over the
// ranks that hold the same shard.
void GradientReducer::replicate_mics(const std::vector<int>& members, EngineActions& out) {
  const int replicas = config_.data_parallel_ranks / partition_ranks(config_);
  if (!at_boundary() || replicas <= 1) return;
  Elements sum;
  for (int parameter : members) {
    const Elements numel = numel_of(parameter);
    // partition_grads skips what it takes for padding. Since 0.19 it counts partitions of the shard
    // group with the rank among all, so that ranks beyond the shard size keep nothing, and stay out
    // of the sum that the others wait for.
    const Elements part = partitioned_numel(numel, partition_ranks(config_));
    if (part * reduction_rank(config_) >= numel) continue;
    sum += real_partition_numel(numel, reduction_ranks(config_), reduction_rank(config_));
  }
  if (sum == Elements::zero()) return;
  collective(CollectiveKind::all_reduce, sum, config_.gradient_accumulation_dtype, out);
  out.actions.back().collective.ranks = replicas;
  out.actions.back().collective.across = true;
}

}  // namespace zeroplan
