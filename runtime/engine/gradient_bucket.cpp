#include "runtime/engine/gradient_bucket.hpp"

#include <algorithm>
#include <iterator>

#include "base/check.hpp"
#include "runtime/engine/tensor_ops.hpp"

namespace zeroplan::runtime {

GradientBucket::GradientBucket(const EngineConfig& config,
                               std::span<const EngineParameter> parameters,
                               const FlatPartition& partition,
                               Communicator& group,
                               Device& device,
                               Transients& transients)
    : config_(config),
      parameters_(parameters),
      partition_(partition),
      group_(group),
      device_(device),
      transients_(transients) {}

void GradientBucket::insert(const EngineAction& action, const Buffer& gradient, std::byte* buffer) {
  ZP_CHECK(filled_ + action.elements <= config_.reduce_bucket, "the bucket has room");
  std::byte* to = advance(buffer, filled_, action.dtype);
  if (buffer_read_) device_.wait(device_.in_use(), std::exchange(buffer_read_, nullptr));
  device_.convert(gradient.data(), config_.model_dtype, to, action.dtype, action.elements);
  filling_.push_back({action.parameter, to, action.elements});
  filled_ += action.elements;
}

void GradientBucket::keep_outside(const EngineAction& action, Buffer gradient) {
  filling_.push_back({action.parameter, gradient.data(), action.elements, /*outside=*/true});
  outside_.emplace_back(action.parameter, std::move(gradient));
}

void GradientBucket::drop(std::span<const int> parameters) {
  std::erase_if(outside_, [&](const auto& gradient) {
    return std::find(parameters.begin(), parameters.end(), gradient.first) != parameters.end();
  });
}

// The bucket's gradients become runs of one owner, in the order in which the collectives take them.
void GradientBucket::begin_flush(std::span<const int> members) {
  transients_.clear();
  flushed_ = std::exchange(filling_, {});
  filled_ = Elements::zero();
  if (config_.stage < 3 && config_.overlap_comm) {
    buffer_ = 1 - buffer_;
    buffer_read_ = device_.record(Queue::reduce);  // before this flush, that is
  }
  ZP_CHECK(flushed_.size() == members.size(), "a flush has the bucket's members");
  begin_collectives();
  if (config_.stage < 3) cut_into_runs();
}

void GradientBucket::begin_dense(std::span<const Piece> gradients) {
  begin_collectives();
  for (const Piece& gradient : gradients) runs_.push_back({0, gradient.data, gradient.elements});
}

void GradientBucket::begin_collectives() {
  sum_.data = nullptr;
  runs_.clear();
  next_run_ = 0;
}

void GradientBucket::cut_into_runs() {
  if (!config_.reduce_scatter) {
    Elements sum;
    for (const Piece& piece : flushed_) sum += piece.elements;
    runs_.push_back({-1, flushed_.front().data, sum});
    return;
  }
  std::vector<OwnerRun> owners;
  for (const Piece& piece : flushed_) append_owner_runs(partition_, piece.parameter, owners);
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

// Copies the runs that the collective takes to or from its flat buffer.
void GradientBucket::copy_runs(std::size_t first, std::size_t last, std::byte* flat, bool back) {
  const DType dtype = config_.model_dtype;
  for (std::size_t i = first; i < last; ++i) {
    const Run& run = runs_[i];
    if (back) {
      device_.convert(flat, sum_.dtype, run.data, dtype, run.elements);
    } else {
      device_.convert(run.data, dtype, flat, sum_.dtype, run.elements);
    }
    flat = advance(flat, run.elements, sum_.dtype);
  }
}

// Runs [next_run_, result) hold `elements`.
std::size_t GradientBucket::runs_of(Elements elements) const {
  Elements sum;
  std::size_t last = next_run_;
  while (last < runs_.size() && sum < elements) sum += runs_[last++].elements;
  ZP_CHECK(sum == elements, "a collective takes whole runs");
  return last;
}

void GradientBucket::flatten(const EngineAction& action) {
  sum_.dtype = action.dtype;
  sum_.data =
      transients_.make(action.elements * action.dtype, MemoryCategory::communication_buffers);
  copy_runs(next_run_, runs_of(action.elements), sum_.data, false);
}

void GradientBucket::cast(const EngineAction& action) {
  const std::byte* from = sum_.data;
  const DType from_dtype = sum_.dtype;
  if (config_.stage == 3 && from == nullptr) {
    cast_outside(action);
    return;
  }
  std::byte* to = transients_.make(action.elements * action.dtype, MemoryCategory::temporaries);
  if (from == nullptr) {
    sum_.dtype = action.dtype;
    copy_runs(next_run_, runs_of(action.elements), to, false);
  } else {
    device_.convert(from, from_dtype, to, action.dtype, action.elements);
  }
  sum_.data = to;
  sum_.dtype = action.dtype;
}

// Stage 3: the gradient that did not fit into the bucket gets the dtype of the messages.
void GradientBucket::cast_outside(const EngineAction& action) {
  std::byte* to = transients_.make(action.elements * action.dtype, MemoryCategory::temporaries);
  for (Piece& piece : flushed_) {
    if (!piece.outside) continue;
    device_.convert(piece.data, config_.model_dtype, to, action.dtype, piece.elements);
    piece.data = to;
    to = advance(to, piece.elements, action.dtype);
  }
}

const GradientBucket::Piece& GradientBucket::piece_of(std::int32_t parameter) const {
  const auto found = std::find_if(flushed_.begin(), flushed_.end(), [&](const Piece& piece) {
    return piece.parameter == parameter;
  });
  ZP_CHECK(found != flushed_.end(), "the gradient is in the flushed bucket");
  return *found;
}

// Stage 3: partitions of the members rank by rank, each padded to ceil(numel / N).
void GradientBucket::concatenate(const EngineAction& action) {
  const int ranks = reduction_ranks(config_);
  const DType dtype = action.dtype;
  sum_.data = transients_.make(action.elements * dtype, MemoryCategory::communication_buffers);
  sum_.dtype = dtype;
  std::vector<std::int32_t> members;
  for (const Piece& piece : flushed_) members.push_back(piece.parameter);
  std::sort(members.begin(), members.end());
  std::byte* to = sum_.data;
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

void GradientBucket::reduce(const EngineAction& action) {
  const EngineCollective& what = action.collective;
  const double average = 1.0 / static_cast<double>(what.ranks);
  const bool scatters = what.kind == CollectiveKind::reduce_scatter;
  std::byte* data = sum_.data;
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
  if (scatters) exchange.output = advance(data, exchange.elements * group_.rank(), action.dtype);
  group_.run(exchange);
  device_.convert(
      exchange.output, action.dtype, exchange.output, action.dtype, exchange.elements, average);
  if (config_.stage == 3) {
    sum_.data = exchange.output;
    sum_.dtype = action.dtype;
    sum_.scattered = scatters;
    return;
  }
  if (sum_.data == nullptr) next_run_ = last;  // else they are copied back first
}

void GradientBucket::copy_back(const EngineAction& action) {
  const std::size_t last = runs_of(action.elements);
  copy_runs(next_run_, last, sum_.data, true);
  next_run_ = last;
  sum_.data = nullptr;
  transients_.clear();
}

}  // namespace zeroplan::runtime
