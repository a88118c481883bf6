// Who calls collectives with whom where that is not everybody. Sources: DeepSpeed utils/groups.py
// _create_zero_param_parallel_group (hpZ), zero/mics_utils.py _generate_mics_config (MiCS).
#include <vector>

#include "runtime/engine/rank_engine.hpp"

namespace zeroplan::runtime {

// Neighbours by rank, wherever they run; of MiCS also those with the same place in their shards.
void RankEngine::make_groups() {
  const int all = config_.data_parallel_ranks;
  const auto neighbours = [&](int size) {
    std::vector<int> members;
    const int first = config_.rank / size * size;
    for (int r = first; r < first + size; ++r) members.push_back(r);
    return group_.split(members);
  };
  const int second = secondary_partition_ranks(config_);
  if (second > 1) second_group_ = neighbours(second);
  const int shard = partition_ranks(config_);
  if (shard == all) return;
  shard_group_ = neighbours(shard);
  partition_group_ = shard_group_.get();
  std::vector<int> same_place;
  for (int r = config_.rank % shard; r < all; r += shard) same_place.push_back(r);
  replicas_ = group_.split(same_place);
}

}  // namespace zeroplan::runtime
