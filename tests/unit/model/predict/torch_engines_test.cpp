// Plans, graphs and memory of FSDP and DDP, and of Composer's and fms' model code.
#include <string>

#include "model/implementations/implementations.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/predict.hpp"
#include "model/predict/step_traffic.hpp"
#include "model/predict/step_work.hpp"
#include "model/step/graph_options.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

constexpr const char* kMpt = R"({"model_type":"mpt","d_model":1024,"n_layers":8,"n_heads":8,
  "vocab_size":50368,"max_seq_len":2048,"no_bias":true,"attn_config":{"alibi":false},
  "tie_word_embeddings":true})";
constexpr const char* kLlama = R"({"model_type":"llama","hidden_size":1024,
  "num_hidden_layers":8,"num_attention_heads":8,"num_key_value_heads":8,"intermediate_size":2816,
  "vocab_size":32000,"tie_word_embeddings":false})";

Plan planned(const std::string& model,
             const std::string& workload,
             const std::string& ds_config,
             const std::string& cluster = "8xA100-80G") {
  const std::string text =
      R"({"model":)" + model + R"(,"cluster":")" + cluster +
      R"(","workload":{"frontend":"native","outputs_kept":false,"precision":"bf16")" + workload +
      R"(},"ds_config":)" + ds_config + "}";
  return resolve(parse_scenario(parse_json(text, "s.json").root, "s.json"));
}

const std::string kComposer = R"(,"engine":"fsdp","implementation":"composer","attention":"flash")";
const std::string kShardAll = R"({"zero_optimization":{"stage":3}})";

Plan fsdp(const std::string& ds_config) { return planned(kMpt, kComposer, ds_config); }

std::string message(const std::string& model, const std::string& workload) {
  try {
    planned(model, workload, kShardAll);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

ModelGraph graph(const Plan& plan) { return build_graph(*plan.model, graph_options(plan)); }

}  // namespace

TEST_CASE("FSDP takes stage, group size and number formats from the ds_config") {
  CHECK(fsdp(kShardAll).fsdp.sharding == Sharding::full);
  CHECK(fsdp(kShardAll).fsdp.shard_ranks == 8);
  CHECK(fsdp(kShardAll).fsdp.storage_dtype == DType::fp32);
  CHECK(fsdp(kShardAll).fsdp.reduce_dtype == DType::bf16);
  CHECK(fsdp(R"({"zero_optimization":{"stage":2}})").fsdp.sharding == Sharding::grad_op);
  CHECK(fsdp(R"({"zero_optimization":{"stage":0}})").fsdp.sharding == Sharding::no_shard);
  CHECK(fsdp(R"({"zero_optimization":{"stage":3,"mics_shard_size":4}})").fsdp.shard_ranks == 4);
  CHECK(fsdp(R"({"communication_data_type":"fp32","zero_optimization":{"stage":3}})")
            .fsdp.reduce_dtype == DType::fp32);
  CHECK(fsdp(R"({"bf16":{"enabled":true,"bf16_master_weights_and_grads":true},
                 "zero_optimization":{"stage":3}})")
            .fsdp.storage_dtype == DType::bf16);
}

TEST_CASE("keys that FSDP does not have are named in a warning") {
  const Plan plan = fsdp(R"({"zero_optimization":{"stage":3,"reduce_bucket_size":1000}})");
  REQUIRE(plan.warnings.size() == 1);
  CHECK(plan.warnings[0] == "without meaning to FSDP: /zero_optimization/reduce_bucket_size");
}

TEST_CASE("blocks are wrapped one by one, the rest is the root's") {
  const Plan plan = fsdp(kShardAll);
  const auto units = fsdp_units(plan.fsdp, plan.engine_parameters, plan.wrapped_block);
  REQUIRE(units.size() == 9);
  CHECK(units[1].numel == Elements::of(12LL * 1024 * 1024 + 2 * 1024));
  CHECK(units[0].numel == Elements::of(50368LL * 1024 + 2048 * 1024 + 1024));
}

