// What the layers of the other families save, row by row.
#include <string>

#include "base/json.hpp"
#include "model/families/hf_config.hpp"
#include "model/implementations/implementations.hpp"
#include "tests/catch.hpp"
#include "tests/support/graph_walk.hpp"
#include "tests/support/small_models.hpp"

namespace zeroplan {
namespace {

// h = 1024, 8 heads, f = 4096, b = 2, s = 1024, bf16.
constexpr std::int64_t U = 2 * 2 * 1024 * 1024, F = 4 * U, A = 2 * 2 * 8 * 1024 * 1024;
constexpr std::int64_t N = 4 * 2 * 1024, kLse = 8 * N;

GraphOptions options(Attention attention, Version version) {
  GraphOptions o;
  o.micro_batch = 2;
  o.sequence_length = 1024;
  o.attention = attention;
  o.transformers = version;
  return o;
}

Model recorded(const char* config, const std::string& attention, Version release) {
  const ModelUse use{.attention = attention, .transformers = release};
  return read_model(parse_json(config, "test").root, "test", "", use);
}

Model gpt2(const std::string& attention) {
  const char* config = R"({"model_type": "gpt2", "n_embd": 1024, "n_layer": 2, "n_head": 8,
      "vocab_size": 32000, "n_positions": 1024})";
  return recorded(config, attention, {4, 47, 1});
}

Model bert(Attention attention) {
  const char* config = R"({"model_type": "bert", "hidden_size": 1024, "num_hidden_layers": 2,
      "num_attention_heads": 8, "intermediate_size": 4096, "vocab_size": 32000,
      "max_position_embeddings": 1024})";
  return recorded(config, attention == Attention::eager ? "eager" : "sdpa", {4, 50});
}

// Saved bytes of a layer, the layer's own input included where it saves it.
Bytes saved(const Model& model, Attention attention, Version version) {
  const BlockMemory memory = summarize(build_graph(model, options(attention, version)).blocks[1]);
  return memory.saved + (memory.saves_input ? memory.input : Bytes::zero());
}

constexpr auto kEager = Attention::eager;
constexpr auto kSdpa = Attention::sdpa;

TEST_CASE("A GPT-2 layer saves 9U + 5F + 2.5A + 4N eager, without A and with LSE fused") {
  CHECK(saved(gpt2("eager"), kEager, {4, 47}) == Bytes::of(9 * U + 5 * F + 5 * A / 2 + 4 * N));
  CHECK(saved(gpt2("sdpa"), kSdpa, {4, 47}) == Bytes::of(9 * U + 5 * F + 4 * N + kLse));
}

TEST_CASE("A GPT-2 layer's backward peaks two F above its entry, at gelu_new") {
  const BlockMemory memory =
      summarize(build_graph(gpt2("sdpa"), options(kSdpa, {4, 47})).blocks[1]);
  // The incoming gradient has died by then (U) with the dropout's mask (U / 2).
  CHECK(memory.backward.total <= Bytes::of(2 * F));
  CHECK(memory.backward.total >= Bytes::of(2 * F - 2 * U));
}

TEST_CASE("A BLOOM layer saves 8U + 2F + 3A + 4N, and its gelu needs 4F more in both passes") {
  const char* config = R"({"model_type": "bloom", "hidden_size": 1024, "n_layer": 2, "n_head": 8,
      "vocab_size": 32000})";
  const Model bloom = recorded(config, "eager", {4, 50, 3});
  CHECK(saved(bloom, kEager, {4, 50}) == Bytes::of(8 * U + 2 * F + 3 * A + 4 * N));
  const Block layer = build_graph(bloom, options(kEager, {4, 50})).blocks[1];
  CHECK(cost(layer, Pass::forward).operations == 27);
  CHECK(cost(layer, Pass::backward).operations == 52);
}

TEST_CASE("A BERT layer saves 9U + 2F + 2.5A + 4N eager and 9U + 2F + 4N + LSE fused") {
  CHECK(saved(bert(kEager), kEager, {4, 50}) == Bytes::of(9 * U + 2 * F + 5 * A / 2 + 4 * N));
  CHECK(saved(bert(kSdpa), kSdpa, {4, 50}) == Bytes::of(9 * U + 2 * F + 4 * N + kLse));
}

TEST_CASE("A Gemma layer saves its norms in fp32, a Phi-3 layer its fused projections once") {
  constexpr std::int64_t kFactors = 2 * 4 * 1024;  // 1 + weight of two norms, fp32
  CHECK(saved(testing::gemma(), kEager, {4, 50}) ==
        Bytes::of(10 * U + 4 * U + 3 * A + 4 * F + 2 * N + kFactors));
  CHECK(saved(testing::phi3(), kEager, {4, 50}) ==
        Bytes::of(8 * U + 4 * U + 3 * A + 4 * F + 2 * N));
  CHECK(saved(testing::phi3(), kSdpa, {4, 50}) == Bytes::of(13 * U + 4 * F + 2 * N + kLse));
}

TEST_CASE("Loss case B: the logits stay in bf16 and three copies live") {
  const Model model = gpt2("sdpa");
  const ModelGraph graph = build_graph(model, options(kSdpa, {4, 47}));
  const std::int64_t L = 2 * 2048 * 32000, shifted = L / 1024 * 1023;
  const BlockMemory head = summarize(graph.blocks.back());
  constexpr std::int64_t kLabels = 8 * 2048;  // shifted, a copy
  CHECK(head.forward.total == Bytes::of(U + 2 * N + L + 2 * shifted + kLabels + 1024));
  CHECK(head.held == Bytes::of(L));
}

TEST_CASE("Operations with a kernel, as recorded") {
  struct Row {
    Model model;
    Attention attention;
    Version version;
    int forward, backward;
  };
  const std::vector<Row> rows = {{gpt2("sdpa"), kSdpa, {4, 47}, 19, 31},
                                 {bert(kEager), kEager, {4, 50}, 23, 38}};
  for (const Row& row : rows) {
    const Block layer = build_graph(row.model, options(row.attention, row.version)).blocks[1];
    CAPTURE(row.model.model_type);
    CHECK(cost(layer, Pass::forward).operations == row.forward);
    CHECK(cost(layer, Pass::backward).operations == row.backward);
  }
}

TEST_CASE("BERT releases what it allocates and yields each gradient once") {
  for (const Attention attention : {kEager, kSdpa}) {
    const Model model = bert(attention);
    for (const ActivationCheckpointing checkpointing :
         {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
      for (const bool reentrant : {true, false}) {
        for (const MaskKind mask : {MaskKind::none, MaskKind::padded}) {
          GraphOptions o = options(attention, {4, 50});
          o.checkpointing = checkpointing;
          o.checkpoint_reentrant = reentrant;
          o.mask = mask;
          CAPTURE(static_cast<int>(attention), reentrant);
          const testing::GraphWalk walk(build_graph(model, o));
          CHECK(walk.alive() == 0_B);
          CHECK(walk.gradients() == static_cast<int>(model.parameters.size()));
        }
      }
    }
  }
}

}  // namespace
}  // namespace zeroplan
