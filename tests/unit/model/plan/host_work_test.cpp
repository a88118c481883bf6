// Threads of a rank where the optimizer steps on the CPU: what is said, what launchers set, and
// what few of them cost.
#include "model/plan/host_work.hpp"

#include <algorithm>

#include "model/hardware/cluster.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/predict.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Plan plan_of(const std::string& workload,
             const std::string& zero = R"("stage":2,"offload_optimizer":{"device":"cpu"})",
             const std::string& cluster = "8xA100-80G-SXM") {
  const std::string text = R"({"model":"1.5B","cluster":")" + cluster + R"(","workload":{)" +
                           workload + R"(},"ds_config":{"bf16":{"enabled":true},)" +
                           R"("zero_optimization":{)" + zero + "}}}";
  return resolve(parse_scenario(parse_json(text, "s.json").root, "s.json"));
}

bool says(const std::vector<Phrase>& sentences, const std::string& what) {
  return std::any_of(sentences.begin(), sentences.end(), [&](const std::string& sentence) {
    return sentence.find(what) != std::string::npos;
  });
}

Seconds step_of(const Plan& plan) { return predict(plan).step.total; }

}  // namespace

TEST_CASE("nobody sets OMP_NUM_THREADS under the deepspeed launcher, and that is said") {
  const Plan plan = plan_of("");
  CHECK(plan.workload.omp_num_threads == 0);
  CHECK(host_load(plan.cluster.node).threads == 0);
  CHECK(says(plan.assumptions, "OMP_NUM_THREADS is not set"));
  CHECK(plan.warnings.empty());
  // It is no matter where nothing steps on the CPU, or where one rank has all cores.
  CHECK_FALSE(says(plan_of("", R"("stage":2)").assumptions, "OMP_NUM_THREADS"));
  CHECK_FALSE(says(
      plan_of("", R"("stage":2,"offload_optimizer":{"device":"cpu"})", "1xA100-80G").assumptions,
      "OMP_NUM_THREADS"));
}

TEST_CASE("one thread for each of two ranks is slower than their share of the cores") {
  const std::string zero = R"("stage":2,"offload_optimizer":{"device":"cpu"})";
  const std::string slice = "2xA100-80G-SXM";  // of a machine of eight
  const Plan one = plan_of(R"("omp_num_threads":1)", zero, slice);
  CHECK(one.workload.omp_num_threads == 1);
  CHECK_FALSE(says(one.assumptions, "OMP_NUM_THREADS"));
  CHECK(says(one.warnings, "export OMP_NUM_THREADS="));
  const auto share = one.cluster.node.cpu_cores.value / 2;
  const Plan all = plan_of(R"("omp_num_threads":)" + std::to_string(share), zero, slice);
  CHECK(all.warnings.empty());
  CHECK(step_of(one) > step_of(all));
  // More than there are cores for changes nothing.
  CHECK(step_of(plan_of(R"("omp_num_threads":4000)", zero, slice)) == step_of(all));
  // It takes no part where the GPU steps.
  CHECK(step_of(plan_of(R"("omp_num_threads":1)", R"("stage":2)", slice)) ==
        step_of(plan_of("", R"("stage":2)", slice)));
}

TEST_CASE(
    "torchrun starts FSDP's ranks with one thread each, and torch's Adam is a loop of passes") {
  const std::string zero = R"("stage":3,"offload_param":{"device":"cpu"})";
  const Plan plan = plan_of(R"("engine":"fsdp","frontend":"native")", zero);
  CHECK(plan.workload.omp_num_threads == 0);
  CHECK(host_load(plan.cluster.node).threads == 1);
  CHECK(says(plan.assumptions, "1 CPU thread a rank"));
  CHECK(cpu_adam_work(plan, Elements::of(7)).kernel == CpuAdamKernel::passes);
  const Plan fused =
      plan_of(R"("engine":"fsdp","frontend":"native","optimizer_implementation":"fused")", zero);
  CHECK(cpu_adam_work(fused, Elements::of(7)).kernel == CpuAdamKernel::one_pass);
  CHECK(step_of(fused) < step_of(plan));
  CHECK(cpu_adam_work(plan_of(""), Elements::of(7)).kernel == CpuAdamKernel::one_pass);
}

TEST_CASE("a resolved document keeps the threads and the share of the machine") {
  const Plan plan = plan_of(R"("omp_num_threads":3)",
                            R"("stage":2,"offload_optimizer":{"device":"cpu"})",
                            "1xH100-80G-SXM");
  const Json document = to_json(plan.cluster);
  REQUIRE(document.find("host_share") != nullptr);
  const Cluster again = parse_cluster(document, "c.json", "");
  CHECK(again.node.host_share == Approx(plan.cluster.node.host_share));
  CHECK(again.node.host_share < 0.2);
  CHECK(plan.cluster.node.threads_per_rank == 3);
}

TEST_CASE("the analytic estimate counts what the CPU does beside Adam, as the simulator plays it") {
  // Five narrow layers and a wide vocabulary: half of the step is the CPU's.
  const std::string text = R"({"model":{"model_type":"llama","architectures":["LlamaForCausalLM"],
    "hidden_size":256,"intermediate_size":688,"num_hidden_layers":5,"num_attention_heads":4,
    "num_key_value_heads":4,"vocab_size":33568,"max_position_embeddings":4096,
    "tie_word_embeddings":false,"rms_norm_eps":1e-6},"cluster":"2xRTX4090",
    "workload":{"sequence_length":640,"micro_batch_size":8,"activation_checkpointing":"full"},
    "ds_config":{"bf16":{"enabled":true},
                 "zero_optimization":{"stage":1,"offload_optimizer":{"device":"cpu"}}}})";
  const Plan plan = resolve(parse_scenario(parse_json(text, "s.json").root, "s.json"));
  const double simulated = simulator::simulate(plan).step.total.seconds();
  CHECK(step_of(plan).seconds() > simulated * 0.9);
  CHECK(step_of(plan).seconds() < simulated * 1.1);
}
