#include "simulator/engines/communicators.hpp"

#include <algorithm>
#include <string>

namespace zeroplan::simulator {

StreamId Communicators::known_stream(const CollectiveGroup& group) const {
  const auto shape = std::pair(group.ranks_per_node, group.nodes);
  for (const auto& [known, stream] : streams_) {
    if (known == shape) return stream;
  }
  return -1;
}

StreamId Communicators::stream_of(const CollectiveGroup& group) {
  const StreamId known = known_stream(group);
  if (known >= 0) return known;
  const auto shape = std::pair(group.ranks_per_node, group.nodes);
  const StreamId stream = writer_.add_stream(
      streams_.empty() ? "NCCL" : "NCCL of " + std::to_string(group.ranks()) + " ranks");
  streams_.emplace_back(shape, stream);
  return stream;
}

void Communicators::launch(StreamId issuer,
                           TaskIndex task,
                           const CollectiveGroup& group,
                           bool asynchronous) {
  if (group.ranks() <= 1) return;
  const StreamId nccl = stream_of(group);
  writer_.wait_stream(nccl, issuer);
  writer_.issue(task, nccl);
  if (!asynchronous || in_line_) writer_.wait_stream(issuer, nccl);
}

}  // namespace zeroplan::simulator
