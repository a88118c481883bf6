// BERT with its masked language model for the embedded runtime: positions and token types (all of
// the first), norms behind the residual sums, attention over the whole row, and a head with a
// transformation of its own before the tied decoder. Rows are full: there is no padding mask.
#include <string>

#include "model/implementations/embedded_layers.hpp"
#include "model/implementations/families.hpp"

namespace zeroplan::embedded {
namespace {

constexpr const char* kEmbeddings = "bert.embeddings";
constexpr const char* kBertWords = "bert.embeddings.word_embeddings";
constexpr const char* kBertPositions = "bert.embeddings.position_embeddings";
constexpr const char* kTypes = "bert.embeddings.token_type_embeddings";
constexpr std::int64_t kFirstRow = 1;  // period of the lookup: every token has type 0

Block bert_input_block(BlockBuilder b, bool tied) {
  Norm first;
  {
    const auto scope = b.module(kEmbeddings);
    const KernelOperand x = embedding(b, "word_embeddings");
    add_positions(b, "token_type_embeddings", x, kFirstRow);
    add_positions(b, "position_embeddings", x, b.sequence());
    first = norm(b, "LayerNorm", x);
  }
  b.set_output(first.y);
  KernelOperand d = b.begin_backward();
  {
    const auto scope = b.module(kEmbeddings);
    d = norm_backward(b, "LayerNorm", first, d);
  }
  positions_backward(b, kBertPositions, d, b.sequence());
  positions_backward(b, kTypes, d, kFirstRow);
  embedding_backward(b, kBertWords, d, tied);
  return b.take();
}

struct BertSaved {
  Heads heads;
  AttentionOutput core;
  Norm attention, output;  // of the residual sums
  KernelOperand wide, activated;
};

void forward(BlockBuilder& b, KernelOperand x, BertSaved& saved) {
  {
    const auto scope = b.module("attention");
    {
      const auto self = b.module("self");
      saved.heads.q = linear(b, "query", x, Keep::selective);
      saved.heads.k = linear(b, "key", x, Keep::selective);
      saved.heads.v = linear(b, "value", x, Keep::selective);
      saved.core = attention(b, saved.heads);
    }
    const auto output = b.module("output");
    const KernelOperand sum = linear(b, "dense", saved.core.out, Keep::selective);
    add_to(b, sum, x);
    saved.attention = norm(b, "LayerNorm", sum);
  }
  {
    const auto scope = b.module("intermediate");
    saved.wide = linear(b, "dense", saved.attention.y, Keep::selective);
    saved.activated = gelu(b, saved.wide, b.shape().intermediate);
  }
  const auto scope = b.module("output");
  const KernelOperand sum = linear(b, "dense", saved.activated, Keep::selective);
  add_to(b, sum, saved.attention.y);
  saved.output = norm(b, "LayerNorm", sum);
}

// The gradient of a sum goes to both of its terms: the branch's part is added to it in place.
KernelOperand backward(BlockBuilder& b,
                       KernelOperand x,
                       const BertSaved& saved,
                       KernelOperand d_out) {
  KernelOperand d, d_wide;
  {
    const auto scope = b.module("output");
    d = norm_backward(b, "LayerNorm", saved.output, d_out);
    d_wide = linear_backward(b, "dense", {.d_y = d, .x = saved.activated});
  }
  {
    const auto scope = b.module("intermediate");
    gelu_backward_in_place(b, saved.wide, d_wide, b.shape().intermediate);
    linear_backward(
        b, "dense", {.d_y = d_wide, .x = saved.attention.y, .d_x = d, .accumulate = true});
  }
  const auto scope = b.module("attention");
  KernelOperand d_core;
  {
    const auto output = b.module("output");
    d = norm_backward(b, "LayerNorm", saved.attention, d);
    d_core = linear_backward(b, "dense", {.d_y = d, .x = saved.core.out});
  }
  const auto self = b.module("self");
  const Heads gradients = attention_backward(b, saved.heads, saved.core, d_core);
  linear_backward(b, "value", {.d_y = gradients.v, .x = x, .d_x = d, .accumulate = true});
  linear_backward(b, "key", {.d_y = gradients.k, .x = x, .d_x = d, .accumulate = true});
  linear_backward(b, "query", {.d_y = gradients.q, .x = x, .d_x = d, .accumulate = true});
  return d;
}

Block bert_layer_block(BlockBuilder b) {
  const KernelOperand x = b.input(b.rows() * b.shape().hidden);
  BertSaved saved;
  {
    const auto scope = b.module("");
    forward(b, x, saved);
  }
  b.set_output(saved.output.y);
  const KernelOperand d_out = b.begin_backward();
  KernelOperand d;
  {
    const auto scope = b.module("");
    d = backward(b, x, saved, d_out);
  }
  b.set_input_gradient(d);
  return b.take();
}

// cls.predictions: dense, GELU, norm, decoder.
Block predictions_block(BlockBuilder b) {
  const Head head{"cls.predictions.decoder", kBertWords, "cls.predictions.bias"};
  constexpr const char* kTransform = "cls.predictions.transform";
  const std::int64_t hidden = b.shape().hidden;
  const KernelOperand x = b.input(b.rows() * hidden);
  KernelOperand dense;
  Norm last;
  {
    const auto scope = b.module(kTransform);
    dense = linear(b, "dense", x, Keep::no);
    last = norm(b, "LayerNorm", gelu(b, dense, hidden));
  }
  const HeadForward forward = head_forward(b, head, last.y);
  b.begin_backward();
  KernelOperand d = head_backward(b, head, forward);
  {
    const auto scope = b.module(kTransform);
    d = norm_backward(b, "LayerNorm", last, d);
    gelu_backward_in_place(b, dense, d, hidden);
    d = linear_backward(b, "dense", {.d_y = d, .x = x});
  }
  b.set_input_gradient(d);
  return b.take();
}

void check_bert(const hf::Context& c) {
  if (c.model.architecture != "BertForMaskedLM") {
    refuse(c, phrase("{}: of the encoders it trains BertForMaskedLM alone", c.model.architecture));
  }
  if (!is_gelu(c.shape())) refuse(c, "an activation other than GELU");
  for (const Parameter& parameter : c.model.parameters) {
    if (parameter.name.ends_with("distance_embedding.weight")) refuse(c, "relative positions");
  }
}

}  // namespace

void build_bert(GraphAssembler& assembler, const hf::Context& c) {
  check_bert(c);
  note_dropout(assembler, c);
  const auto builder = [&](const char* name, const std::string& prefix, bool checkpoint) {
    return BlockBuilder({name, prefix, &c.model, &c.options, checkpoint});
  };
  assembler.add_written("", [&](const std::string& prefix, bool checkpoint) {
    return bert_input_block(builder("BertEmbeddings", prefix, checkpoint),
                            c.shape().tied_embeddings);
  });
  assembler.add_written_layers(
      "bert.encoder.layer.", c.shape().layers, [&](const std::string& prefix, bool checkpoint) {
        return bert_layer_block(builder("BertLayer", prefix, checkpoint));
      });
  assembler.add_written("", [&](const std::string& prefix, bool checkpoint) {
    return predictions_block(builder("BertOnlyMLMHead", prefix, checkpoint));
  });
}

}  // namespace zeroplan::embedded
