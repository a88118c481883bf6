// Volumes and counts of a step against the analytic estimates of ZeRO: what a ring of N ranks moves
// is 2 (N-1)/N of an all-reduced message and (N-1)/N of a gathered or scattered one; here the
// messages.
#include "model/predict/step_traffic.hpp"

#include <algorithm>

#include "model/engine/partition.hpp"
#include "model/plan/scenario_reader.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

std::string model(int hidden) {
  return R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"num_hidden_layers":4,
      "num_attention_heads":4,"num_key_value_heads":4,"vocab_size":2000,"intermediate_size":640,
      "max_position_embeddings":4096,"tie_word_embeddings":false,"rms_norm_eps":1e-6,
      "hidden_size":)" +
         std::to_string(hidden) + "}";
}

struct Case {
  std::string zero;  // members of zero_optimization
  int accumulation = 1;
  std::string checkpointing = "none";
  std::string cluster = "1x8xA100-80G-SXM";
  int hidden = 256;
};

Plan plan_of(const Case& c) {
  const std::string text =
      R"({"model":)" + model(c.hidden) + R"(,"cluster":")" + c.cluster +
      R"(","workload":{"frontend":"native","sequence_length":128,
      "gradient_accumulation_steps":)" +
      std::to_string(c.accumulation) + R"(,"activation_checkpointing":")" + c.checkpointing +
      R"("},"ds_config":{"bf16":{"enabled":true},"zero_optimization":{)" + c.zero + "}}}";
  return resolve(parse_scenario(parse_json(text, "s.json").root, "s.json"));
}

StepTraffic traffic_of(const Plan& plan) { return step_traffic(plan, step_work(plan)); }
StepTraffic traffic_of(const Case& c) { return traffic_of(plan_of(c)); }

Elements all_parameters(const Plan& plan) {
  Elements sum;
  for (const EngineParameter& parameter : plan.engine_parameters) sum += parameter.numel;
  return sum;
}

// N times the partitions of all parameters above the persistence threshold.
Elements gathered_once(const Plan& plan) {
  const int ranks = partition_ranks(plan.engine);
  const std::vector<int> persistent = persistent_parameters(plan.engine, plan.engine_parameters);
  Elements sum;
  for (std::size_t i = 0; i < plan.engine_parameters.size(); ++i) {
    if (std::binary_search(persistent.begin(), persistent.end(), static_cast<int>(i))) continue;
    sum += partitioned_numel(plan.engine_parameters[i].numel, ranks) * ranks;
  }
  return sum;
}

Elements scattered_once(const Plan& plan) {
  const int ranks = partition_ranks(plan.engine);
  Elements sum;
  for (const EngineParameter& parameter : plan.engine_parameters) {
    sum += partitioned_numel(parameter.numel, ranks) * ranks;
  }
  return sum;
}

}  // namespace

TEST_CASE("stage 0 all-reduces the gradients once a step and gathers nothing") {
  const Plan plan = plan_of({.zero = R"("stage":0)", .accumulation = 4});
  const StepTraffic traffic = traffic_of(plan);
  CHECK(traffic.all_reduce == all_parameters(plan) * DType::bf16);
  CHECK(traffic.reduce_scatter == Bytes::zero());
  CHECK(traffic.all_gather_forward + traffic.all_gather_backward + traffic.all_gather_step ==
        Bytes::zero());
}

TEST_CASE("stage 1 reduces once a window, stage 2 in every micro-step") {
  for (const int accumulation : {1, 2, 5}) {
    INFO(accumulation << " micro-steps");
    const Plan one = plan_of({.zero = R"("stage":1)", .accumulation = accumulation});
    CHECK(traffic_of(one).all_reduce / (all_parameters(one) * DType::bf16) ==
          Approx(1.0).epsilon(1e-4));
    const Plan two = plan_of({.zero = R"("stage":2)", .accumulation = accumulation});
    CHECK(traffic_of(two).all_reduce / (all_parameters(two) * DType::bf16) ==
          Approx(accumulation).epsilon(1e-4));
  }
}

