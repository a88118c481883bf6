#include "model/families/traced_slots.hpp"

#include <map>
#include <numeric>
#include <utility>
#include <vector>

namespace zeroplan {
namespace {

using Slots = std::vector<std::int32_t>;  // of a block's takes and gives, in their order

void put(std::vector<SlotUse>& uses, Slots::const_iterator from) {
  for (SlotUse& use : uses) use.slot = *from++;
}

}  // namespace

void separate_slots(TracedGraph& graph) {
  Slots newest(static_cast<std::size_t>(graph.slots));  // by the document's slot
  std::iota(newest.begin(), newest.end(), 0);
  std::vector<bool> given(newest.size(), false);
  std::map<std::pair<std::int32_t, Slots>, std::int32_t> blocks;  // with their slots
  for (std::size_t i = 0; i < graph.blocks.size(); ++i) {
    Slots own;
    for (const SlotUse& use : graph.blocks[i].takes) own.push_back(use.slot);
    for (const SlotUse& use : graph.blocks[i].gives) own.push_back(use.slot);
    blocks[{static_cast<std::int32_t>(i), own}] = static_cast<std::int32_t>(i);
  }
  for (TracedCall& call : graph.calls) {
    const TracedBlock& block = graph.blocks[static_cast<std::size_t>(call.block)];
    Slots own;
    for (const SlotUse& use : block.takes) {
      own.push_back(newest[static_cast<std::size_t>(use.slot)]);
    }
    for (const SlotUse& use : block.gives) {
      const auto slot = static_cast<std::size_t>(use.slot);
      if (given[slot]) newest[slot] = graph.slots++;
      given[slot] = true;
      own.push_back(newest[slot]);
    }
    const auto [place, is_new] =
        blocks.try_emplace({call.block, own}, static_cast<std::int32_t>(graph.blocks.size()));
    if (is_new) {
      TracedBlock other = block;
      put(other.takes, own.cbegin());
      put(other.gives, own.cbegin() + static_cast<std::ptrdiff_t>(other.takes.size()));
      graph.blocks.push_back(std::move(other));
    }
    call.block = place->second;
  }
}

}  // namespace zeroplan
