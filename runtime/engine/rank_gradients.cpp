// From a finished gradient to what the optimizer's step reads. Sources: gradient_buckets.hpp.
#include <algorithm>
#include <iterator>
#include <utility>

#include "model/check.hpp"
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
  const Elements elements = action.elements;
  if (action.kind == ActionKind::keep_outside) {
    bucket_.push_back({action.parameter, gradient.data(), elements, /*outside=*/true});
    outside_.emplace_back(action.parameter, std::move(gradient));
    return;
  }
  const Buffer& bucket =
      held_[find(BufferName::ipg_bucket, config_.stage == 3 ? -1 : bucket_buffer_)];
  ZP_CHECK(bucket_filled_ + elements <= config_.reduce_bucket, "the bucket has room");
  std::byte* to = advance(bucket.data(), bucket_filled_, action.dtype);
  if (bucket_read_) device_.wait(device_.in_use(), std::exchange(bucket_read_, nullptr));
  device_.convert(gradient.data(), config_.model_dtype, to, action.dtype, elements);
  bucket_.push_back({action.parameter, to, elements});
  bucket_filled_ += elements;
}

void RankEngine::drop_gradients(std::span<const int> parameters) {
  std::erase_if(outside_, [&](const auto& gradient) {
    return std::find(parameters.begin(), parameters.end(), gradient.first) != parameters.end();
  });
}

void RankEngine::finish_backward() {
  begin_backward_buffers();
  actions_.clear();
  reducer_.end_backward(actions_);
  const bool dense = config_.stage == 0 && !actions_.actions.empty();
  if (dense) begin_dense_reduction();
  carry_out(actions_);
  flushed_.clear();
  transients_.clear();
  device_.wait(Queue::compute, reducing_queue());
  ZP_CHECK(bucket_.empty() && outside_.empty(), "every gradient was reduced");
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
      drop_gradients(actions.members_of(action));
      break;
    case ActionKind::accumulate_gradient:
      accumulate(action.parameter);
      break;
    case ActionKind::insert_gradient:
    case ActionKind::keep_outside:
      join_bucket(action);
      break;
    case ActionKind::flush:
      begin_flush(actions.members_of(action));
      break;
    case ActionKind::flatten:
    case ActionKind::cast:
      if (action.in_step) {
        update(action);
      } else if (action.kind == ActionKind::flatten) {
        flatten(action);
      } else {
        cast(action);
      }
      break;
    case ActionKind::concatenate:
      concatenate(action);
      break;
    case ActionKind::collective:
      if (action.in_step) {
        update(action);
      } else if (action.collective.across) {
        sum_replicas(action);
      } else {
        reduce(action);
      }
      break;
    case ActionKind::copy_back:
      copy_back(action);
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

std::byte* RankEngine::transient(Bytes bytes, MemoryCategory category) {
  transients_.push_back(memory_.allocate(bytes, category, Place::device, "a bucket's copy"));
  return transients_.back().data();
}

// --- one bucket

// The bucket's gradients become runs of one owner, in the order in which the collectives take them.
void RankEngine::begin_flush(std::span<const int> members) {
  transients_.clear();
  flushed_ = std::move(bucket_);
  bucket_.clear();
  bucket_filled_ = Elements::zero();
  if (config_.stage < 3 && config_.overlap_comm) {
    bucket_buffer_ = 1 - bucket_buffer_;
    bucket_read_ = device_.record(Queue::reduce);  // before this flush, that is
  }
  ZP_CHECK(flushed_.size() == members.size(), "a flush has the bucket's members");
  reduced_ = nullptr;
  runs_.clear();
  next_run_ = 0;
  if (config_.stage < 3) cut_into_runs();
}

void RankEngine::cut_into_runs() {
  if (!config_.reduce_scatter) {
    Elements sum;
    for (const Piece& piece : flushed_) sum += piece.elements;
    runs_.push_back({-1, flushed_.front().data, sum});
    return;
  }
  std::vector<OwnerRun> owners;
  for (const Piece& piece : flushed_)
    append_owner_runs(reducer_.partition(), piece.parameter, owners);
  // Gradients of a bucket lie one behind the other.
  std::byte* data = flushed_.front().data;
  for (const OwnerRun& owner : owners) {
    runs_.push_back({owner.owner, data, owner.numel});
    data = advance(data, owner.numel, config_.model_dtype);
  }
  if (config_.use_multi_rank_bucket_allreduce) return;
  // Owner by owner, in the order in which they first appear.
  std::vector<int> order;
  for (const OwnerRun& owner : owners) {
    if (std::find(order.begin(), order.end(), owner.owner) == order.end()) {
      order.push_back(owner.owner);
    }
  }
  std::vector<Run> sorted;
  for (const int owner : order) {
    std::copy_if(runs_.begin(), runs_.end(), std::back_inserter(sorted), [&](const Run& run) {
      return run.owner == owner;
    });
  }
  runs_ = std::move(sorted);
}

// Stage 0: all gradients in the order of the parameters.
void RankEngine::begin_dense_reduction() {
  runs_.clear();
  next_run_ = 0;
  reduced_ = nullptr;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    if (!parameters_[p].trainable) continue;
    ZP_CHECK(static_cast<bool>(waiting_[p]), "every trained parameter has a gradient");
    runs_.push_back({0, waiting_[p].data(), parameters_[p].numel});
  }
}

