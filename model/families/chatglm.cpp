// ChatGLM2, ChatGLM3 and GLM-4-9B, whose class lives in the model's repository (modeling_chatglm.py
// of THUDM/chatglm2-6b, chatglm3-6b, glm-4-9b), and the older ChatGLM-6B, which shares the
// model_type and nothing else. Defaults: configuration_chatglm.py of those repositories.
#include "model/families/family.hpp"

namespace zeroplan::families {

namespace {

struct ChatGlm {
  AttentionSizes attention;
  std::int64_t vocabulary = 0;
  std::int64_t layers = 0;
  std::int64_t intermediate = 0;
  bool qkv_bias = false;
  bool linear_bias = false;
  bool rms_norm = true;
};

ChatGlm read_chatglm(const ConfigReader& config) {
  ChatGlm glm;
  AttentionSizes& sizes = glm.attention;
  sizes.hidden = config.core({"hidden_size"}, 4096, SizeKind::width);
  sizes.heads = config.core({"num_attention_heads"}, 32, SizeKind::heads);
  sizes.head_dim = config.size({"kv_channels"}, 128, SizeKind::width);
  sizes.kv_heads = sizes.heads;
  if (config.flag({"multi_query_attention"}, false, true)) {
    sizes.kv_heads = config.size({"multi_query_group_num"}, 1, SizeKind::heads);
    config.must_divide(
        sizes.kv_heads, {"multi_query_group_num"}, sizes.heads, "num_attention_heads");
  }
  glm.vocabulary = config.core({"padded_vocab_size", "vocab_size"}, 65024, SizeKind::vocabulary);
  glm.layers = config.core({"num_layers", "num_hidden_layers"}, 28, SizeKind::layers);
  glm.intermediate = config.core({"ffn_hidden_size", "intermediate_size"}, 13696, SizeKind::width);
  glm.linear_bias = config.flag({"add_bias_linear"}, false);
  glm.qkv_bias = config.flag({"add_qkv_bias"}, false) || glm.linear_bias;
  glm.rms_norm = config.flag({"rmsnorm"}, true);
  return glm;
}

void write_norm(ModelBuilder& builder, const ChatGlm& glm, std::string_view name) {
  if (glm.rms_norm) {
    builder.norm(name, glm.attention.hidden, "RMSNorm");
  } else {
    builder.layer_norm(name, glm.attention.hidden);
  }
}

void write_layer(ModelBuilder& builder, const ChatGlm& glm, std::int64_t layer) {
  const AttentionSizes& sizes = glm.attention;
  const std::int64_t queries = sizes.heads * sizes.head_dim;
  const std::int64_t keys = sizes.kv_heads * sizes.head_dim;
  const auto scope = builder.in(layer, "GLMBlock");
  write_norm(builder, glm, "input_layernorm");
  {
    const auto attention = builder.in("self_attention", "SelfAttention");
    builder.linear("query_key_value", sizes.hidden, queries + 2 * keys, glm.qkv_bias);
    {
      const auto core = builder.in("core_attention", "CoreAttention");
      builder.leaf("attention_dropout", "Dropout");
    }
    builder.linear("dense", queries, sizes.hidden, glm.linear_bias);
  }
  write_norm(builder, glm, "post_attention_layernorm");
  const auto mlp = builder.in("mlp", "MLP");
  // Gate and up projection in one matrix.
  builder.linear("dense_h_to_4h", sizes.hidden, 2 * glm.intermediate, glm.linear_bias);
  builder.linear("dense_4h_to_h", glm.intermediate, sizes.hidden, glm.linear_bias);
}

void write_chatglm(ModelBuilder& builder, const ChatGlm& glm, bool final_norm) {
  {
    const auto embedding = builder.in("embedding", "Embedding");
    builder.embedding("word_embeddings", glm.vocabulary, glm.attention.hidden);
  }
  builder.leaf("rotary_pos_emb", "RotaryEmbedding");
  {
    const auto encoder = builder.in("encoder", "GLMTransformer");
    {
      const auto list = builder.in("layers", "ModuleList");
      for (std::int64_t layer = 0; layer < glm.layers; ++layer) write_layer(builder, glm, layer);
    }
    if (final_norm) write_norm(builder, glm, "final_layernorm");
  }
  builder.linear("output_layer", glm.attention.hidden, glm.vocabulary, false);
}

void fill_shape(const ConfigReader& config, const ChatGlm& glm, TransformerShape& shape) {
  set_sizes(shape, glm.attention, glm.layers, glm.intermediate, glm.vocabulary);
  shape.max_positions = config.derived({"seq_length"}, 2048, SizeKind::positions);
  shape.norm = glm.rms_norm ? NormKind::rms_norm : NormKind::layer_norm;
  // RotaryEmbedding(kv_channels // 2) has a pair for each second one of them, the last included.
  shape.rotary_dim = round_up(glm.attention.head_dim / 2, 2);
  shape.attention_dropout = config.fraction({"attention_dropout"}, 0.0);
  shape.hidden_dropout = config.fraction({"hidden_dropout"}, 0.0);
}

}  // namespace

Model build_chatglm(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  for (const std::string_view key : {"position_encoding_2d", "inner_hidden_size"}) {
    if (!config.has({key})) continue;
    config.problem(key, "a config of ChatGLM2-6B or later", "one of the first, ChatGLM-6B");
  }
  // The repositories name the trunk in architectures and the language model in auto_map.
  constexpr std::array kHeads = {
      Head::conditional_generation, Head::base, Head::sequence_classification};
  const Head head = head_of(input, kHeads, Head::conditional_generation);
  const ChatGlm glm = read_chatglm(config);
  const bool final_norm = config.flag({"post_layer_norm"}, true);
  Model model;
  fill_shape(config, glm, model.shape);
  config.throw_problems();

  const bool classifies = head == Head::sequence_classification;
  model.architecture =
      classifies ? "ChatGLMForSequenceClassification" : "ChatGLMForConditionalGeneration";
  ModelBuilder builder(model.architecture);
  {
    const auto trunk = builder.in("transformer", "ChatGLMModel");
    write_chatglm(builder, glm, final_norm);
  }
  if (classifies) {
    builder.linear("classifier_head", glm.attention.hidden, labels_of(config), true);
  }
  builder.move_into(model);
  model.shape.has_logits = !classifies;
  planned_as(model, "chatglm", {ActivationFunction::silu, "SiLU"});
  return model;
}

}  // namespace zeroplan::families
