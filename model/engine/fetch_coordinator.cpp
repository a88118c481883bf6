#include "model/engine/fetch_coordinator.hpp"

#include <algorithm>
#include <limits>

#include "base/check.hpp"
#include "model/releases.hpp"

namespace zeroplan {
namespace {

// Before any fetch in a micro-step: less than every step id.
constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::min();

// "No limit" for a number that others are taken from.
constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max() / 2;

std::vector<ParameterIndex> without_repeats(std::vector<ParameterIndex> parameters) {
  std::sort(parameters.begin(), parameters.end());
  parameters.erase(std::unique(parameters.begin(), parameters.end()), parameters.end());
  return parameters;
}

// Direct parameters of every module, or those of its whole subtree.
std::vector<std::vector<ParameterIndex>> parameters_by_module(const FetchModel& model,
                                                              bool subtree) {
  std::vector<std::vector<ParameterIndex>> result(model.modules.size());
  for (std::size_t m = 0; m < model.modules.size(); ++m) {
    const auto& own = model.modules[m].parameters;
    for (int holder = static_cast<int>(m); holder >= 0;
         holder = subtree ? model.modules[static_cast<std::size_t>(holder)].parent : -1) {
      auto& list = result[static_cast<std::size_t>(holder)];
      list.insert(list.end(), own.begin(), own.end());
    }
  }
  for (auto& list : result) list = without_repeats(std::move(list));
  return result;
}

}  // namespace

// PC of v0.12.6, v0.14.5, v0.16.4, v0.17.6, v0.18.9 and 0.19.6:
// - reset_step is called by stage3.py backward and the recording begins with the first forward;
// since
//   0.16 by the root's forward, and the first forward is not recorded;
// - reset_step clears the count of available elements, in 0.16 only release_and_reset_all does;
// - since 0.17 ranks compare the length of a trace before the trace (zero/utils.py
//   assert_lst_len_same_as_other_ranks);
// - since 0.19 modules whose backward never ended are released after the pass
//   (release_backward_leftovers), and frozen weights fetched in a recomputation belong to the
//   module in backward (update_recompute_parameters). Before, both wait for the step.
FetchCoordinator::Rules FetchCoordinator::rules_of(const EngineConfig& config) {
  return {.resets_after_backward = !config.acts(ReleaseRule::resets_trace_in_forward),
          .resets_available = !config.acts(ReleaseRule::keeps_available_count),
          .agrees_on_length = config.acts(ReleaseRule::agrees_on_trace_length),
          .releases_leftovers = config.acts(ReleaseRule::releases_leftovers),
          .attributes_recomputation = config.acts(ReleaseRule::attributes_recomputation)};
}

FetchCoordinator::FetchCoordinator(const FetchModel& model, const EngineConfig& config)
    : rules_(rules_of(config)),
      max_live_(std::min(config.stage3.max_live_parameters.count(), kNoLimit)),
      max_reuse_distance_(config.stage3.max_reuse_distance.count()),
      ranks_(partition_ranks(config)),
      secondary_ranks_(config.stage3.hpz_partition_size),
      dtype_(config.model_dtype),
      overlap_comm_(config.overlap_comm),
      sequential_(config.stage3.allgather_sequential),
      all_reduce_(config.stage3.use_all_reduce_for_fetch),
      granular_(config.stage3.module_granularity_threshold > Elements::zero()),
      host_parameters_(config.offload_parameter.device != OffloadDevice::none),
      swapped_(model.on_drive, config.offload_parameter.buffer_count) {
  ZP_CHECK(ranks_ >= 1 && secondary_ranks_ >= 1, "ranks must be positive");
  ZP_CHECK(ranks_ % secondary_ranks_ == 0, "the hpZ partition size must divide the ranks");
  if (rules_.resets_after_backward) mode_ = TraceMode::recording;
  // ENG:_configure_zero_optimizer: one collective a parameter leaves no use for a larger bucket.
  prefetch_bucket_ = sequential_ ? 1 : config.stage3.prefetch_bucket.count();

  const std::size_t parameters = model.parameters.size();
  for (const EngineParameter& parameter : model.parameters) {
    numel_.push_back(parameter.numel.count());
    frozen_.push_back(parameter.trainable ? 0 : 1);
  }
  persistent_.assign(parameters, 0);
  for (std::size_t p = 0; p < model.persistent.size(); ++p) {
    if (!model.persistent[p]) continue;
    persistent_[p] = 1;
    persistent_list_.push_back(static_cast<ParameterIndex>(p));
  }
  state_.assign(parameters, State::absent);
  holders_.assign(parameters, 0);
  bucket_of_.assign(parameters, -1);
  view_of_.assign(parameters, -1);
  own_buffer_.assign(parameters, 0);
  // Initialisation gathers every parameter once and releases it, which makes the first secondary
  // partitions (Z3:create_reduce_and_remove_grad_hooks, PP:_partition).
  has_secondary_.assign(parameters, secondary_ranks_ > 1 ? 1 : 0);
  next_in_bucket_.assign(parameters, -1);
  fetched_for_.assign(parameters, kNever);
  marked_.assign(parameters, 0);
  build_slots(model);
}

std::vector<std::int64_t> FetchCoordinator::decided_by(const FetchModel& model,
                                                       const EngineConfig& config) {
  const bool reads =
      std::find(model.on_drive.begin(), model.on_drive.end(), true) != model.on_drive.end();
  const Rules rules = rules_of(config);
  std::vector<std::int64_t> list = {
      rules.resets_after_backward,
      rules.resets_available,
      rules.agrees_on_length,
      rules.releases_leftovers,
      rules.attributes_recomputation,
      std::min(config.stage3.max_live_parameters.count(), kNoLimit),
      config.stage3.max_reuse_distance.count(),
      partition_ranks(config),
      config.stage3.hpz_partition_size,
      static_cast<std::int64_t>(config.model_dtype),
      config.overlap_comm,
      config.stage3.allgather_sequential,
      config.stage3.use_all_reduce_for_fetch,
      config.stage3.module_granularity_threshold > Elements::zero(),
      config.offload_parameter.device != OffloadDevice::none,
      reads ? config.offload_parameter.buffer_count : 0,
      config.stage3.allgather_sequential ? 1 : config.stage3.prefetch_bucket.count()};
  const auto add = [&list](const std::vector<bool>& marks) {
    for (std::size_t p = 0; p < marks.size(); ++p) {
      if (marks[p]) list.push_back(static_cast<std::int64_t>(p));
    }
    list.push_back(-1);
  };
  add(model.persistent);
  add(model.on_drive);
  return list;
}

void FetchCoordinator::build_slots(const FetchModel& model) {
  const std::size_t modules = model.modules.size();
  direct_.parameters = parameters_by_module(model, false);
  for (const FetchModule& module : model.modules) leaf_.push_back(module.leaf ? 1 : 0);
  if (std::find(leaf_.begin(), leaf_.end(), 1) != leaf_.end()) {
    subtree_.parameters = parameters_by_module(model, true);
    const std::vector<ModuleIndex> around = leaves_around(model);
    inside_leaf_.resize(modules);
    for (std::size_t m = 0; m < modules; ++m) {
      inside_leaf_[m] = around[m] >= 0 && around[m] != static_cast<ModuleIndex>(m) ? 1 : 0;
    }
  }
  for (std::size_t m = 0; m < modules; ++m) {
    const auto& own = leaf_[m] ? subtree_.parameters[m] : direct_.parameters[m];
    const auto begin = static_cast<std::int32_t>(slot_parameters_.size());
    slot_parameters_.insert(slot_parameters_.end(), own.begin(), own.end());
    slots_.push_back({begin, static_cast<std::int32_t>(slot_parameters_.size())});
  }
  slot_active_.assign(slot_parameters_.size(), 0);
  backward_previous_.assign(modules, -1);
  backward_next_.assign(modules, -1);
  in_backward_list_.assign(modules, 0);
  recomputed_.resize(modules);
}

// --- the trace --------------------------------------------------------------------------------

void FetchCoordinator::Walk::index(const std::vector<ModuleIndex>& order,
                                   const std::vector<std::int64_t>& numel) {
  distance.assign(1, 0);
  use_offsets.assign(numel.size() + 1, 0);
  for (const ModuleIndex m : order) {
    std::int64_t sum = distance.back();
    for (const ParameterIndex p : parameters[static_cast<std::size_t>(m)]) {
      sum += numel[static_cast<std::size_t>(p)];
      ++use_offsets[static_cast<std::size_t>(p) + 1];
    }
    distance.push_back(sum);
  }
  for (std::size_t p = 0; p < numel.size(); ++p) use_offsets[p + 1] += use_offsets[p];
  uses.assign(static_cast<std::size_t>(use_offsets.back()), 0);
  std::vector<std::int32_t> next(use_offsets.begin(), use_offsets.end() - 1);
  for (std::size_t position = 0; position < order.size(); ++position) {
    for (const ParameterIndex p : parameters[static_cast<std::size_t>(order[position])]) {
      uses[static_cast<std::size_t>(next[static_cast<std::size_t>(p)]++)] =
          static_cast<std::int32_t>(position);
    }
  }
}

// One past the last trace position that the reuse rule looks at: it goes on while the elements
// of the modules seen since `step` are fewer than the distance.
std::int32_t FetchCoordinator::Walk::end_of_reuse(std::int32_t step,
                                                  std::int64_t max_distance) const {
  const auto length = static_cast<std::int32_t>(distance.size()) - 1;
  if (step >= length) return length;
  const std::int64_t start = distance[static_cast<std::size_t>(step)];
  if (max_distance > distance.back() - start) return length;
  const auto end = std::lower_bound(distance.begin() + step, distance.end(), start + max_distance);
  return static_cast<std::int32_t>(end - distance.begin());
}

bool FetchCoordinator::Walk::used_within(ParameterIndex parameter,
                                         std::int32_t begin,
                                         std::int32_t end) const {
  const auto p = static_cast<std::size_t>(parameter);
  const auto last = uses.begin() + use_offsets[p + 1];
  const auto next = std::lower_bound(uses.begin() + use_offsets[p], last, begin);
  return next != last && *next < end;
}

void FetchCoordinator::complete_trace() {
  queue_.clear();
  for (std::size_t position = 0; position < order_.size(); ++position) {
    const Slots slots = slots_[static_cast<std::size_t>(order_[position])];
    for (std::int32_t slot = slots.begin; slot < slots.end; ++slot) {
      queue_.push_back(
          {slot_parameters_[static_cast<std::size_t>(slot)], static_cast<std::int32_t>(position)});
    }
  }
  direct_.index(order_, numel_);
  if (!subtree_.parameters.empty()) subtree_.index(order_, numel_);
  if (memo_heads_.size() < order_.size() + 1) memo_heads_.resize(order_.size() + 1, -1);
}

void FetchCoordinator::begin_micro_step(FetchLog& log) {
  in_backward_ = false;
  if (!rules_.resets_after_backward) reset_step(log);
}

void FetchCoordinator::reset_step(FetchLog& log) {
  drop_in_flight(log);
  const auto broadcast = [&](std::int64_t elements) {
    log.events.push_back({.kind = FetchEventKind::agreement,
                          .op = FetchCollective::broadcast,
                          .dtype = DType::int64,
                          .group = static_cast<std::int32_t>(ranks_),
                          .elements = Elements::of(elements)});
  };
  const auto agree = [&](std::size_t integers) {
    if (rules_.agrees_on_length) broadcast(1);
    broadcast(static_cast<std::int64_t>(integers));
  };
  if (mode_ != TraceMode::complete) {
    agree(order_.size());
    if (mode_ == TraceMode::recording) {
      complete_trace();
      agree(queue_.size());
      agree(queue_.size());
      mode_ = TraceMode::complete;
    } else {
      mode_ = TraceMode::recording;
    }
  }
  queue_head_ = 0;
  std::fill(fetched_for_.begin(), fetched_for_.end(), kNever);
  step_ = 0;
  if (rules_.resets_available) available_ = 0;
  log.events.push_back({.kind = FetchEventKind::micro_step,
                        .mode = mode_,
                        .elements = live(),
                        .buffer = allocated()});
}

// PC:trace_prologue, _invalidate_trace. What was memoised of the old trace stays, as in the engine.
void FetchCoordinator::check_trace(ModuleIndex module, FetchLog& log) {
  if (mode_ != TraceMode::complete) return;
  const auto step = static_cast<std::size_t>(step_);
  if (step < order_.size() && order_[step] == module) return;
  log.events.push_back({.kind = FetchEventKind::invalidated, .subject = module, .step = step_});
  forget_trace(log);
}

void FetchCoordinator::invalidate(FetchLog& log) {
  if (mode_ != TraceMode::invalid) forget_trace(log);
}

void FetchCoordinator::forget_trace(FetchLog& log) {
  mode_ = TraceMode::invalid;
  order_.clear();
  queue_.clear();
  queue_head_ = 0;
  std::fill(fetched_for_.begin(), fetched_for_.end(), kNever);
  drop_in_flight(log);
}

// PC:_clean_inflight_param_registry.
void FetchCoordinator::drop_in_flight(FetchLog& log) {
  for (std::size_t p = 0; in_registry_ > 0 && p < bucket_of_.size(); ++p) {
    if (bucket_of_[p] < 0) continue;
    const auto parameter = static_cast<ParameterIndex>(p);
    const std::int32_t bucket = bucket_of_[p];
    take_from_registry(parameter, FetchStream::compute, log);
    finish_bucket(bucket, log);
    release(parameter, log);
  }
}

// --- modules ----------------------------------------------------------------------------------

void FetchCoordinator::enter(ModuleIndex module, FetchPass pass, FetchLog& log) {
  if (has_no_hooks(module)) return;
  check_trace(module, log);
  if (mode_ == TraceMode::recording) order_.push_back(module);
  log.events.push_back({.kind = FetchEventKind::enter,
                        .pass = pass,
                        .subject = module,
                        .step = step_,
                        .elements = counted_available()});
  if (pass == FetchPass::backward) enter_backward(module);
  fetch_own(module, pass, log);
  if (mode_ == TraceMode::complete) prefetch(pass, log);
  ++step_;
}

void FetchCoordinator::exit(ModuleIndex module, FetchPass pass, FetchLog& log) {
  if (has_no_hooks(module)) return;
  log.events.push_back({.kind = FetchEventKind::exit,
                        .pass = pass,
                        .subject = module,
                        .step = step_,
                        .elements = counted_available()});
  const Slots slots = slots_[static_cast<std::size_t>(module)];
  auto& recomputed = recomputed_[static_cast<std::size_t>(module)];
  std::uint8_t* flags = slots.begin == slots.end ? nullptr : flags_to_release(module);
  if (pass == FetchPass::backward && flags != nullptr) {
    // The engine adds these to the memoised set itself, so they stay in it.
    for (const ParameterIndex p : recomputed) {
      const std::int32_t slot = slot_of(module, p);
      if (slot >= 0 && !persistent_[static_cast<std::size_t>(p)]) flags[slot - slots.begin] = 1;
    }
  }
  for (std::int32_t slot = slots.begin; slot < slots.end; ++slot) {
    const auto s = static_cast<std::size_t>(slot);
    const ParameterIndex p = slot_parameters_[s];
    if (slot_active_[s]) --holders_[static_cast<std::size_t>(p)];
    slot_active_[s] = 0;
    if (flags == nullptr || flags[slot - slots.begin]) release(p, log);
  }
  if (pass == FetchPass::backward) {
    release_recomputed(module, log);
    leave_backward(module);
  }
}

// Frozen parameters of other modules that a recomputation left with this one.
void FetchCoordinator::release_recomputed(ModuleIndex module, FetchLog& log) {
  auto& recomputed = recomputed_[static_cast<std::size_t>(module)];
  for (const ParameterIndex p : recomputed) {
    if (slot_of(module, p) >= 0) continue;
    --holders_[static_cast<std::size_t>(p)];
    if (!persistent_[static_cast<std::size_t>(p)]) release(p, log);
  }
  recomputed.clear();
}

// One flag for each slot of the module: it may be released now. While there is no complete trace
// everything goes, persistent parameters too (nullptr). The decision for a module at a step is made
// once, when it first comes up, and kept (the engine caches it).
std::uint8_t* FetchCoordinator::flags_to_release(ModuleIndex module) {
  if (mode_ != TraceMode::complete) return nullptr;
  auto& head = memo_heads_[static_cast<std::size_t>(step_)];
  for (std::int32_t i = head; i >= 0; i = memos_[static_cast<std::size_t>(i)].next) {
    const Memo& memo = memos_[static_cast<std::size_t>(i)];
    if (memo.module == module) return memo_flags_.data() + memo.flags;
  }
  const Slots slots = slots_[static_cast<std::size_t>(module)];
  const auto flags = static_cast<std::int32_t>(memo_flags_.size());
  memo_flags_.resize(memo_flags_.size() + static_cast<std::size_t>(slots.end - slots.begin), 0);
  memos_.push_back({module, flags, head});
  head = static_cast<std::int32_t>(memos_.size()) - 1;
  decide_release(module, memo_flags_.data() + flags);
  return memo_flags_.data() + flags;
}

// PC:__params_to_release. A leaf module walks the trace by subtrees, any other by direct
// parameters, whatever the modules it meets.
void FetchCoordinator::decide_release(ModuleIndex module, std::uint8_t* flags) const {
  const Walk& walk = leaf_[static_cast<std::size_t>(module)] ? subtree_ : direct_;
  const Slots slots = slots_[static_cast<std::size_t>(module)];
  const std::int32_t end = walk.end_of_reuse(step_, max_reuse_distance_);
  for (std::int32_t slot = slots.begin; slot < slots.end; ++slot) {
    const ParameterIndex parameter = slot_parameters_[static_cast<std::size_t>(slot)];
    const auto p = static_cast<std::size_t>(parameter);
    const bool keep =
        persistent_[p] || fetched_for_[p] > step_ || walk.used_within(parameter, step_, end);
    flags[slot - slots.begin] = keep ? 0 : 1;
  }
}

// --- the backward pass ------------------------------------------------------------------------

void FetchCoordinator::begin_backward(FetchLog& log) {
  in_backward_ = true;
  log.events.push_back({.kind = FetchEventKind::backward});
}

void FetchCoordinator::end_backward(FetchLog& log) {
  in_backward_ = false;
  if (!rules_.releases_leftovers) {
    while (innermost_ >= 0) leave_backward(innermost_);
    if (rules_.resets_after_backward) reset_step(log);
    return;
  }
  if (innermost_ < 0) return;
  log.events.push_back({.kind = FetchEventKind::leftovers});
  while (innermost_ >= 0) {
    const ModuleIndex module = innermost_;
    leave_backward(module);
    const Slots slots = slots_[static_cast<std::size_t>(module)];
    for (std::int32_t slot = slots.begin; slot < slots.end; ++slot) {
      const auto s = static_cast<std::size_t>(slot);
      const auto p = static_cast<std::size_t>(slot_parameters_[s]);
      if (slot_active_[s]) --holders_[p];
      slot_active_[s] = 0;
      if (!persistent_[p]) release(slot_parameters_[s], log);
    }
    release_recomputed(module, log);
  }
}

// The module becomes a user of the parameter in a recomputation of the innermost module.
void FetchCoordinator::hold(ModuleIndex module, ParameterIndex parameter) {
  auto& recomputed = recomputed_[static_cast<std::size_t>(module)];
  const bool known = std::find(recomputed.begin(), recomputed.end(), parameter) != recomputed.end();
  if (!known) recomputed.push_back(parameter);
  const std::int32_t slot = slot_of(module, parameter);
  if (slot >= 0) {
    auto& active = slot_active_[static_cast<std::size_t>(slot)];
    if (!active) ++holders_[static_cast<std::size_t>(parameter)];
    active = 1;
  } else if (!known) {
    ++holders_[static_cast<std::size_t>(parameter)];
  }
}

std::int32_t FetchCoordinator::slot_of(ModuleIndex module, ParameterIndex parameter) const {
  const Slots slots = slots_[static_cast<std::size_t>(module)];
  const auto begin = slot_parameters_.begin() + slots.begin;
  const auto end = slot_parameters_.begin() + slots.end;
  const auto found = std::lower_bound(begin, end, parameter);
  if (found == end || *found != parameter) return -1;
  return static_cast<std::int32_t>(found - slot_parameters_.begin());
}

// Modules in backward, in the order in which they began; a module that begins again keeps its
// place.
void FetchCoordinator::enter_backward(ModuleIndex module) {
  const auto m = static_cast<std::size_t>(module);
  if (in_backward_list_[m]) return;
  in_backward_list_[m] = 1;
  backward_previous_[m] = innermost_;
  backward_next_[m] = -1;
  if (innermost_ >= 0) backward_next_[static_cast<std::size_t>(innermost_)] = module;
  innermost_ = module;
}

void FetchCoordinator::leave_backward(ModuleIndex module) {
  const auto m = static_cast<std::size_t>(module);
  if (!in_backward_list_[m]) return;
  in_backward_list_[m] = 0;
  const std::int32_t before = backward_previous_[m];
  const std::int32_t after = backward_next_[m];
  if (before >= 0) backward_next_[static_cast<std::size_t>(before)] = after;
  if (after >= 0) backward_previous_[static_cast<std::size_t>(after)] = before;
  if (innermost_ == module) innermost_ = before;
}

}  // namespace zeroplan