TEST_CASE("stages 1 and 2 gather the aligned weights once after the step, one call a group") {
  for (const char* zero : {R"("stage":1)", R"("stage":2)"}) {
    const Plan plan = plan_of({.zero = zero, .accumulation = 3});
    Elements aligned;
    const FlatPartition partition = flat_partition(plan.engine, plan.engine_parameters);
    for (const FlatGroup& group : partition.groups) aligned += group.aligned;
    const StepTraffic traffic = traffic_of(plan);
    CHECK(traffic.all_gather_step == aligned * DType::bf16);
    CHECK(traffic.all_gather_forward == Bytes::zero());
  }
}

TEST_CASE("the number of reductions follows the bucket: P / RB in each micro-step") {
  const auto calls = [](std::int64_t bucket, int accumulation) {
    return traffic_of({.zero = R"("stage":2,"reduce_bucket_size":)" + std::to_string(bucket),
                       .accumulation = accumulation})
        .collectives;
  };
  const Plan plan = plan_of({.zero = R"("stage":2)"});
  const double parameters = static_cast<double>(all_parameters(plan).count());
  const std::int64_t bucket = 1'000'000;
  // What is not a reduction: gathers, norms and the overflow flag of the step.
  const std::int64_t of_step = calls(1'000'000'000, 1) - 1;
  const auto reductions = static_cast<double>(calls(bucket, 1) - of_step);
  CHECK(reductions >= parameters / static_cast<double>(bucket));
  CHECK(reductions <= 2.0 * parameters / static_cast<double>(bucket));
  CHECK(calls(bucket, 4) - of_step == 4 * (calls(bucket, 1) - of_step));
}

TEST_CASE("stage 3 scatters every padded gradient in every micro-step") {
  for (const int accumulation : {1, 3}) {
    const Plan plan = plan_of({.zero = R"("stage":3)", .accumulation = accumulation});
    CHECK(traffic_of(plan).reduce_scatter == scattered_once(plan) * DType::bf16 * accumulation);
    CHECK(traffic_of(plan).all_reduce <= Bytes::kib(1));  // flags and norms
  }
}

TEST_CASE("without reduce_scatter stage 3 all-reduces whole gradients instead") {
  const Plan plan = plan_of({.zero = R"("stage":3,"reduce_scatter":false)"});
  const StepTraffic traffic = traffic_of(plan);
  CHECK(traffic.reduce_scatter == Bytes::zero());
  CHECK(traffic.all_reduce / (all_parameters(plan) * DType::bf16) == Approx(1.0).epsilon(1e-3));
}

TEST_CASE("stage 3 that keeps nothing gathers the weights once forward and once backward") {
  const std::string forgetful =
      R"("stage":3,"stage3_max_reuse_distance":0,"stage3_max_live_parameters":0,
         "stage3_prefetch_bucket_size":0,"stage3_param_persistence_threshold":1000)";
  const Plan plan = plan_of({.zero = forgetful, .accumulation = 2});
  const StepTraffic traffic = traffic_of(plan);
  const Bytes once = gathered_once(plan) * DType::bf16;
  CHECK(traffic.all_gather_forward == once * 2);
  CHECK(traffic.all_gather_backward == once * 2);
}

TEST_CASE("stage 3 never gathers more than twice a micro-step, three times when it recomputes") {
  for (const char* reuse : {"0", "300000", "1000000000"}) {
    const std::string zero = std::string(R"("stage":3,"stage3_max_reuse_distance":)") + reuse;
    for (const char* checkpointing : {"none", "full"}) {
      INFO(reuse << ", " << checkpointing);
      const Plan plan = plan_of({.zero = zero, .checkpointing = checkpointing});
      const StepTraffic traffic = traffic_of(plan);
      const double once = static_cast<double>((gathered_once(plan) * DType::bf16).count());
      const double all =
          static_cast<double>((traffic.all_gather_forward + traffic.all_gather_backward).count());
      CHECK(all >= once * 0.999);
      CHECK(all <= once * (std::string(checkpointing) == "full" ? 3.001 : 2.001));
    }
  }
}

TEST_CASE("stage 2 with its optimizer on the CPU sends fp32 gradients down and weights up") {
  const std::string zero = R"("stage":2,"offload_optimizer":{"device":"cpu"})";
  const Plan plan = plan_of({.zero = zero});
  const FlatPartition partition = flat_partition(plan.engine, plan.engine_parameters);
  Elements owned;
  for (const OwnedSlice& slice : owned_slices(partition, 0)) owned += slice.numel;
  const StepTraffic one = traffic_of(plan);
  CHECK(one.device_to_host == owned * DType::fp32);
  CHECK(one.host_to_device / (owned * DType::bf16) == Approx(1.0).epsilon(1e-3));
  CHECK(one.cpu_optimizer / owned == Approx(1.0).epsilon(1e-3));
  CHECK(one.gpu_optimizer == Elements::zero());
}

