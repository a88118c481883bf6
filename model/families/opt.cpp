// OPT, also as DeepSpeed-Chat's reward model. Defaults: transformers 4.51.3 configuration_opt.py.
#include "model/families/family.hpp"

namespace zeroplan::families {

namespace {

struct Opt {
  AttentionSizes attention;
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;
  std::int64_t layers = 0;
  std::int64_t intermediate = 0;
  std::int64_t embedding_width = 0;  // word_embed_proj_dim: OPT-350m embeds in 512
  bool norm_before = true;
  bool final_norm = true;
  bool bias = true;
  bool affine = true;
  bool tied = true;
  Activation activation;
};

Opt read_opt(const ConfigReader& config) {
  Opt opt;
  opt.attention = read_plain_attention(config, {"hidden_size"}, 768, {"num_attention_heads"}, 12);
  opt.vocabulary = config.core({"vocab_size"}, 50272, SizeKind::vocabulary);
  opt.positions = config.size({"max_position_embeddings"}, 2048, SizeKind::positions);
  opt.layers = config.core({"num_hidden_layers"}, 12, SizeKind::layers);
  opt.intermediate = config.core({"ffn_dim"}, 3072, SizeKind::width);
  opt.embedding_width =
      config.derived({"word_embed_proj_dim"}, opt.attention.hidden, SizeKind::width);
  opt.norm_before = config.flag({"do_layer_norm_before"}, true);
  opt.final_norm = opt.norm_before && !config.flag({"_remove_final_layer_norm"}, false);
  opt.bias = config.flag({"enable_bias"}, true);
  opt.affine = config.flag({"layer_norm_elementwise_affine"}, true);
  opt.tied = config.flag({"tie_word_embeddings"}, true);
  opt.activation = activation_of(config.text({"activation_function"}, "relu"));
  return opt;
}

void write_norm(ModelBuilder& builder, const Opt& opt, std::string_view name) {
  if (opt.affine) {
    builder.layer_norm(name, opt.attention.hidden);
  } else {
    builder.leaf(name, "LayerNorm");
  }
}

void write_layer(ModelBuilder& builder, const Opt& opt, std::int64_t layer) {
  const std::int64_t hidden = opt.attention.hidden;
  const auto scope = builder.in(layer, "OPTDecoderLayer");
  {
    const auto attention = builder.in("self_attn", "OPTSdpaAttention");
    for (const char* name : {"k_proj", "v_proj", "q_proj", "out_proj"}) {
      builder.linear(name, hidden, hidden, opt.bias);
    }
  }
  builder.leaf("activation_fn", opt.activation.class_name);
  write_norm(builder, opt, "self_attn_layer_norm");
  builder.linear("fc1", hidden, opt.intermediate, opt.bias);
  builder.linear("fc2", opt.intermediate, hidden, opt.bias);
  write_norm(builder, opt, "final_layer_norm");
}

int write_trunk(ModelBuilder& builder, const Opt& opt) {
  const std::int64_t hidden = opt.attention.hidden;
  const auto decoder = builder.in("decoder", "OPTDecoder");
  const int embedding = builder.embedding("embed_tokens", opt.vocabulary, opt.embedding_width);
  // Positions start at 2, a remnant of fairseq's padding index.
  builder.embedding("embed_positions", opt.positions + 2, hidden, "OPTLearnedPositionalEmbedding");
  if (opt.embedding_width != hidden) {
    builder.linear("project_out", hidden, opt.embedding_width, false);
    builder.linear("project_in", opt.embedding_width, hidden, false);
  }
  if (opt.final_norm) write_norm(builder, opt, "final_layer_norm");
  const auto list = builder.in("layers", "ModuleList");
  for (std::int64_t layer = 0; layer < opt.layers; ++layer) write_layer(builder, opt, layer);
  return embedding;
}

void fill_shape(const ConfigReader& config, const Opt& opt, TransformerShape& shape) {
  set_sizes(shape, opt.attention, opt.layers, opt.intermediate, opt.vocabulary);
  shape.max_positions = opt.positions;
  shape.norm = NormKind::layer_norm;
  shape.position = PositionKind::learned;
  shape.gated_mlp = false;
  shape.post_norm = !opt.norm_before;
  shape.tied_embeddings = opt.tied;
  shape.attention_dropout = config.fraction({"attention_dropout"}, 0.0);
  shape.hidden_dropout = config.fraction({"dropout"}, 0.1);
}

}  // namespace

Model build_opt(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  constexpr std::array kHeads = {
      Head::causal_lm, Head::base, Head::sequence_classification, Head::question_answering};
  const Head head = head_of(input, kHeads, Head::causal_lm);
  const Opt opt = read_opt(config);
  TransformerShape shape;
  fill_shape(config, opt, shape);
  const Decoder decoder = {
      .classes = "OPT",
      .attribute = "model",
      .implementation_family = "opt",
      .head = head,
      .top = {.hidden = opt.embedding_width, .vocabulary = opt.vocabulary, .tied = opt.tied},
      .activation = opt.activation};
  return decoder_model(
      config, shape, decoder, [&](ModelBuilder& b) { return write_trunk(b, opt); });
}

}  // namespace zeroplan::families
