// What a graph is built for: batch, formats, releases, adapters, the part of a pipeline, and the
// switches of the model code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/graph/reduction_buffer.hpp"
#include "model/quantization.hpp"
#include "model/release_rule.hpp"
#include "model/software.hpp"
#include "model/transformer.hpp"
#include "model/workload.hpp"

namespace zeroplan {

// Padding of the batch: none or packed keep the causal fast path; padded needs a mask tensor.
enum class MaskKind { none, packed, padded };

// LoRA as peft adds it to the linear layers whose names end in a target.
struct LoraOptions {
  std::int64_t rank = 8;
  std::vector<std::string> targets;
  double dropout = 0.0;
  // As the forward code finds their weights: where an engine casts or gathers them in another
  // dtype than they are stored in, that one. None: the model's.
  std::optional<DType> dtype;
};

// The part of a model that a rank computes where stages of a pipeline share its layers.
struct StagePlace {
  std::int64_t stage = 0;
  std::int64_t stages = 1;
  std::int64_t first_layer = 0;
  std::int64_t layers = 0;  // used where there is more than one stage

  bool is_first() const { return stage == 0; }
  bool is_last() const { return stage + 1 == stages; }
};

// A trainer's loss reads tensors that it makes of hidden states: log-probabilities of tokens, for
// preferences and rewards; all logits, for distillation.
enum class TokenScores {
  none,             // the model's own loss
  whole,            // logits, log_softmax of all of them, one number a token
  rows,             // the same row by row of the batch
  kernel,           // logits, one kernel
  chunks,           // tiles of logits, never all of them
  wide,             // all logits in fp32, log_softmax of all of them (LLaMA-Factory)
  wide_kernel,      // all logits in fp32, one kernel over them (OpenRLHF)
  kernel_in_place,  // logits divided in place, a kernel whose backward writes over them (verl)
  values,           // one number a token of a head of its own: models of values and rewards
  logits,           // all logits, which are the output: a teacher
  divergence        // of all logits from a teacher's
};

struct ScoreOptions {
  TokenScores code = TokenScores::none;
  std::int64_t tokens = 0;        // of each row that are scored; 0: all but the first
  bool holds_outputs = true;      // the trainer's function keeps the logits until it returns
  bool copies_shifted = false;    // logits[:, :-1] is made contiguous
  bool measures_entropy = false;  // of every token, for the log
  bool copies_rows = false;       // logits of chosen and of rejected rows are copied and kept
  bool beside_others = false;     // the same trainer's other logits are there meanwhile
  bool scales_logits = false;     // logits are divided in place, in a view of what is scored
  bool reads_values = false;      // the policy's loss reads the values of a model beside it
  bool holds_hidden = false;      // output_hidden_states: every layer's input is an output
  double beta = 0.5;              // of a divergence: 0 and 1 compare two distributions, else three
};

struct GraphOptions {
  std::int64_t micro_batch = 1;
  std::int64_t sequence_length = 2048;    // of the whole sequence
  std::int64_t sequence_parallel = 1;     // ranks that share it (DeepSpeed-Ulysses)
  DType dtype = DType::bf16;              // of weights and activations
  std::optional<DType> autocast;          // torch.autocast around the forward pass
  Attention attention = Attention::sdpa;  // what is asked for; hf::Context has what the class does
  LinearAttention linear_attention = LinearAttention::torch;
  Implementation implementation = Implementation::hf;
  Version transformers{4, 50};
  Version torch{2, 6};
  RuleSwitches switched;        // of the rules about the two
  int compute_capability = 80;  // 10 major + minor; below 80 there is no flash attention
  Bytes product_workspace;      // of every matrix product; zero where cuBLAS' is kept
  ReductionGpu gpu;             // none: temporaries of PyTorch's sums are not counted
  MaskKind mask = MaskKind::none;
  bool fused_loss = false;
  std::int64_t loss_rows = 0;  // of a chunk of the embedded runtime's fused loss; 0: all
  bool tiled_mlp = false;      // where has_tiled_mlp()
  bool deterministic = false;
  ScoreOptions scores;
  ModelPart part = ModelPart::whole;  // of a model of two
  std::optional<LoraOptions> lora;    // none: full fine-tuning
  bool adapters_off = false;  // peft's disable_adapter(): its modules are there and do not run
  FourBitWeights weights;     // of parameters that are stored in four bits
  ActivationCheckpointing checkpointing = ActivationCheckpointing::none;
  bool checkpoint_reentrant = true;
  bool checkpoint_offload = false;        // checkpoints wait for backward in host memory
  bool use_cache = true;                  // config.use_cache; checkpointing switches it off
  bool outputs_held_in_backward = false;  // hf-trainer drops the outputs, a hand-written loop not
  std::int64_t tensor_parallel = 1;       // ranks that share every layer (Megatron)
  StagePlace stage;                       // of the pipeline
  std::int64_t kept_outputs = 0;          // of earlier micro-batches (PipelineEngine's buffers)
  bool partitions_transfers = true;       // what goes between stages is cut by tensor ranks
  bool partitions_checkpoints = false;    // checkpoints are cut by tensor ranks, too
  bool embedded = false;      // the embedded runtime's own code, whatever `implementation` says
  bool zero3_linear = false;  // DeepSpeed's memory_efficient_linear replaces F.linear (stage 3)

  bool torch_acts(ReleaseRule rule) const { return acts(rule, Package::torch, torch, switched); }
  bool transformers_act(ReleaseRule rule) const {
    return acts(rule, Package::transformers, transformers, switched);
  }
};

}  // namespace zeroplan
