// What a model is: its parameters in torch's order, its modules, and the facts about its shape that
// the implementations (implementations/*.cpp) need to write down its operations.
//
// Flow: a Hugging Face config.json goes through families/*.cpp (one builder per family of model
// types) and becomes a Model. parameters and modules follow named_parameters() and named_modules()
// of the class that transformers would instantiate, because DeepSpeed's partitions, buckets and
// fetches depend on that order. Everything else is derived from the two lists; no second copy of a
// size is kept.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/phrase.hpp"
#include "base/units.hpp"
#include "model/images.hpp"
#include "model/software.hpp"
#include "model/workload.hpp"

namespace zeroplan {

// One tensor of named_parameters(): tied weights appear once, under their first name.
struct Parameter {
  std::string name;                 // "model.layers.0.self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;  // as torch holds it, e.g. {out_features, in_features}
  Elements numel;                   // product of shape
  bool trainable = true;            // false: frozen by the training method or its class
  bool quantized = false;           // stored in four bits (QLoRA), frozen then
  bool upcast = false;              // frozen and made fp32 beside 16 bits (Upcast)
  // Routed experts: of `routed_of` parameters like this one a token uses `routed_active`
  // (fused experts: the fraction of this tensor). 1 of 1 for everything else.
  std::int64_t routed_active = 1;
  std::int64_t routed_of = 1;
  // from_pretrained makes it of several tensors of a checkpoint, from transformers 5 on.
  bool converted = false;
  // The loss hangs on it; a class that was recorded says so of each.
  bool reached = true;
};

// One entry of named_modules(), containers included.
struct Module {
  std::string name;  // "" for the root
  std::string type;  // Python class name, "Linear"
  std::vector<int>
      parameters;   // indices of its direct parameters; a tied weight is listed by each user
  int parent = -1;  // index of the enclosing module
};

struct ParameterCounts {
  Elements total;
  Elements trainable;
  Elements active;  // used by one token: routed experts count with their share
};

enum class ModelKind { decoder, encoder, encoder_decoder };
enum class NormKind { rms_norm, layer_norm };
enum class PositionKind { none, rotary, learned, alibi, relative_bias };
enum class ActivationFunction { gelu, gelu_new, gelu_tanh, quick_gelu, silu, relu };

// How the class of a mixture of experts holds its routed experts: a list of modules (transformers
// 4), or one three-dimensional parameter for all experts' gate and up projections and one for their
// down projections (transformers 5, integrations/moe.py).
enum class ExpertLayout { modules, fused };

// Mixture of experts of a decoder layer.
struct ExpertShape {
  std::int64_t experts = 0;  // routed experts per layer; 0: dense
  std::int64_t experts_per_token = 0;
  std::int64_t intermediate = 0;         // of one routed expert
  std::int64_t shared_intermediate = 0;  // of all shared experts together; 0: none
  bool fused = false;  // one 3-D parameter for all experts instead of a module each
};

// What the attention of one decoder layer does where layers take turns.
struct LayerAttention {
  bool sliding = false;  // sees the last sliding_window keys alone
  bool rotary = true;    // turns queries and keys
  bool operator==(const LayerAttention&) const = default;
};

// The facts behind the operations of a planned model. Sizes in elements, one layer unless said.
struct TransformerShape {
  ModelKind kind = ModelKind::decoder;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;          // decoder (or encoder) layers
  std::int64_t encoder_layers = 0;  // encoder_decoder only
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate = 0;  // feed-forward width of a dense layer
  std::int64_t vocabulary = 0;
  std::int64_t max_positions = 0;  // 0: no limit
  NormKind norm = NormKind::rms_norm;
  PositionKind position = PositionKind::rotary;
  ActivationFunction activation = ActivationFunction::silu;
  bool gated_mlp = true;  // two up projections, one passed through the activation
  bool parallel_residual =
      false;  // attention and feed-forward read the same input (GPT-NeoX, GPT-J, Phi)
  bool tied_embeddings = false;
  double norm_epsilon = 1e-5;       // read for llama, gpt2, bloom, bert: what the runtime computes
  double rotary_base = 10000.0;     // theta; llama
  bool rotary_scaled = false;       // frequencies are stretched (rope_scaling); llama
  std::int64_t rotary_dim = 0;      // of each head; head_dim for a full rotation
  std::int64_t sliding_window = 0;  // keys a query sees; 0: all
  std::vector<LayerAttention> layer_attention;  // one a layer; empty: all layers are alike
  bool attention_softcap = false;               // scores pass through a tanh where they are eager
  bool logits_softcap = false;                  // logits pass through a tanh
  bool logits_scaled = false;                   // logits are multiplied by a number
  double attention_dropout = 0.0;
  double hidden_dropout = 0.0;
  double embedding_dropout = 0.0;
  bool has_logits = true;  // false: base model or classification head without a vocabulary
  ExpertShape experts;
  std::int64_t dense_layers =
      0;  // mixture of experts: the first layers that have a dense feed-forward
};

// Sequences of a range of lengths, in tokens.
struct SequenceRange {
  std::int64_t shortest = 0;
  std::int64_t longest = std::numeric_limits<std::int64_t>::max();

