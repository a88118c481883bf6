// Which GPUs a collective connects. Eight GPUs a node, as Megatron's and DeepSpeed's topologies
// number them: tensor ranks innermost, stages outermost.
#include "model/cost/parallel_layout.hpp"

#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

ParallelLayout layout(std::int64_t nodes, Degrees degrees) {
  Cluster cluster;
  cluster.nodes = nodes;
  cluster.node.gpus_per_node = 8;
  degrees.world = nodes * 8;
  degrees.data = degrees.world / (degrees.tensor * degrees.sequence * degrees.pipeline);
  return {cluster, degrees};
}

void check(const CollectiveGroup& group,
           std::int64_t ranks_per_node,
           std::int64_t nodes,
           std::int64_t concurrent) {
  CHECK(group.ranks_per_node == ranks_per_node);
  CHECK(group.nodes == nodes);
  CHECK(group.concurrent == concurrent);
}

}  // namespace

TEST_CASE("shards fill a node before the next") {
  const ParallelLayout all = layout(4, {});
  check(all.shard_group(32), 8, 4, 1);
  check(all.shard_group(4), 4, 1, 2);
  check(all.shard_group(16), 8, 2, 1);
}

TEST_CASE("across shards the ranks of one node go to others at once") {
  const ParallelLayout all = layout(4, {});
  check(all.group_across_shards(4), 1, 4, 8);   // shards of a node each
  check(all.group_across_shards(8), 2, 4, 4);   // of half a node
  check(all.group_across_shards(2), 1, 2, 8);   // of two nodes
  check(all.group_across_shards(32), 8, 4, 1);  // of one rank
}

TEST_CASE("tensor ranks are neighbours, and shards take one of each group of them") {
  const ParallelLayout tensor = layout(4, {.tensor = 4});
  check(tensor.tensor_group(), 4, 1, 2);
  check(tensor.shard_group(8), 2, 4, 4);
  CHECK(tensor.data_stride() == 4);
  CHECK(tensor.share_a_node(tensor.data_stride()));
  const ParallelLayout wide = layout(4, {.tensor = 16});
  check(wide.tensor_group(), 8, 2, 1);
  check(wide.shard_group(2), 1, 2, 8);
}

TEST_CASE("ranks that share a sequence fill a node first") {
  check(layout(2, {.sequence = 4}).sequence_group(), 4, 1, 1);
  check(layout(2, {.sequence = 16}).sequence_group(), 8, 2, 1);
  CHECK(layout(2, {.sequence = 4}).data_stride() == 4);
}

TEST_CASE("a stage's neighbour is on the node where a stage has less than one") {
  check(layout(2, {.tensor = 2, .pipeline = 8}).adjacent_stages(), 2, 1, 1);
  check(layout(2, {.tensor = 2, .pipeline = 2}).adjacent_stages(), 1, 2, 8);
  CHECK(layout(2, {.tensor = 2, .pipeline = 4}).stage_stride() == 4);
  check(layout(1, {.pipeline = 4}).first_and_last_stage(), 2, 1, 1);
  check(layout(2, {.pipeline = 4}).first_and_last_stage(), 1, 2, 8);
}
