// The half of FetchCoordinator that gathers, waits and frees.
#include <algorithm>

#include "model/engine/fetch_coordinator.hpp"

namespace zeroplan {

// Step 1 and 2 of PC:fetch_sub_module: gather what the module lacks, wait for what is in flight.
void FetchCoordinator::fetch_own(ModuleIndex module, FetchPass pass, FetchLog& log) {
  const Slots slots = slots_[static_cast<std::size_t>(module)];
  wanted_.clear();
  for (std::int32_t slot = slots.begin; slot < slots.end; ++slot) {
    const ParameterIndex p = slot_parameters_[static_cast<std::size_t>(slot)];
    if (state_[static_cast<std::size_t>(p)] == State::absent) wanted_.push_back(p);
  }
  gather(FetchEventKind::fetch, pass, log);
  // PC:fast_fetch: a leaf of the granularity threshold records no event for each of its weights.
  const bool recorded = !granular_ || leaf_[static_cast<std::size_t>(module)] == 0;
  const bool recomputing = rules_.attributes_recomputation && pass == FetchPass::forward &&
                           in_backward_ && innermost_ >= 0;
  for (std::int32_t slot = slots.begin; slot < slots.end; ++slot) {
    const auto s = static_cast<std::size_t>(slot);
    const ParameterIndex p = slot_parameters_[s];
    if (!slot_active_[s]) ++holders_[static_cast<std::size_t>(p)];
    slot_active_[s] = 1;
    if (recomputing && frozen_[static_cast<std::size_t>(p)]) hold(innermost_, p);
    if (bucket_of_[static_cast<std::size_t>(p)] >= 0) wait(p, recorded, log);
  }
  if (overlap_comm_) log.events.push_back({.kind = FetchEventKind::compute_waits, .pass = pass});
}

// Step 3: pop this step's own entries from the queue, then as many later ones as the budget of this
// call allows. Entries of parameters that are already there are popped too, free of charge.
void FetchCoordinator::prefetch(FetchPass pass, FetchLog& log) {
  while (queue_head_ < queue_.size() && queue_[queue_head_].step == step_) {
    fetched_for_[static_cast<std::size_t>(queue_[queue_head_].parameter)] = step_;
    ++queue_head_;
  }
  if (prefetch_bucket_ <= 0) return;
  const std::int64_t budget = std::min(max_live_ - available_, prefetch_bucket_);
  std::int64_t taken = 0;
  wanted_.clear();
  while (queue_head_ < queue_.size() && taken < budget) {
    const QueueEntry entry = queue_[queue_head_];
    if (swapped_.is_away(entry.parameter)) break;  // only what was read ahead
    ++queue_head_;
    const auto p = static_cast<std::size_t>(entry.parameter);
    fetched_for_[p] = std::max(fetched_for_[p], entry.step);
    if (state_[p] != State::absent || marked_[p]) continue;
    marked_[p] = 1;
    wanted_.push_back(entry.parameter);
    taken += numel_[p];
  }
  for (const ParameterIndex p : wanted_) marked_[static_cast<std::size_t>(p)] = 0;
  gather(FetchEventKind::prefetch, pass, log);
  if (swapped_.any()) read_ahead(log);
}

// PC:__prefetch_nvme_param_partitions: what comes next in the queue, until twice the elements that
// are in flight have been looked at or buffers are used up. At least one, where one is free.
void FetchCoordinator::read_ahead(FetchLog& log) {
  const std::int64_t reach = 2 * in_registry_numel_;
  std::int64_t considered = 0;
  wanted_.clear();
  for (std::size_t i = queue_head_; i < queue_.size(); ++i) {
    if (considered > reach || static_cast<int>(wanted_.size()) >= swapped_.free_buffers()) break;
    const ParameterIndex p = queue_[i].parameter;
    if (swapped_.is_away(p)) wanted_.push_back(p);
    considered += numel_[static_cast<std::size_t>(p)];
  }
  swapped_.read_ahead(wanted_, log);
}

// One call of PC:__all_gather_params for `wanted_`. With hpZ the parameters that have a secondary
// partition go first, in a call of their own.
void FetchCoordinator::gather(FetchEventKind kind, FetchPass pass, FetchLog& log) {
  if (wanted_.empty()) return;
  std::sort(wanted_.begin(), wanted_.end());
  std::int64_t numel = 0;
  for (const ParameterIndex p : wanted_) numel += numel_[static_cast<std::size_t>(p)];
  const auto first = static_cast<std::int32_t>(log.parameters.size());
  log.parameters.insert(log.parameters.end(), wanted_.begin(), wanted_.end());
  log.events.push_back({.kind = kind,
                        .pass = pass,
                        .step = step_,
                        .first = first,
                        .count = static_cast<std::int32_t>(wanted_.size()),
                        .elements = Elements::of(numel)});
  available_ += numel;
  live_ += numel;
  for (const bool secondary : {true, false}) {
    group_.clear();
    for (const ParameterIndex p : wanted_) {
      if ((has_secondary_[static_cast<std::size_t>(p)] != 0) == secondary) group_.push_back(p);
    }
    if (!group_.empty()) launch(secondary, pass, log);
  }
  // Persistent weights are not released before the step, and need their partition no more.
  for (const ParameterIndex p : wanted_) {
    if (persistent_[static_cast<std::size_t>(p)]) swapped_.release(p);
  }
}

// PP:all_gather_coalesced for `group_`: three ways to bring the pieces together.
void FetchCoordinator::launch(bool secondary, FetchPass pass, FetchLog& log) {
  swapped_.ensure(group_, log);
  const std::int32_t index = new_bucket();
  Bucket& bucket = buckets_[static_cast<std::size_t>(index)];
  for (const ParameterIndex parameter : group_) {
    const auto p = static_cast<std::size_t>(parameter);
    state_[p] = State::in_flight;
    bucket_of_[p] = index;
    in_registry_numel_ += numel_[p];
    next_in_bucket_[p] = bucket.head;
    bucket.head = parameter;
  }
  bucket.waiting = static_cast<std::int32_t>(group_.size());
  in_registry_ += bucket.waiting;
  const std::size_t before = log.events.size();
  const std::int64_t group = secondary ? secondary_ranks_ : ranks_;
  if (ranks_ == 1) {
    launch_alone(bucket, log);
  } else if (sequential_ || group_.size() == 1) {
    launch_each(secondary, group, log);
  } else {
    launch_together(bucket, secondary, group, log);
    if (bucket.views > 0) {
      for (const ParameterIndex p : group_) view_of_[static_cast<std::size_t>(p)] = index;
    }
  }
  for (std::size_t i = before; i < log.events.size(); ++i) log.events[i].pass = pass;
}

// A single rank holds the whole parameter: no collective, the wait synchronises the stream.
// PP:_no_gather_coalesced.
void FetchCoordinator::launch_alone(Bucket& bucket, FetchLog& log) {
  bucket.host_sync = true;
  bucket.sync_each = group_.size() == 1;
  if (!host_parameters_) return;
  for (const ParameterIndex p : group_) {
    const std::int64_t elements = numel_[static_cast<std::size_t>(p)];
    own_buffer_[static_cast<std::size_t>(p)] = elements;
    allocated_ += elements;
    log.events.push_back({.kind = FetchEventKind::load,
                          .stream = gather_stream(),
                          .dtype = dtype_,
                          .subject = p,
                          .elements = Elements::of(elements)});
  }
}

// One all-gather a parameter, straight into the buffer that the parameter becomes a view of.
// PP:_all_gather_sequential.
void FetchCoordinator::launch_each(bool secondary, std::int64_t group, FetchLog& log) {
  for (const ParameterIndex parameter : group_) {
    const auto p = static_cast<std::size_t>(parameter);
    own_buffer_[p] = padded(parameter);
    allocated_ += own_buffer_[p];
    const auto first = static_cast<std::int32_t>(log.parameters.size());
    log.parameters.push_back(parameter);
    log.events.push_back({.kind = FetchEventKind::collective,
                          .stream = gather_stream(),
                          .op = FetchCollective::all_gather,
                          .dtype = dtype_,
                          .asynchronous = true,
                          .secondary = secondary,
                          .first = first,
                          .count = 1,
                          .group = static_cast<std::int32_t>(group),
                          .elements = Elements::of(own_buffer_[p])});
  }
}

// One collective for all. All-gather: the pieces of a parameter lie apart in the flat buffer, so
// the first wait copies every parameter out of it. All-reduce of a buffer that is zero except for
// the own pieces: parameters are views of it. PP:_all_gather_coalesced.
void FetchCoordinator::launch_together(Bucket& bucket,
                                       bool secondary,
                                       std::int64_t group,
                                       FetchLog& log) {
  const bool reduce = all_reduce_ && !secondary;
  for (const ParameterIndex p : group_) {
    bucket.flat += padded(p);
    own_buffer_[static_cast<std::size_t>(p)] = 0;
  }
  bucket.copies = !reduce;
  bucket.views = reduce ? static_cast<std::int32_t>(group_.size()) : 0;
  bucket.piece_of = group;
  allocated_ += bucket.flat;
  const auto first = static_cast<std::int32_t>(log.parameters.size());
  log.parameters.insert(log.parameters.end(), group_.begin(), group_.end());
  log.events.push_back({.kind = FetchEventKind::collective,
                        .stream = gather_stream(),
                        .op = reduce ? FetchCollective::all_reduce : FetchCollective::all_gather,
                        .dtype = dtype_,
                        .asynchronous = true,
                        .in_place = true,
                        .secondary = secondary,
                        .first = first,
                        .count = static_cast<std::int32_t>(group_.size()),
                        .group = static_cast<std::int32_t>(group),
                        .elements = Elements::of(bucket.flat)});
}

void FetchCoordinator::wait(ParameterIndex parameter, bool recorded, FetchLog& log) {
  log.events.push_back({.kind = FetchEventKind::throttle});
  const std::int32_t index = bucket_of_[static_cast<std::size_t>(parameter)];
  take_from_registry(parameter, gather_stream(), log);
  if (recorded) {
    log.events.push_back({.kind = FetchEventKind::record, .stream = gather_stream()});
  }
  finish_bucket(index, log);
}

// Waits for the handle on `stream` and forgets that the parameter is in flight. The first wait on a
// bucket makes all its parameters available. The caller frees the bucket (finish_bucket).
void FetchCoordinator::take_from_registry(ParameterIndex parameter,
                                          FetchStream stream,
                                          FetchLog& log) {
  log.events.push_back({.kind = FetchEventKind::wait, .stream = stream, .subject = parameter});
  const std::int32_t index = bucket_of_[static_cast<std::size_t>(parameter)];
  Bucket& bucket = buckets_[static_cast<std::size_t>(index)];
  if (bucket.host_sync && (bucket.sync_each || !bucket.complete)) {
    log.events.push_back({.kind = FetchEventKind::host_waits_stream, .stream = stream});
  }
  for (ParameterIndex p = bucket.head; p >= 0; p = next_in_bucket_[static_cast<std::size_t>(p)]) {
    if (bucket.complete) break;
    const auto i = static_cast<std::size_t>(p);
    state_[i] = State::available;
    if (!bucket.copies) continue;
    own_buffer_[i] = numel_[i];
    allocated_ += numel_[i];
    const std::int64_t piece = padded(p) / bucket.piece_of;
    log.events.push_back({.kind = FetchEventKind::copy,
                          .stream = stream,
                          .dtype = dtype_,
                          .subject = p,
                          .count = static_cast<std::int32_t>(ceil_div(numel_[i], piece)),
                          .elements = Elements::of(numel_[i])});
  }
  bucket.complete = true;
  bucket_of_[static_cast<std::size_t>(parameter)] = -1;
  --bucket.waiting;
  --in_registry_;
  in_registry_numel_ -= numel_[static_cast<std::size_t>(parameter)];
}

// Drops the flat buffer once nothing refers to it: no parameter left to be waited for, no view.
void FetchCoordinator::finish_bucket(std::int32_t index, FetchLog& log) {
  Bucket& bucket = buckets_[static_cast<std::size_t>(index)];
  if (bucket.waiting > 0 || bucket.views > 0) return;
  if (bucket.flat > 0) {
    allocated_ -= bucket.flat;
    log.events.push_back(
        {.kind = FetchEventKind::bucket_done, .elements = Elements::of(bucket.flat)});
  }
  free_buckets_.push_back(index);
}

std::int32_t FetchCoordinator::new_bucket() {
  if (free_buckets_.empty()) {
    buckets_.emplace_back();
    return static_cast<std::int32_t>(buckets_.size()) - 1;
  }
  const std::int32_t index = free_buckets_.back();
  free_buckets_.pop_back();
  buckets_[static_cast<std::size_t>(index)] = Bucket{};
  return index;
}

// PC:__release_param: only what is complete and has no active user.
void FetchCoordinator::release(ParameterIndex parameter, FetchLog& log) {
  const auto p = static_cast<std::size_t>(parameter);
  if (state_[p] != State::available || holders_[p] > 0) return;
  if (secondary_ranks_ > 1 && !has_secondary_[p]) {
    has_secondary_[p] = 1;
    log.events.push_back({.kind = FetchEventKind::secondary,
                          .dtype = dtype_,
                          .subject = parameter,
                          .elements = Elements::of(padded(parameter) / secondary_ranks_)});
    log.events.push_back(
        {.kind = FetchEventKind::host_waits_stream, .stream = FetchStream::compute});
  }
  swapped_.release(parameter);
  state_[p] = State::absent;
  available_ -= numel_[p];
  live_ -= numel_[p];
  allocated_ -= own_buffer_[p];
  log.events.push_back({.kind = FetchEventKind::release,
                        .subject = parameter,
                        .elements = Elements::of(numel_[p]),
                        .buffer = Elements::of(own_buffer_[p])});
  own_buffer_[p] = 0;
  if (view_of_[p] >= 0) {
    const std::int32_t index = view_of_[p];
    view_of_[p] = -1;
    --buckets_[static_cast<std::size_t>(index)].views;
    finish_bucket(index, log);
  }
}

// PC:release_and_reset_all.
void FetchCoordinator::begin_optimizer_step(FetchLog& log) {
  log.events.push_back({.kind = FetchEventKind::release_all});
  std::fill(slot_active_.begin(), slot_active_.end(), std::uint8_t{0});
  for (auto& recomputed : recomputed_) recomputed.clear();
  for (std::size_t p = 0; p < state_.size(); ++p) {
    const auto parameter = static_cast<ParameterIndex>(p);
    if (bucket_of_[p] >= 0) {
      const std::int32_t index = bucket_of_[p];
      take_from_registry(parameter, FetchStream::compute, log);
      finish_bucket(index, log);
    }
    holders_[p] = 0;
    release(parameter, log);
  }
  if (!rules_.resets_available) available_ = 0;
}

// Z3:_post_step, PP:_all_gather, _allgather_params_coalesced, _allgather_params_sequential.
void FetchCoordinator::end_optimizer_step(FetchLog& log) {
  wanted_.clear();
  for (const ParameterIndex p : persistent_list_) {
    if (state_[static_cast<std::size_t>(p)] == State::absent) wanted_.push_back(p);
  }
  swapped_.ensure(wanted_, log);
  const bool each_alone = sequential_ || wanted_.size() == 1;
  const bool collectives = ranks_ > 1 || each_alone;
  for (const ParameterIndex parameter : wanted_) {
    const auto p = static_cast<std::size_t>(parameter);
    state_[p] = State::available;
    live_ += numel_[p];
    own_buffer_[p] = collectives ? padded(parameter) : host_parameters_ ? numel_[p] : 0;
    allocated_ += own_buffer_[p];
    const auto first = static_cast<std::int32_t>(log.parameters.size());
    log.parameters.push_back(parameter);
    if (!collectives && !host_parameters_) continue;
    log.events.push_back({.kind = collectives ? FetchEventKind::collective : FetchEventKind::load,
                          .op = FetchCollective::all_gather,
                          .dtype = dtype_,
                          .asynchronous = !each_alone,
                          .subject = parameter,
                          .first = first,
                          .count = 1,
                          .group = static_cast<std::int32_t>(ranks_),
                          .elements = Elements::of(own_buffer_[p])});
  }
  if (!wanted_.empty()) {
    log.events.push_back({.kind = collectives ? FetchEventKind::device_synchronize
                                              : FetchEventKind::host_waits_stream});
  }
  // Secondary partitions are out of date, except those of parameters that are not trained.
  for (std::size_t p = 0; p < has_secondary_.size(); ++p) {
    if (!frozen_[p]) has_secondary_[p] = 0;
  }
}

}  // namespace zeroplan
