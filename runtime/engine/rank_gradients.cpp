// From a finished gradient to what the optimizer's step reads. Sources: gradient_buckets.hpp.
#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "runtime/engine/rank_engine.hpp"
#include "runtime/engine/tensor_ops.hpp"

namespace zeroplan::runtime {

void RankEngine::take_gradient(std::int32_t parameter, Buffer gradient) {
  begin_backward_buffers();
  memory_.recategorise(gradient, MemoryCategory::gradients);
  actions_.clear();
  reducer_.gradient_ready(parameter, actions_);
  at_hand_ = std::move(gradient);
  carry_out(actions_);
}

// Until the boundary: the first micro-step's gradient stays where it was made, later ones are
// added.
void RankEngine::accumulate(std::int32_t parameter) {
  Buffer& kept = waiting_[static_cast<std::size_t>(parameter)];
  Buffer gradient = std::move(at_hand_);
  if (!kept) {
    kept = std::move(gradient);
    return;
  }
  device_.add_to(
      kept.data(), config_.model_dtype, gradient.data(), config_.model_dtype, numel(parameter));
}

// What waited, or what autograd has just made.
void RankEngine::join_bucket(const EngineAction& action) {
  Buffer& waiting = waiting_[static_cast<std::size_t>(action.parameter)];
  Buffer gradient = std::move(waiting ? waiting : at_hand_);
  if (action.kind == ActionKind::keep_outside) {
    bucket_.keep_outside(action, std::move(gradient));
    return;
  }
  const int buffer = config_.stage == 3 ? -1 : bucket_.buffer();
  bucket_.insert(action, gradient, held_[find(BufferName::ipg_bucket, buffer)].data());
}

// Stage 0: all gradients in the order of the parameters.
void RankEngine::begin_dense_reduction() {
  std::vector<GradientBucket::Piece> gradients;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    if (!parameters_[p].trainable) continue;
    ZP_CHECK(static_cast<bool>(waiting_[p]), "every trained parameter has a gradient");
    gradients.push_back(
        {static_cast<std::int32_t>(p), waiting_[p].data(), parameters_[p].numel, true});
  }
  bucket_.begin_dense(gradients);
}

void RankEngine::finish_backward() {
  begin_backward_buffers();
  actions_.clear();
  reducer_.end_backward(actions_);
  const bool dense = config_.stage == 0 && !actions_.actions.empty();
  if (dense) begin_dense_reduction();
  carry_out(actions_);
  bucket_.end_flushes();
  transients_.clear();
  device_.wait(Queue::compute, reducing_queue());
  ZP_CHECK(bucket_.is_empty(), "every gradient was reduced");
  if (config_.stage == 2 && micro_step_ > 0 && !offloads()) add_to_window();
  end_backward_buffers();
}

// Later micro-steps reduced into a storage of their own.
void RankEngine::add_to_window() {
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    device_.add_to(kept_slice(i, false),
                   config_.model_dtype,
                   kept_slice(i, true),
                   config_.model_dtype,
                   owned_[i].numel);
  }
}

void RankEngine::carry_out(const EngineActions& actions) {
  for (const EngineAction& action : actions.actions) {
    const Timeline::Scope scope(setup_.timeline, Timeline::compute, trace_name(action.kind));
    carry_out(actions, action);
  }
}

// Where buckets are reduced: beside the backward pass where overlap_comm asks for it.
Queue RankEngine::reducing_queue() const {
  return config_.overlap_comm && config_.stage > 0 ? Queue::reduce : Queue::compute;
}

void RankEngine::carry_out(const EngineActions& actions, const EngineAction& action) {
  const bool beside = !action.in_step && action.stream == EngineStream::reduce;
  const OnQueue queue(device_, beside ? Queue::reduce : Queue::compute);
  switch (action.kind) {
    case ActionKind::drop_gradients:
      bucket_.drop(actions.members_of(action));
      break;
    case ActionKind::accumulate_gradient:
      accumulate(action.parameter);
      break;
    case ActionKind::insert_gradient:
    case ActionKind::keep_outside:
      join_bucket(action);
      break;
    case ActionKind::flush:
      bucket_.begin_flush(actions.members_of(action));
      break;
    case ActionKind::flatten:
    case ActionKind::cast:
      if (action.in_step) {
        update(action);
      } else if (action.kind == ActionKind::flatten) {
        bucket_.flatten(action);
      } else {
        bucket_.cast(action);
      }
      break;
    case ActionKind::concatenate:
      bucket_.concatenate(action);
      break;
    case ActionKind::collective:
      if (action.in_step) {
        update(action);
      } else if (action.collective.across) {
        sum_replicas(action);
      } else {
        bucket_.reduce(action);
      }
      break;
    case ActionKind::copy_back:
      bucket_.copy_back(action);
      break;
    case ActionKind::keep_owned:
      keep_owned(action.parameter);
      break;
    case ActionKind::keep_partitions:
      keep_partitions(actions.members_of(action), action.pieces);
      break;
    case ActionKind::record_event:
      transients_.clear();
      break;
    case ActionKind::norm:
    case ActionKind::optimizer_step:
    case ActionKind::update_weights:
    case ActionKind::copy_to_device:
    case ActionKind::copy_to_host:
    case ActionKind::accumulate_on_host:
    case ActionKind::gradient_to_master:
    case ActionKind::swap_in:
    case ActionKind::swap_out:
    case ActionKind::swap_out_weights:
      if (action.in_step) {
        update(action);
      } else {
        offload(action);
      }
      break;
    default:
      break;  // streams; scans, which were done before
  }
}

