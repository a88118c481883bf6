#include "model/predict/memory_intervals.hpp"

#include <algorithm>
#include <cmath>

#include "model/step/varied_lengths.hpp"

namespace zeroplan {
namespace {

// [center - 1.645 sd, center + 1.645 sd], and the prediction.
Interval<Bytes> interval(double center, double sd, Bytes predicted) {
  const double reach = kNinetyPercent * sd;
  return {std::min(predicted, Bytes::nearest(std::max(0.0, center - reach))),
          std::max(predicted, Bytes::nearest(center + reach))};
}

// Published runs of adapters under FSDP1 allocated up to a quarter more than is rehearsed, and kept
// 29 % beside it, and nobody knows why.
bool is_contradicted(const Workload& workload) {
  return workload.engine == TrainingEngine::fsdp && workload.fsdp_version == 1 &&
         workload.method != Method::full;
}

}  // namespace

bool has_torch_allocator(const Plan& plan) {
  return !plan.engine.embedded && !plan.cluster.gpu.is_cpu();
}

bool simulates_every_request(const Plan& plan) {
  return has_torch_allocator(plan) && plan.workload.implementation == Implementation::hf &&
         plan.stages.empty();
}

Bytes usually_reserved(const Plan& plan, Bytes allocated) {
  const double share = plan.coefficients[Coefficient::reserved_gap_share];
  return Bytes::nearest(static_cast<double>(allocated.count()) * (1.0 + share));
}

MemoryIntervals memory_intervals(const Plan& plan,
                                 const GpuMemory& gpu,
                                 const MemoryPrediction& analytic,
                                 bool simulated) {
  const MemorySpread& spread = analytic.spread;
  const double allocated = static_cast<double>(gpu.peak_allocated.count());
  const double scale =
      allocated / std::max(1.0, static_cast<double>(analytic.gpu.peak_allocated.count()));
  const bool knows_all = simulated && simulates_every_request(plan);
  const bool narrow = knows_all && !is_contradicted(plan.workload);
  const double tensors = narrow ? allocated * plan.coefficients[Coefficient::simulated_allocated_sd]
                                : scale * std::hypot(std::hypot(spread.activations, spread.states),
                                                     std::hypot(spread.quantization, spread.code));
  MemoryIntervals intervals;
  intervals.allocated = interval(allocated, tensors, gpu.peak_allocated);
  // Another allocator, or none, is as predicted.
  double gap = static_cast<double>((gpu.peak_reserved - gpu.peak_allocated).count());
  double gap_sd = 0.0;
  if (narrow) {
    gap_sd = (allocated + gap) * plan.coefficients[Coefficient::simulated_reserved_sd];
    // Which lengths come one after the other, and how many, differs between runs.
    if (!varied_lengths(plan).empty()) {
      gap_sd = std::hypot(gap_sd, gap * plan.coefficients[Coefficient::varied_reserved_gap_sd]);
    }
  } else if (has_torch_allocator(plan) && !plan.workload.expandable_segments) {
    const auto usual = static_cast<double>(
        (usually_reserved(plan, gpu.peak_allocated) - gpu.peak_allocated).count());
    if (!knows_all) gap = usual;
    gap_sd = std::hypot(usual * plan.coefficients.relative_sd(Coefficient::reserved_gap_share),
                        scale * spread.waiting);
  }
  const double reserved_sd = std::hypot(tensors, gap_sd);
  intervals.reserved = interval(allocated + gap, reserved_sd, gpu.peak_reserved);
  intervals.reserved.high = std::max(intervals.reserved.high, gpu.replayed_reserved);
  const Bytes beside = at(gpu.breakdown_at_peak, MemoryCategory::cuda_context);
  const auto outside = static_cast<double>(beside.count());
  intervals.total =
      interval(allocated + gap + outside, std::hypot(reserved_sd, spread.outside), gpu.peak_total);
  intervals.total.high = std::max(intervals.total.high, gpu.replayed_reserved + beside);
  return intervals;
}

}  // namespace zeroplan