TEST_CASE("what FSDP, Composer and fms do not describe is refused with a reason") {
  CHECK(message(kLlama, kComposer).find("a model of type mpt under composer") != std::string::npos);
  CHECK(message(kMpt, R"(,"engine":"fsdp","implementation":"fms")").find("llama under fms") !=
        std::string::npos);
  CHECK(message(kLlama, R"(,"implementation":"megatron")").find("gpt2 or bloom under megatron") !=
        std::string::npos);
  CHECK(message(kLlama, R"(,"engine":"fsdp","implementation":"litgpt","method":"qlora")")
            .find("litgpt does not quantise") != std::string::npos);
  CHECK(
      message(kMpt, R"(,"implementation":"composer","attention":"eager")").find("flash or sdpa") !=
      std::string::npos);
}

TEST_CASE("Composer's MPT block saves what flash attention, two norms and a GELU MLP need") {
  const Plan plan = fsdp(kShardAll);
  const ModelGraph g = graph(plan);
  const BlockMemory memory = summarize(g.blocks[1]);
  const std::int64_t u = 2048LL * 1024 * 2;  // one hidden state
  // Inputs of two norms (one is the block's input), their outputs, q k v, the attention's output,
  // the MLP's two wide states; a mean and a root a row of each norm, a sum a row of each head.
  const std::int64_t rows = 2048LL * 4 * (4 + 8);
  CHECK(memory.saves_input);
  CHECK(memory.saved.count() == u * (1 + 2 + 3 + 1 + 8) + rows);
  CHECK(cost(g.blocks[1], Pass::forward).matmul.value() == Approx(2.0 * 2048 * 12 * 1024 * 1024));
}

TEST_CASE("fms' block compiles pointwise work to one kernel each") {
  const Plan plan =
      planned(kLlama, R"(,"engine":"fsdp","implementation":"fms","attention":"flash")", kShardAll);
  const ModelGraph g = graph(plan);
  const PassCost forward = cost(g.blocks[1], Pass::forward);
  // 7 products, attention, 2 norms, 2 rotations, gating, 2 sums.
  CHECK(forward.operations == 15);
  CHECK(!g.instances[1].checkpointed);
}

TEST_CASE("fms' selective checkpointing covers every block by default") {
  const Plan plan = planned(kLlama,
                            R"(,"engine":"fsdp","implementation":"fms","attention":"flash",
                                "activation_checkpointing":"selective")",
                            kShardAll);
  CHECK(graph(plan).instances[1].checkpointed);
}

TEST_CASE("FSDP's memory: shards of 16 bytes an element, gathered blocks, less with grad-op") {
  const StepResult full = predict(fsdp(kShardAll));
  const Plan plan = fsdp(kShardAll);
  const Elements owned =
      fsdp_owned(fsdp_units(plan.fsdp, plan.engine_parameters, plan.wrapped_block));
  // Between steps: shards and Adam's states, and cuBLAS's workspaces of two threads.
  CHECK(full.gpu.static_allocated.count() >= owned.count() * 12);
  CHECK(full.gpu.static_allocated.count() < owned.count() * 12 + (64 << 20));
  const StepResult grad_op = predict(fsdp(R"({"zero_optimization":{"stage":2}})"));
  const StepResult no_shard = predict(fsdp(R"({"zero_optimization":{"stage":0}})"));
  CHECK(full.gpu.peak_allocated < grad_op.gpu.peak_allocated);
  CHECK(grad_op.gpu.peak_allocated < no_shard.gpu.peak_allocated);
  CHECK(no_shard.gpu.static_allocated > full.gpu.static_allocated * 7);
}

TEST_CASE("DDP holds everything on every rank") {
  const Plan plan = planned(kLlama, R"(,"engine":"ddp")", "{}", "2xA100-80G");
  const StepResult result = predict(plan);
  const std::int64_t p = count_parameters(*plan.model).total.count();
  CHECK(result.gpu.static_allocated.count() >= p * 16);  // weights, buckets, two states
  CHECK(result.gpu.static_allocated.count() < p * 16 + (64 << 20));
  CHECK(result.gpu.peak_allocated.count() > p * (16 + 4 + 2));
}

