#include "runtime/engine/rank_groups.hpp"

#include <vector>

#include "base/check.hpp"
#include "model/engine/partition.hpp"

namespace zeroplan::runtime {

// Neighbours by rank, wherever they run; of MiCS also those with the same place in their shards.
RankGroups::RankGroups(Communicator& all, const EngineConfig& config) : all_(all) {
  const int ranks = config.data_parallel_ranks;
  ZP_CHECK(all.ranks() == ranks && all.rank() == config.rank, "the group is the plan's");
  const auto neighbours = [&](int size) {
    std::vector<int> members;
    const int first = config.rank / size * size;
    for (int r = first; r < first + size; ++r) members.push_back(r);
    return all.split(members);
  };
  const int second = secondary_partition_ranks(config);
  if (second > 1) second_ = neighbours(second);
  const int shard = partition_ranks(config);
  if (shard == ranks) return;
  shard_ = neighbours(shard);
  std::vector<int> same_place;
  for (int r = config.rank % shard; r < ranks; r += shard) same_place.push_back(r);
  replicas_ = all.split(same_place);
}

}  // namespace zeroplan::runtime
