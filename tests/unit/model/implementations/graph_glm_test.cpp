// GLM and ChatGLM, whose classes live in the models' repositories: saved bytes, transients, loss.
#include <string>

#include "base/json.hpp"
#include "model/families/hf_config.hpp"
#include "model/implementations/implementations.hpp"
#include "tests/catch.hpp"
#include "tests/support/graph_walk.hpp"

namespace zeroplan {
namespace {

// h = 1024, 8 heads of 128, b = 2, s = 1024, bf16.
constexpr std::int64_t U = 2 * 2 * 1024 * 1024, A = 2 * 2 * 8 * 1024 * 1024;
constexpr std::int64_t N = 4 * 2 * 1024, kLse = 8 * N, kMask = A / 8;
constexpr std::int64_t kVocabulary = 32000, L = 2 * 2048 * kVocabulary;

Model model_of(const std::string& text) {
  return read_model(parse_json(text, "config.json").root, "config.json");
}

// The feed-forward is 4 h wide: F = 4U.
Model glm(const std::string& architecture = "GLMForConditionalGeneration") {
  return model_of(R"({"model_type": "glm", "architectures": [")" + architecture + R"("],
      "hidden_size": 1024, "num_layers": 2, "num_attention_heads": 8, "vocab_size": 32000,
      "max_sequence_length": 1024, "block_position_encoding": true})");
}

// Two key groups (K = U / 4) and F = 3U.
Model chatglm() {
  return model_of(R"({"model_type": "chatglm", "hidden_size": 1024, "num_layers": 2,
      "num_attention_heads": 8, "kv_channels": 128, "multi_query_attention": true,
      "multi_query_group_num": 2, "ffn_hidden_size": 3072, "padded_vocab_size": 32000,
      "add_qkv_bias": true, "rmsnorm": true, "seq_length": 8192})");
}

GraphOptions options(std::int64_t batch = 2) {
  GraphOptions o;
  o.micro_batch = batch;
  o.sequence_length = 1024;
  return o;
}

Bytes saved(const Block& block) {
  const BlockMemory memory = summarize(block);
  return memory.saved + (memory.saves_input ? memory.input : Bytes::zero());
}

TEST_CASE("A GLM layer saves 9U + 2F + 2.5A + 4N, whatever attention is asked for") {
  constexpr std::int64_t F = 4 * U;
  CHECK(saved(build_graph(glm(), options()).blocks[1]) ==
        Bytes::of(9 * U + 2 * F + 5 * A / 2 + 4 * N));
  GraphOptions flash = options();
  flash.attention = Attention::flash;
  const ModelGraph graph = build_graph(glm(), flash);
  CHECK(saved(graph.blocks[1]) == Bytes::of(9 * U + 2 * F + 5 * A / 2 + 4 * N));
  CHECK(graph.assumptions.size() == 1);
}

TEST_CASE("With a batch of one a GLM layer keeps its fused projection and a copy of the keys") {
  constexpr std::int64_t one = U / 2, a = A / 2;
  // ln, ln out, q k v as one (3), k scaled (1), context, bool; ln, ln out; two of the width 4 h.
  CHECK(saved(build_graph(glm(), options(1)).blocks[1]) ==
        Bytes::of(10 * one + 8 * one + 5 * a / 2 + 2 * N));
}

TEST_CASE("A GLM that scales its scores twice is described with a note") {
  const Model scaled = model_of(R"({"model_type": "glm", "hidden_size": 1024, "num_layers": 2,
      "num_attention_heads": 8, "vocab_size": 32000, "attention_scale": 8.0})");
  const auto mentioned = [](const Model& model) {
    for (const std::string& note : model.notes) {
      if (note.find("attention_scale") != std::string::npos) return true;
    }
    return false;
  };
  CHECK(mentioned(scaled));
  CHECK(!mentioned(glm()));
}