// Copies the runs that the collective takes to or from its flat buffer.
void RankEngine::copy_runs(std::size_t first, std::size_t last, std::byte* flat, bool back) {
  const DType dtype = config_.model_dtype;
  for (std::size_t i = first; i < last; ++i) {
    const Run& run = runs_[i];
    if (back) {
      device_.convert(flat, reduced_dtype_, run.data, dtype, run.elements);
    } else {
      device_.convert(run.data, dtype, flat, reduced_dtype_, run.elements);
    }
    flat = advance(flat, run.elements, reduced_dtype_);
  }
}

// Runs [next_run_, result) hold `elements`.
std::size_t RankEngine::runs_of(Elements elements) const {
  Elements sum;
  std::size_t last = next_run_;
  while (last < runs_.size() && sum < elements) sum += runs_[last++].elements;
  ZP_CHECK(sum == elements, "a collective takes whole runs");
  return last;
}

void RankEngine::flatten(const EngineAction& action) {
  reduced_dtype_ = action.dtype;
  reduced_ = transient(action.elements * action.dtype, MemoryCategory::communication_buffers);
  copy_runs(next_run_, runs_of(action.elements), reduced_, false);
}

void RankEngine::cast(const EngineAction& action) {
  const std::byte* from = reduced_;
  const DType from_dtype = reduced_dtype_;
  if (config_.stage == 3 && from == nullptr) {
    cast_outside(action);
    return;
  }
  std::byte* to = transient(action.elements * action.dtype, MemoryCategory::temporaries);
  if (from == nullptr) {
    reduced_dtype_ = action.dtype;
    copy_runs(next_run_, runs_of(action.elements), to, false);
  } else {
    device_.convert(from, from_dtype, to, action.dtype, action.elements);
  }
  reduced_ = to;
  reduced_dtype_ = action.dtype;
}

// Stage 3: the gradient that did not fit into the bucket gets the dtype of the messages.
void RankEngine::cast_outside(const EngineAction& action) {
  std::byte* to = transient(action.elements * action.dtype, MemoryCategory::temporaries);
  for (Piece& piece : flushed_) {
    if (!piece.outside) continue;
    device_.convert(piece.data, config_.model_dtype, to, action.dtype, piece.elements);
    piece.data = to;
    to = advance(to, piece.elements, action.dtype);
  }
}

const RankEngine::Piece& RankEngine::piece_of(std::int32_t parameter) const {
  const auto found = std::find_if(flushed_.begin(), flushed_.end(), [&](const Piece& piece) {
    return piece.parameter == parameter;
  });
  ZP_CHECK(found != flushed_.end(), "the gradient is in the flushed bucket");
  return *found;
}

