// Layers of GPTBigCode: the bytes they save, and how high they peak. The sums
// were recorded with the classes of transformers 4.47, 4.50 and 4.57 on meta tensors (torch 2.6).
#include <algorithm>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "model/families/hf_config.hpp"
#include "model/implementations/implementations.hpp"
#include "tests/catch.hpp"
#include "tests/support/graph_walk.hpp"
#include "tests/support/small_decoders.hpp"

namespace zeroplan {
namespace {

// h = 1024, 8 heads of 128, f = 4096, b = 2, s = 1024, bf16. K: keys of one head.
constexpr std::int64_t U = 2 * 2 * 1024 * 1024, F = 4 * U, A = 2 * 2 * 8 * 1024 * 1024, K = U / 8;
constexpr std::int64_t N = 4 * 2 * 1024, kLse = 8 * N;

constexpr auto kEager = Attention::eager;
constexpr auto kSdpa = Attention::sdpa;
constexpr auto kFlash = Attention::flash;

GraphOptions options(Attention attention, Version version) {
  GraphOptions o;
  o.micro_batch = 2;
  o.sequence_length = 1024;
  o.attention = attention;
  o.transformers = version;
  o.use_cache = false;
  return o;
}

BlockMemory layer(const Model& model, Attention attention, Version version) {
  return summarize(build_graph(model, options(attention, version)).blocks[1]);
}

// Saved bytes of a layer, the layer's own input included where it saves it.
Bytes saved(const Model& model, Attention attention, Version version) {
  const BlockMemory memory = layer(model, attention, version);
  return memory.saved + (memory.saves_input ? memory.input : Bytes::zero());
}

std::string gated_decoder(std::string_view type, int kv_heads) {
  return R"({"model_type": ")" + std::string(type) + R"(", "num_key_value_heads": )" +
         std::to_string(kv_heads) +
         R"(, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 2,
             "num_attention_heads": 8, "vocab_size": 1000, "max_position_embeddings": 1024,
             "bias": false})";
}

// Its code is remote and cannot be recorded here; where the two classes do the same, a LLaMA of
// equal shape that makes its rotary tables in its layers (before transformers 4.45) has to agree.
TEST_CASE("An InternLM2 layer saves what LLaMA's saves but for values that are views of wqkv") {
  const auto made = [](std::string_view type, int kv_heads) {
    return read_model(parse_json(gated_decoder(type, kv_heads), "test").root, "test");
  };
  const Version own_tables = {4, 44};
  for (const Attention attention : {kEager, kSdpa, kFlash}) {
    CAPTURE(static_cast<int>(attention));
    const Bytes llama = saved(made("llama", 8), attention, own_tables);
    // The value of every head is a view of the projection of all, which lives as long as it; eager
    // attention multiplies by a copy.
    const Bytes more = attention == kEager ? Bytes::zero() : Bytes::of(2 * U);
    CHECK(saved(made("internlm2", 8), attention, own_tables) == llama + more);
  }
  // Heads that share keys get copies of them, and nothing of the projection is kept.
  CHECK(saved(made("internlm2", 2), kSdpa, own_tables) ==
        saved(made("llama", 2), kSdpa, own_tables));
  // Transformers' newer releases do not change what the repository's code does.
  CHECK(saved(made("internlm2", 2), kSdpa, {4, 57}) ==
        saved(made("internlm2", 2), kSdpa, own_tables));
}

TEST_CASE("A StarCoder layer pins the fused projection under SDPA and expands no key") {
  const std::int64_t masks = U;  // two masks of U / 2
  const std::int64_t fused = U + 2 * K;
  // x, norm, fused, context, sum, norm; attention through the mask: LSE of the memory-efficient
  const Bytes own = Bytes::of(5 * U + fused + masks + 2 * F + 4 * N + kLse);
  CHECK(saved(testing::gpt_bigcode(true), kSdpa, {4, 50}) == own);
  CHECK(saved(testing::gpt_bigcode(true), kFlash, {4, 50}) == own);
  CHECK(saved(testing::gpt_bigcode(false), kSdpa, {4, 50}) ==
        Bytes::of(8 * U + masks + 2 * F + 4 * N + kLse));
}

TEST_CASE("StarCoder's eager layer: the scripted softmax keeps its input, the interface does not") {
  const std::int64_t masks = U + A / 2;
  // the copy of the queries beside the fused projection; 2A in, 2A out, A dropped
  CHECK(saved(testing::gpt_bigcode(true), kEager, {4, 50}) ==
        Bytes::of(6 * U + U + 2 * K + masks + 2 * F + 5 * A + 4 * N));
  CHECK(saved(testing::gpt_bigcode(true), kEager, {4, 57}) ==
        Bytes::of(8 * U + masks + 2 * F + 3 * A + 4 * N));
}

