#include "model/families/megatron.hpp"

#include "base/units.hpp"
#include "model/families/model_builder.hpp"

namespace zeroplan {
namespace {

class MegatronWriter {
 public:
  MegatronWriter(const Model& model, std::int64_t ranks)
      : shape_(model.shape), ranks_(ranks), builder_("GPTModel") {}

  void write() {
    int word = -1;
    {
      const auto language_model = builder_.in("language_model", "TransformerLanguageModel");
      word = write_embedding();
      const auto encoder = builder_.in("encoder", "ParallelTransformer");
      {
        const auto layers = builder_.in("layers", "ModuleList");
        for (std::int64_t layer = 0; layer < shape_.layers; ++layer) write_layer(layer);
      }
      builder_.layer_norm("final_layernorm", shape_.hidden);
    }
    // parallel_lm_logits is a function of the embedding's weight.
    builder_.tied_linear("lm_logits", word, -1, "ParallelLMLogits");
  }

  void move_into(Model& model) { builder_.move_into(model); }

 private:
  int write_embedding() {
    const auto embedding = builder_.in("embedding", "Embedding");
    int word = -1;
    {
      const auto words = builder_.in("word_embeddings", "VocabParallelEmbedding");
      word = builder_.parameter(
          "weight", {megatron_vocabulary(shape_.vocabulary, ranks_) / ranks_, shape_.hidden});
      // --embed-layernorm
      if (shape_.position == PositionKind::alibi) builder_.layer_norm("norm", shape_.hidden);
    }
    if (shape_.position == PositionKind::learned) {
      builder_.embedding("position_embeddings", shape_.max_positions, shape_.hidden);
    }
    return word;
  }

  void write_layer(std::int64_t layer) {
    const std::int64_t heads = shape_.heads * shape_.head_dim;
    const auto block = builder_.in(layer, "ParallelTransformerLayer");
    builder_.layer_norm("input_layernorm", shape_.hidden);
    {
      const auto attention = builder_.in("self_attention", "ParallelAttention");
      column("query_key_value", 3 * heads);
      row("dense", heads);
    }
    builder_.layer_norm("post_attention_layernorm", shape_.hidden);
    const auto mlp = builder_.in("mlp", "ParallelMLP");
    column("dense_h_to_4h", shape_.intermediate);
    row("dense_4h_to_h", shape_.intermediate);
  }

  void column(std::string_view name, std::int64_t out) {
    builder_.linear(name, shape_.hidden, out / ranks_, true, "ColumnParallelLinear");
  }

  void row(std::string_view name, std::int64_t in) {
    builder_.linear(name, in / ranks_, shape_.hidden, true, "RowParallelLinear");
  }

  const TransformerShape& shape_;
  std::int64_t ranks_;
  ModelBuilder builder_;
};

}  // namespace

std::int64_t megatron_vocabulary(std::int64_t vocabulary, std::int64_t tensor_ranks) {
  return round_up(vocabulary, kMegatronVocabularyMultiple * tensor_ranks);
}

bool megatron_has(const Model& model) {
  const TransformerShape& shape = model.shape;
  return model.planned && (model.model_type == "gpt2" || model.model_type == "bloom") &&
         shape.has_logits && shape.tied_embeddings && shape.experts.experts == 0;
}

Model megatron_model(const Model& model, std::int64_t tensor_ranks) {
  Model result = model;
  result.architecture = "GPTModel";
  result.implementation_family = "megatron";
  result.shape.vocabulary = megatron_vocabulary(model.shape.vocabulary, tensor_ranks);
  result.shape.attention_dropout = kMegatronDropout;
  result.shape.hidden_dropout = kMegatronDropout;
  result.shape.embedding_dropout = kMegatronDropout;
  MegatronWriter writer(model, tensor_ranks);
  writer.write();
  writer.move_into(result);
  return result;
}

}  // namespace zeroplan
