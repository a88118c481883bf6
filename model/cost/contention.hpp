// What work at the same time costs: a collective takes multiprocessors and memory bandwidth from
// kernels, kernels delay the collective.
//
// Each function answers a factor on the time of the work named first (1: undisturbed), to be
// applied while both run.
#pragma once

#include "model/cost/coefficients.hpp"
#include "model/cost/kernel_time.hpp"
#include "model/hardware/hardware.hpp"

namespace zeroplan {

// [T16] A kernel while a collective moves `wire_rate` bytes a second over the GPU's links:
//   compute  1 + c,  c = `compute_slowdown_under_communication`
//   memory   1 / (1 - min(p w / B, 1/2))  with p = `collective_memory_passes`, B memory bandwidth
// Source: Galvatron's overlap coefficient 1.126; NCCL issue 1432 (HBM traffic 2-3 times the
// wire's). NCCL issue 1428 saw 1.76-2.5 where more channels were set. Checked by
// tests/unit/model/cost/cluster_costs_test.cpp.
double kernel_slowdown(KernelBound bound,
                       BytesPerSecond wire_rate,
                       const Gpu& gpu,
                       const Coefficients& coefficients);

// A collective while kernels run: 1 + `collective_slowdown_under_compute`.
double collective_slowdown(const Coefficients& coefficients);

// The factor of [T4] on a step of many nodes, whose ranks wait for the slowest: 1 + l log2 nodes, l
// `scaling_loss_per_doubling`.
double scaling_factor(std::int64_t nodes, const Coefficients& coefficients);

}  // namespace zeroplan