// Lightning's closure: forward, zero_grad(), backward (loops/optimization/automatic.py). Rehearsed
// with Lightning 2.6.6: tests/python/watched_test.py.
TEST_CASE("gradients that the loop holds stay through the next forward pass") {
  const std::string sharded = R"({"zero_optimization":{"stage":3}})";
  const std::string fsdp1 = R"(,"engine":"fsdp")", fsdp2 = R"(,"engine":"fsdp","fsdp_version":2)";
  const std::string accumulated = R"(,"gradient_accumulation_steps":2)";
  struct Case {
    std::string engine, ds_config;
    std::int64_t ranks_that_share;
  };
  for (const Case& one : {Case{R"(,"engine":"ddp")", "{}", 1},
                          Case{R"(,"engine":"ddp")" + accumulated, "{}", 1},
                          Case{fsdp1, sharded, 2},
                          Case{fsdp1 + accumulated, sharded, 2},
                          Case{fsdp2, sharded, 2},
                          Case{fsdp2 + accumulated, sharded, 2}}) {
    INFO(one.engine);
    const auto plan = [&](const char* held) {
      return planned(kLlama, one.engine + held, one.ds_config, "2xA100-80G");
    };
    const Plan drops = plan(""), holds = plan(R"(,"gradients_held":true)");
    const std::int64_t gradients =
        count_parameters(*drops.model).total.count() * 4 / one.ranks_that_share;
    const auto in_forward = [](const StepResult& result) {
      const CategoryBytes& bytes = result.gpu.by_phase[static_cast<std::size_t>(Phase::forward)];
      return bytes[static_cast<std::size_t>(MemoryCategory::gradients)];
    };
    for (const bool simulated : {false, true}) {
      INFO(simulated);
      const auto result = [&](const Plan& p) {
        return simulated ? simulator::simulate(p) : predict(p);
      };
      const StepResult dropped = result(drops), held = result(holds);
      const std::int64_t more = (held.gpu.static_allocated - dropped.gpu.static_allocated).count();
      // FSDP1 holds what zero_grad() cleared until its next forward pass begins, said or not.
      const bool simulated_fsdp1 =
          simulated && one.engine.starts_with(fsdp1) && !one.engine.starts_with(fsdp2);
      // Simulated blocks are larger than their tensors where the allocator does not split them.
      CHECK(more == Approx(simulated_fsdp1 ? 0 : gradients).epsilon(0.04).margin(1 << 20));
      CHECK(held.gpu.peak_allocated >= dropped.gpu.peak_allocated);
      CHECK(in_forward(held).count() == Approx(gradients).epsilon(0.04));
    }
    CHECK(static_cast<double>(simulator::simulate(holds).gpu.peak_allocated.count()) ==
          Approx(predict(holds).gpu.peak_allocated.count()).epsilon(0.05));
  }
}

namespace {

Plan adapted(const std::string& more, const std::string& ds_config = kShardAll) {
  return planned(kLlama, R"(,"engine":"fsdp","attention":"flash")" + more, ds_config);
}
const std::string kQlora = R"(,"method":{"qlora":{"rank":8,"targets":["q_proj","v_proj"]}})";
const std::string kLora = R"(,"method":{"lora":{"rank":8,"targets":["q_proj","v_proj"]}})";

}  // namespace

TEST_CASE(
    "adapters under FSDP: 16-bit shards, blocks without gradients, small units of their own") {
  const Plan plan = adapted(kLora);
  CHECK(plan.fsdp.storage_dtype == DType::bf16);
  CHECK(plan.fsdp.separate_adapters);
  const StepResult lora = predict(plan);
  const StepResult qlora = predict(adapted(kQlora));
  const std::int64_t frozen = 8LL * (4 * 1024 * 1024 + 3 * 1024 * 2816);
  // A quarter of the bytes and an eight-bit scale a block of 64, which no rank shares.
  const Bytes spared = lora.gpu.static_allocated - qlora.gpu.static_allocated;
  CHECK(static_cast<double>(spared.count()) ==
        Approx(frozen * (2 - 0.5) / 8 - frozen / 64.0).epsilon(0.02));
  CHECK(lora.parameters_trainable.count() == 8 * 4 * 8 * 1024);
}

