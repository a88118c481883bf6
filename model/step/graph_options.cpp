#include "model/step/graph_options.hpp"

#include <algorithm>

#include "model/implementations/loss_chunks.hpp"
#include "model/plan/beside.hpp"
#include "model/plan/trainer.hpp"
#include "model/releases.hpp"
#include "model/step/kernel_workspaces.hpp"

namespace zeroplan {
namespace {

LossSizes loss_sizes(const Plan& plan) {
  LossSizes sizes;
  sizes.tokens = plan.workload.micro_batch_size * plan.workload.sequence_length;
  sizes.hidden = plan.model->shape.hidden;
  sizes.vocabulary = plan.model->shape.vocabulary;
  return sizes;
}

// CUDA C++ Programming Guide, technical specifications per compute capability.
std::int64_t threads_per_multiprocessor(int capability) {
  switch (capability) {
    case 75:
      return 1024;
    case 86:
    case 87:
    case 89:
    case 120:
      return 1536;
    default:
      return 2048;
  }
}

// Of PyTorch's kernels: the embedded runtime has its own.
ReductionGpu reduction_gpu(const Plan& plan, int capability) {
  const bool is_torch = plan.workload.engine != TrainingEngine::embedded;
  if (!is_torch || plan.cluster.gpu.is_cpu()) return {};
  return {plan.cluster.gpu.sm_count.value, threads_per_multiprocessor(capability)};
}

// Rows that end in padding: what collators make of samples of different lengths.
bool has_padded_rows(const Workload& workload) {
  if (!workload.dataset || !workload.dataset->tells_lengths()) return false;
  const bool alone = workload.micro_batch_size == 1;
  return workload.dataset->padding == Padding::max ||
         (workload.dataset->padding == Padding::longest && !alone);
}

// PPOTrainer's: the policy's and the reference's logits of the response, divided in place; a value
// or a reward model's numbers. Every pass returns the hidden states of all layers.
ScoreOptions rollout_scores(const Plan& plan) {
  ScoreOptions scores;
  const bool rows = plan.software.trl_acts(ReleaseRule::trl_scores_by_rows);
  scores.code = rows ? TokenScores::rows : TokenScores::whole;
  if (!plan.model->shape.has_logits) scores.code = TokenScores::values;
  scores.tokens = plan.trainer->generation.completion_length;
  scores.scales_logits = scores.holds_hidden = true;
  scores.reads_values = plan.part == ModelPart::whole && plan.model->policy != nullptr;
  return scores;
}

// GKDTrainer's: all logits of the teacher, and the student's loss, which reads both; of the result
// the completions' tokens, of which the data's may be more than what is generated.
ScoreOptions distillation_scores(const Plan& plan) {
  const TrainerSettings& trainer = *plan.trainer;
  ScoreOptions scores;
  scores.code = plan.inference ? TokenScores::logits : TokenScores::divergence;
  scores.beta = trainer.beta;
  const std::int64_t generated = trainer.generates() ? trainer.generation.completion_length : 0;
  const std::int64_t of_data =
      trainer.lmbda >= 1.0 ? 0 : plan.workload.sequence_length - trainer.prompt_length;
  scores.tokens = std::max<std::int64_t>({1, generated, of_data});
  return scores;
}

// What its trainer reads of the logits, by TRL's release.
ScoreOptions score_options(const Plan& plan) {
  ScoreOptions scores;
  if (distils(plan)) return distillation_scores(plan);
  if (plan.trainer == nullptr || !plan.trainer->scores_tokens()) return scores;
  if (plan.trainer->code == TrainerCode::llama_factory) {
    const bool kto = plan.trainer->kind == TrainerKind::kto;
    scores.code = TokenScores::wide;
    scores.copies_rows = kto;
    scores.beside_others = kto && plan.inference;
    return scores;
  }
  if (plan.trainer->by_hand()) {
    const bool verl = plan.trainer->code == TrainerCode::verl;
    scores.code = verl ? TokenScores::kernel_in_place : TokenScores::wide_kernel;
    scores.holds_outputs = plan.workload.outputs_held;
    return scores;
  }
  const Software& software = plan.software;
  if (plan.trainer->trains_values()) return rollout_scores(plan);
  scores.code = software.trl_acts(ReleaseRule::trl_scores_in_chunks)   ? TokenScores::chunks
                : software.trl_acts(ReleaseRule::trl_scores_in_kernel) ? TokenScores::kernel
                : software.trl_acts(ReleaseRule::trl_scores_by_rows)   ? TokenScores::rows
                                                                       : TokenScores::whole;
  // Of whole logits only GRPO asks for so many (logits_to_keep).
  const TrainerSettings& trainer = *plan.trainer;
  const std::int64_t prompt = trainer.prompt_length;
  if (trainer.generates()) {
    scores.tokens = trainer.generation.completion_length;
  } else if (prompt > 0) {
    scores.tokens = std::max<std::int64_t>(1, plan.workload.sequence_length - prompt);
  }
  scores.holds_outputs = !trainer.generates();
  const bool dpo = trainer.kind == TrainerKind::dpo;
  scores.copies_shifted = dpo && software.trl_acts(ReleaseRule::trl_copies_shifted_logits);
  // Beside the logits of the reference, where one runs.
  const bool last = plan.inference || plan.beside == nullptr || plan.beside->passes.empty();
  const bool whole = scores.code != TokenScores::chunks;
  scores.measures_entropy =
      last && whole && software.trl_acts(ReleaseRule::trl_rewrites_dpo) && !trainer.generates();
  // KTOTrainer selects the logits of chosen and of rejected rows, for the log: a copy of all.
  if (trainer.kind == TrainerKind::kto && scores.measures_entropy) scores.copies_shifted = true;
  return scores;
}

}  // namespace

GraphOptions graph_options(const Plan& plan) {
  const Workload& workload = plan.workload;
  GraphOptions options;
  options.micro_batch = workload.micro_batch_size;
  if (plan.trainer != nullptr) options.micro_batch *= plan.trainer->rows();
  options.scores = score_options(plan);
  options.adapters_off = plan.adapters_off;
  options.part = plan.part;
  options.sequence_length = workload.sequence_length;
  options.sequence_parallel = workload.sequence_parallel;
  options.dtype = plan.engine.model_dtype;
  if (workload.engine == TrainingEngine::ddp && plan.ddp.weight_dtype != plan.ddp.compute_dtype) {
    options.dtype = plan.ddp.weight_dtype;
    options.autocast = plan.ddp.compute_dtype;
  }
  // accelerate wraps the model's forward in autocast (Accelerator.prepare_model, native_amp),
  // beside FSDP1's MixedPrecision; rehearsed, fully_shard's modules run without.
  const bool wrapped = workload.engine == TrainingEngine::fsdp && plan.fsdp.version == 1 &&
                       workload.frontend == Frontend::hf_trainer &&
                       plan.fsdp.storage_dtype != plan.fsdp.compute_dtype;
  const bool autocasts = workload.lora.autocast || wrapped;
  if (autocasts && !options.autocast) options.autocast = options.dtype;
  options.attention = workload.attention;
  options.implementation = workload.implementation;
  options.transformers = plan.software.transformers;
  options.torch = plan.software.torch;
  options.switched = plan.software.switched;
  const ComputeCapability& capability = plan.cluster.gpu.compute_capability;
  options.compute_capability = capability.major * 10 + capability.minor;
  options.product_workspace = product_workspace(plan);
  options.gpu = reduction_gpu(plan, options.compute_capability);
  // A chosen and a rejected answer are seldom equally long, nor are prompts and what is generated.
  const bool pairs =
      plan.trainer != nullptr && (plan.trainer->rows() > 1 || plan.trainer->generates());
  const bool packs = workload.dataset && workload.dataset->padding == Padding::packed;
  const bool joined = packs && plan.trainer != nullptr && plan.trainer->by_hand();
  // One row alone of gkd has no padding; several are padded to the longest.
  const bool padded = distils(plan) ? workload.micro_batch_size > 1 : pairs && !joined;
  options.mask = has_padded_rows(workload) || padded ? MaskKind::padded : MaskKind::none;
  options.linear_attention = workload.linear_attention;
  options.fused_loss = workload.fused_loss;
  options.tiled_mlp = workload.tiled_mlp;
  options.use_cache = workload.use_cache;
  if (workload.method != Method::full) {
    LoraOptions lora;
    lora.rank = workload.lora.rank;
    lora.targets = workload.lora.targets;
    lora.dropout = workload.lora.dropout;
    // FSDP's MixedPrecision: fully_shard hands out adapters in the model's dtype. FSDP1 shows their
    // stored one, to which peft casts what goes in, and casts that back before it is used, as
    // autocast does.
    const bool shown_as_model = workload.engine == TrainingEngine::fsdp && plan.fsdp.version == 2 &&
                                plan.fsdp.casts_adapters;
    lora.dtype =
        shown_as_model ? options.dtype : trained_dtype(plan.engine_parameters, options.dtype);
    options.lora = lora;
    options.weights = workload.lora.weights;
  }
  options.checkpointing = workload.activation_checkpointing;
  options.checkpoint_reentrant = workload.checkpoint_reentrant;
  options.checkpoint_offload = workload.activation_offload == ActivationOffload::cpu;
  options.tensor_parallel = plan.degrees.tensor;
  if (!plan.stages.empty()) {
    const LayerRange& range = plan.stages[static_cast<std::size_t>(plan.stage)];
    options.stage = {
        plan.stage, static_cast<std::int64_t>(plan.stages.size()), range.first, range.count};
  }
  // The last stage's backward pass returns before it empties its buffer, and there are at least two
  // (runtime/pipe/engine.py _exec_backward_pass, schedule.py TrainSchedule.num_pipe_buffers).
  constexpr std::int64_t kBuffers = 2;
  if (plan.engine.pipeline && options.stage.is_last()) {
    options.kept_outputs = std::min(kBuffers, workload.gradient_accumulation_steps);
  }
  options.partitions_transfers =
      plan.ds_config.boolean(Knob::pipeline_pipe_partitioned).value_or(true);
  options.partitions_checkpoints =
      plan.degrees.tensor > 1 &&
      plan.ds_config.boolean(Knob::activation_partition_activations).value_or(false);
  options.embedded = workload.engine == TrainingEngine::embedded;
  if (options.embedded && options.fused_loss) {
    options.loss_rows = embedded_loss_rows(loss_sizes(plan), !plan.cluster.gpu.is_cpu());
  }
  options.outputs_held_in_backward = workload.outputs_held && !options.embedded;
  options.zero3_linear =
      runs_zero3(plan) && !options.embedded && plan.engine.stage3.memory_efficient_linear;
  return options;
}

bool calls_fused_loss(const Plan& plan) {
  const TokenScores code = score_options(plan).code;
  return code == TokenScores::none || code == TokenScores::whole || code == TokenScores::rows ||
         code == TokenScores::kernel;
}

}  // namespace zeroplan
