// Every knob that the table calls modelled reaches what the predictions read: the engine's
// settings, or the workload. A row sets one knob to something that is not its default and names the
// field that must follow.
#include <map>
#include <set>

#include "model/families/hf_config.hpp"
#include "model/hardware/cluster.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

constexpr const char* kModel = R"({"model_type":"llama","architectures":["LlamaForCausalLM"],
  "hidden_size":256,"intermediate_size":512,"num_hidden_layers":2,"num_attention_heads":4,
  "num_key_value_heads":4,"vocab_size":1024,"max_position_embeddings":4096,
  "tie_word_embeddings":false,"rms_norm_eps":1e-6})";

Scenario scenario() {
  return parse_scenario(
      parse_json(std::string(R"({"cluster":"2x4xA100-80G-SXM","workload":{"frontend":"native"},
                                 "model":)") +
                     kModel + "}",
                 "s.json")
          .root,
      "s.json");
}

using Settings = std::vector<std::pair<Knob, KnobValue>>;

// The plan of a native run in bf16 whose ds_config has exactly these knobs beside the stage.
Plan plan_with(int stage, const Settings& settings, const std::string& deepspeed = "") {
  Scenario said = scenario();
  if (!deepspeed.empty()) {
    said.set(ScenarioKey::deepspeed_version, Json(deepspeed), {"s.json", "/software/deepspeed"});
  }
  static const Prepared kParts = prepare(said);
  DsConfig config;
  config.set(Knob::zero_stage, std::int64_t{stage});
  config.set(Knob::bf16_enabled, true);
  for (const auto& [knob, value] : settings) config.set(knob, value);
  Prepared parts = kParts;
  parts.ds_config = std::make_shared<const DsConfig>(config);
  return resolve(said, parts);
}

std::string text(bool value) { return value ? "true" : "false"; }
std::string text(int value) { return std::to_string(value); }
std::string text(double value) { return Json(value).dump(); }
std::string text(Elements value) { return std::to_string(value.count()); }
std::string text(Bytes value) { return std::to_string(value.count()); }
std::string text(DType value) { return std::string(name(value)); }
std::string text(OffloadDevice value) {
  return value == OffloadDevice::cpu ? "cpu" : value == OffloadDevice::nvme ? "nvme" : "none";
}
std::string text(OptimizerKind value) {
  switch (value) {
    case OptimizerKind::fused_adam:
      return "fused_adam";
    case OptimizerKind::cpu_adam:
      return "cpu_adam";
    case OptimizerKind::torch_adam:
      return "torch_adam";
    case OptimizerKind::fused_lion:
      return "fused_lion";
    case OptimizerKind::fused_lamb:
      return "fused_lamb";
    case OptimizerKind::torch_adagrad:
      return "torch_adagrad";
    case OptimizerKind::sgd_momentum:
      return "sgd_momentum";
    case OptimizerKind::sgd:
      return "sgd";
    default:
      return "another";
  }
}

struct Row {
  Knob knob;
  KnobValue value;
  int stage;
  std::string (*field)(const Plan&);
  std::string expected;
  Settings beside = {};  // what must be set for the knob to count
};

#define FIELD(member) [](const Plan& plan) { return text(plan.member); }

KnobValue whole(std::int64_t value) { return value; }
KnobValue word(const char* value) { return std::string(value); }

const Settings kCpuOptimizer = {{Knob::offload_optimizer_device, word("cpu")}};
const Settings kNvmeOptimizer = {{Knob::offload_optimizer_device, word("nvme")}};
const Settings kCpuParameters = {{Knob::offload_param_device, word("cpu")}};
const Settings kNvmeParameters = {{Knob::offload_param_device, word("nvme")}};

