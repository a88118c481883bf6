// Encoders and their heads.
#include <string>
#include <utility>

#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "model/families/hf_config.hpp"
#include "model/implementations/implementations.hpp"
#include "tests/catch.hpp"
#include "tests/support/graph_walk.hpp"

namespace zeroplan {
namespace {

// h = 1024, 8 heads, f = 4096, b = 2, s = 1024, bf16.
constexpr std::int64_t U = 2 * 2 * 1024 * 1024, F = 4 * U, A = 2 * 2 * 8 * 1024 * 1024;
constexpr std::int64_t N = 4 * 2 * 1024, kLse = 8 * N;
constexpr std::int64_t L = 2 * 2048 * 32000;

constexpr auto kEager = Attention::eager;
constexpr auto kSdpa = Attention::sdpa;

Model encoder(const std::string& type,
              const std::string& architecture,
              Attention attention = kSdpa) {
  const ModelUse use{.attention = attention == kSdpa ? "sdpa" : "eager"};
  return read_model(
      parse_json(R"({"model_type": ")" + type + R"(", "architectures": [")" + architecture +
                     R"("], "hidden_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 8,
      "intermediate_size": 4096, "vocab_size": 32000, "max_position_embeddings": 1026})",
                 "config.json")
          .root,
      "config.json",
      "",
      use);
}

GraphOptions options(Attention attention) {
  GraphOptions o;
  o.micro_batch = 2;
  o.sequence_length = 1024;
  o.attention = attention;
  return o;
}

Bytes saved(const Block& block) {
  const BlockMemory memory = summarize(block);
  return memory.saved + (memory.saves_input ? memory.input : Bytes::zero());
}

TEST_CASE("A RoBERTa layer is BERT's") {
  for (const Attention attention : {kEager, kSdpa}) {
    const auto saved_by = [&](const Model& model) {
      return saved(build_graph(model, options(attention)).blocks[1]);
    };
    CHECK(saved_by(encoder("roberta", "RobertaForMaskedLM", attention)) ==
          saved_by(encoder("bert", "BertForMaskedLM", attention)));
  }
}

TEST_CASE("RoBERTa's table of positions begins behind the padding's") {
  CHECK(encoder("bert", "BertForMaskedLM").shape.max_positions == 1026);
  for (const char* name : {"RobertaForMaskedLM", "RobertaForSequenceClassification"}) {
    CHECK(encoder("roberta", name).shape.max_positions == 1024);
  }
}

TEST_CASE("Masked language models take their loss from logits in their own dtype") {
  for (const Model& model :
       {encoder("bert", "BertForMaskedLM"), encoder("roberta", "RobertaForMaskedLM")}) {
    CAPTURE(model.architecture);
    const BlockMemory head = summarize(build_graph(model, options(kSdpa)).blocks.back());
    // dense, gelu, norm; logits, log-softmax; the loss and its weight
    CHECK(head.forward.total.count() >= 3 * U + 2 * N + 2 * L + 1024);
    CHECK(head.forward.total.count() <= 3 * U + 2 * N + 2 * L + (1 << 20) + 1024);
    CHECK(head.held == Bytes::of(L));
  }
}

TEST_CASE("A fused loss leaves masked language models as they are") {
  for (const auto& [type, name] :
       {std::pair{"bert", "BertForMaskedLM"}, std::pair{"roberta", "RobertaForMaskedLM"}}) {
    GraphOptions fused = options(kSdpa);
    fused.fused_loss = true;
    const BlockMemory head = summarize(build_graph(encoder(type, name), fused).blocks.back());
    CHECK(head.held == Bytes::of(L));
  }
}

TEST_CASE("A classification head keeps kilobytes and needs zeros of the hidden states") {
  for (const Model& model : {encoder("bert", "BertForSequenceClassification"),
                             encoder("roberta", "RobertaForSequenceClassification")}) {
    CAPTURE(model.architecture);
    const BlockMemory head = summarize(build_graph(model, options(kSdpa)).blocks.back());
    CHECK(head.saved.count() < 64 * 1024);
    // A view of the first token keeps all hidden states, RoBERTa's dropped copy of it does not.
    // select_backward writes its gradient into U of zeros.
    CHECK(head.saves_input == (model.model_type != "roberta"));
    const std::int64_t peak = head.backward.total.count() + (head.saves_input ? U : 0);
    CHECK(peak >= U - 64 * 1024);
    CHECK(peak <= U + 64 * 1024);
  }
}

TEST_CASE("Pre-training BERT keeps the pooler and the vocabulary head at once") {
  const BlockMemory masked =
      summarize(build_graph(encoder("bert", "BertForMaskedLM"), options(kSdpa)).blocks.back());
  const BlockMemory both =
      summarize(build_graph(encoder("bert", "BertForPreTraining"), options(kSdpa)).blocks.back());
  CHECK(both.saved > masked.saved);
  CHECK(both.saved.count() < masked.saved.count() + 64 * 1024);
}

TEST_CASE("Every head releases what it allocates and yields each gradient once") {
  for (const auto& [type, head] : {std::pair{"bert", "BertForMaskedLM"},
                                   std::pair{"bert", "BertForPreTraining"},
                                   std::pair{"bert", "BertForNextSentencePrediction"},
                                   std::pair{"bert", "BertForSequenceClassification"},
                                   std::pair{"bert", "BertForTokenClassification"},
                                   std::pair{"bert", "BertForQuestionAnswering"},
                                   std::pair{"roberta", "RobertaForMaskedLM"},
                                   std::pair{"roberta", "RobertaForSequenceClassification"},
                                   std::pair{"roberta", "RobertaForQuestionAnswering"}}) {
    for (const Attention attention : {kEager, kSdpa}) {
      const Model model = encoder(type, head, attention);
      for (const ActivationCheckpointing checkpointing :
           {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
        for (const MaskKind mask : {MaskKind::none, MaskKind::padded}) {
          GraphOptions o = options(attention);
          o.checkpointing = checkpointing;
          o.mask = mask;
          CAPTURE(model.architecture, static_cast<int>(attention));
          const testing::GraphWalk walk(build_graph(model, o));
          CHECK(walk.alive() == 0_B);
          CHECK(walk.gradients() == static_cast<int>(model.parameters.size()));
        }
      }
    }
  }
}

TEST_CASE("A class without a loss is counted, and refused with its name") {
  const Model trunk = encoder("xlm-roberta", "XLMRobertaModel");
  CHECK(trunk.parameters.back().name == "pooler.dense.bias");
  CHECK(!trunk.planned);
  try {
    build_graph(trunk, options(kSdpa));
    FAIL("no error");
  } catch (const InputError& error) {
    CHECK(error.diagnostics().front().got.english() == "XLMRobertaModel computes no loss");
  }
  CHECK_THROWS_AS(encoder("bert", "BertForMultipleChoice"), InputError);
}

}  // namespace
}  // namespace zeroplan
