// How a job's ranks lie on its nodes: which GPUs a collective connects, and how many groups like it
// share the nodes' NICs at the same time.
//
// Ranks count up along tensor ranks, then sequence, then data, and pipeline stages outermost
// (docs/contract.md), and fill a node before the next. ZeRO shards over sequence and data.
// Sources: megatron/core/parallel_state.py, deepspeed/runtime/pipe/topology.py,
// deepspeed/utils/groups.py.
#pragma once

#include <cstdint>

#include "model/cost/collective.hpp"
#include "model/hardware/hardware.hpp"

namespace zeroplan {

// How the world is divided.
struct Degrees {
  std::int64_t world = 1;  // all GPUs
  std::int64_t tensor = 1;
  std::int64_t sequence = 1;
  std::int64_t pipeline = 1;
  std::int64_t data = 1;  // world / (tensor * sequence * pipeline)
  // Tensor ranks of AutoTP: they read the same samples, and DeepSpeed's train_batch_size counts
  // them as if they did not (runtime/config.py DeepSpeedConfig.__init__).
  std::int64_t autotp = 1;
  std::int64_t counted() const { return data * autotp; }      // by train_batch_size
  std::int64_t partition() const { return data * sequence; }  // what ZeRO shards over
};

class ParallelLayout {
 public:
  ParallelLayout() = default;  // one GPU
  ParallelLayout(const Cluster& cluster, const Degrees& degrees)
      : local_(cluster.gpus_per_node()), nodes_(cluster.nodes), degrees_(degrees) {}

  const Degrees& degrees() const { return degrees_; }

  // How many ranks further on the neighbour is.
  std::int64_t data_stride() const { return degrees_.tensor * degrees_.sequence; }
  std::int64_t stage_stride() const { return degrees_.tensor * degrees_.partition(); }
  // Are neighbours with that stride on one node?
  bool share_a_node(std::int64_t stride) const { return stride < local_; }

  // Ranks that hold parts of the same layers.
  CollectiveGroup tensor_group() const;
  // Ranks that exchange heads for tokens (DeepSpeed-Ulysses).
  CollectiveGroup sequence_group() const;
  // So many ranks that share one copy of what ZeRO or FSDP shards, neighbours: all of them, or a
  // shard of hpZ, MiCS or FSDP's hybrid strategies. With tensor ranks one of each group of these.
  CollectiveGroup shard_group(std::int64_t ranks) const;
  // So many ranks with the same place in their shards (MiCS, FSDP's hybrid strategies).
  CollectiveGroup group_across_shards(std::int64_t ranks) const;
  // A rank and its counterpart in the next stage.
  CollectiveGroup adjacent_stages() const;
  // A rank of the first stage and its counterpart in the last.
  CollectiveGroup first_and_last_stage() const;

 private:
  CollectiveGroup pair(bool on_one_node) const;

  std::int64_t local_ = 1;  // GPUs of a node
  std::int64_t nodes_ = 1;
  Degrees degrees_;
};

}  // namespace zeroplan