// Copies of the labels, int64: shifted, since 4.49 of a padded copy.
constexpr std::int64_t kLabels = 8 * 2048, kPaddedLabels = kLabels + 512;

TEST_CASE("Loss case B for GPTBigCode before 4.49, case D after") {
  const std::int64_t L = 2 * 2048 * 32000, shifted = L / 1024 * 1023;
  const auto head = [](Version version) {
    return summarize(
        build_graph(testing::gpt_bigcode(true), options(kEager, version)).blocks.back());
  };
  const std::int64_t rest = U + 2 * N + 1024 + kLabels;
  CHECK(head({4, 48}).forward.total == Bytes::of(L + 2 * shifted + rest));
  CHECK(head({4, 49}).forward.total == Bytes::of(5 * L + kPaddedLabels + rest));
}

TEST_CASE("GPTBigCode's mask stays on the GPU once") {
  CHECK(build_graph(testing::gpt_bigcode(true), options(kSdpa, {4, 50})).buffers ==
        Bytes::of(1024 * 1024));
}

TEST_CASE("GPTBigCode has the recorded operations with a kernel") {
  struct Row {
    Model model;
    Attention attention;
    Version version;
    int forward, backward;
  };
  const std::vector<Row> rows = {{testing::gpt_bigcode(true), kSdpa, {4, 50}, 12, 24},
                                 {testing::gpt_bigcode(true), kSdpa, {4, 57}, 12, 21},
                                 {testing::gpt_bigcode(true), kEager, {4, 57}, 23, 33}};
  for (const Row& row : rows) {
    const Block block = build_graph(row.model, options(row.attention, row.version)).blocks[1];
    CAPTURE(row.model.architecture, row.version.minor);
    CHECK(cost(block, Pass::forward).operations == row.forward);
    CHECK(cost(block, Pass::backward).operations == row.backward);
  }
}

// The same models of two layers with their heads and losses, recorded live with transformers 4.50.
TEST_CASE("Whole decoders peak where the recordings did, to 0.02 of a hidden state") {
  struct Row {
    Model model;
    Attention attention;
    double forward, kept, backward;  // in U; kept: without the output object
  };
  const std::vector<Row> rows = {{testing::gpt_bigcode(true), kEager, 279.7819, 186.0278, 311.0239},
                                 {testing::gpt_bigcode(true), kSdpa, 190.3134, 96.5593, 221.5554}};
  for (const Row& row : rows) {
    const testing::GraphWalk walk(build_graph(row.model, options(row.attention, {4, 50})));
    Bytes forward, backward, kept;
    for (const testing::GraphWalk::Step& step : walk.steps()) {
      if (step.step.pass == Pass::forward) forward = std::max(forward, step.peak);
      if (step.step.pass == Pass::backward) backward = std::max(backward, step.peak);
      if (step.step.pass == Pass::drop_outputs) kept = step.after;
    }
    const auto in_hidden_states = [](Bytes bytes) {
      return static_cast<double>(bytes.count()) / static_cast<double>(U);
    };
    CAPTURE(row.model.architecture, static_cast<int>(row.attention));
    CHECK(in_hidden_states(forward) == Approx(row.forward).margin(0.02).epsilon(0));
    CHECK(in_hidden_states(kept) == Approx(row.kept).margin(0.02).epsilon(0));
    CHECK(in_hidden_states(backward) == Approx(row.backward).margin(0.02).epsilon(0));
  }
}

TEST_CASE("Every decoder releases what it allocates and yields each gradient once") {
  for (const Model& model : {testing::gpt_bigcode(true), testing::gpt_bigcode(false)}) {
    for (const Version version : {Version{4, 44}, {4, 50}, {4, 57}}) {
      for (const Attention attention : {kEager, kSdpa, kFlash}) {
        for (int variant = 0; variant < 6; ++variant) {
          GraphOptions o = options(attention, version);
          o.use_cache = variant % 3 == 0;
          o.checkpointing =
              variant % 3 == 0 ? ActivationCheckpointing::none : ActivationCheckpointing::full;
          o.checkpoint_reentrant = variant % 3 == 1;
          o.mask = variant < 3 ? MaskKind::none : MaskKind::padded;
          CAPTURE(model.architecture, version.minor, static_cast<int>(attention), variant);
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