// Stage 3: partitions of the members rank by rank, each padded to ceil(numel / N).
void RankEngine::concatenate(const EngineAction& action) {
  const int ranks = reduction_ranks(config_);
  const DType dtype = action.dtype;
  reduced_ = transient(action.elements * dtype, MemoryCategory::communication_buffers);
  reduced_dtype_ = dtype;
  std::vector<std::int32_t> members;
  for (const Piece& piece : flushed_) members.push_back(piece.parameter);
  std::sort(members.begin(), members.end());
  std::byte* to = reduced_;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const std::int32_t p : members) {
      const Elements real = real_partition_numel(numel(p), ranks, rank);
      if (real > Elements::zero()) {
        device_.convert(advance(piece_of(p).data, part(p) * rank, dtype), dtype, to, dtype, real);
      }
      std::byte* padding = advance(to, real, dtype);
      to = advance(to, part(p), dtype);
      if (to != padding) device_.zero(padding, Bytes::of(to - padding));
    }
  }
}

void RankEngine::reduce(const EngineAction& action) {
  const EngineCollective& what = action.collective;
  const double average = 1.0 / static_cast<double>(what.ranks);
  const bool scatters = what.kind == CollectiveKind::reduce_scatter;
  std::byte* data = reduced_;
  std::size_t last = next_run_;
  if (config_.stage == 3) {
    if (data == nullptr) data = flushed_.front().data;
  } else {
    last = runs_of(action.elements);
    if (data == nullptr) data = runs_[next_run_].data;
  }
  Exchange exchange{.kind = what.kind,
                    .operation = what.operation,
                    .dtype = action.dtype,
                    .elements = scatters ? action.elements / what.ranks : action.elements,
                    .root = std::max(0, what.root),
                    .input = data,
                    .output = data};
  if (scatters)
    exchange.output = advance(data, exchange.elements * partition_group_->rank(), action.dtype);
  partition_group_->run(exchange);
  device_.convert(
      exchange.output, action.dtype, exchange.output, action.dtype, exchange.elements, average);
  if (config_.stage == 3) {
    reduced_ = exchange.output;
    reduced_dtype_ = action.dtype;
    scattered_ = scatters;
    return;
  }
  if (reduced_ == nullptr) next_run_ = last;  // else they are copied back first
}

void RankEngine::copy_back(const EngineAction& action) {
  const std::size_t last = runs_of(action.elements);
  copy_runs(next_run_, last, reduced_, true);
  next_run_ = last;
  reduced_ = nullptr;
  transients_.clear();
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
    device_.convert(advance(piece_of(parameter).data, owned_[i].start, dtype),
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
  const auto take = [&](std::int32_t p, const std::byte* from) {
    std::byte* to = advance(flat, partition_offset_[static_cast<std::size_t>(p)], kept);
    const Elements real = real_partition_numel(numel(p), ranks, rank);
    if (window_step == 0) {
      device_.convert(from, reduced_dtype_, to, kept, real);
    } else {
      device_.add_to(to, kept, from, reduced_dtype_, real);
    }
  };
  const std::byte* from = reduced_;
  if (scattered_) {
    for (const std::int32_t p : members) {
      take(p, from);
      from = advance(const_cast<std::byte*>(from), part(p), reduced_dtype_);
    }
  } else {
    for (const Piece& piece : flushed_) {
      std::byte* whole = const_cast<std::byte*>(from);
      take(piece.parameter, advance(whole, part(piece.parameter) * rank, reduced_dtype_));
      from = advance(whole, piece.elements, reduced_dtype_);
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
  for (const Piece& piece : flushed_) {
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
    sums.push_back(replicas_->start({.kind = CollectiveKind::all_reduce,
                                     .dtype = kept,
                                     .elements = elements,
                                     .input = data,
                                     .output = data}));
  }
  for (Pending& pending : sums) pending.wait();
}

}  // namespace zeroplan::runtime