TEST_CASE("GLM's mask of zeros and ones is kept by the layers that multiply with it") {
  const ModelGraph graph = build_graph(glm(), options());
  const auto& mask = graph.shared[2];
  CHECK(mask.name == "mask");
  CHECK(mask.first_saver == 1);
  CHECK(graph.storage({mask.producer, mask.storage}).bytes == Bytes::of(kMask));
}

TEST_CASE("GLM's loss reads the logits of all positions in their own dtype") {
  const BlockMemory head = summarize(build_graph(glm(), options()).blocks.back());
  // Final norm and logits, then log-softmax and the loss with its weight.
  CHECK(head.forward.total == Bytes::of(U + 2 * N + 2 * L + 1024));
  CHECK(head.held == Bytes::of(L));
}

TEST_CASE("A ChatGLM layer saves its RMS norms in fp32 and keys and values for every head") {
  constexpr std::int64_t F = 3 * U;
  // norms: 2 (2U + U + 2U + U) + 2N; q, k, v, out: 4U + LSE + rng; two halves, gate, product: 4F.
  const BlockMemory memory = summarize(build_graph(chatglm(), options()).blocks[1]);
  CHECK(memory.saves_input);
  CHECK(memory.saved + memory.input == Bytes::of(12 * U + 4 * U + 4 * F + 2 * N + kLse));
  // The cache holds the turned keys and, with the values, the whole fused projection.
  CHECK(memory.held == Bytes::of(U / 4 + U + U / 2));
}

TEST_CASE("ChatGLM's loss holds logits and their shifted copy in fp32") {
  const BlockMemory head = summarize(build_graph(chatglm(), options()).blocks.back());
  const std::int64_t shifted = 2 * L / 1024 * 1023;
  // norm's saved tensors; logits fp32, shifted copy, log-softmax, then the logits in bf16 again.
  const std::int64_t norm = 2 * U + 2 * U + U + N;
  CHECK(head.forward.total == Bytes::of(norm + 2 * L + 2 * shifted + L + 3 * 512));
  CHECK(head.held == Bytes::of(L));
}

TEST_CASE("GLM and ChatGLM layers run and peak as recorded from replicas of their code") {
  const Block glm_layer = build_graph(glm(), options()).blocks[1];
  CHECK(cost(glm_layer, Pass::forward).operations == 24);
  CHECK(cost(glm_layer, Pass::backward).operations == 31);
  // Forward: at the last dropout, 3U above the saved tensors (bool, output, sum of the residuals).
  CHECK(summarize(glm_layer).forward.total == Bytes::of(39 * U + 4 * N));
  // Backward: 6.5U, at the gradient of the fused projection's bias.
  CHECK(summarize(glm_layer).backward_dropping_weight_gradients.count() * 2 / U == 13);

  GraphOptions no_cache = options();
  no_cache.use_cache = false;
  const Block chatglm_layer = build_graph(chatglm(), no_cache).blocks[1];
  CHECK(cost(chatglm_layer, Pass::forward).operations == 43);
  CHECK(cost(chatglm_layer, Pass::backward).operations == 85);
  CHECK(summarize(chatglm_layer).forward.total >= Bytes::of(30 * U + 2 * N));
  CHECK(summarize(chatglm_layer).forward.total <= Bytes::of(30 * U + 3 * N + kLse));
  CHECK(summarize(chatglm_layer).backward.total == Bytes::of(6 * U));
}

TEST_CASE("GLM and ChatGLM release what they allocate and yield each gradient once") {
  for (const Model& model : {glm(), glm("GLMModel"), chatglm()}) {
    for (const ActivationCheckpointing checkpointing :
         {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
      for (const bool reentrant : {true, false}) {
        for (const MaskKind mask : {MaskKind::none, MaskKind::padded}) {
          GraphOptions o = options();
          o.checkpointing = checkpointing;
          o.checkpoint_reentrant = reentrant;
          o.mask = mask;
          CAPTURE(model.architecture, reentrant);
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
