// GPT as Megatron-DeepSpeed writes it, one rank of tensor parallelism: matrix products on slices of
// the weights with an all-reduce behind the row-parallel ones (forward) and before the
// column-parallel ones (backward), scores in memory, softmax with scale and mask in one kernel,
// bias with GELU and bias with dropout and residual in one kernel each, the loss from a part of the
// vocabulary. Activations are (s, b, h).
//
// Sources (bigscience-workshop/Megatron-DeepSpeed): megatron/model/transformer.py
// ParallelTransformerLayer.forward, ParallelAttention.forward, ParallelMLP.forward;
// fused_softmax.py FusedScaleMaskSoftmax; fused_bias_gelu.py; megatron/mpu/mappings.py, layers.py,
// cross_entropy.py; language_model.py Embedding.forward; gpt_model.py GPTModelPipe. Left out:
// gradients of the position table on the last stage, which holds it unused.
#include <utility>

#include "model/implementations/families.hpp"

namespace zeroplan::megatron {

namespace {

using hf::Context;

Shape hidden_shape(const Context& c) { return Shape{c.sequence, c.batch, c.shape().hidden}; }

std::int64_t ranks_of(const Context& c) { return c.options.tensor_parallel; }

void all_reduce(Tape& t, const Context& c, Bytes bytes) {
  if (ranks_of(c) > 1) hf::reduce_among_ranks(t, bytes);
}

// copy_to_tensor_model_parallel_region: nothing forward; the gradient is added up in place.
Tensor copied_to_ranks(Tape& t, const Context& c, const Tensor& x) {
  return ranks_of(c) > 1 ? hf::with_summed_gradient(t, x, x.bytes()) : x;
}

Tensor product(
    Tape& t, const Context& c, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return c.options.zero3_linear ? aten::zero3_linear(t, x, weight, bias)
                                : aten::linear(t, x, weight, bias);
}

// A result whose bias is added later, by a fused kernel.
struct Biased {
  Tensor out, bias;
};

enum class BiasPlace { product, later };

Biased column_parallel(
    Tape& t, const Context& c, std::string_view module, const Tensor& x, BiasPlace place) {
  Tensor in = x;
  const auto scope = t.enter(module, in);
  const Tensor weight = t.module_parameter("weight"), bias = t.module_parameter("bias");
  const Tensor parallel = copied_to_ranks(t, c, in);
  const bool now = place == BiasPlace::product;
  const Tensor out = product(t, c, parallel, weight, now ? bias : Tensor());
  return {t.leave(scope, out), now ? Tensor() : bias};
}

// reduce_from_tensor_model_parallel_region adds up in place; its backward passes the gradient on.
Biased row_parallel(Tape& t, const Context& c, std::string_view module, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter(module, in);
  const Tensor weight = t.module_parameter("weight"), bias = t.module_parameter("bias");
  const Tensor out = product(t, c, in, weight, Tensor());
  all_reduce(t, c, out.bytes());
  return {t.leave(scope, out), bias};
}

// bias_gelu_impl: one kernel each way; keeps its input.
Tensor bias_gelu(Tape& t, const Biased& x) {
  const bool trains = t.trains({&x.out, &x.bias});
  Tensor saved;
  if (trains) saved = t.save(x.out);
  Tensor out = t.empty(x.out.shape(), x.out.dtype());
  t.launch({.name = "bias_gelu", .traffic = x.out.bytes() * 2});
  if (!trains) return out;
  t.record({&out}, {&x.out, &x.bias}, [saved, bias_shape = x.bias.shape()](Backward& b) {
    Tensor gradient = b.tape.empty(saved.shape(), saved.dtype());
    b.tape.launch({.name = "bias_gelu_back", .traffic = saved.bytes() * 3});
    if (b.needs(1)) b.give(1, aten::fit_gradient(b.tape, gradient, bias_shape, gradient.dtype()));
    if (b.needs(0)) b.give(0, std::move(gradient));
  });
  return out;
}

// bias_dropout_add_fused_train: residual + dropout(x + bias) in one kernel, which keeps a byte an
// element.
Tensor bias_dropout_add(Tape& t, const Biased& x, const Tensor& residual) {
  const bool trains = t.trains({&x.out, &x.bias, &residual});
  Tensor out = t.empty(x.out.shape(), x.out.dtype());
  const Tensor mask = t.empty(x.out.shape(), DType::uint8);
  t.launch({.name = "bias_dropout_add", .traffic = out.bytes() * 3 + mask.bytes()});
  if (!trains) return out;
  const Tensor saved = t.save(mask);
  t.record({&out}, {&x.out, &x.bias, &residual}, [saved, bias_shape = x.bias.shape()](Backward& b) {
    if (b.needs(2)) b.give(2, b.gradient());
    Tensor gradient = b.tape.empty(saved.shape(), b.gradient().dtype());
    b.tape.launch({.name = "bias_dropout_back", .traffic = gradient.bytes() * 2 + saved.bytes()});
    if (b.needs(1)) {
      b.give(1, aten::fit_gradient(b.tape, gradient, bias_shape, gradient.dtype()));
    }
    if (b.needs(0)) b.give(0, std::move(gradient));
  });
  return out;
}

// FusedScaleMaskSoftmax.is_kernel_available: rows of 17 to 4096 keys in groups of four.
bool has_fused_softmax(const Context& c) {
  constexpr std::int64_t kFewest = 16, kMost = 4096, kGroup = 4;
  const std::int64_t heads = c.batch * c.shape().heads / ranks_of(c);
  return c.sequence > kFewest && c.sequence <= kMost && c.sequence % kGroup == 0 &&
         heads % kGroup == 0;
}

// ScaledUpperTriangMaskedSoftmax keeps its result and writes the gradient over the incoming one.
Tensor fused_softmax(Tape& t, const Tensor& scores) {
  Tensor out = t.empty(scores.shape(), scores.dtype());
  t.launch(
      {.name = "scaled_masked_softmax", .kind = OpKind::softmax, .traffic = scores.bytes() * 2});
  if (!t.trains({&scores})) return out;
  const Tensor saved = t.save(out);
  t.record({&out}, {&scores}, [saved](Backward& b) {
    b.tape.launch({.name = "scaled_masked_softmax_back",
                   .kind = OpKind::softmax,
                   .traffic = saved.bytes() * 3});
    b.give(0, b.gradient());
  });
  return out;
}

Tensor softmax(Tape& t, const Context& c, const Tensor& scores) {
  if (has_fused_softmax(c)) return fused_softmax(t, scores);
  const Tensor mask = t.buffer(Shape{1, c.sequence, c.sequence}, DType::uint8);
  const Tensor masked = aten::masked_fill(t, scores, mask);
  return aten::softmax(t, masked);
}

// The (b heads, s, s) scores. Without ALiBi an empty tensor is made for torch.baddbmm's first
// argument and not read; with it the bias is copied into the result first.
Tensor scores_of(Tape& t, const Context& c, const Tensor& query, const Tensor& key) {
  const std::int64_t rows = query.size(0), s = c.sequence;
  if (c.shape().position != PositionKind::alibi) {
    const Tensor unused = t.empty(Shape{rows, s, s}, t.dtype());
    return aten::baddbmm(t, t.buffer(Shape{1, 1, 1}, t.dtype()), query, key);
  }
  const Bytes written = Elements::of(rows * s * s) * t.dtype();
  t.launch({.name = "copy_", .kind = OpKind::copy, .traffic = written});
  return aten::baddbmm(t, t.buffer(Shape{rows, 1, s}, t.dtype()), query, key);
}

Biased attention(Tape& t, const Context& c, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter("self_attention", in);
  const TransformerShape& shape = c.shape();
  const std::int64_t heads = shape.heads / ranks_of(c), d = shape.head_dim;
  const std::int64_t rows = c.batch * heads;
  Tensor mixed = column_parallel(t, c, "query_key_value", in, BiasPlace::product).out;
  mixed = aten::view(t, mixed, Shape{c.sequence, c.batch, heads, 3 * d});
  std::vector<Tensor> parts = aten::split(t, mixed, {d, d, d}, -1);
  const auto by_rows = [&](const Tensor& part) {
    return aten::view(t, part, Shape{c.sequence, rows, d});
  };
  Tensor query = by_rows(parts[0]), key = by_rows(parts[1]);
  const Tensor value = by_rows(parts[2]);
  parts.clear();
  query = aten::transpose(t, query, 0, 1);
  key = aten::transpose(t, key, 0, 1);
  key = aten::transpose(t, key, 1, 2);
  const Tensor scores = scores_of(t, c, query, key);
  Tensor probabilities = softmax(t, c, scores);
  probabilities = aten::dropout(t, probabilities, shape.attention_dropout);
  Tensor context;
  {
    const Tensor values = aten::transpose(t, value, 0, 1);
    context = aten::bmm(t, probabilities, values);
  }
  context = aten::view(t, context, Shape{c.batch, heads, c.sequence, d});
  context = aten::transpose(t, context, 1, 2);
  context = aten::transpose(t, context, 0, 1);  // (s, b, heads, d)
  context = aten::contiguous(t, context);
  context = aten::view(t, context, Shape{c.sequence, c.batch, heads * d});
  Biased out = row_parallel(t, c, "dense", context);
  out.out = t.leave(scope, out.out);
  return out;
}

Biased feed_forward(Tape& t, const Context& c, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter("mlp", in);
  Tensor inner;
  {
    const Biased up = column_parallel(t, c, "dense_h_to_4h", in, BiasPlace::later);
    inner = bias_gelu(t, up);
  }
  Biased out = row_parallel(t, c, "dense_4h_to_h", inner);
  out.out = t.leave(scope, out.out);
  return out;
}

Tensor layer(Tape& t, const Context& c) {
  Tensor hidden = t.input(hidden_shape(c));
  const auto scope = t.enter("", hidden);
  Tensor normed = hf::layer_norm(t, "input_layernorm", hidden);
  const Biased attended = attention(t, c, normed);
  const Tensor middle = bias_dropout_add(t, attended, hidden);
  normed = hf::layer_norm(t, "post_attention_layernorm", middle);
  const Biased fed = feed_forward(t, c, normed);
  const Tensor out = bias_dropout_add(t, fed, middle);
  return t.leave(scope, out);
}

// VocabParallelEmbedding: rows of other ranks' words are set to zero and the ranks' results added.
Tensor word_embedding(Tape& t, const Context& c) {
  const auto scope = t.enter("language_model.embedding.word_embeddings");
  const Tensor weight = t.module_parameter("weight");
  if (hf::is_tied_here(c)) t.tie(weight, {.first = false, .last = true, .in_place = true});
  Tensor out = aten::embedding(t, Shape{c.batch, c.sequence}, weight);
  if (ranks_of(c) > 1) {
    t.launch({.name = "index_put_", .kind = OpKind::scatter, .traffic = out.bytes()});
    if (t.trains({&out})) {
      const Tensor before = out;
      t.record({&out}, {&before}, [](Backward& b) {
        Tensor gradient = b.tape.empty(b.gradient().shape().as_contiguous(), b.gradient().dtype());
        b.tape.launch({.name = "index_put",
                       .kind = OpKind::copy,
                       .traffic = gradient.bytes() * 3,
                       .kernels = 2});
        b.give(0, std::move(gradient));
      });
    }
  }
  all_reduce(t, c, out.bytes());
  if (t.has_parameter("norm", "weight")) out = hf::layer_norm(t, "norm", out);
  return t.leave(scope, out);
}

Tensor embedding(Tape& t, const Context& c) {
  Tensor out = word_embedding(t, c);
  if (c.shape().position == PositionKind::learned) {
    const auto scope = t.enter("language_model.embedding.position_embeddings");
    Tensor positions = aten::embedding(t, Shape{c.batch, c.sequence}, t.module_parameter("weight"));
    positions = t.leave(scope, positions);
    out = aten::add(t, out, positions);
  }
  out = aten::dropout(t, out, c.shape().embedding_dropout);
  out = aten::transpose(t, out, 0, 1);
  return aten::contiguous(t, out);
}

// vocab_parallel_cross_entropy: in place on fp32 logits, which become the softmax, which becomes
// their gradient; three small all-reduces.
Tensor vocabulary_loss(Tape& t, const Context& c, const Tensor& logits) {
  const Bytes all = logits.bytes();
  const Bytes a_row = Elements::of(c.batch * c.sequence) * DType::fp32;
  t.launch({.name = "max", .kind = OpKind::reduction, .traffic = all});
  all_reduce(t, c, a_row);
  t.launch({.name = "sub_", .traffic = all * 2});
  t.launch({.name = "index", .kind = OpKind::gather, .traffic = a_row * 2, .kernels = 4});
  all_reduce(t, c, a_row);
  t.launch({.name = "exp", .traffic = all * 2});
  t.launch({.name = "sum", .kind = OpKind::reduction, .traffic = all});
  all_reduce(t, c, a_row);
  t.launch({.name = "div_", .traffic = all * 2});
  Tensor loss = t.empty(Shape{}, DType::fp32);
  t.launch({.name = "sum", .kind = OpKind::reduction, .traffic = a_row, .kernels = 3});
  if (t.trains({&logits})) {
    const Tensor softmax = t.save(logits);
    t.record({&loss}, {&logits}, [softmax](Backward& b) {
      b.tape.launch({.name = "index_put_",
                     .kind = OpKind::scatter,
                     .traffic = Bytes::of(softmax.bytes().count() / softmax.size(-1)),
                     .kernels = 2});
      b.tape.launch({.name = "mul_", .traffic = softmax.bytes() * 2});
      b.give(0, softmax);
    });
  }
  return loss;
}

Tensor head(Tape& t, const Context& c) {
  Tensor hidden = t.input(hidden_shape(c));
  hidden = aten::transpose(t, hidden, 0, 1);
  hidden = aten::contiguous(t, hidden);
  t.forget_input();
  hidden = hf::layer_norm(t, "language_model.encoder.final_layernorm", hidden);
  t.set_category(MemoryCategory::logits);
  const auto scope = t.enter("lm_logits", hidden);
  const Tensor weight = t.parameter("language_model.embedding.word_embeddings.weight");
  if (hf::is_tied_here(c)) t.tie(weight, {.first = true, .last = false});
  const Tensor parallel = copied_to_ranks(t, c, hidden);
  Tensor logits = product(t, c, parallel, weight, Tensor());
  logits = t.leave(scope, logits);
  logits = aten::to(t, logits, DType::fp32);
  return vocabulary_loss(t, c, logits);
}

}  // namespace

void build(GraphAssembler& assembler, const Context& c) {
  const TransformerShape& shape = c.shape();
  assembler.set_hidden(hidden_shape(c));
  assembler.assume("megatron: dropout 0.1 everywhere, the default of its arguments");
  if (shape.position == PositionKind::alibi) {
    // Every layer has its own.
    const std::int64_t layers = c.options.stage.stages > 1 ? c.options.stage.layers : shape.layers;
    assembler.add_buffers(
        Elements::of(layers * c.batch * (shape.heads / ranks_of(c)) * c.sequence) *
        c.options.dtype);
  }
  assembler.add("GPT inputs", "", [&](Tape& t) { return embedding(t, c); });
  assembler.add_layers(
      "ParallelTransformerLayer", "language_model.encoder.layers.", shape.layers, [&](Tape& t) {
        return layer(t, c);
      });
  if (c.options.stage.is_last()) {
    assembler.keep_outputs(Elements::of(c.batch * c.sequence * (shape.vocabulary / ranks_of(c))) *
                           DType::fp32);
  }
  assembler.add("GPT head", "", [&](Tape& t) { return head(t, c); });
}

}  // namespace zeroplan::megatron