// --- what is kept

// Stages 1 and 2: where an owned part's gradient is: the storage of whole owned gradients, of the
// window, of the step, or (`later`) of this micro-step alone.
std::byte* RankEngine::kept_slice(std::size_t slice, bool later) {
  const OwnedSlice& owned = owned_[slice];
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const EngineBuffer& buffer = buffers_[i];
    const bool of_step = buffer.name == BufferName::averaged_gradients &&
                         buffer.second_index == 0 && buffer.index == owned_.front().group;
    const bool wanted = later ? buffer.name == BufferName::grads_in_partition
                              : buffer.name == BufferName::all_grad_tensors || of_step;
    if (!wanted || !held_[i]) continue;
    return advance(held_[i].data(), kept_offset_[slice] + owned.start, config_.model_dtype);
  }
  ZP_CHECK(false, "owned gradients have a storage");
}

void RankEngine::keep_owned(std::int32_t parameter) {
  if (offloads()) return;  // what follows copies it to the host
  const bool later = config_.stage == 2 && micro_step_ > 0;
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    if (owned_[i].parameter != parameter) continue;
    const DType dtype = config_.model_dtype;
    device_.convert(advance(bucket_.piece_of(parameter).data, owned_[i].start, dtype),
                    dtype,
                    kept_slice(i, later),
                    dtype,
                    owned_[i].numel);
  }
}

// Stage 3: stored in, or added to, the flat gradient partitions. After an all-reduce the whole
// bucket is there, in the order of its members.
void RankEngine::keep_partitions(std::span<const int> members, int window_step) {
  const DType kept = config_.gradient_accumulation_dtype;
  std::byte* flat = held_[find(BufferName::grad_partitions_flat_buffer, -1)].data();
  const int ranks = reduction_ranks(config_);
  const int rank = reduction_rank(config_);
  const GradientBucket::Sum& sum = bucket_.sum();
  const auto take = [&](std::int32_t p, const std::byte* from) {
    std::byte* to = advance(flat, partition_offset_[static_cast<std::size_t>(p)], kept);
    const Elements real = real_partition_numel(numel(p), ranks, rank);
    if (window_step == 0) {
      device_.convert(from, sum.dtype, to, kept, real);
    } else {
      device_.add_to(to, kept, from, sum.dtype, real);
    }
  };
  const std::byte* from = sum.data;
  if (sum.scattered) {
    for (const std::int32_t p : members) {
      take(p, from);
      from = advance(const_cast<std::byte*>(from), part(p), sum.dtype);
    }
  } else {
    for (const GradientBucket::Piece& piece : bucket_.flushed()) {
      std::byte* whole = const_cast<std::byte*>(from);
      take(piece.parameter, advance(whole, part(piece.parameter) * rank, sum.dtype));
      from = advance(whole, piece.elements, sum.dtype);
    }
  }
}

// MiCS: what the window has summed over the shard of each of the bucket's gradients, averaged over
// the shards. Divided before it is summed, as DeepSpeed does (mics.py allreduce_mics_shard_grads,
// one coalesced collective). Partitions that lie one behind the other go as one, with the zeros
// that pad them.
void RankEngine::sum_replicas(const EngineAction& action) {
  const DType kept = config_.gradient_accumulation_dtype;
  std::byte* flat = held_[find(BufferName::grad_partitions_flat_buffer, -1)].data();
  const double average = 1.0 / static_cast<double>(action.collective.ranks);
  struct Stretch {
    Elements begin, end;
  };
  std::vector<Stretch> parts;
  Elements real;
  for (const GradientBucket::Piece& piece : bucket_.flushed()) {
    const Elements offset = partition_offset_[static_cast<std::size_t>(piece.parameter)];
    parts.push_back({offset, offset + part(piece.parameter)});
    real += real_partition_numel(piece.elements, reduction_ranks(config_), reduction_rank(config_));
  }
  ZP_CHECK(real == action.elements, "replicas sum all partitions of the bucket");
  std::sort(parts.begin(), parts.end(), [](const Stretch& a, const Stretch& b) {
    return a.begin < b.begin;
  });
  std::vector<Pending> sums;
  for (std::size_t i = 0; i < parts.size();) {
    Stretch whole = parts[i++];
    while (i < parts.size() && parts[i].begin == whole.end) whole.end = parts[i++].end;
    std::byte* data = advance(flat, whole.begin, kept);
    const Elements elements = whole.end - whole.begin;
    device_.convert(data, kept, data, kept, elements, average);
    sums.push_back(groups_.replicas()->start({.kind = CollectiveKind::all_reduce,
                                              .dtype = kept,
                                              .elements = elements,
                                              .input = data,
                                              .output = data}));
  }
  for (Pending& pending : sums) pending.wait();
}

}  // namespace zeroplan::runtime
