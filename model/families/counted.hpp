// Pieces of models whose tensors are counted but whose operations are not modelled: the module
// trees are coarser than the library's, the tensors are the same. Experts are one tensor for all,
// as transformers 5 stores them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "model/families/family.hpp"

namespace zeroplan::families {

// Grouped-query attention with separate projections.
struct GroupedAttention {
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;  // 0: head_dim
  bool qkv_bias = false;
  bool output_bias = false;
  bool output_gate = false;     // q_proj is twice as wide: half of it gates the output
  std::int64_t query_norm = 0;  // width of q_norm and k_norm, 0: none
  std::int64_t key_norm = 0;
  bool sinks = false;  // one learned logit a head
};
void write_attention(ModelBuilder& builder, const GroupedAttention& attention);

// num_attention_heads, num_key_value_heads and head_dim under the usual keys.
GroupedAttention read_attention(const ConfigReader& config);

// gate_proj, up_proj, down_proj in the current module.
void write_gated(ModelBuilder& builder, std::int64_t hidden, std::int64_t width, bool bias = false);

// A router, routed experts and perhaps a shared one, in the current module.
struct MixtureOfExperts {
  std::int64_t hidden = 0;
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t intermediate = 0;
  std::int64_t shared_intermediate = 0;  // 0: none
  bool shared_gate = false;
  bool router_bias = false;
  bool expert_bias = false;
};
void write_experts(ModelBuilder& builder, const MixtureOfExperts& experts);

// The vision transformer of the multimodal families, in the current module.
struct VisionBlocks {
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t intermediate = 0;
  bool norm_bias = true;  // LayerNorm; false: RMS norm
  bool attention_bias = true;
  bool gated = false;  // gate, up, down instead of two linear layers
  bool mlp_bias = true;
};
void write_vision_blocks(ModelBuilder& builder, std::string_view name, const VisionBlocks& vision);

// A convolution: weight {out, in, kernel...} and perhaps a bias.
void write_convolution(ModelBuilder& builder,
                       std::string_view name,
                       std::vector<std::int64_t> shape,
                       bool bias);

// lm_head, tied to the embedding or not.
void write_language_head(
    ModelBuilder& builder, std::int64_t hidden, std::int64_t vocabulary, bool tied, int embedding);

// A problem where the config names a class with another head.
void only_head(const FamilyInput& input, Head head);

// The architecture's name as the config gives it, else `fallback`.
std::string architecture_or(const FamilyInput& input, std::string_view fallback);

// hidden_size, num_hidden_layers, vocab_size and tie_word_embeddings of a text model.
struct TextSizes {
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t vocabulary = 0;
  bool tied = false;
};
TextSizes read_text_sizes(const ConfigReader& config);

// Writes embed_tokens, `layer(builder, index)` for each layer inside a ModuleList, and the final
// norm; returns the embedding's weight.
template <typename Layer>
int write_text_trunk(ModelBuilder& builder, const TextSizes& sizes, Layer layer) {
  const int embedding = builder.embedding("embed_tokens", sizes.vocabulary, sizes.hidden);
  {
    const auto list = builder.in("layers", "ModuleList");
    for (std::int64_t index = 0; index < sizes.layers; ++index) {
      const auto scope = builder.in(index, "DecoderLayer");
      layer(builder, index);
    }
  }
  builder.norm("norm", sizes.hidden, "RMSNorm");
  return embedding;
}

// Classes and modules of a counted model with a language head.
struct CountedClasses {
  std::string_view architecture = "ForCausalLM";  // where the config names none
  std::string_view attribute = "model";           // of the trunk
  std::string_view trunk = "Model";
};

// The model that `write(builder)` writes down, named as the config or `architecture` says.
template <typename Write>
Model counted_model(const FamilyInput& input, std::string_view architecture, Write write) {
  Model model;
  model.architecture = architecture_or(input, architecture);
  ModelBuilder builder(model.architecture);
  write(builder);
  builder.move_into(model);
  return model;
}

// A trunk that `trunk(builder)` writes, returning the embedding's weight, then lm_head.
template <typename Trunk>
Model counted_language_model(const FamilyInput& input,
                             const TextSizes& sizes,
                             const CountedClasses& classes,
                             Trunk trunk) {
  return counted_model(input, classes.architecture, [&](ModelBuilder& builder) {
    int embedding = -1;
    {
      const auto scope = builder.in(classes.attribute, classes.trunk);
      embedding = trunk(builder);
    }
    write_language_head(builder, sizes.hidden, sizes.vocabulary, sizes.tied, embedding);
  });
}

// A causal language model of the usual trunk.
template <typename Layer>
Model counted_causal_lm(const FamilyInput& input, const TextSizes& sizes, Layer layer) {
  only_head(input, Head::causal_lm);
  input.config.throw_problems();
  return counted_language_model(input, sizes, {}, [&](ModelBuilder& builder) {
    return write_text_trunk(builder, sizes, layer);
  });
}

// model with `vision(builder)` and language_model, which `text(builder)` writes, then lm_head.
template <typename Vision, typename Text>
Model counted_multimodal(const FamilyInput& input,
                         const TextSizes& sizes,
                         Vision vision,
                         Text text) {
  const CountedClasses classes = {.architecture = "ForConditionalGeneration"};
  return counted_language_model(input, sizes, classes, [&](ModelBuilder& builder) {
    vision(builder);
    const auto language = builder.in("language_model", "TextModel");
    return text(builder);
  });
}

}  // namespace zeroplan::families
