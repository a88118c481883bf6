// PyTorch's FullyShardedDataParallel as plain data: which parameters share a flat parameter, what
// is gathered, freed and reduced in which order, and what a rank holds.
//
// Every wrapped block is a unit with one flat parameter; what no block holds (embedding, last norm,
// head) is the root's unit. The root is unit 0. Sources: torch 2.6 torch/distributed/fsdp/
// _runtime_utils.py, _flat_param.py, _limiter_utils.py, fully_sharded_data_parallel.py, with
// use_orig_params or without. fully_shard (FSDP2) has no flat parameters: each is cut along its
// first dimension, gathered with its unit's others in one message, copied out into a tensor of its
// own, and reduced with them in one message; torch 2.11 torch/distributed/fsdp/_fully_shard/
// _fsdp_param_group.py, _fsdp_collectives.py. Symbols: N ranks of the shard group, p elements of a
// unit, P_u = N ceil(p / N) with padding; s, c, r: bytes of an element stored, computed with,
// reduced.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/units.hpp"
#include "model/dtype.hpp"
#include "model/engine/buffers.hpp"
#include "model/engine/engine_config.hpp"

namespace zeroplan {

enum class Sharding {
  full,     // FULL_SHARD: weights are freed after the forward pass of their unit
  grad_op,  // SHARD_GRAD_OP: they stay gathered until the backward pass
  no_shard  // NO_SHARD: every rank has all; gradients are all-reduced
};

struct FsdpConfig {
  int version = 1;  // 2: fully_shard
  Sharding sharding = Sharding::full;
  int ranks = 1;        // that train together
  int shard_ranks = 1;  // that share one copy; fewer than `ranks`: HYBRID_SHARD
  int gradient_accumulation_steps = 1;
  // Of shards, their gradients and the optimizer's states, where a parameter has none of its own.
  DType storage_dtype = DType::fp32;
  DType loaded_dtype = DType::fp32;   // from_pretrained's dtype, before accelerate upcasts
  DType compute_dtype = DType::bf16;  // MixedPrecision.param_dtype
  DType reduce_dtype = DType::bf16;   // MixedPrecision.reduce_dtype
  bool backward_prefetch = true;      // BACKWARD_PRE, the default
  // false: gradients stay unsharded until the last micro-step (no_sync, which accelerate enters).
  bool reduces_every_micro_step = true;
  // zero_grad() comes behind the next forward pass; FSDP lets go of what it clears when the root's
  // backward pass begins (_runtime_utils.py _pre_backward_hook).
  bool gradients_held = false;
  OptimizerKind optimizer = OptimizerKind::torch_adam;
  OptimizerImplementation optimizer_implementation = OptimizerImplementation::foreach;
  // Trained leaf modules are wrapped alone, so that no flat parameter mixes them with frozen ones
  // (peft's fsdp_auto_wrap_policy). fully_shard has no need of it. false:
  // use_orig_params mixes them, and a unit that trains anything gets whole gradients.
  bool separate_adapters = true;
  bool original_parameters = true;  // use_orig_params: the optimizer's are views of the shards
  // MixedPrecision is on: adapters that are stored wider are gathered and reduced as the rest.
  // Without, in their own dtype.
  bool casts_adapters = false;
  bool offload = false;       // CPUOffload(offload_params=True): shards, gradients, states on hosts
  bool double_quant = false;  // of scales, where weights are stored in four bits
};

struct FsdpUnit {
  int block = -1;               // of FsdpUnits::blocks; -1: the root
  std::vector<int> parameters;  // in module order
  Elements numel;               // of the flat parameter; four-bit weights fill its wider elements
  Elements padded;              // P_u
  Elements shard;               // P_u / N
  std::vector<Elements> shards, owned_shards;  // tensors of `shard` and of `owned`
  std::vector<Elements> wide_shards;           // those of `owned` with EngineParameter::wide_states
  Elements reduced;                 // what is reduced: P_u; fully_shard: of what is trained
  Elements owned;                   // what the optimizer updates on the rank that has most of it
  std::optional<DType> own_dtype;   // of what it trains, where it is not storage_dtype
  std::vector<DType> shard_dtypes;  // of `shards`
  // FSDP1, of the first rank's shard: what each parameter has in it, in order.
  std::vector<Elements> views;
  bool trains = true;
  int adapters = -1;  // the unit of the block's trained leaf modules; -1: none apart
  bool are_adapters = false;
  int messages = 1;  // flat parameters taken together: an adapter's matrices are a unit each
  Bytes quantization_state;  // of its weights, on every rank: no parameter, so FSDP leaves it alone
};

// `block_of[i]` is the wrapped block that parameter i belongs to, -1 the root. Units are the root,
// the blocks, and then the adapters of each block, where these are wrapped alone.
std::vector<FsdpUnit> fsdp_units(const FsdpConfig& config,
                                 std::span<const EngineParameter> parameters,
                                 std::span<const int> block_of);

enum class FsdpEventKind {
  unshard,         // all-gather of P_u elements over the shard group, on the gather stream
  compute,         // forward or backward of the unit; waits for its unshard
  reshard,         // the gathered copy is freed
  rate_limit,      // the host waits as before a gather, of weights that stayed gathered
  reduce_scatter,  // of P_u elements over the shard group, on the reduction stream
  all_reduce       // of P_u / N elements over the copies (hybrid), or of P_u over all (no_shard)
};

struct FsdpEvent {
  FsdpEventKind kind = FsdpEventKind::compute;
  int unit = 0;
  bool backward = false;
  Bytes bytes;
  DType dtype = DType::bf16;  // of a reduction
  int ranks = 1;              // of the collective
};

// A micro-step of the window between two steps of the optimizer, in the order in which the CPU
// thread issues it. `visits`: the units whose modules run in the forward pass, in order (root,
// blocks, root again for the head); backward runs them the other way round. A recomputed block is
// gathered once for recomputation and backward.
std::vector<FsdpEvent> fsdp_micro_step(const FsdpConfig& config,
                                       std::span<const FsdpUnit> units,
                                       std::span<const int> visits,
                                       int micro_step);

// Are gradients reduced in that micro-step? Else they stay whole (no_sync).
bool fsdp_reduces(const FsdpConfig& config, int micro_step);

// Do units stay gathered behind that micro-step? FSDP1 under no_sync frees what it does not free in
// forward only where it reduces (_runtime_utils.py _should_free_in_backward).
bool fsdp_keeps_gathered(const FsdpConfig& config, int micro_step);

// What a rank holds besides activations and gathered weights.
std::vector<EngineBuffer> fsdp_buffers(const FsdpConfig& config, std::span<const FsdpUnit> units);

// Bytes that the optimizer's step makes beside them on the GPU.
Bytes fsdp_step_temporaries(const FsdpConfig& config,
                            std::span<const FsdpUnit> units,
                            std::span<const EngineParameter> parameters);

// A parameter before it is sharded.
Bytes whole_bytes(const FsdpConfig& config, const EngineParameter& parameter);

// Which unit each parameter is in.
std::vector<int> fsdp_unit_of(std::span<const FsdpUnit> units, std::size_t parameters);

// Elements that one rank's optimizer updates.
Elements fsdp_owned(std::span<const FsdpUnit> units);

// What a unit trains: how its shards, gradients and optimizer states are stored, what is computed
// with, and what is reduced.
inline DType stored_dtype(const FsdpConfig& config, const FsdpUnit& unit) {
  return unit.own_dtype.value_or(config.storage_dtype);
}
inline DType computed_dtype(const FsdpConfig& config, const FsdpUnit& unit) {
  return config.casts_adapters ? config.compute_dtype
                               : unit.own_dtype.value_or(config.compute_dtype);
}
inline DType reduced_dtype(const FsdpConfig& config, const FsdpUnit& unit) {
  return config.casts_adapters ? config.reduce_dtype : unit.own_dtype.value_or(config.reduce_dtype);
}

// Is a shard, or a part of it, cast before it is gathered (_use_low_precision_shard)?
inline bool casts_shards(const FsdpConfig& config, const FsdpUnit& unit) {
  const bool frozen = unit.owned < unit.shard && config.storage_dtype != config.compute_dtype;
  const bool trained =
      unit.owned > Elements::zero() && stored_dtype(config, unit) != computed_dtype(config, unit);
  return frozen || trained;
}

// A rank's shard as it is stored, what of it is cast, as it is sent, and the whole unit as it is
// gathered. Only fully_shard has frozen and trained parameters of two dtypes in one unit.
Bytes stored_bytes(const FsdpConfig& config, const FsdpUnit& unit);
Bytes cast_bytes(const FsdpConfig& config, const FsdpUnit& unit);
Bytes sent_bytes(const FsdpConfig& config, const FsdpUnit& unit);
Bytes gathered_bytes(const FsdpConfig& config, const FsdpUnit& unit);

}  // namespace zeroplan
