#include "model/families/litgpt.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "model/families/model_builder.hpp"

namespace zeroplan {
namespace {

bool ends_with(const std::string& name, std::string_view end) {
  return std::string_view(name).ends_with(end);
}

bool has(const Model& model, std::string_view end) {
  return std::any_of(model.parameters.begin(), model.parameters.end(), [&](const Parameter& p) {
    return ends_with(p.name, end);
  });
}

// The names of parameters, Hugging Face's of a LLaMA or litgpt's own, say which biases and norms
// there are.
LitgptLayout layout_of(const Model& model) {
  LitgptLayout layout;
  layout.qkv_bias = has(model, "attn.attn.bias") || has(model, "q_proj.bias");
  layout.projection_bias = has(model, "attn.proj.bias") || has(model, "o_proj.bias");
  layout.mlp_bias = has(model, "mlp.fc.bias");
  layout.head_bias = has(model, "lm_head.bias");
  layout.shared_norm = model.shape.parallel_residual && !has(model, "norm_2.weight");
  return layout;
}

class LitgptWriter {
 public:
  LitgptWriter(const Model& model, const LitgptLayout& layout, const LitgptAdapters& adapters)
      : shape_(model.shape), layout_(layout), adapters_(adapters), builder_("GPT") {}

  void write() {
    linear("lm_head", shape_.hidden, shape_.vocabulary, layout_.head_bias, adapters_.head);
    const auto transformer = builder_.in("transformer", "ModuleDict");
    builder_.embedding("wte", shape_.vocabulary, shape_.hidden);
    {
      const auto list = builder_.in("h", "ModuleList");
      for (std::int64_t layer = 0; layer < shape_.layers; ++layer) write_block(layer);
    }
    norm("ln_f");
  }

  void move_into(Model& model) { builder_.move_into(model); }

 private:
  void write_block(std::int64_t layer) {
    const auto block = builder_.in(layer, "Block");
    norm("norm_1");
    {
      const auto attention = builder_.in("attn", "CausalSelfAttention");
      write_qkv();
      linear("proj",
             shape_.heads * shape_.head_dim,
             shape_.hidden,
             layout_.projection_bias,
             adapters_.projection);
    }
    if (!layout_.shared_norm) norm("norm_2");
    const auto mlp = builder_.in("mlp", shape_.gated_mlp ? "LLaMAMLP" : "GptNeoxMLP");
    if (shape_.gated_mlp) {
      for (const std::string_view name : {"fc_1", "fc_2"}) wide(name);
    } else {
      wide("fc");
    }
    linear("proj", shape_.intermediate, shape_.hidden, layout_.mlp_bias, adapters_.mlp);
  }

  void wide(std::string_view name) {
    linear(name, shape_.hidden, shape_.intermediate, layout_.mlp_bias, adapters_.mlp);
  }

  void norm(std::string_view name) {
    if (shape_.norm == NormKind::rms_norm) {
      builder_.norm(name, shape_.hidden, "RMSNorm");
    } else {
      builder_.layer_norm(name, shape_.hidden);
    }
  }

  void linear(std::string_view name, std::int64_t in, std::int64_t out, bool bias, bool adapted) {
    if (adapters_.rank == 0) {
      builder_.linear(name, in, out, bias);
      return;
    }
    const auto module = builder_.in(name, "LoRALinear");
    if (adapted) adapt(in, adapters_.rank, out);
    builder_.linear("linear", in, out, bias);
  }

  // A and B are parameters of the wrapping module itself.
  void adapt(std::int64_t in, std::int64_t rows, std::int64_t out) {
    builder_.parameter("lora_A", {rows, in});
    builder_.parameter("lora_B", {out, adapters_.rank});
  }

  void write_qkv() {
    const std::int64_t keys = shape_.kv_heads * shape_.head_dim;
    const std::int64_t queries = shape_.heads * shape_.head_dim;
    const std::int64_t out = queries + 2 * keys;
    if (adapters_.rank == 0) {
      builder_.linear("attn", shape_.hidden, out, layout_.qkv_bias);
      return;
    }
    const auto module = builder_.in("attn", "LoRAQKVLinear");
    const std::int64_t parts = adapters_.query + adapters_.key + adapters_.value;
    if (parts > 0) {
      adapt(shape_.hidden,
            parts * adapters_.rank,
            adapters_.query * queries + (adapters_.key + adapters_.value) * keys);
    }
    builder_.linear("linear", shape_.hidden, out, layout_.qkv_bias);
  }

  const TransformerShape& shape_;
  const LitgptLayout& layout_;
  const LitgptAdapters& adapters_;
  ModelBuilder builder_;
};

}  // namespace

bool litgpt_has(const Model& model) {
  constexpr std::array<std::string_view, 5> kTypes = {
      "llama", "mistral", "gpt_neox", "falcon", "phi"};
  const bool known = std::find(kTypes.begin(), kTypes.end(), model.model_type) != kTypes.end();
  return known && model.shape.experts.experts == 0 && model.shape.has_logits &&
         model.shape.position == PositionKind::rotary && !has(model, "q_norm.weight");
}

Model litgpt_model(const Model& model, const LitgptAdapters& adapters) {
  Model result = model;
  result.implementation_family = "litgpt";
  result.shape.tied_embeddings = false;
  // litgpt has no dropout besides that of its adapters.
  result.shape.attention_dropout = result.shape.hidden_dropout = 0.0;
  result.shape.embedding_dropout = 0.0;
  write_litgpt(result, layout_of(model), adapters);
  for (Parameter& parameter : result.parameters) {
    parameter.trainable = adapters.rank == 0 || parameter.name.find("lora_") != std::string::npos;
  }
  return result;
}

void write_litgpt(Model& model, const LitgptLayout& layout, const LitgptAdapters& adapters) {
  model.architecture = "GPT";
  LitgptWriter writer(model, layout, adapters);
  writer.write();
  writer.move_into(model);
}

}  // namespace zeroplan
