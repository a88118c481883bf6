// Stage 3's gathers on real memory. Sources: fetch_schedule.hpp.
#include <algorithm>

#include "base/check.hpp"
#include "runtime/engine/rank_engine.hpp"
#include "runtime/engine/tensor_ops.hpp"

namespace zeroplan::runtime {

void RankEngine::module_step(const ModuleStep& step) {
  if (step.enters) coordinator_->enter(step.module, step.pass, log_);
  if (!step.enters) coordinator_->exit(step.module, step.pass, log_);
  carry_out_fetches();
}

void RankEngine::carry_out_fetches() {
  for (const FetchEvent& event : log_.events) carry_out(event);
  log_.clear();
}

void RankEngine::carry_out(const FetchEvent& event) {
  switch (event.kind) {
    case FetchEventKind::swap_in:
      swapped_weights_->want(log_.parameters_of(event));
      break;
    case FetchEventKind::release_all:
      if (swapped_weights_) swapped_weights_->forget();
      break;
    case FetchEventKind::collective:
      gather(event);
      break;
    case FetchEventKind::load: {
      Gathered& weight = gathered_[static_cast<std::size_t>(event.subject)];
      weight.buffer = memory_.allocate(event.elements * event.dtype,
                                       MemoryCategory::parameters,
                                       Place::device,
                                       "a weight from the host");
      weight.data = weight.buffer.data();
      copy_own_part(event.subject, event.dtype, weight.data);
      break;
    }
    case FetchEventKind::wait:
      wait_for(event.subject);
      break;
    case FetchEventKind::copy:
      join_pieces(event);
      break;
    case FetchEventKind::bucket_done:
      drop_flat(event.elements);
      break;
    case FetchEventKind::secondary:
      keep_secondary_partition(event);
      break;
    case FetchEventKind::release:
      release_weights(event.subject);
      break;
    case FetchEventKind::device_synchronize:
      for (Gathered& weight : gathered_) weight.pending.wait();
      break;
    default:
      break;  // bookkeeping, events and streams
  }
}

void RankEngine::gather(const FetchEvent& event) {
  const std::span<const ParameterIndex> parameters = log_.parameters_of(event);
  if (parameters.size() > 1) {
    gather_flat(event, parameters);
    return;
  }
  const std::int32_t p = parameters.front();
  Gathered& weight = gathered_[static_cast<std::size_t>(p)];
  weight.buffer = memory_.allocate(event.elements * event.dtype,
                                   MemoryCategory::parameters,
                                   Place::device,
                                   setup_.model->parameters[static_cast<std::size_t>(p)].name);
  weight.data = weight.buffer.data();
  weight.flat = -1;
  weight.view = false;
  // A part on the host goes to its place first: collectives are between devices.
  Communicator& group = group_of(event.secondary);
  const Elements share = piece(p, event.secondary);
  const std::byte* own =
      event.secondary ? secondary_partition(p) : weights_[static_cast<std::size_t>(p)];
  if (config_.offload_parameter.device != OffloadDevice::none) {
    std::byte* place = advance(weight.data, share * group.rank(), event.dtype);
    copy_own_piece(p, event.secondary, event.dtype, place);
    own = place;
  }
  weight.pending = group.start({.kind = CollectiveKind::all_gather,
                                .dtype = event.dtype,
                                .elements = share,
                                .input = own,
                                .output = weight.data});
  if (!event.asynchronous) weight.pending.wait();
}

// Several weights at once. All-gather: rank by rank, each with its parts of all of them.
// All-reduce: weight by weight, zero but for the own parts.
void RankEngine::gather_flat(const FetchEvent& event, std::span<const ParameterIndex> parameters) {
  const auto free =
      std::find_if(flats_.begin(), flats_.end(), [](const Flat& flat) { return !flat.buffer; });
  const auto index = static_cast<int>(free - flats_.begin());
  if (free == flats_.end()) flats_.emplace_back();
  Flat& flat = flats_[static_cast<std::size_t>(index)];
  const bool reduces = event.op == FetchCollective::all_reduce;
  const Bytes bytes = event.elements * event.dtype;
  flat.buffer = memory_.allocate(
      bytes, MemoryCategory::communication_buffers, Place::device, "a gather of several weights");
  flat.parameters.assign(parameters.begin(), parameters.end());
  flat.elements = event.elements;
  flat.waiting = static_cast<int>(parameters.size());
  flat.views = reduces ? flat.waiting : 0;
  flat.second = event.secondary;
  Communicator& group = group_of(event.secondary);
  const int rank = group.rank();
  const Elements share = event.elements / event.group;
  if (reduces) device_.zero(flat.buffer.data(), bytes);
  Elements at = reduces ? Elements::zero() : share * rank;
  for (const ParameterIndex p : parameters) {
    const Elements of_rank = piece(p, event.secondary);
    const Elements own = reduces ? at + of_rank * rank : at;
    std::byte* place = advance(flat.buffer.data(), own, event.dtype);
    copy_own_piece(p, event.secondary, event.dtype, place);
    Gathered& weight = gathered_[static_cast<std::size_t>(p)];
    weight.flat = index;
    weight.view = reduces;
    weight.data = reduces ? advance(flat.buffer.data(), at, event.dtype) : nullptr;
    at += reduces ? of_rank * event.group : of_rank;
  }
  Exchange exchange{.kind = reduces ? CollectiveKind::all_reduce : CollectiveKind::all_gather,
                    .dtype = event.dtype,
                    .elements = reduces ? event.elements : share,
                    .input = flat.buffer.data(),
                    .output = flat.buffer.data()};
  if (!reduces) exchange.input = advance(flat.buffer.data(), share * rank, event.dtype);
  flat.pending = group.start(exchange);
}

void RankEngine::wait_for(std::int32_t parameter) {
  Gathered& weight = gathered_[static_cast<std::size_t>(parameter)];
  if (weight.flat < 0) {
    weight.pending.wait();
    return;
  }
  Flat& flat = flats_[static_cast<std::size_t>(weight.flat)];
  flat.pending.wait();
  --flat.waiting;
}

// The parts of one weight out of the flat buffer into a buffer of its own.
void RankEngine::join_pieces(const FetchEvent& event) {
  Gathered& weight = gathered_[static_cast<std::size_t>(event.subject)];
  const Flat& flat = flats_[static_cast<std::size_t>(weight.flat)];
  weight.buffer = memory_.allocate(event.elements * event.dtype,
                                   MemoryCategory::parameters,
                                   Place::device,
                                   "a weight from a gather of several");
  weight.data = weight.buffer.data();
  Elements before;
  for (const std::int32_t p : flat.parameters) {
    if (p == event.subject) break;
    before += piece(p, flat.second);
  }
  const int ranks = group_of(flat.second).ranks();
  const Elements share = flat.elements / ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    const Elements real = real_piece(event.subject, flat.second, rank);
    if (real == Elements::zero()) break;
    device_.convert(advance(flat.buffer.data(), share * rank + before, event.dtype),
                    event.dtype,
                    advance(weight.data, piece(event.subject, flat.second) * rank, event.dtype),
                    event.dtype,
                    real);
  }
}

void RankEngine::release_weights(std::int32_t parameter) {
  Gathered& weight = gathered_[static_cast<std::size_t>(parameter)];
  weight.buffer.reset();
  weight.data = nullptr;
  if (weight.view) --flats_[static_cast<std::size_t>(weight.flat)].views;
  weight.view = false;
}

// Of those of that size one that nobody waits for and nobody looks into.
void RankEngine::drop_flat(Elements elements) {
  const auto found = std::find_if(flats_.begin(), flats_.end(), [&](const Flat& flat) {
    return flat.buffer && flat.elements == elements && flat.waiting == 0 && flat.views == 0;
  });
  ZP_CHECK(found != flats_.end(), "a gather is dropped that is still used");
  found->buffer.reset();
}

}  // namespace zeroplan::runtime
