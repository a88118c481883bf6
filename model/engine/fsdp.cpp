#include "model/engine/fsdp.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "model/engine/buffer_list.hpp"
#include "model/engine/optimizer_states.hpp"
#include "model/quantization.hpp"

namespace zeroplan {
namespace {

// Appends the events of one micro-step; knows which units are gathered.
class Issue {
 public:
  Issue(const FsdpConfig& config, std::span<const FsdpUnit> units, int micro_step)
      : config_(config),
        units_(units),
        reduces_(fsdp_reduces(config, micro_step)),
        keeps_(fsdp_keeps_gathered(config, micro_step)),
        gathered_(units.size(), micro_step > 0 && fsdp_keeps_gathered(config, micro_step - 1)),
        limited_(units.size(), false) {}

  void forward(std::span<const int> visits) {
    for (const int visit : visits) {
      unshard_all(visit, false);
      add(FsdpEventKind::compute, visit, false);
      // The root's weights are kept for the backward pass that follows at once
      // (_post_forward_reshard).
      if (config_.sharding == Sharding::full && !is_root(visit)) reshard_all(visit, false);
    }
  }

  void backward(std::span<const int> visits) {
    for (std::size_t i = visits.size(); i-- > 0;) {
      const int visit = visits[i];
      unshard_all(visit, true);
      // BACKWARD_PRE: the next unit's gather is sent before this one's gradients are computed, so
      // before their reduction, too (_pre_backward_hook). Next is the unit whose forward pass ended
      // before: behind a block's begins that of its last adapter, and its first adapter's backward
      // pass, at the end of the block's, sends for the block before
      // (get_handle_to_backward_prefetch).
      const bool prefetches = config_.backward_prefetch && i > 0;
      const bool has_adapters = unit_of(visit).adapters >= 0;
      if (prefetches && !has_adapters) unshard_all(visits[i - 1], true);
      add(FsdpEventKind::compute, visit, true);
      if (prefetches && has_adapters) unshard_all(visits[i - 1], true);
      const bool again =
          std::find(visits.begin(), visits.begin() + static_cast<std::ptrdiff_t>(i), visit) !=
          visits.begin() + static_cast<std::ptrdiff_t>(i);
      if (again) continue;  // the flat parameter's gradient is complete with its first use
      if (config_.sharding != Sharding::no_shard && !keeps_) reshard_all(visit, true);
      if (!reduces_) continue;
      if (unit_of(visit).trains) reduce(visit);
      if (unit_of(visit).adapters >= 0) reduce(unit_of(visit).adapters);
    }
  }

  std::vector<FsdpEvent> take() { return std::move(events_); }

 private:
  const FsdpUnit& unit_of(int unit) const { return units_[static_cast<std::size_t>(unit)]; }
  bool is_root(int unit) const { return unit_of(unit).block < 0; }

  // With the adapters inside the block, whose own units run in its passes.
  void unshard_all(int unit, bool backward) {
    unshard(unit, backward);
    if (unit_of(unit).adapters >= 0) unshard(unit_of(unit).adapters, backward);
  }
  void reshard_all(int unit, bool backward) {
    reshard(unit, backward);
    if (unit_of(unit).adapters >= 0) reshard(unit_of(unit).adapters, backward);
  }

  void add(FsdpEventKind kind, int unit, bool backward) {
    FsdpEvent event;
    event.kind = kind;
    event.unit = unit;
    event.backward = backward;
    events_.push_back(event);
  }

  void unshard(int unit, bool backward) {
    const auto index = static_cast<std::size_t>(unit);
    if (units_[index].numel == Elements::zero()) return;
    // FSDP1 asks its rate limiter before it sees that there is nothing to gather (_runtime_utils.py
    // _unshard), once a unit in backward: what was prefetched is not asked for again.
    const bool limits = backward && config_.version == 1 && !limited_[index];
    if (limits) limited_[index] = true;
    if (gathered_[index]) {
      if (limits) add(FsdpEventKind::rate_limit, unit, backward);
      return;
    }
    gathered_[index] = true;
    FsdpEvent event;
    event.kind = FsdpEventKind::unshard;
    event.unit = unit;
    event.backward = backward;
    event.bytes = gathered_bytes(config_, units_[index]);
    event.ranks = config_.sharding == Sharding::no_shard ? 1 : config_.shard_ranks;
    events_.push_back(event);
  }

