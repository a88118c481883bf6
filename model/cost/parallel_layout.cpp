#include "model/cost/parallel_layout.hpp"

#include <algorithm>

#include "base/units.hpp"

namespace zeroplan {

// As many groups as fill a node run at once.
CollectiveGroup ParallelLayout::tensor_group() const {
  CollectiveGroup group;
  group.ranks_per_node = std::min(degrees_.tensor, local_);
  group.nodes = degrees_.tensor / group.ranks_per_node;
  group.concurrent = std::max<std::int64_t>(1, local_ / group.ranks_per_node);
  return group;
}

CollectiveGroup ParallelLayout::sequence_group() const {
  CollectiveGroup group;
  group.ranks_per_node = std::min(degrees_.sequence, local_);
  group.nodes = degrees_.sequence / group.ranks_per_node;
  return group;
}

CollectiveGroup ParallelLayout::shard_group(std::int64_t ranks) const {
  CollectiveGroup group;
  if (degrees_.tensor > 1) {
    group.ranks_per_node = std::clamp<std::int64_t>(local_ / degrees_.tensor, 1, ranks);
    group.nodes = ceil_div(ranks, group.ranks_per_node);
  } else if (ranks >= local_ * nodes_) {
    group.ranks_per_node = local_;
    group.nodes = nodes_;
  } else {
    group.ranks_per_node = std::min(ranks, local_);
    group.nodes = ceil_div(ranks, local_);
  }
  group.concurrent = std::max<std::int64_t>(1, local_ / group.ranks_per_node);
  return group;
}

CollectiveGroup ParallelLayout::group_across_shards(std::int64_t ranks) const {
  if (degrees_.tensor > 1 || ranks >= local_ * nodes_) return shard_group(ranks);
  CollectiveGroup group;
  group.ranks_per_node = std::max<std::int64_t>(1, ranks / nodes_);
  group.nodes = std::min(ranks, nodes_);
  group.concurrent = std::max<std::int64_t>(1, local_ / group.ranks_per_node);
  return group;
}

// On the same node, or all ranks of the node send to other nodes at once.
CollectiveGroup ParallelLayout::pair(bool on_one_node) const {
  CollectiveGroup group;
  group.ranks_per_node = on_one_node ? 2 : 1;
  group.nodes = on_one_node ? 1 : 2;
  group.concurrent = on_one_node ? 1 : local_;
  return group;
}

CollectiveGroup ParallelLayout::adjacent_stages() const {
  return pair(share_a_node(stage_stride()));
}

CollectiveGroup ParallelLayout::first_and_last_stage() const {
  return pair(degrees_.world <= local_);
}

}  // namespace zeroplan
