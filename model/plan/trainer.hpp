// The settings of a trainer that runs several models: TRL's DPOTrainer, KTOTrainer, GRPOTrainer,
// PPOTrainer and GKDTrainer, LLaMA-Factory's, OpenRLHF's and verl's (docs/contract.md section 1,
// `workload.trainer`), and the evaluation of any Trainer. Lengths in tokens, batch sizes in
// sequences per GPU.
#pragma once

#include <cstdint>

#include "base/enum_names.hpp"

namespace zeroplan {

enum class TrainerKind { sft, dpo, kto, grpo, ppo, gkd };
inline constexpr EnumNames<TrainerKind, 6> kTrainerKindNames{
    {"sft", "dpo", "kto", "grpo", "ppo", "gkd"}};

// Whose code it is: its loss and its order of passes.
enum class TrainerCode { trl, llama_factory, openrlhf, verl };
inline constexpr EnumNames<TrainerCode, 4> kTrainerCodeNames{
    {"trl", "llama-factory", "openrlhf", "verl"}};

// Who generates the completions of grpo, ppo and gkd.
enum class GenerationBy {
  trainer,    // the model's own generate() in the training process
  colocated,  // a vLLM engine on the training GPUs
  server      // a vLLM server on other GPUs
};
inline constexpr EnumNames<GenerationBy, 3> kGenerationByNames{{"trainer", "colocated", "server"}};

struct GenerationSettings {
  GenerationBy by = GenerationBy::trainer;
  std::int64_t completion_length = 256;  // max_completion_length, response_length
  std::int64_t completions = 8;          // num_generations: of one prompt
  std::int64_t batches = 0;  // steps_per_generation: micro-batches from one generation; 0: a step's
  bool gathers_model = true;         // ds3_gather_for_generation
  double memory_share = 0.3;         // vllm_gpu_memory_utilization, of the GPU
  bool sleeps = false;               // vllm_enable_sleep_mode
  std::int64_t tensor_parallel = 1;  // vllm_tensor_parallel_size
};

// PPOTrainer's rollout: what one generation and its forward passes make, and how often they do.
struct RolloutSettings {
  std::int64_t rows = 64;         // local_rollout_forward_batch_size: generated and scored at once
  std::int64_t epochs = 4;        // num_ppo_epochs: optimizer steps from one rollout
  std::int64_t mini_batches = 1;  // num_mini_batches: after each the trainer drops its tensors
};

struct TrainerSettings {
  TrainerKind kind = TrainerKind::sft;
  TrainerCode code = TrainerCode::trl;
  bool precompute_reference = false;  // precompute_ref_log_probs: no reference while training
  bool compares_mismatched = true;    // KTO's loss "kto" scores mismatched completions, too
  double beta = 0.1;                  // 0 under grpo: no reference; of gkd's divergence
  double lmbda = 0.0;                 // of gkd: the share of micro-batches that are generated
  std::int64_t prompt_length = 0;     // of the sequence; the rest is the completion
  GenerationSettings generation;
  RolloutSettings rollout;  // of ppo

  // Rows of the forward pass for each sample of the micro-batch: chosen and rejected.
  std::int64_t rows() const { return kind == TrainerKind::dpo ? 2 : 1; }
  // Its loss reads log-probabilities of tokens, not the cross entropy of the model.
  bool scores_tokens() const { return (kind != TrainerKind::sft || by_hand()) && !distils(); }
  // A loop around the engine itself, and no Trainer of transformers.
  bool by_hand() const { return code == TrainerCode::openrlhf || code == TrainerCode::verl; }
  bool by_trl() const { return code == TrainerCode::trl; }
  // Its step or its run has passes of other models, or generates.
  bool has_others() const { return kind != TrainerKind::sft; }
  // One engine trains the policy and a value model.
  bool trains_values() const { return kind == TrainerKind::ppo; }
  // Its loss compares a student's logits with a teacher's.
  bool distils() const { return kind == TrainerKind::gkd; }
  bool generates() const {
    return kind == TrainerKind::grpo || kind == TrainerKind::ppo || (distils() && lmbda > 0.0);
  }
};

struct Plan;
// [B6] Samples of a rank's rollout, and those of them that are generated and scored at once.
// Precondition: its trainer trains values.
std::int64_t samples_of_rollout(const Plan& plan);
std::int64_t rollout_rows(const Plan& plan);
// Micro-batches that GRPO generates completions for at once, all ranks' sequences of them, and
// whether these are whole groups of completions where TRL wants them to be. Precondition: its
// trainer is GRPO, with completions of a prompt.
std::int64_t generated_batches(const Plan& plan);
std::int64_t generated_sequences(const Plan& plan);
bool generates_whole_groups(const Plan& plan);
// Whether its trainer checkpoints reentrantly whatever the arguments say: TRL with adapters at ZeRO
// stage 3, where a recomputation that is not reentrant finds partitioned weights.
bool forces_reentrance(const Plan& plan);

struct EvaluationSettings {
  bool keeps_logits = false;    // prediction_loss_only false: predictions are the model's logits
  std::int64_t batch_size = 8;  // per_device_eval_batch_size
  std::int64_t accumulation_steps = 0;  // eval_accumulation_steps; 0: all batches stay on the GPU
  std::int64_t samples = 0;             // of the evaluation data; 0: not said
};

struct Plan;
// Whether the plan's trainer does.
bool distils(const Plan& plan);
// Whether its trainer, one of TRL's, leaves what lies beside four-bit weights as it was loaded;
// else it calls prepare_model_for_kbit_training(). Precondition: it has a trainer.
bool keeps_four_bits(const Plan& plan);

}  // namespace zeroplan
