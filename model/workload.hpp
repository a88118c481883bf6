// What is trained and how, after all defaults are applied (docs/contract.md section 1, `workload`).
// Sizes: sequence length in tokens, micro-batch in sequences per GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/enum_names.hpp"
#include "model/images.hpp"
#include "model/optimizer_implementation.hpp"
#include "model/quantization.hpp"

namespace zeroplan {

enum class Precision { bf16, fp16, fp32 };
inline constexpr EnumNames<Precision, 3> kPrecisionNames{{"bf16", "fp16", "fp32"}};

enum class OptimizerName { adamw, adam, lion, adafactor, sgd, adamw8bit, muon };
inline constexpr EnumNames<OptimizerName, 7> kOptimizerNames{
    {"adamw", "adam", "lion", "adafactor", "sgd", "adamw8bit", "muon"}};

enum class Attention { eager, sdpa, flash };
inline constexpr EnumNames<Attention, 3> kAttentionNames{{"eager", "sdpa", "flash"}};

// Whose code computes gated linear attention and Mamba 2's scans: PyTorch's own operations,
// flash-linear-attention's (of the former) or mamba_ssm's with causal_conv1d's (of the latter).
enum class LinearAttention { torch, fla, mamba_ssm };
inline constexpr EnumNames<LinearAttention, 3> kLinearAttentionNames{{"torch", "fla", "mamba_ssm"}};

enum class ActivationCheckpointing { none, full, selective };
inline constexpr EnumNames<ActivationCheckpointing, 3> kActivationCheckpointingNames{
    {"none", "full", "selective"}};

enum class ActivationOffload { none, cpu };
inline constexpr EnumNames<ActivationOffload, 2> kActivationOffloadNames{{"none", "cpu"}};

// Ways in which from_pretrained brings the weights: a published checkpoint, under zero.Init at
// stage 3 and by the first rank of a node under FSDP; the whole model by every rank; or a
// checkpoint that has them as the class does, from which nothing is converted.
enum class Loading { usual, every_rank, converted };
inline constexpr EnumNames<Loading, 3> kLoadingNames{{"usual", "every-rank", "converted"}};

// The last four are read, so that measurements of them can be told apart, and not modelled.
enum class TrainingEngine { deepspeed, fsdp, ddp, embedded, megatron, llmq, internevo, other };
inline constexpr EnumNames<TrainingEngine, 8> kTrainingEngineNames{
    {"deepspeed", "fsdp", "ddp", "embedded", "megatron", "llmq", "internevo", "other"}};

// FSDP and DDP, which read stage and offload of a ds_config alone.
constexpr bool is_torch_engine(TrainingEngine engine) {
  return engine == TrainingEngine::fsdp || engine == TrainingEngine::ddp;
}

enum class Frontend { hf_trainer, native };
inline constexpr EnumNames<Frontend, 2> kFrontendNames{{"hf-trainer", "native"}};

enum class Implementation { hf, megatron, composer, litgpt, fms };
inline constexpr EnumNames<Implementation, 5> kImplementationNames{
    {"hf", "megatron", "composer", "litgpt", "fms"}};

enum class Method { full, lora, qlora };
inline constexpr EnumNames<Method, 3> kMethodNames{{"full", "lora", "qlora"}};

// What of a frozen model is made fp32 before adapters are put beside it: norms (TRL beside bf16,
// LLaMA-Factory's upcast_layernorm), or all that is not in four bits (peft's
// prepare_model_for_kbit_training).
enum class Upcast { none, norms, all };
inline constexpr EnumNames<Upcast, 3> kUpcastNames{{"none", "norms", "all"}};

enum class Padding { longest, max, packed };
inline constexpr EnumNames<Padding, 3> kPaddingNames{{"longest", "max", "packed"}};

// What becomes of samples with more than sequence_length tokens.
enum class LongSamples { cut, drop };
inline constexpr EnumNames<LongSamples, 2> kLongSamplesNames{{"cut", "drop"}};

// Low-rank adapters of `method`.
struct LoraSettings {
  std::int64_t rank = 8;
  std::vector<std::string>
      targets;  // module names that get adapters; empty: the family's attention inputs
  // Of a fused projection of queries, keys and values: the parts ("q", "k", "v") that get adapters,
  // where the implementation can tell them apart (litgpt). Empty: all.
  std::vector<std::string> sub_targets;
  // Of the adapters' weights, gradients and optimizer states; what DeepSpeed casts is cast.
  Precision dtype = Precision::bf16;
  double dropout = 0.0;  // of what goes into them
  // The forward pass runs under torch.autocast and, with FSDP, MixedPrecision (accelerate's
  // mixed_precision, the Trainer's --bf16): adapters are read in the model's precision.
  bool autocast = false;
  Upcast upcast = Upcast::none;
  FourBitWeights weights;  // with qlora: how the frozen model is stored
};

struct Dataset {
  std::int64_t samples = 0;
  double epochs = 1.0;
  // How long samples are, before padding and before longer ones are cut: a mean, a mean with its
  // standard deviation, or the samples' own lengths in ascending order. Without any: all alike.
  std::optional<double> mean_tokens;
  std::optional<double> tokens_sd;
  std::vector<std::int64_t> lengths;
  LongSamples longer = LongSamples::cut;
  Padding padding = Padding::longest;
  std::int64_t pad_to_multiple_of = 1;

  bool tells_lengths() const { return mean_tokens || !lengths.empty(); }
};

struct Workload {
  std::int64_t sequence_length = 2048;
  Images images;
  std::string freeze;  // names of what does not train, with commas (families/freeze.hpp)
  std::int64_t micro_batch_size = 1;
  std::int64_t gradient_accumulation_steps = 1;
  Method method = Method::full;
  LoraSettings lora;
  Precision precision = Precision::bf16;
  OptimizerName optimizer = OptimizerName::adamw;
  OptimizerImplementation optimizer_implementation = OptimizerImplementation::foreach;
  Attention attention = Attention::sdpa;
  LinearAttention linear_attention = LinearAttention::torch;
  ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::none;
  bool checkpoint_reentrant = true;
  ActivationOffload activation_offload = ActivationOffload::none;
  Loading loading = Loading::usual;
  TrainingEngine engine = TrainingEngine::deepspeed;
  std::int64_t fsdp_version = 1;  // 1: FullyShardedDataParallel; 2: fully_shard
  std::int64_t omp_num_threads =
      0;  // of each rank, as its launcher or the user sets it; 0: not set
  Frontend frontend = Frontend::hf_trainer;
  Implementation implementation = Implementation::hf;
  bool fused_loss = false;
  bool tiled_mlp = false;  // DeepSpeed's ALST: the feed-forward by tiles of the sequence
  bool compile = false;
  bool use_cache = false;            // config.use_cache; checkpointing switches it off
  bool outputs_held = false;         // by the loop while backward runs: logits live until it ends
  bool outputs_kept = false;         // by its variable until the next forward pass has ended
  bool gradients_held = false;       // by the loop through the next forward pass (DDP, FSDP)
  bool sync_each_batch = false;      // FSDP reduces in every micro-step: no no_sync
  bool expandable_segments = false;  // of PyTorch's allocator
  std::int64_t pipeline_parallel = 1;
  std::int64_t tensor_parallel = 1;
  std::int64_t sequence_parallel = 1;
  std::optional<Dataset> dataset;
};

}  // namespace zeroplan
