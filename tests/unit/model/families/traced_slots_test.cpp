#include "model/families/traced_slots.hpp"

#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

TracedBlock block_of(std::vector<SlotUse> takes, std::vector<SlotUse> gives) {
  TracedBlock block;
  block.takes = std::move(takes);
  block.gives = std::move(gives);
  return block;
}

}  // namespace

// GLM-5.2: a layer that computes indices gives them to the layers behind it, which share them, and
// the next group of layers does the same through the same slot.
TEST_CASE("A slot that is given again is another slot, of which those behind it take the newest") {
  TracedGraph graph;
  graph.slots = 2;
  graph.blocks = {
      block_of({}, {{0, 7}}), block_of({{0, 1}}, {{1, 3}}), block_of({{1, 1}, {0, 2}}, {})};
  for (const std::int32_t block : {0, 1, 1, 2, 1, 2}) graph.calls.push_back({block, "", true});
  separate_slots(graph);
  CHECK(graph.slots == 4);
  std::vector<std::int32_t> taken, given;
  for (const TracedCall& call : graph.calls) {
    const TracedBlock& block = graph.blocks[static_cast<std::size_t>(call.block)];
    if (!block.takes.empty()) taken.push_back(block.takes.front().slot);
    for (const SlotUse& use : block.gives) given.push_back(use.slot);
  }
  CHECK(given == std::vector<std::int32_t>{0, 1, 2, 3});
  CHECK(taken == std::vector<std::int32_t>{0, 0, 2, 0, 3});
  // The first two blocks are those that there were; what a block makes is the same in every copy.
  CHECK(graph.calls[0].block == 0);
  CHECK(graph.calls[1].block == 1);
  CHECK(graph.blocks[static_cast<std::size_t>(graph.calls[4].block)].gives.front().tensor == 3);
  CHECK(graph.blocks.size() == 7);
}
