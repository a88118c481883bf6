// GPT-J. Defaults: transformers 4.51.3 configuration_gptj.py.
#include "model/families/family.hpp"

namespace zeroplan::families {

namespace {

struct GptJ {
  AttentionSizes attention;
  std::int64_t vocabulary = 0;
  std::int64_t layers = 0;
  std::int64_t intermediate = 0;
  bool tied = false;
  Activation activation;
};

GptJ read_gptj(const ConfigReader& config) {
  GptJ gptj;
  gptj.attention = read_plain_attention(
      config, {"n_embd", "hidden_size"}, 4096, {"n_head", "num_attention_heads"}, 16);
  gptj.vocabulary = config.core({"vocab_size"}, 50400, SizeKind::vocabulary);
  gptj.layers = config.core({"n_layer", "num_hidden_layers"}, 28, SizeKind::layers);
  gptj.intermediate = config.derived({"n_inner"}, 4 * gptj.attention.hidden, SizeKind::width);
  gptj.tied = config.flag({"tie_word_embeddings"}, false);
  gptj.activation = activation_of(config.text({"activation_function"}, "gelu_new"));
  return gptj;
}

void write_block(ModelBuilder& builder, const GptJ& gptj, std::int64_t layer) {
  const std::int64_t hidden = gptj.attention.hidden;
  const auto scope = builder.in(layer, "GPTJBlock");
  builder.layer_norm("ln_1", hidden);
  {
    const auto attention = builder.in("attn", "GPTJAttention");
    builder.leaf("attn_dropout", "Dropout");
    builder.leaf("resid_dropout", "Dropout");
    for (const char* name : {"k_proj", "v_proj", "q_proj", "out_proj"}) {
      builder.linear(name, hidden, hidden, false);
    }
  }
  const auto mlp = builder.in("mlp", "GPTJMLP");
  builder.linear("fc_in", hidden, gptj.intermediate, true);
  builder.linear("fc_out", gptj.intermediate, hidden, true);
  builder.leaf("act", gptj.activation.class_name);
  builder.leaf("dropout", "Dropout");
}

int write_trunk(ModelBuilder& builder, const GptJ& gptj) {
  const int embedding = builder.embedding("wte", gptj.vocabulary, gptj.attention.hidden);
  builder.leaf("drop", "Dropout");
  {
    const auto list = builder.in("h", "ModuleList");
    for (std::int64_t layer = 0; layer < gptj.layers; ++layer) write_block(builder, gptj, layer);
  }
  builder.layer_norm("ln_f", gptj.attention.hidden);
  return embedding;
}

void fill_shape(const ConfigReader& config, const GptJ& gptj, TransformerShape& shape) {
  set_sizes(shape, gptj.attention, gptj.layers, gptj.intermediate, gptj.vocabulary);
  shape.max_positions =
      config.derived({"n_positions", "max_position_embeddings"}, 2048, SizeKind::positions);
  shape.norm = NormKind::layer_norm;
  shape.gated_mlp = false;
  shape.parallel_residual = true;
  shape.tied_embeddings = gptj.tied;
  shape.rotary_dim = config.derived({"rotary_dim"}, 64, SizeKind::width);
  // rotate_every_two() stacks the even and the odd elements of a part of the head.
  if (shape.rotary_dim % 2 != 0) {
    config.problem("rotary_dim", "an even number", std::to_string(shape.rotary_dim));
  }
  shape.attention_dropout = config.fraction({"attn_pdrop"}, 0.0);
  shape.hidden_dropout = config.fraction({"resid_pdrop"}, 0.0);
  shape.embedding_dropout = config.fraction({"embd_pdrop"}, 0.0);
}

}  // namespace

Model build_gptj(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  constexpr std::array kHeads = {
      Head::causal_lm, Head::base, Head::sequence_classification, Head::question_answering};
  const Head head = head_of(input, kHeads, Head::causal_lm);
  const GptJ gptj = read_gptj(config);
  TransformerShape shape;
  fill_shape(config, gptj, shape);
  const Decoder decoder = {.classes = "GPTJ",
                           .attribute = "transformer",
                           .implementation_family = "gptj",
                           .head = head,
                           .top = {.hidden = gptj.attention.hidden,
                                   .vocabulary = gptj.vocabulary,
                                   .tied = gptj.tied,
                                   .bias = true},
                           .activation = gptj.activation};
  Model model =
      decoder_model(config, shape, decoder, [&](ModelBuilder& b) { return write_trunk(b, gptj); });
  // As the default is in small models: they can be made, and counted, but not run.
  if (shape.rotary_dim > shape.head_dim) not_planned(model, "rotary_dim is wider than a head");
  return model;
}

}  // namespace zeroplan::families
