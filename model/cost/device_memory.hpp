// What it costs to take GPU memory from the driver and to give it back: cudaMalloc and cudaFree,
// which PyTorch's allocator calls while it grows, and again and again near the GPU's limit.
//
// Units: Seconds, Bytes, BytesPerSecond.
#pragma once

#include <cstdint>

#include "base/units.hpp"
#include "model/cost/coefficients.hpp"

namespace zeroplan {

// [T18] n calls that take so many bytes together:
//
//   t = n `gpu_allocation_call_seconds` + bytes / `gpu_allocation_rate`
//
// for memory that was given back before, which the driver clears; the host waits for it, and
// cudaFree first waits for all work of the GPU (PyTorch pull request 19222; that is for who plays
// it). Sources: 16 GB in 300-400 ms on an A10 after a cudaFree, 10-20 ms in a fresh process
// (llama.cpp pull request 5429); 1 GiB taken and given back in 31 ms (vortex pull request 7831); an
// emptied cache of about 10 GB 80 ms a step (peft pull request 2894). Left out: pages of expandable
// segments, each of which is several calls; memory that is taken for the first time. Checked by
// tests/unit/model/cost/cluster_costs_test.cpp.
struct DeviceMemoryCost {
  Seconds call;
  BytesPerSecond rate = BytesPerSecond::infinite();

  Seconds of(std::int64_t calls, Bytes taken) const {
    return call * static_cast<double>(calls) + taken / rate;
  }
};

DeviceMemoryCost device_memory_cost(const Coefficients& coefficients);

}  // namespace zeroplan
