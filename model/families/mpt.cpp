// MPT as llm-foundry (MosaicML) has it: ALiBi, or positions that are learned where
// attn_config.alibi is false. Hugging Face's class is recorded.
// Defaults: transformers 4.51.3 configuration_mpt.py.
#include "base/described.hpp"
#include "model/families/family.hpp"

namespace zeroplan::families {

namespace {

struct Mpt {
  AttentionSizes attention;
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;
  std::int64_t layers = 0;
  std::int64_t intermediate = 0;
  bool learned_positions = false;
  bool alibi = true;
  bool tied = true;
};

Mpt read_mpt(const ConfigReader& config) {
  Mpt mpt;
  mpt.attention = read_plain_attention(
      config, {"d_model", "hidden_size"}, 2048, {"n_heads", "num_attention_heads"}, 16);
  mpt.vocabulary = config.core({"vocab_size"}, 50368, SizeKind::vocabulary);
  mpt.layers = config.core({"n_layers", "num_hidden_layers"}, 24, SizeKind::layers);
  mpt.positions = config.size({"max_seq_len"}, 2048, SizeKind::positions);
  mpt.intermediate = config.derived({"expansion_ratio"}, 4, SizeKind::width) * mpt.attention.hidden;
  mpt.tied = config.flag({"tie_word_embeddings"}, true);
  if (!config.flag({"no_bias"}, true)) {
    config.problem("no_bias", "true: MPT is described without biases", "false");
  }
  if (const auto attention = config.child({"attn_config"}, "MptAttentionConfig")) {
    mpt.alibi = attention->flag({"alibi"}, true);
    if (attention->has({"kv_n_heads"})) {
      attention->problem("kv_n_heads",
                         "no such key: grouped heads of MPT are not described",
                         described(*attention->find({"kv_n_heads"})));
    }
  }
  mpt.learned_positions = !mpt.alibi && config.flag({"learned_pos_emb"}, true);
  return mpt;
}

void write_block(ModelBuilder& builder, const Mpt& mpt, std::int64_t layer) {
  const std::int64_t hidden = mpt.attention.hidden;
  const auto scope = builder.in(layer, "MptBlock");
  builder.layer_norm("norm_1", hidden, false);
  {
    const auto attention = builder.in("attn", "MptAttention");
    builder.linear("Wqkv", hidden, 3 * hidden, false);
    builder.linear("out_proj", hidden, hidden, false);
  }
  builder.layer_norm("norm_2", hidden, false);
  {
    const auto ffn = builder.in("ffn", "MptMLP");
    builder.linear("up_proj", hidden, mpt.intermediate, false);
    builder.leaf("act", "GELU");
    builder.linear("down_proj", mpt.intermediate, hidden, false);
  }
  builder.leaf("resid_attn_dropout", "Dropout");
}

int write_trunk(ModelBuilder& builder, const Mpt& mpt) {
  const std::int64_t hidden = mpt.attention.hidden;
  const int embedding = builder.embedding("wte", mpt.vocabulary, hidden);
  if (mpt.learned_positions) builder.embedding("wpe", mpt.positions, hidden);
  {
    const auto list = builder.in("blocks", "ModuleList");
    for (std::int64_t layer = 0; layer < mpt.layers; ++layer) write_block(builder, mpt, layer);
  }
  builder.layer_norm("norm_f", hidden, false);
  return embedding;
}

void fill_shape(const ConfigReader& config, const Mpt& mpt, TransformerShape& shape) {
  set_sizes(shape, mpt.attention, mpt.layers, mpt.intermediate, mpt.vocabulary);
  shape.max_positions = mpt.positions;
  shape.norm = NormKind::layer_norm;
  shape.position = mpt.alibi               ? PositionKind::alibi
                   : mpt.learned_positions ? PositionKind::learned
                                           : PositionKind::none;
  shape.gated_mlp = false;
  shape.tied_embeddings = mpt.tied;
  if (const auto attention = config.child({"attn_config"}, "MptAttentionConfig")) {
    shape.attention_dropout = attention->fraction({"attn_pdrop"}, 0.0);
  }
  shape.hidden_dropout = config.fraction({"resid_pdrop"}, 0.0);
  shape.embedding_dropout = config.fraction({"emb_pdrop"}, 0.0);
}

}  // namespace

Model build_mpt(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  const Mpt mpt = read_mpt(config);
  TransformerShape shape;
  fill_shape(config, mpt, shape);
  Decoder
      decoder;  // member by member: g++ 12 warns of an uninitialised name in an initialiser list
  decoder.classes = "Mpt";
  decoder.implementation_family = "mpt";
  decoder.activation = {ActivationFunction::gelu, "GELU"};
  return decoder_model(input, shape, decoder, [&](ModelBuilder& b) { return write_trunk(b, mpt); });
}

}  // namespace zeroplan::families