  void reshard(int unit, bool backward) {
    gathered_[static_cast<std::size_t>(unit)] = false;
    add(FsdpEventKind::reshard, unit, backward);
  }

  void collective(FsdpEventKind kind, int unit, Elements elements, int ranks) {
    if (elements == Elements::zero()) return;
    FsdpEvent event;
    event.kind = kind;
    event.unit = unit;
    event.backward = true;
    event.dtype = reduced_dtype(config_, unit_of(unit));
    event.bytes = elements * event.dtype;
    event.ranks = ranks;
    events_.push_back(event);
  }

  void reduce(int unit) {
    const FsdpUnit& u = units_[static_cast<std::size_t>(unit)];
    if (config_.sharding == Sharding::no_shard) {
      collective(FsdpEventKind::all_reduce, unit, u.reduced, config_.ranks);
      return;
    }
    collective(FsdpEventKind::reduce_scatter, unit, u.reduced, config_.shard_ranks);
    const int copies = config_.ranks / config_.shard_ranks;
    if (copies > 1) collective(FsdpEventKind::all_reduce, unit, u.shard, copies);
  }

  const FsdpConfig& config_;
  std::span<const FsdpUnit> units_;
  bool reduces_, keeps_;
  std::vector<bool> gathered_;
  std::vector<bool> limited_;  // in backward
  std::vector<FsdpEvent> events_;
};

// Four-bit weights lie in the flat parameter as elements of its dtype (bnb.nn.Linear4bit
// quant_storage, which has to be that dtype: FSDP refuses to mix them).
Elements stored_elements(const FsdpConfig& config, const EngineParameter& parameter) {
  if (!parameter.quantized) return parameter.numel;
  return Elements::of(
      ceil_div(four_bit_weight(parameter.numel).count(), width(config.storage_dtype)));
}

// The shards cut through parameters: of `trained` pieces of the flat parameter, what the rank with
// most of it has.
Elements most_owned(const FsdpUnit& unit,
                    std::int64_t ranks,
                    const std::vector<std::pair<std::int64_t, std::int64_t>>& trained) {
  std::int64_t most = 0;
  const std::int64_t shard = unit.shard.count();
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    std::int64_t owned = 0;
    for (const auto& [begin, end] : trained) {
      owned += std::max<std::int64_t>(
          0, std::min(end, (rank + 1) * shard) - std::max(begin, rank * shard));
    }
    most = std::max(most, owned);
    if (most == shard) break;
  }
  return Elements::of(most);
}

// Each parameter is cut into rows, the last piece padded (_fsdp_param.py _init_sharded_param).
void cut_rows(const FsdpConfig& config,
              std::span<const EngineParameter> parameters,
              int pieces,
              FsdpUnit& unit) {
  for (const int index : unit.parameters) {
    const EngineParameter& parameter = parameters[static_cast<std::size_t>(index)];
    const std::int64_t stored = stored_elements(config, parameter).count();
    const std::int64_t row =
        parameter.quantized
            ? 1
            : std::max<std::int64_t>(1, stored / std::max<std::int64_t>(1, parameter.rows));
    const Elements shard = Elements::of(ceil_div(stored / row, pieces) * row);
    unit.shards.push_back(shard);
    unit.shard_dtypes.push_back(parameter.own_dtype.value_or(config.storage_dtype));
    unit.shard += shard;
    if (!parameter.trainable) continue;
    (parameter.wide_states ? unit.wide_shards : unit.owned_shards).push_back(shard);
    unit.owned += shard;
  }
  unit.padded = unit.shard * pieces;
  unit.reduced = unit.owned * pieces;
}

// The flat parameter lies in its parameters' order over the ranks' shards; each adapter is a unit
// of its own.
void find_views(const FsdpConfig& config,
                std::span<const EngineParameter> parameters,
                int pieces,
                FsdpUnit& unit) {
  Elements left = unit.shard;
  for (const int index : unit.parameters) {
    const Elements stored = stored_elements(config, parameters[static_cast<std::size_t>(index)]);
    const Elements own = Elements::of(ceil_div(stored.count(), pieces));
    unit.views.push_back(std::min(unit.are_adapters ? own : stored, left));
    left -= unit.views.back();
  }
}

// The optimizer is given the original parameters.
void share_views(std::span<const EngineParameter> parameters, FsdpUnit& unit) {
  for (std::size_t i = 0; i < unit.views.size(); ++i) {
    if (unit.views[i] == Elements::zero()) continue;
    const EngineParameter& parameter = parameters[static_cast<std::size_t>(unit.parameters[i])];
    (parameter.wide_states ? unit.wide_shards : unit.owned_shards).push_back(unit.views[i]);
  }
}

void close_unit(const FsdpConfig& config,
                std::span<const EngineParameter> parameters,
                FsdpUnit& unit) {
  // FlatParamHandle pads to a multiple of the ranks, so that all-gather and reduce-scatter have
  // equal pieces (_flat_param.py _get_shard).
  const int pieces = config.sharding == Sharding::no_shard ? 1 : config.shard_ranks;
  std::vector<std::pair<std::int64_t, std::int64_t>> trained, wide;
  bool all = true;
  for (const int index : unit.parameters) {
    const EngineParameter& parameter = parameters[static_cast<std::size_t>(index)];
    const Elements stored = stored_elements(config, parameter);
    const std::int64_t begin = unit.numel.count();
    unit.numel += stored;
    if (parameter.trainable) {
      trained.emplace_back(begin, unit.numel.count());
      unit.own_dtype = parameter.own_dtype;
    }
    if (parameter.wide_states) wide.emplace_back(begin, unit.numel.count());
    all = all && parameter.trainable;
    if (parameter.quantized) {
      unit.quantization_state += four_bit_state(parameter.numel, config.double_quant);
    }
  }
  unit.trains = !trained.empty();
  if (config.version == 2) {
    cut_rows(config, parameters, pieces, unit);
    return;
  }
  unit.shard = Elements::of(ceil_div(unit.numel.count(), pieces));
  unit.padded = unit.reduced = unit.shard * pieces;
  unit.owned = all ? unit.shard : most_owned(unit, pieces, trained);
  find_views(config, parameters, pieces, unit);
  unit.shards = {unit.shard};
  unit.shard_dtypes = {stored_dtype(config, unit)};
  if (all && config.original_parameters) {
    share_views(parameters, unit);
    return;
  }
  const Elements wides = wide.empty() ? Elements::zero() : most_owned(unit, pieces, wide);
  if (wides > Elements::zero()) unit.wide_shards = {wides};
  if (unit.owned > wides) unit.owned_shards = {unit.owned - wides};
}

// Elements of a unit's shard, or of the whole unit, in the dtype of what is frozen and, of them,
// those that are trained in their own. FSDP1 keeps one dtype a unit.
Bytes mixed(const FsdpConfig& config,
            const FsdpUnit& unit,
            Elements all,
            DType frozen,
            Elements trained,
            DType own) {
  if (unit.trains && config.version == 1) return all * own;
  return (all - trained) * frozen + trained * own;
}

}  // namespace

