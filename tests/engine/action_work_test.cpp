// What an action moves, worked out by hand from the DeepSpeed functions that the policies name.
#include "model/engine/action_work.hpp"

#include <vector>

#include "model/engine/gradient_buckets.hpp"
#include "model/engine/optimizer_step.hpp"
#include "tests/catch.hpp"

namespace zeroplan {
namespace {

std::vector<EngineParameter> sized(std::initializer_list<std::int64_t> numels) {
  std::vector<EngineParameter> parameters;
  for (std::int64_t numel : numels) parameters.push_back({.numel = Elements::of(numel)});
  return parameters;
}

EngineConfig zero(int stage, int ranks, std::int64_t bucket = 1000) {
  EngineConfig config;
  config.stage = stage;
  config.data_parallel_ranks = ranks;
  config.reduce_bucket = Elements::of(bucket);
  return config;
}

EngineActions backward(const EngineConfig& config,
                       const std::vector<EngineParameter>& parameters,
                       int micro_step = 0) {
  GradientReducer reducer(config, parameters);
  EngineActions actions;
  reducer.begin_backward(micro_step);
  for (std::size_t i = parameters.size(); i-- > 0;) {
    reducer.gradient_ready(static_cast<int>(i), actions);
  }
  reducer.end_backward(actions);
  return actions;
}

std::vector<ActionWork> works(const EngineConfig& config,
                              const EngineActions& actions,
                              ActionKind kind) {
  std::vector<ActionWork> result;
  for (const EngineAction& action : actions.actions) {
    if (action.kind == kind) result.push_back(action_work(config, action));
  }
  return result;
}

}  // namespace

// stage_1_and_2.py allreduce_bucket, allreduce_and_copy_with_multiple_ranks
TEST_CASE("a bucket of two owners is flattened, divided, summed and copied back in part") {
  const EngineConfig config = zero(2, 2);
  const EngineActions actions = backward(config, sized({60, 40}));
  const auto bytes = [&](ActionKind kind) {
    const std::vector<ActionWork> found = works(config, actions, kind);
    REQUIRE(found.size() == 1);
    CHECK(found[0].kind == WorkKind::kernels);
    CHECK(found[0].kernels == 1);
    return found[0].bytes.count();
  };
  CHECK(bytes(ActionKind::flatten) == 100 * 2 * 2);
  CHECK(bytes(ActionKind::divide) == 100 * 2 * 2);
  CHECK(bytes(ActionKind::copy_back) == 50 * 2 * 2);
}

// engine.py allreduce_and_copy
TEST_CASE("without ZeRO the whole sum is copied back") {
  const EngineConfig config = zero(0, 2);
  const EngineActions actions = backward(config, sized({60, 40}));
  CHECK(works(config, actions, ActionKind::copy_back).at(0).bytes == Bytes::of(100 * 2 * 2));
}

TEST_CASE("a gradient that is reduced where it lies is not copied back") {
  EngineConfig config = zero(2, 1);
  CHECK(works(config, backward(config, sized({100})), ActionKind::copy_back).empty());
  config.data_parallel_ranks = 2;
  config.reduce_scatter = false;
  CHECK(works(config, backward(config, sized({60, 40})), ActionKind::copy_back).empty());
}

// stage_1_and_2.py async_accumulate_grad_in_cpu_via_gpu: stage 1 has its sum on the GPU
TEST_CASE("the sum on the host is added to from the second micro-step of stage 2 on") {
  EngineConfig config = zero(2, 1);
  config.gradient_accumulation_steps = 2;
  config.offload_optimizer.device = OffloadDevice::cpu;
  const auto adds = [&](int micro_step) {
    const EngineActions actions = backward(config, sized({100}), micro_step);
    return works(config, actions, ActionKind::accumulate_on_host).at(0);
  };
  CHECK(adds(0).kind == WorkKind::none);
  CHECK(adds(1).bytes == Bytes::of(100 * 2 * 3));
  config.stage = 1;
  config.release = {0, 16, 4};
  CHECK(adds(1).kind == WorkKind::none);
}

TEST_CASE("the embedded runtime divides and scales inside its other passes") {
  EngineConfig config = zero(2, 2);
  const auto count = [&](ActionKind kind) {
    EngineActions actions = backward(config, sized({60, 40}));
    optimizer_step(config, sized({60, 40}), /*overflowed=*/false, actions);
    return works(config, actions, kind).size();
  };
  CHECK(count(ActionKind::divide) == 1);
  CHECK(count(ActionKind::scale) == 1);
  config.embedded = true;
  CHECK(count(ActionKind::divide) == 0);
  CHECK(count(ActionKind::scale) == 0);
}

// zero/stage3.py _reassign_or_swap_out_partitioned_parameters
TEST_CASE("weights cast on the host for the GPU pass through new pages") {
  EngineConfig config = zero(3, 1);
  config.offload_optimizer.device = OffloadDevice::cpu;
  const auto pass = [&] {
    EngineActions actions;
    optimizer_step(config, sized({100}), /*overflowed=*/false, actions);
    return works(config, actions, ActionKind::update_weights).at(0);
  };
  CHECK(pass().kind == WorkKind::host_pass);
  CHECK(pass().bytes == Bytes::of(100 * (2 + 4)));
  CHECK(pass().new_pages == Bytes::of(100 * 2));
  config.offload_parameter.device = OffloadDevice::cpu;
  CHECK(pass().new_pages == Bytes::zero());
}

// stage_1_and_2.py: partitions are stretches of the layers
TEST_CASE("ranks copy one after the other in backward and together in the step") {
  EngineConfig config = zero(2, 2);
  config.offload_optimizer.device = OffloadDevice::cpu;
  const auto alone = [&](const EngineActions& actions, ActionKind kind) {
    return works(config, actions, kind).at(0).copies_alone;
  };
  EngineActions step;
  optimizer_step(config, sized({100}), /*overflowed=*/false, step);
  CHECK(alone(backward(config, sized({100})), ActionKind::copy_to_host));
  CHECK_FALSE(alone(step, ActionKind::copy_to_device));
  config.round_robin_gradients = true;
  CHECK_FALSE(alone(backward(config, sized({100})), ActionKind::copy_to_host));
}

}  // namespace zeroplan
