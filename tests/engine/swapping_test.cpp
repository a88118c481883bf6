// What goes to NVMe and comes from there, worked out by hand from the rules that swapping.hpp
// states with their sources.
#include "model/engine/swapping.hpp"

#include <vector>

#include "model/engine/gradient_buckets.hpp"
#include "model/engine/optimizer_step.hpp"
#include "tests/catch.hpp"

namespace zeroplan {
namespace {

constexpr std::int64_t kMi = 1 << 20;

std::vector<EngineParameter> sized(std::initializer_list<std::int64_t> numels) {
  std::vector<EngineParameter> parameters;
  for (const std::int64_t numel : numels) parameters.push_back({.numel = Elements::of(numel)});
  return parameters;
}

// Two ranks, bf16 weights: a partition of 2^19 elements is the smallest that goes to a file.
EngineConfig swapping(std::int64_t sub_group, std::int64_t max_in_cpu) {
  EngineConfig config;
  config.stage = 3;
  config.data_parallel_ranks = 2;
  config.reduce_bucket = Elements::of(100 * kMi);
  config.optimizer = OptimizerKind::cpu_adam;
  config.stage3.parameter_persistence_threshold = Elements::zero();
  config.stage3.sub_group_size = Elements::of(sub_group);
  config.offload_optimizer.device = OffloadDevice::nvme;
  config.offload_parameter.device = OffloadDevice::nvme;
  config.offload_parameter.max_in_cpu = Elements::of(max_in_cpu);
  return config;
}

ParameterSwap weights_of(const EngineConfig& config, const std::vector<EngineParameter>& p) {
  return parameter_swap(config, p, sub_groups(config, p));
}

using Sizes = std::vector<Elements>;
Sizes sizes(std::initializer_list<std::int64_t> values) {
  Sizes result;
  for (const std::int64_t value : values) result.push_back(Elements::of(value));
  return result;
}

std::vector<EngineAction> of_kind(const EngineActions& actions, ActionKind kind) {
  std::vector<EngineAction> found;
  for (const EngineAction& action : actions.actions) {
    if (action.kind == kind) found.push_back(action);
  }
  return found;
}

}  // namespace

TEST_CASE("a sub-group whose weights fit into max_in_cpu is neither read nor written") {
  // Sub-groups {0}, {1, 2}, {3}: partitions of 1 Mi; 64 and 1 Mi; 2 Mi.
  const auto p = sized({2 * kMi, 128, 2 * kMi, 4 * kMi});
  const std::int64_t group = kMi;
  const EngineConfig nothing = swapping(group, 0);
  REQUIRE(sub_groups(nothing, p).size() == 3);
  CHECK(weights_of(nothing, p).read == sizes({kMi, 0, kMi, 2 * kMi}));
  CHECK(weights_of(nothing, p).written == sizes({kMi, kMi, 2 * kMi}));
  // Room for all of the second but one element: only the first stays.
  const EngineConfig first = swapping(group, 2 * kMi + 63);
  CHECK(weights_of(first, p).read == sizes({0, 0, kMi, 2 * kMi}));
  const EngineConfig two = swapping(group, 2 * kMi + 64);
  CHECK(weights_of(two, p).read == sizes({0, 0, 0, 2 * kMi}));
  CHECK(weights_of(two, p).written == sizes({0, 0, 2 * kMi}));
  // DeepSpeed's default is 10^9 elements.
  const EngineConfig all = swapping(group, 1'000'000'000);
  CHECK(weights_of(all, p).read == sizes({0, 0, 0, 0}));
  CHECK(weights_of(all, p).written == sizes({0, 0, 0}));
}

TEST_CASE("frozen weights belong to no sub-group: read for every gather, never written") {
  auto p = sized({2 * kMi, 2 * kMi});
  p[0].trainable = false;
  const ParameterSwap swap = weights_of(swapping(2 * kMi, 1'000'000'000), p);
  CHECK(swap.read == sizes({kMi, 0}));
  CHECK(swap.written == sizes({0}));
}

TEST_CASE("whole requests of every thread are read and written") {
  EngineConfig config = swapping(1'000'000'000, 0);
  config.aio_parallelism = 4;  // 4096 bytes: 2048 elements of bf16, 1024 of fp32
  const auto p = sized({2 * (kMi + 1)});
  CHECK(weights_of(config, p).read == sizes({kMi + 2048}));
  const OptimizerSwap swap = optimizer_swap(config, p, sub_groups(config, p));
  // Master weights and two moments, and the aligned part of the gradient.
  CHECK(swap.tensors == 3);
  CHECK(swap.written == sizes({3 * (kMi + 1024)}));
  CHECK(swap.read == sizes({3 * (kMi + 1024) + kMi}));
  CHECK(swap.copied == sizes({1}));
}

TEST_CASE("gradients are written when the next has no room, and waited for without a free buffer") {
  GradientBatches batches(Elements::of(100), 2);
  CHECK(batches.add(Elements::of(60)).elements == Elements::zero());
  CHECK(batches.add(Elements::of(40)).elements == Elements::zero());
  const GradientBatches::Write first = batches.add(Elements::of(10));
  CHECK(first.elements == Elements::of(100));
  CHECK_FALSE(first.waits);
  // The other buffer is full and the first one still on its way.
  const GradientBatches::Write second = batches.add(Elements::of(95));
  CHECK(second.elements == Elements::of(10));
  CHECK(second.waits);
  CHECK_FALSE(batches.add(Elements::of(30)).waits);
  const GradientBatches::Write last = batches.flush();
  CHECK(last.elements == Elements::of(30));
  CHECK(last.waits);
  CHECK_FALSE(batches.flush().waits);
}

TEST_CASE("backward hands each gradient's aligned part to the swapper and writes full buffers") {
  EngineConfig config = swapping(kMi, 0);
  config.gradient_accumulation_steps = 2;
  config.model_dtype = config.communication_dtype = config.gradient_accumulation_dtype =
      DType::bf16;
  // Partitions of 1 Mi, 64, 1 Mi, 2 Mi: a buffer holds the largest sub-group, 2 Mi.
  const auto p = sized({2 * kMi, 128, 2 * kMi, 4 * kMi});
  config.offload_optimizer.buffer_count = 4;
  GradientReducer reducer(config, p);
  EngineActions actions;
  const auto backward = [&](int micro_step) {
    actions.clear();
    reducer.begin_backward(micro_step);
    for (int parameter = 3; parameter >= 0; --parameter) {
      reducer.gradient_ready(parameter, actions);
    }
    reducer.end_backward(actions);
  };
  backward(0);
  CHECK(of_kind(actions, ActionKind::swap_out).empty());
  backward(1);
  const std::vector<EngineAction> writes = of_kind(actions, ActionKind::swap_out);
  // In the order of the parameters of a bucket: 0 and 2 fill the first buffer, 3 the second.
  REQUIRE(writes.size() == 2);
  CHECK(writes[0].elements == Elements::of(2 * kMi));
  CHECK_FALSE(writes[0].host_waits);
  CHECK(writes[1].elements == Elements::of(2 * kMi));
  CHECK(writes[1].host_waits);
  for (const EngineAction& write : writes) {
    CHECK(write.group == -1);
    CHECK(write.dtype == DType::fp32);
  }
  // The 64 elements stay on the GPU.
  Elements handed;
  for (const EngineAction& copy : of_kind(actions, ActionKind::copy_to_host)) {
    if (copy.dtype != DType::fp32) continue;
    CHECK(copy.host_waits);
    handed += copy.elements;
  }
  CHECK(handed == Elements::of(4 * kMi));
}

TEST_CASE("with pipeline_write all sub-groups but the last are written beside what follows") {
  const auto p = sized({2 * kMi, 128, 2 * kMi, 4 * kMi});
  EngineConfig config = swapping(kMi, 2 * kMi + 64);
  const auto waits = [&] {
    EngineActions actions;
    optimizer_step(config, p, false, actions);
    std::vector<bool> result;
    for (const EngineAction& write : of_kind(actions, ActionKind::swap_out)) {
      result.push_back(write.host_waits);
    }
    // The third sub-group's weights.
    const std::vector<EngineAction> weights = of_kind(actions, ActionKind::swap_out_weights);
    REQUIRE(weights.size() == 1);
    CHECK(weights[0].elements == Elements::of(2 * kMi));
    CHECK(weights[0].group == 2);
    // Of the second's gradient 64 elements waited on the GPU.
    const std::vector<EngineAction> copies = of_kind(actions, ActionKind::copy_to_host);
    REQUIRE(copies.size() == 1);
    CHECK(copies[0].elements == Elements::of(64));
    CHECK(copies[0].group == 1);
    return result;
  };
  CHECK(waits() == std::vector<bool>{true, true, true});
  config.offload_optimizer.pipeline_write = true;
  CHECK(waits() == std::vector<bool>{false, false, true});
}

}  // namespace zeroplan
