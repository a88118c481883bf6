// What is in the interval of which figure of memory.
#include "model/predict/memory_intervals.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "model/plan/scenario_reader.hpp"
#include "model/predict/predict.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Plan plan_of(const std::string& cluster,
             const std::string& workload = "",
             const std::string& model = "7B") {
  const std::string text = R"({"model":")" + model + R"(","cluster":")" + cluster +
                           R"(","workload":{"sequence_length":512,"micro_batch_size":1)" +
                           workload +
                           R"(},"ds_config":{"bf16":{"enabled":true},
                              "zero_optimization":{"stage":2}}})";
  return resolve(parse_scenario(parse_json(text, "s.json").root, "s.json"));
}

double count(Bytes bytes) { return static_cast<double>(bytes.count()); }
double half_width(const Interval<Bytes>& interval) {
  return 0.5 * (count(interval.high) - count(interval.low));
}

}  // namespace

TEST_CASE("allocated memory knows nothing of the allocator's gap, context and NCCL") {
  Plan plan = plan_of("8xA100-80G-SXM");
  const StepResult before = predict(plan);
  plan.coefficients.set(Coefficient::reserved_gap_share, 0.3, 0.6);
  const StepResult gap = predict(plan);
  CHECK(gap.peak_allocated_interval.high == before.peak_allocated_interval.high);
  CHECK(gap.peak_reserved_interval.high > before.peak_reserved_interval.high);
  CHECK(half_width(gap.peak_total_interval) > half_width(before.peak_total_interval));
  plan.coefficients.set(Coefficient::nccl_ring_bytes, 688 << 20, 3.0);
  const StepResult ring = predict(plan);
  CHECK(ring.peak_reserved_interval.high == gap.peak_reserved_interval.high);
  CHECK(half_width(ring.peak_total_interval) > half_width(gap.peak_total_interval));
}

TEST_CASE("the interval of reserved memory stands around the usual gap") {
  Plan plan = plan_of("8xA100-80G-SXM");
  plan.coefficients.set(Coefficient::reserved_gap_share, 0.2, 0.5);
  const StepResult result = predict(plan);
  const double allocated = count(result.gpu.peak_allocated);
  const double own = half_width(result.peak_allocated_interval);
  const double reach = std::hypot(own, 1.645 * 0.1 * allocated);
  const Interval<Bytes>& reserved = result.peak_reserved_interval;
  CHECK(count(reserved.high) == Approx(1.2 * allocated + reach));
  // The prediction, here with less of a gap than is usual, is inside.
  const double low = 1.2 * allocated - reach;
  CHECK(count(reserved.low) == Approx(std::min(low, count(result.gpu.peak_reserved))));
}

TEST_CASE(
    "of Megatron's code reserved is what is allocated and the usual share, at most the GPU's") {
  Plan plan = plan_of("8xA100-80G-SXM", R"(,"implementation":"megatron")", "gpt2-xl");
  const auto reserved = [&](double share) {
    plan.coefficients.set(Coefficient::reserved_gap_share, share, 0.5);
    return simulator::simulate(plan).gpu;
  };
  const GpuMemory usual = reserved(0.2);
  CHECK(count(usual.peak_reserved) == Approx(1.2 * count(usual.peak_allocated)));
  CHECK(usual.replayed_reserved != usual.peak_reserved);
  CHECK(reserved(0.1).replayed_reserved == usual.replayed_reserved);
  const GpuMemory full = reserved(0.6 + count(usual.capacity) / count(usual.peak_allocated));
  CHECK(full.peak_total == full.capacity);
  CHECK(simulator::simulate(plan).fits);
}

TEST_CASE(
    "of transformers' code reserved is what was simulated, and its interval stands around that") {
  Plan plan = plan_of("8xA100-80G-SXM");
  plan.coefficients.set(Coefficient::simulated_reserved_sd, 0.1, 0.0);
  const StepResult result = simulator::simulate(plan);
  CHECK(result.gpu.peak_reserved == result.gpu.replayed_reserved);
  CHECK(result.gpu.peak_reserved > result.gpu.peak_allocated);
  const double reserved = count(result.gpu.peak_reserved);
  const double reach =
      std::hypot(half_width(result.peak_allocated_interval), 1.645 * 0.1 * reserved);
  CHECK(count(result.peak_reserved_interval.low) == Approx(reserved - reach));
  CHECK(count(result.peak_reserved_interval.high) == Approx(reserved + reach));
  plan.coefficients.set(Coefficient::reserved_gap_share, 0.5, 0.5);
  CHECK(simulator::simulate(plan).gpu.peak_reserved == result.gpu.peak_reserved);
}

TEST_CASE("adapters under FSDP1 reserve what was simulated, with the width of runs") {
  const std::string fsdp = R"(,"engine":"fsdp")";
  const std::string lora = R"(,"method":{"lora":{"rank":16}})";
  const StepResult full = simulator::simulate(plan_of("8xA100-80G-SXM", fsdp));
  const StepResult adapters = simulator::simulate(plan_of("8xA100-80G-SXM", fsdp + lora));
  CHECK(adapters.gpu.peak_reserved == adapters.gpu.replayed_reserved);
  const auto width = [](const StepResult& result) {
    return half_width(result.peak_reserved_interval) / count(result.gpu.peak_reserved);
  };
  CHECK(width(adapters) > 2.0 * width(full));
}

TEST_CASE("a CPU rank reserves what it allocates") {
  const StepResult result = predict(plan_of("1x4xcpu"));
  CHECK(result.peak_reserved_interval.low == result.peak_allocated_interval.low);
  CHECK(result.peak_reserved_interval.high == result.peak_allocated_interval.high);
}