TEST_CASE("litgpt under FSDP checkpoints, accumulates without reducing, and mixes its adapters") {
  const Plan plan =
      adapted(kLora + R"(,"implementation":"litgpt","gradient_accumulation_steps":4)");
  CHECK(plan.workload.activation_checkpointing == ActivationCheckpointing::full);
  CHECK_FALSE(plan.workload.checkpoint_reentrant);
  CHECK_FALSE(plan.fsdp.reduces_every_micro_step);
  CHECK_FALSE(plan.fsdp.separate_adapters);
  // Every weight of a block gets a gradient, the head's does not.
  const StepWork work = step_work(plan);
  const std::int64_t block = 4LL * 1024 * 1024 + 3 * 1024 * 2816 + 2 * 1024 + 4 * 8 * 1024;
  CHECK(work.activations.weight_gradients.count() == Approx(8.0 * block * 2).epsilon(0.001));
  const StepResult mixed = predict(plan);
  const StepResult apart = predict(
      adapted(kLora + R"(,"gradient_accumulation_steps":4,"activation_checkpointing":"full")"));
  const auto gradients = [](const StepResult& result) {
    const CategoryBytes& peak = result.gpu.by_phase[static_cast<std::size_t>(Phase::backward)];
    return at(peak, MemoryCategory::gradients).count();
  };
  CHECK(gradients(mixed) >= 8 * block * 2);
  CHECK(gradients(apart) < 8 << 20);
}

TEST_CASE("outputs that a loop keeps are there between steps and beside the next forward pass") {
  struct Case {
    std::string engine;
    std::string ds_config;
  };
  const std::string accumulated = R"(,"gradient_accumulation_steps":2)";
  for (const Case& one : {Case{R"(,"engine":"ddp")" + accumulated, "{}"},
                          Case{R"(,"engine":"fsdp","fsdp_version":1)", kShardAll},
                          Case{R"(,"engine":"fsdp","fsdp_version":2)", kShardAll},
                          Case{accumulated, R"({"zero_optimization":{"stage":2}})"},
                          Case{"", kShardAll}}) {
    INFO(one.engine << one.ds_config);
    const Plan drops = planned(kLlama, one.engine, one.ds_config, "2xA100-80G");
    Plan keeps = drops;
    keeps.workload.outputs_kept = true;
    const std::int64_t outputs = bytes_of_outputs(graph(drops)).count();
    CHECK(outputs >= drops.workload.sequence_length * 32000 * 2);  // logits in 16 bits
    for (const bool simulated : {false, true}) {
      INFO(simulated);
      const StepResult dropped = simulated ? simulator::simulate(drops) : predict(drops);
      const StepResult kept = simulated ? simulator::simulate(keeps) : predict(keeps);
      const std::int64_t more = (kept.gpu.static_allocated - dropped.gpu.static_allocated).count();
      CHECK(more == Approx(outputs).epsilon(0.04).margin(1 << 20));
      const auto forward = static_cast<std::size_t>(Phase::forward);
      CHECK(sum(kept.gpu.by_phase[forward]) >= sum(dropped.gpu.by_phase[forward]));
    }
  }
}

TEST_CASE("FSDP's offload leaves gathered blocks on the GPU and gives Adam to the CPU") {
  const std::string offload =
      R"({"zero_optimization":{"stage":3,"offload_param":{"device":"cpu"}}})";
  const Plan plan = adapted("", offload);
  CHECK(plan.fsdp.offload);
  CHECK(plan.warnings.empty());
  const StepResult off = predict(plan);
  const StepResult on = predict(adapted(""));
  CHECK(off.gpu.static_allocated.count() < 64 << 20);
  CHECK(off.gpu.peak_allocated < on.gpu.peak_allocated);
  CHECK(off.host.pinned > Bytes::zero());
  CHECK(off.step.total > on.step.total);
  const StepTraffic traffic = step_traffic(plan, step_work(plan));
  CHECK(traffic.gpu_optimizer == Elements::zero());
  CHECK(traffic.cpu_optimizer > Elements::zero());
  CHECK(traffic.host_to_device > traffic.device_to_host);
  const Plan ignored = adapted("", R"({"zero_optimization":{"stage":3,
      "offload_optimizer":{"device":"cpu"}}})");
  CHECK_FALSE(ignored.fsdp.offload);
  REQUIRE(ignored.warnings.size() == 1);
  CHECK(ignored.warnings[0].english().find("all at once") != std::string::npos);
}
