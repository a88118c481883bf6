// modeling_t5 (and modeling_mt5, its copy): an encoder and a decoder, attention with a bias by
// distance, RMS norms, no biases, eager attention only.
//
// Three tensors cross the blocks and carry a gradient back: each stack's position bias, which its
// first block makes for all, and the encoder's output, which every decoder block reads twice.
#include <string>
#include <utility>

#include "model/implementations/families.hpp"

namespace zeroplan::hf {

namespace {

using Place = GraphAssembler::Place;

std::int32_t number(Slot slot) { return static_cast<std::int32_t>(slot); }

// Where a block stands, and which of the shared tensors want a gradient.
struct Stack {
  bool decoder = false;
  bool bias_trains = true;
  bool encoder_trains = true;
  Place place;

  Slot bias() const { return decoder ? Slot::decoder_position_bias : Slot::position_bias; }
  bool alone() const { return place.first && place.last; }
};

Shape score_shape(const Context& c) {
  return Shape{c.batch, c.shape().heads, c.sequence, c.sequence};
}

// T5LayerNorm.forward
Tensor t5_norm(Tape& t, std::string_view module, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter(module, in);
  Tensor out;
  {
    Tensor variance = aten::to(t, in, DType::fp32);
    variance = aten::pow(t, variance, 2);
    variance = aten::mean_last(t, variance);
    Tensor factor = aten::shift(t, variance);
    factor = aten::rsqrt(t, factor);
    Tensor hidden = aten::mul(t, in, factor);
    factor = Tensor();
    hidden = aten::to(t, hidden, x.dtype());
    out = aten::mul(t, t.module_parameter("weight"), hidden);
  }
  return t.leave(scope, out);
}

// T5Attention._relative_position_bucket on an int64 (s, s) of distances, without autograd.
Tensor position_buckets(Tape& t, const Tensor& distances, bool bidirectional) {
  const auto make = [&](std::string_view name, DType dtype) {
    Tensor out = t.empty(distances.shape(), dtype);
    t.launch({.name = name, .traffic = distances.bytes() + out.bytes()});
    return out;
  };
  Tensor buckets, distance = distances;
  if (bidirectional) {
    buckets = make("gt", DType::boolean);
    buckets = make("_to_copy", DType::int64);
    buckets = make("mul", DType::int64);
    distance = make("abs", DType::int64);
  } else {
    {
      const Tensor zeros = make("zeros_like", DType::int64);
      distance = make("minimum", DType::int64);
    }
    distance = make("neg", DType::int64);
  }
  const Tensor small = make("lt", DType::boolean);
  Tensor large = make("_to_copy", DType::fp32);
  for (const char* name : {"div", "log", "div", "mul"}) large = make(name, DType::fp32);
  large = make("_to_copy", DType::int64);
  large = make("add", DType::int64);
  {
    const Tensor last = make("full_like", DType::int64);
    large = make("minimum", DType::int64);
  }
  const Tensor chosen = make("where", DType::int64);
  if (!bidirectional) return make("add", DType::int64);
  t.launch({.name = "add_", .traffic = buckets.bytes() * 3});
  return buckets;
}

// T5Attention.compute_bias: (1, heads, s, s), a view of the embedding's (s, s, heads)
Tensor relative_bias(Tape& t, const Context& c, bool bidirectional) {
  Tensor values;
  {
    const Tensor distances = t.empty(Shape{c.sequence, c.sequence}, DType::int64);
    t.launch({.name = "sub", .traffic = distances.bytes()});
    const Tensor buckets = position_buckets(t, distances, bidirectional);
    const auto scope = t.enter("relative_attention_bias");
    values = aten::embedding(t, buckets, t.module_parameter("weight"));
    values = t.leave(scope, values);
  }
  values = aten::transpose(t, values, 1, 2);
  values = aten::transpose(t, values, 0, 1);
  values = aten::unsqueeze(t, values, 0);
  return aten::slice(t, values, 2, c.sequence);
}

// The encoder's mask is (b, 1, 1, s): kilobytes, not followed.
Tensor padding_mask(Tape& t, const Context& c) {
  return t.buffer(Shape{c.batch, 1, 1, c.sequence}, t.dtype());
}

// The bias that a stack's first block makes of distances and mask.
Tensor self_bias(Tape& t, const Context& c, const Stack& stack) {
  const std::int32_t slot = number(stack.bias());
  if (!stack.place.first) {
    return stack.bias_trains
               ? t.shared_with_gradient(slot, score_shape(c), t.dtype(), stack.place.last)
               : t.shared(slot, score_shape(c), t.dtype());
  }
  const Tensor bias = relative_bias(t, c, !stack.decoder);
  const Tensor blocked = stack.decoder ? mask(t, c) : padding_mask(t, c);
  Tensor sum = aten::add(t, bias, blocked);
  if (!stack.alone()) t.share_with_gradient(slot, sum);
  return sum;
}

// Cross attention knows no distances: zeros and the encoder's mask. With checkpointing the class
// asks for the gradient of the zeros, which then live until it has come.
Tensor cross_bias(Tape& t, const Context& c, const Stack& stack) {
  const std::int32_t slot = number(Slot::cross_position_bias);
  const bool trains = c.options.checkpointing == ActivationCheckpointing::full;
  if (!stack.place.first) {
    return trains ? t.shared_with_gradient(slot, score_shape(c), t.dtype(), stack.place.last)
                  : t.shared(slot, score_shape(c), t.dtype());
  }
  Tensor zeros = t.empty(Shape{1, c.shape().heads, c.sequence, c.sequence}, t.dtype());
  t.launch({.name = "zeros", .kind = OpKind::fill, .traffic = zeros.bytes()});
  if (trains) {
    Tensor leaf = zeros;
    t.require_grad(leaf);
    if (t.trains({&leaf})) {
      // the accumulation of a leaf's gradient refers to the leaf
      t.record({&zeros}, {&leaf}, [kept = t.save(zeros)](Backward&) {});
    }
  }
  Tensor sum = aten::add(t, zeros, padding_mask(t, c));
  if (!stack.alone()) t.share_with_gradient(slot, sum);
  return sum;
}

// T5Attention.forward; `states` gives what keys and values are made of, once for each.
template <typename States, typename Bias>
Tensor attention_module(Tape& t,
                        const Context& c,
                        std::string_view module,
                        const Tensor& hidden,
                        const States& states,
                        const Bias& bias,
                        bool caches) {
  Tensor in = hidden;
  const auto scope = t.enter(module, in);
  const std::int64_t heads = c.shape().heads;
  Tensor out;
  {
    Tensor query = linear(t, c, "q", in);
    query = split_heads(t, query, heads);
    Tensor key = linear(t, c, "k", states(in));
    Tensor value = linear(t, c, "v", states(in));
    key = split_heads(t, key, heads);
    value = split_heads(t, value, heads);
    if (caches) update_cache(t, c, key, value);
    Tensor scores;
    {
      const Tensor transposed = aten::transpose(t, key, 3, 2);
      scores = aten::matmul(t, query, transposed);
    }
    const Tensor position_bias = bias();
    scores = aten::add_in_place(t, scores, position_bias);
    Tensor weights;
    {
      const Tensor upcast = aten::to(t, scores, DType::fp32);
      weights = aten::softmax(t, upcast);
    }
    weights = aten::to(t, weights, scores.dtype());
    weights = aten::dropout(t, weights, c.shape().attention_dropout);
    out = aten::matmul(t, weights, value);
    out = aten::transpose(t, out, 1, 2);
    out = aten::contiguous(t, out);
    out = merge_heads(t, out);
    out = linear(t, c, "o", out);
  }
  return t.leave(scope, out);
}

// T5LayerSelfAttention and T5LayerCrossAttention
Tensor attention_layer(Tape& t, const Context& c, const Stack& stack, bool cross, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter(cross ? "layer.1" : "layer.0", in);
  Tensor out;
  {
    const Tensor normed = t5_norm(t, "layer_norm", in);
    Tensor attended;
    if (cross) {
      const auto encoder_states = [&](const Tensor&) {
        const std::int32_t slot = number(Slot::encoder_states);
        return stack.encoder_trains
                   ? t.shared_with_gradient(slot, c.hidden_shape(), t.dtype(), stack.place.last)
                   : t.shared(slot, c.hidden_shape(), t.dtype());
      };
      attended = attention_module(
          t,
          c,
          "EncDecAttention",
          normed,
          encoder_states,
          [&] { return cross_bias(t, c, stack); },
          true);
    } else {
      attended = attention_module(
          t,
          c,
          "SelfAttention",
          normed,
          [](const Tensor& own) { return own; },
          [&] { return self_bias(t, c, stack); },
          stack.decoder);
    }
    const Tensor dropped = dropout(t, "dropout", attended, c.shape().hidden_dropout);
    out = aten::add(t, in, dropped);
  }
  return t.leave(scope, out);
}

// T5DenseActDense, T5DenseGatedActDense
Tensor dense(Tape& t, const Context& c, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter("DenseReluDense", in);
  Tensor out;
  {
    Tensor hidden, gate, straight;
    if (c.shape().gated_mlp) {
      hidden = linear(t, c, "wi_0", in);
      gate = activation(t, c.shape().activation, hidden);
      hidden = Tensor();
      straight = linear(t, c, "wi_1", in);
      hidden = aten::mul(t, gate, straight);
    } else {
      hidden = linear(t, c, "wi", in);
      hidden = activation(t, c.shape().activation, hidden);
    }
    hidden = dropout(t, "dropout", hidden, c.shape().hidden_dropout);
    out = linear(t, c, "wo", hidden);
  }
  return t.leave(scope, out);
}

// T5LayerFF
Tensor feed_forward(Tape& t, const Context& c, std::string_view module, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter(module, in);
  Tensor out;
  {
    Tensor forwarded = t5_norm(t, "layer_norm", in);
    forwarded = dense(t, c, forwarded);
    const Tensor dropped = dropout(t, "dropout", forwarded, c.shape().hidden_dropout);
    out = aten::add(t, in, dropped);
  }
  return t.leave(scope, out);
}

// fp16 only: torch.clamp by a value that depends on whether something is infinite.
Tensor clamped(Tape& t, const Tensor& x) {
  if (x.dtype() != DType::fp16) return x;
  {
    const Tensor infinite = t.empty(x.shape(), DType::boolean);
    t.launch({.name = "isinf", .traffic = x.bytes() + infinite.bytes(), .kernels = 3});
  }
  const bool trains = t.trains({&x});
  const Tensor saved = trains ? t.save(x) : Tensor();
  Tensor out = t.empty(x.shape(), x.dtype());
  t.launch({.name = "clamp", .traffic = x.bytes() * 2});
  if (trains) {
    t.record({&out}, {&x}, [saved](Backward& b) {
      // clamp_backward: where(self >= min and self <= max, grad, 0)
      const Tensor inside = b.tape.empty(saved.shape(), DType::boolean);
      b.tape.launch({.name = "logical_and", .traffic = saved.bytes() * 2, .kernels = 3});
      Tensor gradient = b.tape.empty(saved.shape(), saved.dtype());
      b.tape.launch({.name = "where", .traffic = gradient.bytes() * 2 + inside.bytes()});
      b.give(0, std::move(gradient));
    });
  }
  return out;
}

// T5Block.forward
Tensor block(Tape& t, const Context& c, const Stack& stack) {
  Tensor hidden = t.input(c.hidden_shape());
  const auto scope = t.enter("", hidden);
  hidden = attention_layer(t, c, stack, false, hidden);
  hidden = clamped(t, hidden);
  if (stack.decoder) {
    // The stack's frame has the causal mask to its end.
    if (!stack.place.first) mask(t, c);
    hidden = attention_layer(t, c, stack, true, hidden);
    hidden = clamped(t, hidden);
  }
  hidden = feed_forward(t, c, stack.decoder ? "layer.2" : "layer.1", hidden);
  hidden = clamped(t, hidden);
  return t.leave(scope, hidden);
}

// The one embedding is used by the encoder, the decoder and, tied, the head: their gradients meet
// from the last to the first.
Tensor inputs(Tape& t, const Context& c, bool decoder) {
  Tensor hidden;
  {
    const auto scope = t.enter("shared");
    const Tensor weight = t.module_parameter("weight");
    // The encoder's part meets a sum, or the decoder's own.
    t.tie(weight,
          {.first = decoder && !c.shape().tied_embeddings,
           .last = !decoder,
           .in_place = !decoder || head_gradient_is_owned(c)});
    if (decoder) {  // _shift_right(labels)
      const Tensor ids = t.empty(Shape{c.batch, c.sequence}, DType::int64);
      t.launch({.name = "copy_", .kind = OpKind::copy, .traffic = ids.bytes() * 3, .kernels = 4});
      hidden = aten::embedding(t, ids, weight);
    } else {
      hidden = aten::embedding(t, Shape{c.batch, c.sequence}, weight);
    }
    if (c.options.lora && c.options.checkpointing != ActivationCheckpointing::none)
      t.require_grad(hidden);
    hidden = t.leave(scope, hidden);
  }
  if (decoder) share_mask(t, c);
  return dropout(
      t, decoder ? "decoder.dropout" : "encoder.dropout", hidden, c.shape().embedding_dropout);
}

Tensor stack_output(Tape& t, const Context& c, const std::string& stack) {
  Tensor hidden = t.input(c.hidden_shape());
  hidden = t5_norm(t, stack + ".final_layer_norm", hidden);
  return dropout(t, stack + ".dropout", hidden, c.shape().hidden_dropout);
}

bool trainable(const Model& model, const std::string& name) {
  for (const Parameter& parameter : model.parameters) {
    if (parameter.name == name) return parameter.trainable;
  }
  return false;
}

void add_stack(GraphAssembler& assembler, const Context& c, Stack stack) {
  const std::string name = stack.decoder ? "decoder" : "encoder";
  stack.bias_trains =
      trainable(c.model, name + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight");
  assembler.begin_stack();
  assembler.add(
      "T5Stack " + name + " inputs", "", [&](Tape& t) { return inputs(t, c, stack.decoder); });
  assembler.add_placed_layers("T5Block " + name,
                              name + ".block.",
                              stack.decoder ? c.shape().layers : c.shape().encoder_layers,
                              [&](Tape& t, Place place) {
                                Stack here = stack;
                                here.place = place;
                                return block(t, c, here);
                              });
}

}  // namespace

void build_t5(GraphAssembler& assembler, const Context& given) {
  Context c = given;
  c.attention = Attention::eager;
  if (given.attention == Attention::flash) {
    assembler.assume("T5 has eager attention only: flash attention is not applied.");
  }
  assembler.assume("Source and target both have the sequence length.");
  add_stack(assembler, c, {});
  assembler.add("T5Stack encoder output", "", [&](Tape& t) {
    Tensor states = stack_output(t, c, "encoder");
    t.share_with_gradient(number(Slot::encoder_states), states);
    return states;
  });
  Stack decoder;
  decoder.decoder = true;
  decoder.encoder_trains = assembler.gradient_flows();
  add_stack(assembler, c, decoder);
  assembler.add("T5ForConditionalGeneration head", "", [&](Tape& t) {
    const Tensor output = stack_output(t, c, "decoder");  // decoder_outputs keeps it to the end
    Tensor hidden = output;
    if (c.shape().tied_embeddings) hidden = aten::scale(t, hidden);
    return causal_loss(t, c, {"lm_head", "shared", LossCode::unshifted_in_model}, hidden);
  });
}

}  // namespace zeroplan::hf
