// When stages 1 and 2 make what gradients need: buckets, and what a rank keeps.
#include <algorithm>
#include <vector>

#include "model/engine/buffers.hpp"
#include "model/engine/gradient_buckets.hpp"
#include "tests/catch.hpp"

namespace zeroplan {
namespace {

EngineConfig zero(int stage, Version release) {
  EngineConfig config;
  config.release = release;
  config.stage = stage;
  config.data_parallel_ranks = 2;
  config.reduce_bucket = Elements::of(1000);
  return config;
}

std::vector<EngineBuffer> buffers_of(const EngineConfig& config) {
  const std::vector<EngineParameter> parameters = {
      {.numel = Elements::of(600)}, {.numel = Elements::of(400)}, {.numel = Elements::of(200)}};
  return engine_buffers(config, parameters);
}

TEST_CASE("up to 0.17 buckets are made before autograd runs, then by the first gradient") {
  CHECK(makes_buckets_before_backward(zero(2, Version{0, 14})));
  CHECK(makes_buckets_before_backward(zero(1, Version{0, 17})));
  CHECK_FALSE(makes_buckets_before_backward(zero(2, Version{0, 18})));
  CHECK_FALSE(makes_buckets_before_backward(zero(3, Version{0, 14})));
  EngineConfig pipeline = zero(1, Version{0, 14});
  pipeline.pipeline = true;
  CHECK_FALSE(makes_buckets_before_backward(pipeline));
}

TEST_CASE("what a rank keeps of the gradients is made by the flush that brings the first of it") {
  for (const int stage : {1, 2}) {
    EngineConfig config = zero(stage, Version{0, 19});
    const auto kept = [](const EngineBuffer& buffer) { return buffer.made_by_flush; };
    const std::vector<EngineBuffer> buffers = buffers_of(config);
    CHECK(std::count_if(buffers.begin(), buffers.end(), kept) == 1);
    config.embedded = true;
    const std::vector<EngineBuffer> own = buffers_of(config);
    CHECK(std::none_of(own.begin(), own.end(), kept));
  }
}

TEST_CASE("BF16_Optimizer's 16-bit gradients stay to the next backward pass up to 0.17") {
  for (const Version release : {Version{0, 16}, Version{0, 19}}) {
    EngineConfig config = zero(0, release);
    config.gradient_accumulation_dtype = DType::fp32;
    const std::vector<EngineBuffer> buffers = buffers_of(config);
    const bool old = release == Version{0, 16};
    CHECK(std::any_of(buffers.begin(), buffers.end(), is_kept_gradient) ==
          (old && optimizer_wrapper(config) == OptimizerWrapper::bf16_optimizer));
  }
}

}  // namespace
}  // namespace zeroplan
