// Trainings of a tiny model on GPUs and on CPU ranks.
#pragma once

#include <chrono>
#include <string>

#include "base/json.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/step_work.hpp"
#include "runtime/cuda/hardware.hpp"
#include "runtime/train/trainer.hpp"
#include "tests/runtime/plan_training.hpp"
#include "tests/runtime/swap_folder.hpp"

namespace zeroplan::runtime::test {

inline constexpr int kRows = 4;

struct Point {
  int stage = 0;
  int ranks = 1;
  int accumulation = 1;
  const char* precision = "fp32";
  bool overlap = true;
  bool offload = false;
  bool on_drive = false;         // what is offloaded, of a model whose embeddings are large enough
  bool fused_loss = false;       // of sequences long enough for several chunks
  int secondary_partitions = 1;  // ranks that share one
  int shard = -1;                // ranks that share one copy of all
  bool pure = false;             // bf16 masters and moments
};

inline Plan plan_of(const Point& point) {
  Json zero = Json::object({{"stage", point.stage},
                            {"overlap_comm", point.overlap},
                            {"reduce_bucket_size", 2'000},
                            {"stage3_prefetch_bucket_size", 1'000},
                            {"stage3_param_persistence_threshold", 40}});
  zero["zero_hpz_partition_size"] = point.secondary_partitions;
  zero["mics_shard_size"] = point.shard;
  Json offload = Json::object({{"device", point.on_drive ? "nvme" : "cpu"}});
  if (point.offload) zero["offload_optimizer"] = offload;
  if (point.on_drive) {
    zero["sub_group_size"] = 200'000;
    offload["buffer_size"] = 600'000;
    offload["max_in_cpu"] = 0;
  }
  if (point.offload && point.stage == 3) zero["offload_param"] = offload;
  Json ds_config = Json::object({{"zero_optimization", zero}, {"gradient_clipping", 0.5}});
  const std::string format = point.precision;
  if (format != "fp32") ds_config[format] = Json::object({{"enabled", true}});
  if (point.pure) {
    ds_config[format]["bf16_master_weights_and_grads"] = true;
    ds_config[format]["bf16_optimizer_states"] = true;
  }
  const Json model = Json::object({{"model_type", "llama"},
                                   {"architectures", Json::array({"LlamaForCausalLM"})},
                                   {"hidden_size", 16},
                                   {"intermediate_size", 24},
                                   {"num_hidden_layers", 1},
                                   {"num_attention_heads", 2},
                                   {"num_key_value_heads", 1},
                                   {"vocab_size", point.on_drive ? 16'411 : 61},
                                   {"max_position_embeddings", 70},
                                   {"rms_norm_eps", 1e-5}});
  const Json workload =
      Json::object({{"sequence_length", point.fused_loss ? 70 : 8},
                    {"fused_loss", point.fused_loss},
                    {"micro_batch_size", kRows / point.ranks / point.accumulation},
                    {"gradient_accumulation_steps", point.accumulation},
                    {"precision", point.precision},
                    {"engine", "embedded"},
                    {"frontend", "native"}});
  return resolve(
      parse_scenario(Json::object({{"model", model},
                                   {"cluster", "1x" + std::to_string(point.ranks) + "xcpu"},
                                   {"workload", workload},
                                   {"ds_config", ds_config}}),
                     "test"));
}

struct TrainOn {
  bool gpu = true;
  bool trace = false;
  int steps = 2;
};
inline TrainingReport train_on(const Plan& plan, const TrainOn& on) {
  const SwapFolder drive;
  const StepWork work = step_work(plan);
  TrainingSetup setup = setup_of(plan, work);
  setup.swap.optimizer_folder = setup.swap.parameter_folder = drive.path();
  if (on.gpu) setup.hardware = cuda::hardware({.ranks = plan.engine.data_parallel_ranks});
  TrainingOptions options;
  options.steps = on.steps;
  options.patience = std::chrono::seconds(60);
  options.trace = on.trace;
  return train(setup, options, *random_tokens(1, 61, 16));
}

}  // namespace zeroplan::runtime::test