  bool contains(std::int64_t length) const { return shortest <= length && length <= longest; }
};

// Releases of transformers from the first on, up to `until`.
struct ReleaseRange {
  Version from;
  std::optional<Version> until;  // not in it
  Version recorded;              // the one whose code was read; 0.0.0: no recording says

  bool contains(const Version& release) const {
    return from <= release && (!until || release < *until);
  }
};

inline constexpr std::int64_t kUsualSequence = 2048;  // tokens, where nobody says

// The part of a question that a model's tensors hang on, beside its config.
struct ModelUse {
  ExpertLayout experts = ExpertLayout::modules;  // Mixtral, Qwen2-MoE, Qwen3-MoE; others have one
  std::string attention;  // transformers' name, of a recorded class; empty: the class's default
  Implementation implementation = Implementation::hf;  // whose code of the family is trained
  bool embedded = false;                               // the embedded runtime's, whatever that says
  // Tokens: on which side of the config's windows the sequences of a recorded class are.
  std::int64_t sequence_length = kUsualSequence;
  std::optional<Version> transformers;  // whose code a recorded class has; absent: the newest
  Images images;                        // a class that takes them is traced with them
  std::int64_t micro_batch_size = 1;    // at which it is, where it loops over the images of a batch

  bool is_hugging_face() const { return implementation == Implementation::hf && !embedded; }
};

// Prefixes of the two in their parameters' names.
inline constexpr std::string_view kPolicyPrefix = "policy.", kValuePrefix = "value_model.";

// Which of two models that one engine trains (Model::policy, Model::value_model).
enum class ModelPart { whole, policy, value };

struct Model {
  std::string name;          // preset, path or id as the user gave it
  std::string model_type;    // "llama"
  std::string architecture;  // "LlamaForCausalLM"
  std::string
      implementation_family;  // which forward description serves it ("llama", "gpt2"); "" if none
  std::vector<Parameter> parameters;
  std::vector<Module> modules;
  TransformerShape shape;          // valid when planned
  bool planned = false;            // operations are known, so memory and time can be predicted
  std::string not_planned_reason;  // what is not modelled, for the message when !planned
  ReleaseRange releases;           // whose code its operations are, where several were recorded
  SequenceRange lengths;           // that its operations are of: a class has others beyond windows
  std::optional<std::string> torch_dtype;  // "bfloat16" where the config names one
  std::vector<Phrase> notes;  // what was assumed while reading the config, one sentence each
  // Two models that one engine trains as one module (TRL's PolicyAndValueWrapper): parameters and
  // modules of both stand above, under "policy." and "value_model."; of these two the shape and the
  // class count, the shape above is the policy's. Null: one model.
  std::shared_ptr<const Model> policy, value_model;
};

ParameterCounts count_parameters(const Model& model);

// The model with no parameter that trains.
Model without_training(Model model);

}  // namespace zeroplan
