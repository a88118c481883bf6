// DeepSeek-V4: latent queries, one shared key-value head, compressed branches, hyper-connections.
// Tensors and defaults: transformers 5.23 modeling_deepseek_v4.py, configuration_deepseek_v4.py.
#include <algorithm>
#include <string>
#include <vector>

#include "model/families/counted.hpp"

namespace zeroplan::families {

namespace {

struct DeepseekV4 {
  TextSizes text;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t query_rank = 0;
  std::int64_t output_rank = 0;
  std::int64_t output_groups = 0;
  std::int64_t index_heads = 0;
  std::int64_t index_dim = 0;
  std::int64_t streams = 0;          // hc_mult: copies of the residual
  std::vector<std::int64_t> ratios;  // of each layer: 0 sliding, 4 with an indexer, 128 heavy
  MixtureOfExperts experts;
};

DeepseekV4 read_v4(const ConfigReader& config) {
  DeepseekV4 v4;
  v4.text = read_text_sizes(config);
  v4.heads = config.core({"num_attention_heads"}, 64, SizeKind::heads);
  v4.head_dim = config.core({"head_dim"}, 512, SizeKind::width);
  v4.query_rank = config.core({"q_lora_rank"}, 1024, SizeKind::width);
  v4.output_rank = config.core({"o_lora_rank"}, 1024, SizeKind::width);
  v4.output_groups = config.core({"o_groups"}, 8, SizeKind::heads);
  v4.index_heads = config.core({"index_n_heads"}, 64, SizeKind::heads);
  v4.index_dim = config.core({"index_head_dim"}, 128, SizeKind::width);
  v4.streams = config.core({"hc_mult"}, 4, SizeKind::heads);
  v4.ratios = config.integers({"compress_ratios"});
  if (v4.ratios.size() < static_cast<std::size_t>(v4.text.layers)) {
    config.problem("compress_ratios",
                   phrase("one of 0, 4 and 128 for each of {} layers", v4.text.layers),
                   phrase("a list of {}", v4.ratios.size()));
    v4.ratios.resize(static_cast<std::size_t>(v4.text.layers), 0);
  }
  v4.experts.hidden = v4.text.hidden;
  v4.experts.experts = config.core({"n_routed_experts"}, 256, SizeKind::experts);
  v4.experts.experts_per_token = config.core({"num_experts_per_tok"}, 6, SizeKind::experts);
  v4.experts.intermediate = config.core({"moe_intermediate_size"}, 2048, SizeKind::width);
  v4.experts.shared_intermediate =
      v4.experts.intermediate * config.count({"n_shared_experts"}, 1, SizeKind::experts);
  return v4;
}

// Keys and gates of one compressed branch; the light one overlaps its windows and is twice as wide.
void write_branch(ModelBuilder& builder,
                  const DeepseekV4& v4,
                  std::int64_t ratio,
                  std::int64_t width,
                  std::int64_t norm_width) {
  builder.parameter("position_bias", {ratio, width});
  builder.linear("kv_proj", v4.text.hidden, width, false);
  builder.linear("gate_proj", v4.text.hidden, width, false);
  builder.norm("kv_norm", norm_width, "RMSNorm");
}

void write_compressor(ModelBuilder& builder, const DeepseekV4& v4, std::int64_t ratio) {
  const bool light = ratio == 4;
  const auto scope = builder.in("compressor", light ? "CsaCompressor" : "HcaCompressor");
  write_branch(builder, v4, ratio, light ? 2 * v4.head_dim : v4.head_dim, v4.head_dim);
  if (!light) return;
  const auto indexer = builder.in("indexer", "Indexer");
  write_branch(builder, v4, ratio, 2 * v4.index_dim, v4.index_dim);
  builder.linear("q_b_proj", v4.query_rank, v4.index_heads * v4.index_dim, false);
  builder.linear("weights_proj", v4.text.hidden, v4.index_heads, false);
}

void write_v4_attention(ModelBuilder& builder, const DeepseekV4& v4, std::int64_t ratio) {
  const std::int64_t queries = v4.heads * v4.head_dim;
  const auto scope = builder.in("self_attn", "DeepseekV4Attention");
  builder.parameter("sinks", {v4.heads});
  builder.linear("q_a_proj", v4.text.hidden, v4.query_rank, false);
  builder.norm("q_a_norm", v4.query_rank, "RMSNorm");
  builder.linear("q_b_proj", v4.query_rank, queries, false);
  builder.linear("kv_proj", v4.text.hidden, v4.head_dim, false);
  builder.norm("kv_norm", v4.head_dim, "RMSNorm");
  const std::int64_t grouped = v4.output_groups * v4.output_rank;
  builder.linear("o_a_proj", queries / v4.output_groups, grouped, false);
  builder.linear("o_b_proj", grouped, v4.text.hidden, false);
  if (ratio != 0) write_compressor(builder, v4, ratio);
}

// Mixes the residual streams: (2 + streams) weights a stream from all of them.
void write_hyper_connection(ModelBuilder& builder, const DeepseekV4& v4, std::string_view name) {
  const std::int64_t mixes = (2 + v4.streams) * v4.streams;
  const auto scope = builder.in(name, "HyperConnection");
  builder.parameter("fn", {mixes, v4.streams * v4.text.hidden});
  builder.parameter("base", {mixes});
  builder.parameter("scale", {3});
}

}  // namespace

Model build_deepseek_v4(const FamilyInput& input) {
  const ConfigReader& config = input.config;
  only_head(input, Head::causal_lm);
  const DeepseekV4 v4 = read_v4(config);
  config.must_divide(
      v4.output_groups, {"o_groups"}, v4.heads * v4.head_dim, "num_attention_heads * head_dim");
  config.throw_problems();
  const CountedClasses classes = {.architecture = "DeepseekV4ForCausalLM",
                                  .trunk = "DeepseekV4Model"};
  return counted_language_model(input, v4.text, classes, [&](ModelBuilder& builder) {
    const int embedding =
        write_text_trunk(builder, v4.text, [&](ModelBuilder& b, std::int64_t layer) {
          write_v4_attention(b, v4, v4.ratios[static_cast<std::size_t>(layer)]);
          {
            const auto mlp = b.in("mlp", "DeepseekV4SparseMoeBlock");
            write_experts(b, v4.experts);
          }
          b.norm("input_layernorm", v4.text.hidden, "RMSNorm");
          b.norm("post_attention_layernorm", v4.text.hidden, "RMSNorm");
          write_hyper_connection(b, v4, "attn_hc");
          write_hyper_connection(b, v4, "ffn_hc");
        });
    const auto head = builder.in("hc_head", "HyperHead");
    builder.parameter("hc_fn", {v4.streams, v4.streams * v4.text.hidden});
    builder.parameter("hc_base", {v4.streams});
    builder.parameter("hc_scale", {1});
    return embedding;
  });
}

}  // namespace zeroplan::families