std::vector<Row> workload_rows() {
  return {
      {Knob::zero_stage, whole(2), 0, FIELD(engine.stage), "2"},
      {Knob::train_batch_size,
       whole(64),
       2,
       [](const Plan& plan) { return std::to_string(plan.workload.micro_batch_size); },
       "8"},
      {Knob::train_micro_batch_size_per_gpu,
       whole(4),
       2,
       [](const Plan& plan) { return std::to_string(plan.workload.micro_batch_size); },
       "4"},
      {Knob::gradient_accumulation_steps,
       whole(4),
       2,
       FIELD(engine.gradient_accumulation_steps),
       "4"},
      {Knob::bf16_enabled,
       true,
       2,
       FIELD(engine.model_dtype),
       "bf16",
       {{Knob::bf16_enabled, false}}},
      {Knob::fp16_enabled,
       true,
       2,
       FIELD(engine.model_dtype),
       "fp16",
       {{Knob::bf16_enabled, false}}},
      {Knob::communication_data_type, word("fp32"), 2, FIELD(engine.communication_dtype), "fp32"},
      {Knob::data_types_grad_accum_dtype,
       word("fp32"),
       2,
       FIELD(engine.gradient_accumulation_dtype),
       "fp32"},
      {Knob::bf16_master_weights_and_grads, true, 2, FIELD(engine.master_dtype), "bf16"},
      {Knob::fp16_master_weights_and_grads,
       true,
       2,
       FIELD(engine.master_dtype),
       "fp16",
       {{Knob::bf16_enabled, false}, {Knob::fp16_enabled, true}}},
      {Knob::bf16_optimizer_states, true, 2, FIELD(engine.optimizer_state_dtype), "bf16"},
      {Knob::bf16_check_grad_overflow, false, 2, FIELD(engine.check_gradient_overflow), "false"},
      {Knob::gradient_clipping, 0.5, 2, FIELD(engine.gradient_clipping), "0.5"},
      {Knob::optimizer_type, word("Lion"), 2, FIELD(engine.optimizer), "fused_lion"},
      {Knob::optimizer_ns_method,
       word("standard"),
       2,
       [](const Plan& plan) { return text(plan.engine.newton_schulz == NewtonSchulz::standard); },
       "true",
       {{Knob::optimizer_type, word("Muon")}}},
      {Knob::optimizer_torch_adam,
       true,
       2,
       FIELD(engine.optimizer),
       "torch_adam",
       {{Knob::optimizer_type, word("AdamW")}}},
      {Knob::optimizer_momentum,
       0.9,
       2,
       FIELD(engine.optimizer),
       "sgd_momentum",
       {{Knob::optimizer_type, word("SGD")}}},
      {Knob::optimizer_fp32_optimizer_states,
       false,
       2,
       FIELD(engine.optimizer_state_dtype),
       "bf16",
       {{Knob::optimizer_type, word("AdamW")}, {Knob::offload_optimizer_device, word("cpu")}}},
  };
}

std::vector<Row> reduction_rows() {
  return {
      {Knob::reduce_bucket_size, whole(12345678), 2, FIELD(engine.reduce_bucket), "12345678"},
      {Knob::allgather_bucket_size, whole(23456789), 2, FIELD(engine.allgather_bucket), "23456789"},
      {Knob::overlap_comm, true, 2, FIELD(engine.overlap_comm), "true"},
      {Knob::overlap_comm, false, 3, FIELD(engine.overlap_comm), "false"},
      {Knob::reduce_scatter, false, 2, FIELD(engine.reduce_scatter), "false"},
      {Knob::contiguous_gradients, false, 2, FIELD(engine.contiguous_gradients), "false"},
      {Knob::use_multi_rank_bucket_allreduce,
       false,
       2,
       FIELD(engine.use_multi_rank_bucket_allreduce),
       "false"},
      {Knob::round_robin_gradients, true, 2, FIELD(engine.round_robin_gradients), "true"},
  };
}

std::vector<Row> offload_rows() {
  return {
      {Knob::offload_optimizer_device,
       word("cpu"),
       2,
       FIELD(engine.offload_optimizer.device),
       "cpu"},
      {Knob::offload_optimizer_device,
       word("nvme"),
       3,
       FIELD(engine.offload_optimizer.device),
       "nvme"},
      {Knob::offload_optimizer_device, word("cpu"), 2, FIELD(engine.optimizer), "cpu_adam"},
      {Knob::offload_optimizer_pin_memory,
       false,
       3,
       FIELD(engine.offload_optimizer.pin_memory),
       "false",
       kCpuOptimizer},
      {Knob::offload_optimizer_ratio,
       0.3,
       3,
       FIELD(engine.offload_optimizer.ratio),
       "0.3",
       kCpuOptimizer},
      {Knob::offload_optimizer_buffer_count,
       whole(9),
       3,
       FIELD(engine.offload_optimizer.buffer_count),
       "9",
       kNvmeOptimizer},
      {Knob::offload_optimizer_pipeline_read,
       true,
       3,
       FIELD(engine.offload_optimizer.pipeline_read),
       "true",
       kNvmeOptimizer},
      {Knob::offload_optimizer_pipeline_write,
       true,
       3,
       FIELD(engine.offload_optimizer.pipeline_write),
       "true",
       kNvmeOptimizer},
      {Knob::offload_optimizer_fast_init,
       true,
       3,
       FIELD(engine.offload_optimizer.fast_init),
       "true",
       kNvmeOptimizer},
      {Knob::offload_param_device, word("cpu"), 3, FIELD(engine.offload_parameter.device), "cpu"},
      {Knob::offload_param_pin_memory,
       false,
       3,
       FIELD(engine.offload_parameter.pin_memory),
       "false",
       kCpuParameters},
      {Knob::offload_param_buffer_count,
       whole(7),
       3,
       FIELD(engine.offload_parameter.buffer_count),
       "7",
       kNvmeParameters},
      {Knob::offload_param_buffer_size,
       whole(34567890),
       3,
       FIELD(engine.offload_parameter.buffer_size),
       "34567890",
       kNvmeParameters},
      {Knob::offload_param_max_in_cpu,
       whole(45678901),
       3,
       FIELD(engine.offload_parameter.max_in_cpu),
       "45678901",
       kNvmeParameters},
      {Knob::aio_block_size, whole(2097152), 3, FIELD(engine.aio_block_size), "2097152"},
      {Knob::aio_intra_op_parallelism, whole(4), 3, FIELD(engine.aio_parallelism), "4"},
      {Knob::aio_queue_depth, whole(32), 3, FIELD(engine.aio_queue_depth), "32"},
      {Knob::aio_use_gds, true, 3, FIELD(engine.aio_use_gds), "true"},
  };
}