std::vector<FsdpUnit> fsdp_units(const FsdpConfig& config,
                                 std::span<const EngineParameter> parameters,
                                 std::span<const int> block_of) {
  ZP_CHECK(parameters.size() == block_of.size(), "a parameter without a unit");
  const int last = block_of.empty() ? -1 : *std::max_element(block_of.begin(), block_of.end());
  const std::size_t blocks = static_cast<std::size_t>(last) + 2;  // the root's unit comes first
  std::vector<FsdpUnit> units(blocks), adapters(blocks);
  std::vector<bool> frozen(blocks, false);
  const auto place_of = [&](std::size_t parameter) {
    const int unit = block_of[parameter] + 1;
    return static_cast<std::size_t>(unit);
  };
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].trainable) frozen[place_of(i)] = true;
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::size_t place = place_of(i);
    const bool apart = config.separate_adapters && frozen[place] && parameters[i].trainable;
    (apart ? adapters : units)[place].parameters.push_back(static_cast<int>(i));
  }
  for (std::size_t u = 0; u < blocks; ++u) {
    units[u].block = static_cast<int>(u) - 1;
    if (adapters[u].parameters.empty()) continue;
    adapters[u].block = units[u].block;
    adapters[u].are_adapters = true;
    adapters[u].messages = static_cast<int>(adapters[u].parameters.size());
    units[u].adapters = static_cast<int>(units.size());
    units.push_back(std::move(adapters[u]));
  }
  for (FsdpUnit& unit : units) close_unit(config, parameters, unit);
  return units;
}

