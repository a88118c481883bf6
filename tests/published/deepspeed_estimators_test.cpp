// DeepSpeed's own memory estimators: their formulas, and why our numbers differ from theirs.
//
// They multiply the number of parameters and add the largest layer. They leave out activations and
// logits, reduce buckets, prefetched and live weights, copies while a bucket is flushed,
// temporaries of the step, the CUDA context, NCCL and fragmentation, and they give the host a flat
// factor of 1.5 for buffers; so our peak stands above theirs wherever they are right about the
// states.
#include <algorithm>

#include "model/engine/buffers.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/plan/software_sets.hpp"
#include "model/predict/predict.hpp"
#include "tests/catch.hpp"
#include "tests/published/published_data.hpp"

using namespace zeroplan;
using namespace zeroplan::testing;

namespace {

struct EstimatorInput {
  double parameters = 0;
  double largest_layer = 0;  // parameters that one module holds itself
  double gpus_per_node = 1;
  double nodes = 1;
  bool offload_optimizer = false;
  bool offload_param = false;
  bool zero_init = true;
};

struct Estimate {
  double cpu = 0;  // bytes a node
  double gpu = 0;
};

constexpr double kBufferFactor = 1.5;  // additional_buffer_factor

Estimate zero2_estimate(const EstimatorInput& in) {
  const double gpus = in.gpus_per_node * in.nodes;
  if (in.offload_optimizer) {
    return {in.parameters * std::max(4 * gpus, 16.0) * kBufferFactor, 2 * in.parameters};
  }
  return {in.parameters * 4 * in.gpus_per_node * kBufferFactor,
          2 * in.parameters + 18 * in.parameters / gpus};
}

Estimate zero3_estimate(const EstimatorInput& in) {
  const double gpus = in.gpus_per_node * in.nodes;
  const double layer = 4 * in.largest_layer;
  const double loaded = 4 * in.gpus_per_node;  // bytes a parameter where every rank loads in fp32
  if (in.offload_optimizer) {
    const double states = (in.offload_param ? 18.0 : 16.0) / in.nodes;
    const double width = in.zero_init ? states : std::max(loaded, states);
    return {in.parameters * width * kBufferFactor,
            in.offload_param ? layer : layer + 2 * in.parameters / gpus};
  }
  const double held = in.zero_init ? in.largest_layer : in.parameters;
  return {held * loaded * kBufferFactor, layer + 18 * in.parameters / gpus};
}

bool flag(const Json& row, std::string_view key) { return row.find(key)->as_boolean(); }

// LLaMA-2 7B in bf16 under a native script with these choices.
Plan plan_of(const Json& row) {
  const std::int64_t gpus = whole(row, "gpus");
  Json zero = Json::object({{"stage", whole(row, "stage")}});
  if (flag(row, "offload_optimizer")) {
    zero["offload_optimizer"] = Json::object({{"device", "cpu"}});
  }
  if (flag(row, "offload_param")) zero["offload_param"] = Json::object({{"device", "cpu"}});
  const Json document = Json::object(
      {{"model", "llama-2-7b"},
       {"cluster", std::to_string(gpus / 8) + "x8xA100-80G-SXM"},
       {"workload", Json::object({{"frontend", "native"}, {"sequence_length", 512}})},
       {"ds_config",
        Json::object({{"bf16", Json::object({{"enabled", true}})}, {"zero_optimization", zero}})}});
  return resolve(with_reported_software(parse_scenario(document, "estimators")));
}

// The most of weights, gradients and states that a rank holds, without the gathered vectors.
double states_on_gpu(const Plan& plan) {
  double bytes = 0;
  for (const EngineBuffer& buffer : engine_buffers(plan.engine, plan.engine_parameters)) {
    const bool counted = buffer.category == MemoryCategory::parameters ||
                         buffer.category == MemoryCategory::optimizer_states ||
                         buffer.category == MemoryCategory::gradients;
    const bool passing = buffer.name == BufferName::outside_bucket ||
                         buffer.name == BufferName::persistent_parameters;
    if (buffer.place != BufferPlace::gpu || !counted || passing) continue;
    bytes += static_cast<double>(buffer.bytes.count());
  }
  return bytes;
}

}  // namespace

