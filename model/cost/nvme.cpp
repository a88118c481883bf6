#include "model/cost/nvme.hpp"

#include <algorithm>

namespace zeroplan {
namespace {

// Seconds of so many bytes of all ranks: the drives' rate, and a latency for every round of
// requests that are in flight together.
Seconds one_way(Bytes bytes, const NvmeLoad& load, BytesPerSecond drives, const Coefficients& c) {
  if (bytes == Bytes::zero()) return {};
  const std::int64_t ranks = std::max<std::int64_t>(1, load.ranks);
  const double in_flight =
      static_cast<double>(load.requests.block.count()) *
      static_cast<double>(std::max<std::int64_t>(1, load.requests.queue_depth)) *
      static_cast<double>(std::max<std::int64_t>(1, load.requests.threads));
  const double rounds = static_cast<double>(bytes.count()) / std::max(1.0, in_flight);
  return bytes / (drives * c[Coefficient::nvme_efficiency]) * static_cast<double>(ranks) +
         Seconds::of(rounds * c[Coefficient::nvme_request_seconds]);
}

}  // namespace

Seconds nvme_time(const NvmeLoad& load, const Node& node, const Coefficients& coefficients) {
  if (load.read == Bytes::zero() && load.write == Bytes::zero()) return {};
  if (!node.nvme) return Seconds::infinite();
  const Seconds read = one_way(load.read, load, node.nvme->read_bandwidth.value, coefficients);
  const Seconds write = one_way(load.write, load, node.nvme->write_bandwidth.value, coefficients);
  return read + write;
}

}  // namespace zeroplan