Bytes whole_bytes(const FsdpConfig& config, const EngineParameter& parameter) {
  if (parameter.quantized) return four_bit_weight(parameter.numel);
  return parameter.numel * parameter.own_dtype.value_or(config.storage_dtype);
}

std::vector<int> fsdp_unit_of(std::span<const FsdpUnit> units, std::size_t parameters) {
  std::vector<int> result(parameters, 0);
  for (std::size_t u = 0; u < units.size(); ++u) {
    for (const int parameter : units[u].parameters) {
      result[static_cast<std::size_t>(parameter)] = static_cast<int>(u);
    }
  }
  return result;
}

std::vector<FsdpEvent> fsdp_micro_step(const FsdpConfig& config,
                                       std::span<const FsdpUnit> units,
                                       std::span<const int> visits,
                                       int micro_step) {
  Issue issue(config, units, micro_step);
  issue.forward(visits);
  issue.backward(visits);
  return issue.take();
}

bool fsdp_reduces(const FsdpConfig& config, int micro_step) {
  return config.reduces_every_micro_step || micro_step == config.gradient_accumulation_steps - 1;
}

bool fsdp_keeps_gathered(const FsdpConfig& config, int micro_step) {
  return config.version == 1 && config.sharding == Sharding::grad_op &&
         !fsdp_reduces(config, micro_step);
}

Bytes stored_bytes(const FsdpConfig& config, const FsdpUnit& unit) {
  return mixed(
      config, unit, unit.shard, config.storage_dtype, unit.owned, stored_dtype(config, unit));
}

Bytes sent_bytes(const FsdpConfig& config, const FsdpUnit& unit) {
  return mixed(
      config, unit, unit.shard, config.compute_dtype, unit.owned, computed_dtype(config, unit));
}

Bytes cast_bytes(const FsdpConfig& config, const FsdpUnit& unit) {
  if (!casts_shards(config, unit)) return Bytes::zero();
  if (config.storage_dtype != config.compute_dtype || config.version == 1) {
    return sent_bytes(config, unit);
  }
  return unit.owned * computed_dtype(config, unit);
}

Bytes gathered_bytes(const FsdpConfig& config, const FsdpUnit& unit) {
  return mixed(config,
               unit,
               unit.padded,
               config.compute_dtype,
               unit.trains ? unit.reduced : Elements::zero(),
               computed_dtype(config, unit));
}

