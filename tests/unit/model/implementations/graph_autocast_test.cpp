// torch.autocast in the graph: fp32 weights, products and attention in 16 bits, norms in fp32.
#include <algorithm>
#include <set>
#include <string>

#include "base/json.hpp"
#include "model/families/hf_config.hpp"
#include "model/implementations/implementations.hpp"
#include "tests/catch.hpp"

namespace zeroplan {
namespace {

constexpr std::int64_t kTokens = 2 * 128, kHidden = 64, kVocabulary = 1000;

Model llama(bool tied) {
  return read_model(
      parse_json(std::string(R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 160,
        "vocab_size": 1000, "tie_word_embeddings": )") +
                     (tied ? "true}" : "false}"),
                 "config.json")
          .root,
      "config.json");
}

Model gpt2() {
  return read_model(parse_json(R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4,
        "vocab_size": 1000, "n_positions": 128})",
                               "config.json")
                        .root,
                    "config.json",
                    "",
                    {.attention = "eager", .transformers = Version{4, 50, 0}});
}

GraphOptions mixed(ActivationCheckpointing checkpointing = ActivationCheckpointing::none) {
  GraphOptions options;
  options.micro_batch = 2;
  options.sequence_length = 128;
  options.attention = Attention::sdpa;
  options.checkpointing = checkpointing;
  options.dtype = DType::fp32;
  options.autocast = DType::bf16;
  return options;
}

std::set<std::string> copied(const Block& block) {
  std::set<std::string> names;
  for (const BlockParameter& parameter : block.parameters) {
    if (parameter.autocast) names.insert(parameter.name);
  }
  return names;
}

// Whether a storage of so many elements and this dtype is alive after forward for backward.
bool keeps(const Block& block, std::int64_t elements, DType dtype) {
  return std::any_of(
      block.of(Pass::forward).begin(), block.of(Pass::forward).end(), [&](const Event& event) {
        if (event.kind != EventKind::save) return false;
        const Storage& storage = block.storages[static_cast<std::size_t>(event.index)];
        return storage.elements.count() == elements && storage.dtype == dtype;
      });
}

}  // namespace

TEST_CASE("under autocast products and attention are of 16 bits and weights are copied for them") {
  for (const auto checkpointing : {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
    const ModelGraph graph = build_graph(llama(false), mixed(checkpointing));
    for (const Block& block : graph.blocks) {
      for (const MatrixProduct& product : block.products) CHECK(product.dtype == DType::bf16);
      for (const AttentionCall& call : block.attentions) CHECK(call.dtype == DType::bf16);
    }
    REQUIRE(graph.blocks.size() == 3);
    CHECK(copied(graph.blocks[0]).empty());  // an embedding is no product
    CHECK(copied(graph.blocks[1]) == std::set<std::string>{"self_attn.q_proj.weight",
                                                           "self_attn.k_proj.weight",
                                                           "self_attn.v_proj.weight",
                                                           "self_attn.o_proj.weight",
                                                           "mlp.gate_proj.weight",
                                                           "mlp.up_proj.weight",
                                                           "mlp.down_proj.weight"});
    const std::int64_t block = kHidden * (64 + 32 + 32 + 64 + 3 * 160);
    CHECK(autocast_copies(graph) == Elements::of(2 * block + kVocabulary * kHidden));
  }
}

TEST_CASE("under autocast gradients of weights are fp32, also of one weight for two uses") {
  for (const bool tied : {false, true}) {
    const ModelGraph graph = build_graph(llama(tied), mixed());
    for (const Block& block : graph.blocks) {
      for (const WeightGradient& gradient : block.weight_gradients) {
        if (gradient.storage < 0) continue;
        CHECK(block.storages[static_cast<std::size_t>(gradient.storage)].dtype == DType::fp32);
      }
    }
  }
}

TEST_CASE("under autocast norms read fp32 and products their own 16-bit copy") {
  const ModelGraph graph = build_graph(llama(false), mixed());
  CHECK(keeps(graph.blocks[1], kTokens * kHidden, DType::fp32));
  CHECK(keeps(graph.blocks[1], kTokens * kHidden, DType::bf16));
  GraphOptions half = mixed();
  half.dtype = DType::bf16;
  half.autocast.reset();
  const ModelGraph plain = build_graph(llama(false), half);
  CHECK(autocast_copies(plain) == Elements::zero());
  CHECK(summarize(graph.blocks[1]).saved > summarize(plain.blocks[1]).saved);
}

TEST_CASE("under autocast a softmax without a dtype and a power are of fp32") {
  GraphOptions eager = mixed();
  eager.attention = Attention::eager;
  eager.transformers = {4, 50, 0};
  const ModelGraph graph = build_graph(gpt2(), eager);
  constexpr std::int64_t kScores = 2 * 4 * 128 * 128;
  CHECK(keeps(graph.blocks[1], kScores, DType::fp32));                // the softmax's output
  CHECK(keeps(graph.blocks[1], kScores, DType::bf16));                // the product's copy of it
  CHECK(keeps(graph.blocks[1], kTokens * 4 * kHidden, DType::fp32));  // gelu_new's power
}

}  // namespace zeroplan
