// Encoders and their heads.
#include <string>

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

Model encoder(const std::string& type, const std::string& architecture) {
  return read_model(
      parse_json(R"({"model_type": ")" + type + R"(", "architectures": [")" + architecture +
                     R"("], "hidden_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 8,
      "intermediate_size": 4096, "vocab_size": 32000, "max_position_embeddings": 1026})",
                 "config.json")
          .root,
      "config.json");
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
    CHECK(
        saved(
            build_graph(encoder("roberta", "RobertaForMaskedLM"), options(attention)).blocks[1]) ==
        saved(build_graph(encoder("bert", "BertForMaskedLM"), options(attention)).blocks[1]));
  }
}

TEST_CASE("With torch 2.2 and newer BERT's masked attention copies nothing") {
  GraphOptions padded = options(kSdpa);
  padded.mask = MaskKind::padded;
  const Model model = encoder("bert", "BertForMaskedLM");
  padded.torch = {2, 6};
  const int without = cost(build_graph(model, padded).blocks[1], Pass::forward).operations;
  padded.torch = {2, 1};
  CHECK(cost(build_graph(model, padded).blocks[1], Pass::forward).operations == without + 3);
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
  for (const Model& model : {encoder("bert", "BertForMaskedLM"),
                             encoder("bert", "BertForPreTraining"),
                             encoder("bert", "BertForNextSentencePrediction"),
                             encoder("bert", "BertForSequenceClassification"),
                             encoder("bert", "BertForTokenClassification"),
                             encoder("bert", "BertForQuestionAnswering"),
                             encoder("roberta", "RobertaForMaskedLM"),
                             encoder("roberta", "RobertaForSequenceClassification"),
                             encoder("roberta", "RobertaForQuestionAnswering")}) {
    for (const Attention attention : {kEager, kSdpa}) {
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

TEST_CASE("A class without a loss is refused with its name") {
  for (const Model& model :
       {encoder("bert", "BertModel"), encoder("bert", "BertForMultipleChoice")}) {
    try {
      build_graph(model, options(kSdpa));
      FAIL("no error for " << model.architecture);
    } catch (const InputError& error) {
      CHECK(error.diagnostics().front().got.english().find(model.architecture) !=
            std::string::npos);
    }
  }
}

}  // namespace
}  // namespace zeroplan
