// Time of reads and writes between host memory and the node's NVMe drives through DeepSpeed's
// asynchronous I/O.
//
// Units: Bytes, Seconds.
#pragma once

#include "model/cost/coefficients.hpp"
#include "model/hardware/hardware.hpp"

namespace zeroplan {

// The `aio` section of ds_config.
struct NvmeRequests {
  Bytes block = Bytes::mib(1);
  std::int64_t queue_depth = 8;
  std::int64_t threads = 1;
};

struct NvmeLoad {
  Bytes read, write;       // of one rank, one after the other
  std::int64_t ranks = 1;  // of the node, at the same time: they share the drives
  NvmeRequests requests;
};

// [T15] One way, R bytes of each of r ranks:  t = r R / (e B) + R t_request / (threads depth block)
//
// B sequential rate of all drives in that direction, e `nvme_efficiency`, t_request
// `nvme_request_seconds`: the latency of every round of requests that are in flight together.
// Reading and writing add up; what overlaps says the engine ([T15b], step_tail.hpp). Source:
// DeepNVMe reports (4 drives of PCIe 4: 10 and 5 GB/s; 8 of PCIe 5: 48 and 26). Infinite where the
// node has no drive. Left out: file systems, wear, GPUDirect. Checked by
// tests/unit/model/cost/cluster_costs_test.cpp.
Seconds nvme_time(const NvmeLoad& load, const Node& node, const Coefficients& coefficients);

}  // namespace zeroplan