TEST_CASE("the estimators' formulas give what DeepSpeed printed") {
  const Json table = published("deepspeed_estimators.json");
  const double relative = number(table, "printed_relative_tolerance");
  const double absolute = number(table, "printed_absolute_tolerance_gib");
  for (const Json& row : table.find("printed")->items()) {
    INFO(row.dump());
    const Estimate estimate = zero3_estimate({.parameters = number(row, "parameters"),
                                              .largest_layer = number(row, "largest_layer"),
                                              .gpus_per_node = number(row, "gpus_per_node"),
                                              .nodes = number(row, "nodes"),
                                              .offload_optimizer = flag(row, "offload_optimizer"),
                                              .offload_param = flag(row, "offload_param"),
                                              .zero_init = flag(row, "zero_init")});
    constexpr double kGib = 1 << 30;
    CHECK(estimate.cpu / kGib == Approx(number(row, "cpu_gib")).epsilon(relative).margin(absolute));
    CHECK(estimate.gpu / kGib == Approx(number(row, "gpu_gib")).epsilon(relative).margin(absolute));
  }
}

TEST_CASE("our model states over the estimators', where the engine differs and why") {
  const Json table = published("deepspeed_estimators.json");
  const double tolerance = number(table, "ratio_tolerance");
  for (const Json& row : table.find("compared")->items()) {
    INFO(text(row, "id") << ": " << text(row, "reason"));
    const Plan plan = plan_of(row);
    const double gpus = number(row, "gpus");
    const EstimatorInput in = {
        .parameters = static_cast<double>(count_parameters(*plan.model).total.count()),
        .gpus_per_node = 8,
        .nodes = gpus / 8,
        .offload_optimizer = flag(row, "offload_optimizer"),
        .offload_param = flag(row, "offload_param")};
    const Estimate estimate = whole(row, "stage") == 2 ? zero2_estimate(in) : zero3_estimate(in);
    const double theirs = estimate.gpu > 0 ? estimate.gpu : in.parameters;
    CHECK(states_on_gpu(plan) / theirs == Approx(number(row, "gpu_ratio")).margin(tolerance));
  }
}

TEST_CASE("our peak stands above an estimator that is right about the states") {
  // Offloaded optimizer: theirs is the weights alone, which is exact, and nothing else.
  const Json table = published("deepspeed_estimators.json");
  int rows = 0;
  for (const Json& row : table.find("compared")->items()) {
    if (!flag(row, "offload_optimizer")) continue;
    const Plan plan = plan_of(row);
    const GpuMemory gpu = predict(plan).gpu;
    const double theirs = states_on_gpu(plan);
    INFO(text(row, "id"));
    CHECK(static_cast<double>(gpu.peak_allocated.count()) > theirs);
    CHECK(gpu.peak_total - gpu.peak_allocated > Bytes::mib(400));  // context, NCCL
    ++rows;
  }
  CHECK(rows == 3);
}

TEST_CASE("the host holds no more than the estimator's flat factor gives it") {
  // 16 bytes a parameter, their 1.5 for buffers: we count pinned buffers rounded up to powers of
  // two, which stays below, and the processes themselves, which they leave out.
  const Json row = Json::object(
      {{"stage", 2}, {"offload_optimizer", true}, {"offload_param", false}, {"gpus", 8}});
  const Plan plan = plan_of(row);
  const double parameters = static_cast<double>(count_parameters(*plan.model).total.count());
  const Estimate theirs = zero2_estimate(
      {.parameters = parameters, .gpus_per_node = 8, .nodes = 1, .offload_optimizer = true});
  CHECK(theirs.cpu == Approx(parameters * 32 * 1.5));  // eight ranks load the model in fp32
  const HostMemory host = predict(plan).host;
  const double states = 16 * parameters;  // master, momentum, variance, gradient
  CHECK(static_cast<double>(host.peak.count()) > states);
  CHECK(static_cast<double>(host.peak.count()) < theirs.cpu);
}