TEST_CASE("accumulating on the host moves every micro-step's gradient down and the sum up") {
  const std::string zero = R"("stage":2,"offload_optimizer":{"device":"cpu"})";
  constexpr int kSteps = 4;
  const StepTraffic one = traffic_of({.zero = zero});
  const StepTraffic many = traffic_of({.zero = zero, .accumulation = kSteps});
  CHECK(many.device_to_host > one.device_to_host);
  CHECK(many.host_to_device + many.host_to_device_pageable >
        one.host_to_device + one.host_to_device_pageable);
  CHECK(many.cpu_optimizer == one.cpu_optimizer);
}

TEST_CASE("offloaded weights come up for every gather, a share of 1 / N") {
  const std::string zero =
      R"("stage":3,"offload_optimizer":{"device":"cpu"},"stage3_max_reuse_distance":0,
         "stage3_max_live_parameters":0)";
  const StepTraffic without = traffic_of({.zero = zero});
  const StepTraffic with = traffic_of({.zero = zero + R"(,"offload_param":{"device":"cpu"})"});
  const Bytes gathered = with.all_gather_forward + with.all_gather_backward;
  CHECK((with.host_to_device - without.host_to_device) / (gathered / 8) ==
        Approx(1.0).epsilon(0.01));
  // The step writes the weights where they are: on the host, without a copy.
  CHECK(with.host_to_device_pageable == Bytes::zero());
  CHECK(without.host_to_device_pageable > Bytes::zero());
}

TEST_CASE("NVMe reads and writes 16 bytes a parameter: three states and the gradient") {
  const std::string zero = R"("stage":3,"sub_group_size":3000000,
      "offload_optimizer":{"device":"nvme","nvme_path":"/nvme"})";
  const Plan plan = plan_of({.zero = zero, .cluster = "1x1xA100-80G-SXM", .hidden = 1024});
  const StepTraffic traffic = traffic_of(plan);
  const double parameters = static_cast<double>(all_parameters(plan).count());
  CHECK(static_cast<double>(traffic.nvme_read.count()) == Approx(16 * parameters).epsilon(0.01));
  CHECK(static_cast<double>(traffic.nvme_write.count()) == Approx(16 * parameters).epsilon(0.01));
}

TEST_CASE("weights on NVMe are written once after the step") {
  const std::string zero =
      R"("stage":3,"sub_group_size":3000000,"stage3_max_reuse_distance":0,"stage3_max_live_parameters":0,
      "offload_optimizer":{"device":"nvme","nvme_path":"/nvme"})";
  const auto weights = [](const char* max_in_cpu) {
    return std::string(R"(,"offload_param":{"device":"nvme","nvme_path":"/nvme","max_in_cpu":)") +
           max_in_cpu + "}";
  };
  const Case states = {.zero = zero, .cluster = "1x1xA100-80G-SXM", .hidden = 1024};
  Case both = states;
  both.zero += weights("0");
  const StepTraffic traffic = traffic_of(both);
  const Bytes all = all_parameters(plan_of(both)) * DType::bf16;
  CHECK((traffic.nvme_write - traffic_of(states).nvme_write) / all == Approx(1.0).epsilon(0.01));
  CHECK(traffic.nvme_weights_written / all == Approx(1.0).epsilon(0.01));
  CHECK(traffic.nvme_weights / all > 1.5);  // forward and backward
  CHECK(traffic.nvme_read - traffic.nvme_weights == traffic_of(states).nvme_read);
  // The default, 10^9 elements, is more than the model has.
  Case in_memory = states;
  in_memory.zero += weights("1000000000");
  CHECK(traffic_of(in_memory).nvme_read == traffic_of(states).nvme_read);
  CHECK(traffic_of(in_memory).nvme_write == traffic_of(states).nvme_write);
  CHECK(traffic_of(in_memory).host_to_device == traffic.host_to_device);
}
