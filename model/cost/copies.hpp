// Time of copies between GPU and host memory: pinned and pageable, by size and by how many GPUs
// copy at once.
//
// Units: Bytes, Seconds, BytesPerSecond.
#pragma once

#include "model/cost/coefficients.hpp"
#include "model/hardware/hardware.hpp"

namespace zeroplan {

struct CopyLoad {
  std::int64_t copying_gpus = 1;  // GPUs of the node that copy at the same time, this one included
  bool pinned = true;
  bool local_memory = true;  // on the socket the GPU is attached to
};

// [T13] Rate of one GPU's copies:
//
//   r = min(e P / a, s D / g) / [pageable] slowdown x [other socket] share
//
// P link of a GPU to the host, e `pcie_copy_efficiency`, a GPUs that copy behind one uplink, g that
// copy in the node, D DRAM rate, s `copy_dram_share`, `pageable_copy_slowdown`,
// `numa_remote_share`. Copying GPUs spread over the uplinks: a = ceil(g / uplinks). Source:
// nvbandwidth and bandwidthTest tables (.83-.88 of the link), DGX A100's switches; DeepSpeed pull
// request 5301 for pageable memory. Left out: both directions at once (full duplex). Checked by
// tests/unit/model/cost/cluster_costs_test.cpp.
BytesPerSecond copy_rate(const Node& node, const CopyLoad& load, const Coefficients& coefficients);

// n copies of together so many bytes: n `copy_fixed_seconds` + bytes / r. Source: 4 KiB .5, 64 KiB
// 4.8, 256 KiB 8.9, 1 MiB 11 GB/s over PCIe 3 (npho/cse554), all of which is 7.5 us + bytes / 12
// GB/s within 2 %.
Seconds copy_time(Bytes bytes,
                  std::int64_t copies,
                  const Node& node,
                  const CopyLoad& load,
                  const Coefficients& coefficients);

}  // namespace zeroplan
