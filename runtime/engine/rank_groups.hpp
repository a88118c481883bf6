// Who calls collectives with whom: all ranks, and where that is not everybody those who share a
// copy of the weights.
//
// Sources: DeepSpeed utils/groups.py _create_zero_param_parallel_group (hpZ), zero/mics_utils.py
// _generate_mics_config (MiCS).
#pragma once

#include <memory>

#include "model/engine/engine_config.hpp"
#include "runtime/collectives/communicator.hpp"

namespace zeroplan::runtime {

class RankGroups {
 public:
  // `all` must outlive it. Every rank makes its groups at the same time.
  RankGroups(Communicator& all, const EngineConfig& config);

  Communicator& all() const { return all_; }
  // Who share one copy of what is partitioned: of MiCS a shard, else all.
  Communicator& partition() const { return shard_ ? *shard_ : all_; }
  // hpZ: who share a secondary partition of the weights; null where there is none.
  Communicator* second() const { return second_.get(); }
  // MiCS: who have the same part of their copies; null where there is one copy.
  Communicator* replicas() const { return replicas_.get(); }

 private:
  Communicator& all_;
  std::unique_ptr<Communicator> second_, shard_, replicas_;
};

}  // namespace zeroplan::runtime