std::vector<EngineBuffer> fsdp_buffers(const FsdpConfig& config, std::span<const FsdpUnit> units) {
  EngineConfig engine;
  engine.optimizer_state_dtype = config.storage_dtype;
  for (const FsdpUnit& unit : units) {
    if (unit.trains) engine.optimizer_state_dtype = stored_dtype(config, unit);
  }
  detail::BufferList list(engine);
  const bool waits = !config.reduces_every_micro_step && config.gradient_accumulation_steps > 1;
  const BufferLifetime from_window = config.gradients_held ? BufferLifetime::window_to_next_backward
                                                           : BufferLifetime::window_to_step;
  const BufferLifetime from_boundary = config.gradients_held
                                           ? BufferLifetime::boundary_to_next_backward
                                           : BufferLifetime::boundary_to_step;
  const BufferLifetime kept = waits ? from_boundary : from_window;
  // Offloaded shards and their gradients are pinned; the optimizer makes its states where they are
  // (_flat_param.py init_flat_param_attributes, _cpu_grad).
  const BufferPlace shards = config.offload ? BufferPlace::host_pinned : BufferPlace::gpu;
  const BufferPlace states = config.offload ? BufferPlace::host_pageable : BufferPlace::gpu;
  const auto add = [&](BufferName name,
                       std::size_t unit,
                       Elements numel,
                       DType dtype,
                       BufferPlace place,
                       MemoryCategory category,
                       BufferLifetime lifetime) -> EngineBuffer& {
    return list.add(name, static_cast<int>(unit), numel, dtype, place, category, lifetime);
  };
  constexpr auto kGradients = MemoryCategory::gradients;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const FsdpUnit& unit = units[u];
    for (std::size_t i = 0; i < unit.shards.size(); ++i) {
      add(BufferName::flat_param_local_shard,
          u,
          unit.shards[i],
          unit.shard_dtypes[i],
          shards,
          MemoryCategory::parameters,
          BufferLifetime::resident);
    }
    if (unit.quantization_state > Bytes::zero()) {
      add(BufferName::quant_state,
          u,
          Elements::of(unit.quantization_state.count()),
          DType::uint8,
          BufferPlace::gpu,
          MemoryCategory::parameters,
          BufferLifetime::resident);
    }
    if (!unit.trains) continue;
    // The reduced gradient is cast to the shard's dtype (_cast_grad_to_param_dtype).
    add(config.offload ? BufferName::flat_param_cpu_grad : BufferName::flat_param_saved_grad_shard,
        u,
        config.version == 2 ? unit.owned : unit.shard,
        stored_dtype(config, unit),
        shards,
        kGradients,
        config.offload ? BufferLifetime::resident : kept);
    // no_sync: the whole gradient in the dtype of the computation, until the last micro-step.
    if (waits) {
      add(BufferName::flat_param_grad,
          u,
          config.version == 2 ? unit.reduced : unit.padded,
          computed_dtype(config, unit),
          BufferPlace::gpu,
          kGradients,
          BufferLifetime::window);
    }
    const auto add_states = [&](Elements owned, bool wide) {
      for (const OptimizerState& state : optimizer_states(config.optimizer, owned, wide)) {
        add(BufferName::state,
            u,
            state_numel(state, owned),
            state_dtype(state, engine),
            states,
            MemoryCategory::optimizer_states,
            BufferLifetime::first_step_on)
            .suffix = state.suffix;
      }
    };
    for (const Elements owned : unit.owned_shards) add_states(owned, false);
    for (const Elements owned : unit.wide_shards) add_states(owned, true);
  }
  return list.take();
}

Bytes fsdp_step_temporaries(const FsdpConfig& config,
                            std::span<const FsdpUnit> units,
                            std::span<const EngineParameter> parameters) {
  if (config.offload) return Bytes::zero();
  Elements largest;
  for (const FsdpUnit& unit : units) {
    for (const Elements owned : unit.owned_shards) largest = std::max(largest, owned);
  }
  return update_bytes(config.optimizer,
                      config.optimizer_implementation,
                      fsdp_owned(units),
                      largest,
                      trained_dtype(parameters, config.storage_dtype));
}

Elements fsdp_owned(std::span<const FsdpUnit> units) {
  Elements sum;
  for (const FsdpUnit& unit : units) sum += unit.owned;
  return sum;
}

}  // namespace zeroplan