std::vector<Row> stage3_rows() {
  return {
      {Knob::stage3_prefetch_bucket_size,
       whole(1234567),
       3,
       FIELD(engine.stage3.prefetch_bucket),
       "1234567"},
      {Knob::stage3_param_persistence_threshold,
       whole(4321),
       3,
       FIELD(engine.stage3.parameter_persistence_threshold),
       "4321"},
      {Knob::stage3_model_persistence_threshold,
       whole(54321),
       3,
       FIELD(engine.stage3.model_persistence_threshold),
       "54321"},
      {Knob::stage3_max_live_parameters,
       whole(7654321),
       3,
       FIELD(engine.stage3.max_live_parameters),
       "7654321"},
      {Knob::stage3_max_reuse_distance,
       whole(8765432),
       3,
       FIELD(engine.stage3.max_reuse_distance),
       "8765432"},
      {Knob::sub_group_size, whole(9876543), 3, FIELD(engine.stage3.sub_group_size), "9876543"},
      {Knob::stage3_module_granularity_threshold,
       whole(1000),
       3,
       FIELD(engine.stage3.module_granularity_threshold),
       "1000"},
      {Knob::stage3_use_all_reduce_for_fetch_params,
       true,
       3,
       FIELD(engine.stage3.use_all_reduce_for_fetch),
       "true"},
      {Knob::stage3_allgather_sequential,
       true,
       3,
       FIELD(engine.stage3.allgather_sequential),
       "true"},
      {Knob::stage3_allgather_sequential, true, 3, FIELD(engine.stage3.prefetch_bucket), "1"},
      {Knob::memory_efficient_linear,
       false,
       3,
       FIELD(engine.stage3.memory_efficient_linear),
       "false"},
      {Knob::stage3_gather_16bit_weights_on_model_save,
       true,
       3,
       FIELD(engine.stage3.gather_16bit_weights_on_save),
       "true"},
      {Knob::zero_hpz_partition_size, whole(4), 3, FIELD(engine.stage3.hpz_partition_size), "4"},
      {Knob::mics_shard_size, whole(4), 3, FIELD(engine.stage3.mics_shard_size), "4"},
      {Knob::mics_hierarchical_params_gather,
       true,
       3,
       FIELD(engine.stage3.mics_hierarchical_gather),
       "true"},
      {Knob::zero_quantized_weights, true, 3, FIELD(engine.stage3.quantized_weights), "true"},
      {Knob::zero_quantized_nontrainable_weights,
       true,
       3,
       FIELD(engine.stage3.quantized_nontrainable_weights),
       "true"},
      {Knob::zero_quantized_gradients, true, 3, FIELD(engine.stage3.quantized_gradients), "true"},
  };
}

