// Who owns what: flat partitions of stages 1 and 2, per-parameter partitions and sub-groups of
// stage 3, persistent parameters, and which optimizer wrapper DeepSpeed puts around the optimizer.
//
// Sources (DeepSpeed 0.19.6): deepspeed/runtime/zero/stage_1_and_2.py
// DeepSpeedZeroOptimizer.__init__ (flattening, alignment 2N), _round_robin_reorder,
// get_partition_info; zero/stage3.py _create_fp16_sub_groups; zero/partition_parameters.py
// _partition_numel (ceil(numel/N)); zero/parameter_offload.py mark_persistent_parameters; engine.py
// _do_optimizer_sanity_check.
#pragma once

#include <span>
#include <vector>

#include "base/units.hpp"
#include "model/engine/engine_config.hpp"

namespace zeroplan {

// The class that owns gradients and master weights.
enum class OptimizerWrapper {
  plain,           // the optimizer itself (stage 0, fp32)
  fp16_fused,      // FP16_Optimizer: flat master per group (stage 0, FusedAdam)
  fp16_unfused,    // FP16_UnfusedOptimizer: a master per parameter (stage 0, everything else)
  bf16_optimizer,  // BF16_Optimizer: fp32 gradients of the whole model
  zero12,          // DeepSpeedZeroOptimizer
  zero3,           // DeepSpeedZeroOptimizer_Stage3
  mics             // MiCS_Optimizer: zero3 within shard groups
};

OptimizerWrapper optimizer_wrapper(const EngineConfig& config);

// One that partitions what the optimizer holds: zero12, zero3, mics.
bool has_zero_wrapper(const EngineConfig& config);

// Whether the gradients of all groups are prepared before the optimizer sees any: at stage 0, and
// under FP16_Optimizer and its unfused twin (fused_optimizer.py, unfused_optimizer.py step). Else
// one group is updated and its copies go before the next is begun.
bool prepares_all_groups(const EngineConfig& config);

// ---- stages 1 and 2 (and BF16_Optimizer) ----

// One optimizer parameter group as one flat buffer. Sizes in elements.
struct FlatGroup {
  std::vector<int> parameters;  // in flat order, i.e. after round-robin reordering
  std::vector<int> declared;    // in the optimizer's order
  Elements numel;               // without padding
  Elements aligned;             // padded to a multiple of 2N
  Elements partition;           // aligned / N, the same on every rank
};

// Does Muon update it? Its groups hold nothing else (engine.py _configure_basic_optimizer).
inline bool is_muon_group(const FlatGroup& group, std::span<const EngineParameter> parameters) {
  return parameters[static_cast<std::size_t>(group.declared.front())].muon.any();
}

// Where a parameter lies; group -1: frozen, in no flat buffer.
struct ParameterPlace {
  int group = -1;
  Elements offset;
};

struct FlatPartition {
  int ranks = 1;
  std::vector<FlatGroup> groups;
  std::vector<ParameterPlace> places;  // one per parameter of the model
  std::vector<Elements> numels;        // of every parameter, for slicing
};

FlatPartition flat_partition(const EngineConfig& config,
                             std::span<const EngineParameter> parameters);

// The part of a parameter that one rank owns.
struct OwnedSlice {
  int parameter = 0;
  int group = 0;
  Elements start;             // within the parameter
  Elements partition_offset;  // within the rank's partition of the group
  Elements numel;
};

// In flat order, group by group. A parameter cut by a partition boundary appears on several ranks.
std::vector<OwnedSlice> owned_slices(const FlatPartition& partition, int rank);

// Elements of alignment padding that a rank's partition of a group holds.
Elements partition_padding(const FlatPartition& partition, int group, int rank);

// A run of elements with one owner.
struct OwnerRun {
  int owner = 0;
  Elements numel;
};

// Appends the parameter's runs; a run whose owner equals the last run's is merged with it, across
// parameters and groups (stage_1_and_2.py average_tensor, rank_and_offsets).
void append_owner_runs(const FlatPartition& partition, int parameter, std::vector<OwnerRun>& runs);

// ---- stage 3 ----

// pn(p) = ceil(numel / N): elements of a parameter on one rank, padding included.
constexpr Elements partitioned_numel(Elements numel, int ranks) {
  return Elements::of(ceil_div(numel.count(), ranks));
}

// Elements that are not padding in a rank's partition.
constexpr Elements real_partition_numel(Elements numel, int ranks, int rank) {
  const std::int64_t size = ceil_div(numel.count(), ranks);
  const std::int64_t left = numel.count() - size * rank;
  return Elements::of(left <= 0 ? 0 : (left < size ? left : size));
}

struct SubGroup {
  int group = 0;  // optimizer parameter group
  std::vector<int> parameters;
  Elements numel;        // partitioned elements, padding included
  bool on_host = false;  // updated by the CPU optimizer (offload_optimizer, after ratio)
};

std::vector<SubGroup> sub_groups(const EngineConfig& config,
                                 std::span<const EngineParameter> parameters);

// How the persistent parameters are gathered after a step (partition_parameters.py _all_gather).
enum class PersistentGather {
  asynchronous,  // one collective each, all in flight at once
  sequential,    // one after the other: allgather_sequential, or only one parameter
  none           // a single rank with several of them uses its partitions as they are
};
PersistentGather persistent_gather(const EngineConfig& config, std::size_t parameters);

// Indices of the parameters that stay gathered, ascending.
std::vector<int> persistent_parameters(const EngineConfig& config,
                                       std::span<const EngineParameter> parameters);

}  // namespace zeroplan
