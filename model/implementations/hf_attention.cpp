// Attention by implementation and version, rotary positions and masks.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "model/implementations/hf_common.hpp"
#include "model/implementations/hf_sdpa.hpp"

namespace zeroplan::hf {

// --- attention ---

SdpaBackend sdpa_backend(const Context& c, bool has_mask, std::int64_t head_dim, bool equal_heads) {
  const DType dtype = c.compute_dtype();
  const bool half = width(dtype) == 2;
  // sdp_utils.cpp: can_use_flash_attention, can_use_mem_efficient_attention
  const bool bf16_hardware = dtype != DType::bf16 || c.options.compute_capability >= 80;
  if (half && c.options.compute_capability >= 80 && !has_mask && head_dim <= 256 && equal_heads) {
    return SdpaBackend::flash;
  }
  if (equal_heads && bf16_hardware && c.options.compute_capability >= 50) {
    return SdpaBackend::mem_efficient;
  }
  return SdpaBackend::math;
}

Context with_sdpa_where(Context c, ReleaseRule has_sdpa) {
  const bool eager = c.attention == Attention::sdpa && !c.acts(has_sdpa);
  if (eager) c.attention = Attention::eager;
  return c;
}

Tensor split_heads(Tape& t, const Tensor& x, std::int64_t heads) {
  const Tensor parts = aten::view(t, x, Shape{x.size(0), x.size(1), heads, x.size(2) / heads});
  return aten::transpose(t, parts, 1, 2);
}

Tensor merge_heads(Tape& t, const Tensor& x) {
  return aten::reshape(t, x, Shape{x.size(0), x.size(1), x.size(2) * x.size(3)});
}

Tensor repeat_kv(Tape& t, const Tensor& x, std::int64_t heads) {
  const std::int64_t kv = x.size(1);
  if (kv == heads) return x;
  Tensor out = aten::unsqueeze(t, x, 2);
  out = aten::expand(t, out, Shape{x.size(0), kv, heads / kv, x.size(2), x.size(3)});
  return aten::reshape(t, out, Shape{x.size(0), heads, x.size(2), x.size(3)});
}

namespace {

Tensor mask_of(Tape& t, const Context& c, const AttentionArguments& arguments) {
  if (arguments.mask.has_value()) return *arguments.mask;
  return needs_mask(c) ? mask(t, c) : Tensor();
}

}  // namespace

// eager_attention_forward of modeling_llama (4.48), the body of the attention classes before.
Tensor eager_attention(Tape& t,
                       const Context& c,
                       const Tensor& q,
                       const Tensor& k,
                       const Tensor& v,
                       const AttentionArguments& arguments) {
  const Tensor keys = repeat_kv(t, k, q.size(1));
  const Tensor values = repeat_kv(t, v, q.size(1));
  const Tensor transposed = aten::transpose(t, keys, 2, 3);
  Tensor scores = aten::matmul(t, q, transposed);
  scores = aten::scale(t, scores);
  if (arguments.softcap) {
    scores = aten::scale(t, scores, "div");
    scores = aten::tanh(t, scores);
    scores = aten::scale(t, scores);
  }
  const Tensor causal = mask_of(t, c, arguments);
  if (causal.defined()) {
    scores = aten::add(t, scores, causal);
    // Before 4.31: torch.max(attn_weights, torch.tensor(torch.finfo(dtype).min))
    if (!c.acts(ReleaseRule::masks_scores_once)) scores = aten::maximum_scalar(t, scores);
  }
  if (arguments.fp32_softmax) {
    // One expression: the scores live until its value is bound to their variable.
    const Tensor probabilities = aten::softmax(t, scores, DType::fp32);
    scores = aten::to(t, probabilities, q.dtype());
  } else {
    scores = aten::softmax(t, scores);
  }
  scores = aten::dropout(t, scores, arguments.dropout);
  // hidden_states, self_attn_weights = self.self_attn(...)
  if (c.acts(ReleaseRule::shares_attention_code)) t.hold_in_layer(scores);
  Tensor out = aten::matmul(t, scores, values);
  out = aten::transpose(t, out, 1, 2);
  return aten::contiguous(t, out);
}

// What F.scaled_dot_product_attention decides by its tensors.
aten::Sdpa sdpa_options(
    const Context& c, const Tensor& q, const Tensor& k, const Tensor& v, const SdpaCall& call) {
  aten::Sdpa options;
  const bool equal_heads = k.size(1) == q.size(1);
  options.backend = sdpa_backend(c, call.masked, q.size(3), equal_heads || call.enable_gqa);
  // check_head_dim_size_flash: queries, keys and values of one size. On Hopper torch 2.11 takes
  // cuDNN's kernel (check_prefer_cudnn_attention), which has no such rule.
  const int generation = c.options.compute_capability / 10;
  const bool cudnn = (generation == 9 || generation == 10) &&
                     c.options.torch_acts(ReleaseRule::prefers_cudnn_attention);
  if (options.backend == SdpaBackend::flash && v.size(3) != q.size(3) && !cudnn) {
    options.backend = SdpaBackend::mem_efficient;
  }
  // check_attn_mask_shape: no fused kernel takes a mask that requires a gradient.
  if (call.mask_trains) options.backend = SdpaBackend::math;
  options.enable_gqa = !equal_heads && call.enable_gqa;
  // can_use_mem_efficient_attention: up to torch 2.13 check_batch_size_and_num_heads_dense<false>,
  // so that of the fused kernels only flash takes grouped heads
  if (options.enable_gqa && options.backend == SdpaBackend::mem_efficient &&
      !c.options.torch_acts(ReleaseRule::mem_efficient_groups_heads)) {
    options.backend = SdpaBackend::math;
  }
  options.causal = call.causal && !call.masked;
  options.dropout = call.dropout;
  options.deterministic = c.options.deterministic;
  options.math_in_fp32 = c.options.torch_acts(ReleaseRule::math_attention_in_fp32);
  options.guards_in_place = c.options.torch_acts(ReleaseRule::safe_softmax_in_place);
  return options;
}

namespace {

// integrations/sdpa_attention.py and the *SdpaAttention classes before 4.48.
Tensor sdpa_attention(
    Tape& t, const Context& c, Tensor q, Tensor k, Tensor v, const AttentionArguments& arguments) {
  const Tensor causal = mask_of(t, c, arguments);
  const bool masked = causal.defined();
  // use_gqa_in_sdpa: since 4.54, torch 2.5, without a mask
  const bool grouped = c.acts(ReleaseRule::groups_heads_in_sdpa) &&
                       c.options.torch_acts(ReleaseRule::sdpa_groups_heads) && !masked;
  if (!grouped) {
    k = repeat_kv(t, k, q.size(1));
    v = repeat_kv(t, v, q.size(1));
  }
  // 4.48-4.55 make q, k and v contiguous always, older versions with a mask, newer ones never.
  const bool interface = c.acts(ReleaseRule::shares_attention_code);
  const bool copies = interface ? !c.acts(ReleaseRule::attention_keeps_views) : masked;
  if (copies) {
    q = aten::contiguous(t, q);
    k = aten::contiguous(t, k);
    v = aten::contiguous(t, v);
  }
  SdpaCall call;
  call.masked = masked;
  call.causal = arguments.causal;
  call.dropout = arguments.dropout;
  const aten::Sdpa options = sdpa_options(c, q, k, v, call);
  Tensor out = aten::scaled_dot_product_attention(t, q, k, v, causal, options);
  out = aten::transpose(t, out, 1, 2);
  return aten::contiguous(t, out);
}

}  // namespace

Tensor attention(Tape& t,
                 const Context& c,
                 const Tensor& q,
                 const Tensor& k,
                 const Tensor& v,
                 const AttentionArguments& arguments) {
  switch (c.attention) {
    case Attention::eager:
      return eager_attention(t, c, q, k, v, arguments);
    case Attention::sdpa:
      return sdpa_attention(t, c, q, k, v, arguments);
    case Attention::flash: {
      // flash_attn_func: any strides, grouped heads, the output like the queries
      aten::Sdpa options;
      options.causal = arguments.causal;
      options.dropout = arguments.dropout;
      options.deterministic = c.options.deterministic;
      const Tensor out = aten::scaled_dot_product_attention(t, q, k, v, Tensor(), options);
      return aten::transpose(t, out, 1, 2);
    }
  }
  return {};
}

// --- rotary positions ---

namespace {

// LlamaRotaryEmbedding.forward (no_grad): fp32 angles, then the two tables in the dtype of what it
// is given.
RotaryTables make_rotary_tables(Tape& t, const Context& c, DType dtype) {
  const Shape half{1, c.sequence, c.shape().rotary_dim / 2};
  const Shape whole{1, c.sequence, c.shape().rotary_dim};
  Tensor table = t.empty(half, DType::fp32);
  t.launch({.name = "bmm", .traffic = table.bytes(), .library = Library::cublas});
  {
    Tensor angles = t.empty(whole, DType::fp32);
    t.launch({.name = "cat", .kind = OpKind::copy, .traffic = angles.bytes() * 2});
    table = std::move(angles);
  }
  const auto make = [&](std::string_view name) {
    Tensor values = t.empty(whole, DType::fp32);
    t.launch({.name = name, .traffic = values.bytes() * 2});
    return aten::scale(t, values);  // * attention_scaling
  };
  Tensor cos = make("cos");
  Tensor sin = make("sin");
  cos = aten::to(t, cos, dtype);
  sin = aten::to(t, sin, dtype);
  return {std::move(cos), std::move(sin)};
}

}  // namespace

// The model passes position_embeddings to its layers since 4.45.
bool shares_rotary_tables(const Context& c) { return c.acts(ReleaseRule::shares_rotary_tables); }

bool turns_in_fp32(const Context& c) {
  const std::string_view type = c.model.model_type;
  return (type == "olmo" || type == "olmo2") && c.acts(ReleaseRule::olmo_turns_in_fp32);
}

namespace {

// Of hidden states, or what the class leaves them in.
DType shared_table_dtype(const Tape& t, const Context& c) {
  return turns_in_fp32(c) ? DType::fp32 : t.dtype();
}

}  // namespace

void share_rotary_tables(Tape& t, const Context& c, Slot cos, Slot sin) {
  const auto scope = t.enter("model.rotary_emb");
  const RotaryTables tables = make_rotary_tables(t, c, shared_table_dtype(t, c));
  t.share(static_cast<std::int32_t>(cos), tables.cos);
  t.share(static_cast<std::int32_t>(sin), tables.sin);
  t.leave(scope, Tensor());
}

RotaryTables shared_rotary_tables(Tape& t, const Context& c, Slot cos, Slot sin) {
  const Shape shape{1, c.sequence, c.shape().rotary_dim};
  const DType dtype = shared_table_dtype(t, c);
  const RotaryTables tables = {t.shared(static_cast<std::int32_t>(cos), shape, dtype),
                               t.shared(static_cast<std::int32_t>(sin), shape, dtype)};
  return {aten::unsqueeze(t, tables.cos, 1), aten::unsqueeze(t, tables.sin, 1)};
}

RotaryTables own_rotary_tables(Tape& t, const Context& c) {
  const auto scope = t.enter("rotary_emb");
  const RotaryTables tables = make_rotary_tables(t, c, c.compute_dtype());  // of values
  t.leave(scope, Tensor());
  return {aten::unsqueeze(t, tables.cos, 1), aten::unsqueeze(t, tables.sin, 1)};
}

RotaryTables layer_rotary_tables(Tape& t, const Context& c) {
  return shares_rotary_tables(c) ? shared_rotary_tables(t, c, Slot::cos, Slot::sin)
                                 : own_rotary_tables(t, c);
}

namespace {

Tensor rotate_half(Tape& t, const Tensor& x) {
  const std::int64_t half = x.size(-1) / 2;
  const Tensor first = aten::slice(t, x, -1, half);
  const Tensor second = aten::slice(t, x, -1, half);
  const Tensor negated = aten::neg(t, second);
  return aten::cat(t, {&negated, &first}, -1);
}

}  // namespace

Tensor apply_rotary(Tape& t, const Tensor& x, const RotaryTables& tables) {
  const Tensor left = aten::mul(t, x, tables.cos);
  Tensor right = rotate_half(t, x);
  right = aten::mul(t, right, tables.sin);
  return aten::add(t, left, right);
}

void keep_pair(Tape& t, const Context& c, const Tensor& key, const Tensor& value) {
  if (!c.options.use_cache || c.options.checkpointing != ActivationCheckpointing::none) return;
  t.hold(key);
  t.hold(value);
}

// Through 4.55 the first update of the cache keeps references: new bytes only where attention saves
// copies of keys and values. From 4.56 on it concatenates them to an empty tensor: copies, which
// attention then uses (cache_utils.py, DynamicLayer.update).
void update_cache(Tape& t, const Context& c, Tensor& key, Tensor& value) {
  if (!c.options.use_cache || c.options.checkpointing != ActivationCheckpointing::none) return;
  if (c.acts(ReleaseRule::cache_concatenates)) {
    key = aten::cat(t, {&key}, -2);
    value = aten::cat(t, {&value}, -2);
  }
  keep_pair(t, c, key, value);
}

Tensor apply_partial_rotary(Tape& t,
                            const Context& c,
                            const Tensor& x,
                            const RotaryTables& tables) {
  const std::int64_t rotary = c.shape().rotary_dim, dim = x.size(-1);
  const Tensor turning = aten::slice(t, x, -1, rotary);
  // An empty rest gets no gradient from cat.
  const Tensor rest = rotary == dim ? x.detached() : x;
  const Tensor passing = aten::slice(t, rest, -1, dim - rotary);
  const Tensor turned = apply_rotary(t, turning, tables);
  return aten::cat(t, {&turned, &passing}, -1);
}

namespace {

// Earlier releases register cos and sin of all positions in every layer, in the model's dtype
// (_set_cos_sin_cache; Llama's _cos_cached of 4.38 to 4.40). Read: 4.37, 4.38, 4.40 to 4.48.
bool caches_rotary_tables(const Context& c) {
  struct Row {
    std::string_view model_type;
    ReleaseRule without;
  };
  constexpr std::array<Row, 7> kRows = {Row{"llama", ReleaseRule::llama_drops_rotary_cache},
                                        Row{"mistral", ReleaseRule::mistral_drops_rotary_cache},
                                        Row{"olmo", ReleaseRule::llama_drops_rotary_cache},
                                        Row{"qwen2", ReleaseRule::qwen2_drops_rotary_cache},
                                        Row{"qwen2_moe", ReleaseRule::qwen2_drops_rotary_cache},
                                        Row{"mixtral", ReleaseRule::mixtral_drops_rotary_cache},
                                        Row{"starcoder2", ReleaseRule::qwen2_drops_rotary_cache}};
  const auto row = std::find_if(kRows.begin(), kRows.end(), [&](const Row& each) {
    return each.model_type == c.model.model_type;
  });
  return row != kRows.end() && !c.acts(row->without);
}

}  // namespace

void add_rotary_caches(GraphAssembler& assembler, const Context& c) {
  if (!caches_rotary_tables(c)) return;
  const TransformerShape& shape = c.shape();
  const std::int64_t table = detail::checked_product(shape.max_positions, shape.rotary_dim);
  const Bytes cache = Elements::of(table) * c.options.dtype;
  assembler.add_buffers_of("self_attn", {cache, cache});
}

// --- masks ---

bool needs_mask(const Context& c) {
  switch (c.attention) {
    case Attention::eager:
      return true;
    case Attention::sdpa:
      return c.options.mask == MaskKind::padded;
    case Attention::flash:
      return false;  // unpadded instead
  }
  return false;
}

bool made_by_masking_utils(const Context& c) { return c.acts(ReleaseRule::masks_by_utilities); }

DType mask_dtype(const Context& c) {
  const bool booleans = c.attention == Attention::sdpa && made_by_masking_utils(c);
  return booleans ? DType::boolean : c.options.dtype;
}

Tensor make_mask(Tape& t, const Context& c) {
  const Shape shape{c.batch, 1, c.sequence, c.sequence};
  const Tensor causal = t.empty(Shape{1, 1, c.sequence, c.sequence}, DType::boolean);
  t.launch({.name = "le", .kind = OpKind::fill, .traffic = causal.bytes()});
  const Tensor allowed = t.empty(shape, DType::boolean);
  t.launch({.name = "bitwise_and", .traffic = allowed.bytes() + causal.bytes()});
  if (mask_dtype(c) == DType::boolean) return allowed;
  const Tensor numbers = t.empty(shape, mask_dtype(c));
  t.launch({.name = "where", .traffic = numbers.bytes() + allowed.bytes()});
  return numbers;
}

Tensor mask(Tape& t, const Context& c, Slot slot) {
  const DType dtype = mask_dtype(c) == DType::boolean ? DType::boolean : t.dtype();
  return t.shared(
      static_cast<std::int32_t>(slot), Shape{c.batch, 1, c.sequence, c.sequence}, dtype);
}

// _update_causal_mask: full(min), triu, times a comparison, expand and clone, padding filled in.
void share_mask(Tape& t, const Context& c, Slot slot) {
  if (mask_dtype(c) == DType::boolean) {
    t.share(static_cast<std::int32_t>(slot), make_mask(t, c));
    return;
  }
  const Shape square{c.sequence, c.sequence};
  Tensor causal = t.empty(square, t.dtype());
  t.launch({.name = "full", .kind = OpKind::fill, .traffic = causal.bytes()});
  {
    Tensor upper = t.empty(square, t.dtype());
    t.launch({.name = "triu", .traffic = upper.bytes() * 2});
    causal = std::move(upper);
  }
  Tensor whole = t.empty(Shape{c.batch, 1, c.sequence, c.sequence}, t.dtype());
  t.launch({.name = "clone", .kind = OpKind::copy, .traffic = whole.bytes() + causal.bytes()});
  causal = Tensor();
  t.share(static_cast<std::int32_t>(slot), whole);
}

}  // namespace zeroplan::hf