std::vector<Row> all_rows() {
  std::vector<Row> rows = workload_rows();
  for (const auto& more : {reduction_rows(), offload_rows(), stage3_rows()}) {
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

// Modelled in that nothing follows from them.
const std::set<Knob> kWithoutEffect = {
    Knob::allgather_partitions,          // read by no code of DeepSpeed any more
    Knob::offload_param_nvme_path,       // where, not how much
    Knob::offload_optimizer_nvme_path,   // the same
    Knob::zero_allow_untested_optimizer  // lets a run start or not
};

// Reached under other workloads than these rows have:
// tests/unit/model/implementations/graph_ulysses_test.cpp, graph_tensor_ranks_test.cpp.
const std::set<Knob> kReachedElsewhere = {Knob::activation_cpu_checkpointing,
                                          Knob::sequence_parallel_size,
                                          Knob::seq_parallel_communication_data_type,
                                          Knob::tensor_parallel_autotp_size,
                                          Knob::tensor_parallel_preset_model};

}  // namespace

TEST_CASE("a knob that is set reaches its field, and its default is something else") {
  for (const Row& row : all_rows()) {
    INFO(pointer_of(row.knob) << " in stage " << row.stage);
    Settings without = row.beside;
    CHECK(row.field(plan_with(row.stage, without)) != row.expected);
    Settings with = row.beside;
    with.emplace_back(row.knob, row.value);
    CHECK(row.field(plan_with(row.stage, with)) == row.expected);
  }
}

TEST_CASE("every knob that the table calls modelled reaches a prediction") {
  std::set<Knob> reached = kWithoutEffect;
  reached.insert(kReachedElsewhere.begin(), kReachedElsewhere.end());
  for (const Row& row : all_rows()) reached.insert(row.knob);
  for (const KnobRow& row : knob_rows()) {
    INFO(row.pointer);
    CHECK((!row.modelled || reached.contains(row.id)));
    if (kWithoutEffect.contains(row.id)) CHECK_FALSE(row.affects.any());
  }
}

TEST_CASE("a silent file means DeepSpeed's defaults of the stage") {
  const EngineConfig two = plan_with(2, {}).engine;
  CHECK(two.reduce_bucket == Elements::of(500'000'000));
  CHECK_FALSE(two.overlap_comm);
  CHECK(two.contiguous_gradients);
  CHECK(two.gradient_clipping == 1.0);
  const EngineConfig three = plan_with(3, {}).engine;
  CHECK(three.overlap_comm);
  CHECK(three.stage3.sub_group_size == Elements::of(1'000'000'000));
  CHECK(three.stage3.parameter_persistence_threshold == Elements::of(100'000));
  CHECK(three.stage3.mics_shard_size == -1);
  CHECK(three.data_parallel_ranks == 8);
  CHECK(three.ranks_per_node == 4);
}

TEST_CASE("an older release has its own defaults") {
  CHECK(plan_with(2, {}, "0.16.4").engine.gradient_clipping == 0.0);
  CHECK_FALSE(plan_with(3, kCpuOptimizer, "0.16.4").engine.offload_optimizer.pin_memory);
  CHECK(plan_with(3, kCpuOptimizer).engine.offload_optimizer.pin_memory);
  CHECK(plan_with(0, {}, "0.16.4").engine.gradient_accumulation_dtype == DType::fp32);
  CHECK(plan_with(0, {}).engine.gradient_accumulation_dtype == DType::bf16);
}

TEST_CASE("DeepSpeed replaces Adam and Lion by their CPU versions under offload only") {
  CHECK(plan_with(2, {}).engine.optimizer == OptimizerKind::fused_adam);
  CHECK(plan_with(2, kCpuOptimizer).engine.optimizer == OptimizerKind::cpu_adam);
  CHECK(plan_with(0, kCpuOptimizer).engine.optimizer == OptimizerKind::fused_adam);
  Settings lion = kCpuOptimizer;
  lion.emplace_back(Knob::optimizer_type, word("Lion"));
  CHECK(plan_with(2, lion).engine.optimizer == OptimizerKind::cpu_lion);
}

TEST_CASE("the optimizer that the file names is the one that runs") {
  const auto kind = [](const char* type) {
    return text(plan_with(2, {{Knob::optimizer_type, word(type)}}).engine.optimizer);
  };
  CHECK(kind("Adam") == "fused_adam");
  CHECK(kind("AdamW") == "fused_adam");
  CHECK(kind("adamw") == "fused_adam");
  CHECK(kind("Lamb") == "fused_lamb");
  CHECK(kind("Adagrad") == "torch_adagrad");
  CHECK(kind("SGD") == "sgd");
  Settings momentum = {{Knob::optimizer_type, word("SGD")}};
  momentum.emplace_back(Knob::optimizer_momentum, 0.9);
  CHECK(text(plan_with(2, momentum).engine.optimizer) == "sgd_momentum");
}

TEST_CASE("an overflow scan cannot be switched off in fp16") {
  const Settings fp16 = {{Knob::bf16_enabled, false},
                         {Knob::fp16_enabled, true},
                         {Knob::bf16_check_grad_overflow, false}};
  CHECK(plan_with(2, fp16).engine.check_gradient_overflow);
}
