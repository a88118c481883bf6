// F.scaled_dot_product_attention by backend.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "base/check.hpp"
#include "base/units.hpp"
#include "model/graph/aten.hpp"
#include "model/graph/aten_autocast.hpp"

namespace zeroplan::aten {

namespace {

constexpr std::int64_t kQueriesOfBlock = 64;
constexpr std::int64_t kBlocksOfMultiprocessor = 2;
constexpr std::int64_t kMostSplits = 128;
constexpr float kFull = 0.8F;         // so many multiprocessors at work are enough
constexpr float kGoodEnough = 0.85F;  // of the best efficiency

std::int64_t keys_of_block(std::int64_t head_dim) {
  if (head_dim <= 64) return 256;
  return head_dim <= 128 ? 128 : 64;
}

// Where a call's blocks of queries would leave multiprocessors idle, each part of the keys is
// attended to by blocks of its own, into fp32 accumulators that a second kernel adds up. 1: they
// are not cut. `multiprocessors` <= 0: unknown, not cut. Without dropout only. Source: flash-attn's
// flash_api.cpp, set_params_splitkv and num_splits_heuristic (2.3 and later; PyTorch's own copy of
// it, aten/native/transformers/cuda/flash_attn).
std::int64_t flash_splits(std::int64_t multiprocessors,
                          std::int64_t batch,
                          std::int64_t heads,
                          std::int64_t queries,
                          std::int64_t keys,
                          std::int64_t head_dim) {
  if (multiprocessors <= 0) return 1;
  const std::int64_t slots = multiprocessors * kBlocksOfMultiprocessor;
  const std::int64_t blocks = batch * heads * ceil_div(queries, kQueriesOfBlock);
  const std::int64_t key_blocks = ceil_div(keys, keys_of_block(head_dim));
  if (static_cast<float>(blocks) >= kFull * static_cast<float>(slots)) return 1;
  // A number that leaves each part as many blocks as one part less does is not looked at.
  const auto is_looked_at = [key_blocks](std::int64_t splits) {
    return splits == 1 || ceil_div(key_blocks, splits) != ceil_div(key_blocks, splits - 1);
  };
  const auto efficiency = [blocks, slots](std::int64_t splits) {
    const float waves = static_cast<float>(blocks * splits) / static_cast<float>(slots);
    return waves / std::ceil(waves);
  };
  const std::int64_t most = std::min({kMostSplits, slots, key_blocks});
  float best = 0.0F;
  for (std::int64_t splits = 1; splits <= most; ++splits) {
    if (is_looked_at(splits)) best = std::max(best, efficiency(splits));
  }
  for (std::int64_t splits = 1; splits <= most; ++splits) {
    if (is_looked_at(splits) && efficiency(splits) >= kGoodEnough * best) return splits;
  }
  return 1;
}

AttentionCall attention_call(const Tensor& q, const Tensor& k, const Sdpa& options, bool backward) {
  AttentionCall call;
  call.batch = q.size(0);
  call.heads = q.size(1);
  call.kv_heads = k.size(1);
  call.queries = q.size(2);
  call.keys = k.size(2);
  call.head_dim = q.size(3);
  call.causal = options.causal;
  call.backward = backward;
  call.backend = options.backend;
  call.dtype = q.dtype();
  return call;
}

// empty_like(q.transpose(1, 2)).transpose(1, 2): the output has the layout of the queries.
Shape like_queries(const Tensor& q) {
  return q.shape().transposed(1, 2).as_dense().transposed(1, 2);
}

struct SavedAttention {
  Tensor q, k, v, out, logsumexp, mask;
};

SavedAttention save_inputs(Tape& t, const Tensor& q, const Tensor& k, const Tensor& v) {
  return {t.save(q), t.save(k), t.save(v), {}, {}, {}};
}

// flash_api.cpp mha_bwd: gradients like their tensors, an fp32 accumulator of dq, and one gradient
// per query head for grouped keys and values, summed at the end.
void flash_backward(Backward& b, const SavedAttention& saved, const Sdpa& options) {
  Tape& t = b.tape;
  const auto layout = [](const Tensor& x) { return x.shape().transposed(1, 2); };
  // CUDA code takes dout and out contiguous as (b, s, a, d); cuDNN takes any strides.
  const bool by_cudnn = saved.v.size(3) != saved.q.size(3);
  const auto rows_first = [&](const Tensor& x, std::string_view name) {
    const Tensor view = t.alias(x, layout(x), name);
    return by_cudnn ? view : contiguous(t, view);
  };
  const Tensor dout = rows_first(b.gradient(), "transpose");
  const Tensor out = rows_first(saved.out, "");
  const std::int64_t batch = saved.q.size(0), heads = saved.q.size(1), queries = saved.q.size(2),
                     dim = saved.q.size(3);
  const std::int64_t rows = by_cudnn ? queries : round_up(queries, 128);
  const std::int64_t columns = by_cudnn ? dim : round_up(dim, dim <= 128 ? 32 : 64);
  Tensor dq = t.empty(like_queries(saved.q), saved.q.dtype());
  Tensor dk = t.empty(like_queries(saved.k), saved.k.dtype());
  Tensor dv = t.empty(like_queries(saved.v), saved.v.dtype());
  {
    // deterministic: one accumulator a split; the number of splits depends on the GPU's
    // multiprocessors, one is taken here.
    const Tensor row_sums =
        t.empty(Shape{batch, heads, rows}, DType::fp32, MemoryCategory::temporaries);
    const Tensor accumulator =
        t.empty(Shape{batch, rows, heads, columns}, DType::fp32, MemoryCategory::temporaries);
    const bool grouped = saved.k.size(1) != heads;
    const Shape expanded{batch, saved.k.size(2), heads, dim};
    const Tensor dk_heads =
        grouped ? t.empty(expanded, saved.k.dtype(), MemoryCategory::temporaries) : Tensor();
    const Tensor dv_heads =
        grouped ? t.empty(expanded, saved.k.dtype(), MemoryCategory::temporaries) : Tensor();
    const Bytes tensors = saved.q.bytes() * 4 + saved.k.bytes() * 4;
    t.launch({.name = "_scaled_dot_product_flash_attention_backward",
              .kind = OpKind::attention,
              .traffic = tensors + accumulator.bytes() * 2,
              .kernels = grouped ? 5 : 3},
             attention_call(saved.q, saved.k, options, true));
  }
  b.give(0, std::move(dq));
  b.give(1, std::move(dk));
  b.give(2, std::move(dv));
}

// What the parts of the keys are summed up in, until the call returns: logsumexp first.
struct SplitAccumulators {
  Tensor logsumexp, out;
};

SplitAccumulators split_accumulators(Tape& t,
                                     const Tensor& q,
                                     const Tensor& k,
                                     const Sdpa& options) {
  if (options.dropout > 0.0) return {};
  const std::int64_t batch = q.size(0), heads = q.size(1), queries = q.size(2), dim = q.size(3);
  const std::int64_t splits =
      flash_splits(t.reduction_gpu().multiprocessors, batch, heads, queries, k.size(2), dim);
  if (splits == 1) return {};
  const auto accumulator = [&](const Shape& shape) {
    return t.empty(shape, DType::fp32, MemoryCategory::temporaries);
  };
  SplitAccumulators sums;
  sums.logsumexp = accumulator(Shape{splits * batch, heads, queries});
  sums.out = accumulator(Shape{splits * batch, heads, queries, round_up(dim, 32)});
  return sums;
}

// With values of another width than queries this is cuDNN's kernel, which is called as this one is.
Tensor flash(Tape& t, const Tensor& q, const Tensor& k, const Tensor& v, const Sdpa& options) {
  const bool trains = t.trains({&q, &k, &v});
  SavedAttention saved;
  if (trains) saved = save_inputs(t, q, k, v);
  const Shape wanted = q.shape().with_size(3, v.size(3));
  Tensor out = t.empty(wanted.transposed(1, 2).as_dense().transposed(1, 2), q.dtype());
  const Tensor logsumexp = t.empty(Shape{q.size(0), q.size(1), q.size(2)}, DType::fp32);
  {
    const bool by_cudnn = v.size(3) != q.size(3);
    const SplitAccumulators sums =
        by_cudnn ? SplitAccumulators{} : split_accumulators(t, q, k, options);
    t.launch({.name = "_scaled_dot_product_flash_attention",
              .kind = OpKind::attention,
              .traffic = q.bytes() * 2 + k.bytes() * 2 + logsumexp.bytes(),
              .kernels = sums.out.defined() ? 2 : 1},
             attention_call(q, k, options, false));
  }
  if (!trains) return out;
  saved.out = t.save(out);
  saved.logsumexp = t.save(logsumexp);
  t.record(
      {&out}, {&q, &k, &v}, [saved, options](Backward& b) { flash_backward(b, saved, options); });
  return out;
}

// The kernel needs head dimensions in multiples of 8 (pad_last_dim, attention.cpp): padded copies
// are made, saved instead of the originals, and the output is a slice.
Tensor padded(Tape& t, const Tensor& x) {
  const std::int64_t dim = x.size(3), wanted = round_up(dim, 8);
  if (dim == wanted) return x;
  Tensor out = t.empty(x.shape().with_size(3, wanted).as_contiguous(), x.dtype());
  t.launch({.name = "constant_pad_nd",
            .kind = OpKind::copy,
            .traffic = x.bytes() + out.bytes() * 2,
            .kernels = 2});
  if (t.trains({&x})) {
    t.record({&out}, {&x}, [shape = x.shape()](Backward& b) {
      b.give(0,
             b.tape.alias(b.gradient(), b.gradient().shape().with_size(3, shape.size(3)), "slice"));
    });
  }
  return out;
}

// Values of another width than queries (latent attention): heads are then wider than a block of the
// kernel, so that it keeps fp32 sums in memory: of the output (kNeedsOutputAccumulatorBuffer), and
// in backward, in tiles, of dq and of a block of keys (kernel_backward.h, workspace_elements_gq).
bool sums_in_memory(const Tensor& q, const Tensor& v) { return q.size(3) != v.size(3); }

Shape backward_sums(const Tensor& q) {
  constexpr std::int64_t kRows = 64, kColumns = 128;
  return Shape{
      q.size(0), q.size(1), round_up(q.size(2), kRows) + kRows, round_up(q.size(3), kColumns)};
}

// kernel_backward.h: gradients, delta (fp32 a row; for fp32 inputs it is the sum of a product that
// is made outside of the kernel, kKernelComputesDelta) and, for 16-bit inputs, an fp32 accumulator
// of dq (kNeedsAccumGradQ: the output type is not the accumulation type). Grouped keys and values
// have one gradient per query head, summed at the end.
void mem_efficient_backward(Backward& b, const SavedAttention& saved, const Sdpa& options) {
  Tape& t = b.tape;
  const Tensor dout = b.gradient();
  const auto fresh = [&](const Tensor& x) {
    return t.empty(x.shape().transposed(1, 2).as_contiguous().transposed(1, 2), x.dtype());
  };
  Tensor dq = fresh(saved.q), dk = fresh(saved.k), dv = fresh(saved.v);
  {
    const bool grouped = saved.k.size(1) != saved.q.size(1);
    const auto for_each_head = [&](const Tensor& x) {
      const Shape heads{x.size(0), x.size(2), saved.q.size(1), x.size(3)};
      return grouped ? t.empty(heads, x.dtype(), MemoryCategory::temporaries) : Tensor();
    };
    const Tensor dk_heads = for_each_head(saved.k);
    const Tensor dv_heads = for_each_head(saved.v);
    Tensor product = saved.q.dtype() == DType::fp32
                         ? t.empty(saved.out.shape(), DType::fp32, MemoryCategory::temporaries)
                         : Tensor();
    const Tensor delta = t.empty(Shape{saved.q.size(0), saved.q.size(1), saved.q.size(2)},
                                 DType::fp32,
                                 MemoryCategory::temporaries);
    product = Tensor();
    const Tensor accumulator =
        saved.q.dtype() == DType::fp32
            ? Tensor()
            : t.empty(sums_in_memory(saved.q, saved.v) ? backward_sums(saved.q)
                                                       : saved.q.shape().as_contiguous(),
                      DType::fp32,
                      MemoryCategory::temporaries);
    t.launch({.name = "_scaled_dot_product_efficient_attention_backward",
              .kind = OpKind::attention,
              .traffic = saved.q.bytes() * 4 + saved.k.bytes() * 4,
              .kernels = grouped ? 4 : 2},
             attention_call(saved.q, saved.k, options, true));
  }
  b.give(0, std::move(dq));
  b.give(1, std::move(dk));
  b.give(2, std::move(dv));
}

// preprocess_mask and pad_bias (attention.cpp): the kernel wants rows of the bias in multiples of 8
// elements; where they are not, this call makes a padded copy and reads a slice of it.
Tensor aligned_bias(Tape& t, const Tensor& bias) {
  constexpr std::int64_t kAlignment = 8;
  if (!bias.defined() || bias.size(-1) % kAlignment == 0) return bias;
  const Shape wanted = bias.shape().with_size(-1, round_up(bias.size(-1), kAlignment));
  const Tensor out = t.empty(wanted.as_contiguous(), bias.dtype());
  t.launch({.name = "constant_pad_nd",
            .kind = OpKind::copy,
            .traffic = bias.bytes() + out.bytes() * 2,
            .kernels = 2});
  return t.alias(out, out.shape().with_size(-1, bias.size(-1)), "slice");
}

// convert_boolean_attn_mask (attention.cpp): a mask of numbers, the call's own.
Tensor bias_of(Tape& t, const Tensor& mask, DType dtype) {
  if (!mask.defined() || mask.dtype() != DType::boolean) return mask;
  Tensor bias = t.empty(mask.shape().as_contiguous(), dtype);
  t.launch({.name = "where", .traffic = bias.bytes() + mask.bytes(), .kernels = 2});
  return bias;
}

Tensor mem_efficient(Tape& t,
                     const Tensor& q,
                     const Tensor& k,
                     const Tensor& v,
                     const Tensor& mask,
                     const Sdpa& options) {
  const bool trains = t.trains({&q, &k, &v});
  const Tensor bias = aligned_bias(t, mask);
  SavedAttention saved;
  if (trains) saved = save_inputs(t, q, k, v);
  if (trains && bias.defined()) saved.mask = t.save(bias);
  const Shape wanted = q.shape().with_size(3, v.size(3));
  Tensor out = t.empty(wanted.transposed(1, 2).as_contiguous().transposed(1, 2), q.dtype());
  const Tensor logsumexp =
      trains ? t.empty(Shape{q.size(0), q.size(1), round_up(q.size(2), 32)}, DType::fp32)
             : Tensor();
  // kernel_forward.h kNeedsOutputAccumulatorBuffer: wider heads are summed up outside of registers.
  constexpr std::int64_t kHeadInRegisters = 128;
  const bool outside = width(q.dtype()) == 2 && std::max(q.size(3), v.size(3)) > kHeadInRegisters;
  const Tensor sums =
      outside ? t.empty(wanted.as_contiguous(), DType::fp32, MemoryCategory::temporaries)
              : Tensor();
  t.launch({.name = "_scaled_dot_product_efficient_attention",
            .kind = OpKind::attention,
            .traffic = q.bytes() * 2 + k.bytes() * 2},
           attention_call(q, k, options, false));
  if (!trains) return out;
  saved.out = t.save(out);
  saved.logsumexp = t.save(logsumexp);
  t.record({&out}, {&q, &k, &v}, [saved, options](Backward& b) {
    mem_efficient_backward(b, saved, options);
  });
  return out;
}

// pre_process_group_query_attention_input (attention.cpp): repeat_interleave along the heads, which
// expands and clones (Repeat.cpp), whatever the strides.
Tensor repeat_heads(Tape& t, const Tensor& x, std::int64_t heads) {
  const std::int64_t kv = x.size(1);
  if (kv == heads) return x;
  Tensor out = unsqueeze(t, x, 2);
  out = expand(t, out, Shape{x.size(0), kv, heads / kv, x.size(2), x.size(3)});
  out = clone(t, out);
  return view(t, out, Shape{x.size(0), heads, x.size(2), x.size(3)});
}

// _scaled_dot_product_attention_math (attention.cpp): composed of operations that autograd sees.
// The upcast copies stay variables of its frame; the second result is the probabilities, cast as
// well.
Tensor math(Tape& t,
            const Tensor& q,
            const Tensor& k,
            const Tensor& v,
            const Tensor& mask,
            const Sdpa& options) {
  const DType origin = q.dtype();
  const bool upcast = options.math_in_fp32 && width(origin) == 2;
  const DType inner = upcast ? DType::fp32 : origin;
  const Tensor query_acc = to(t, q, inner);
  const Tensor key_acc = to(t, k, inner);
  const Tensor value_acc = to(t, v, inner);
  Tensor bias = mask;
  if (options.causal) {
    Tensor allowed = t.empty(Shape{q.size(2), k.size(2)}, DType::boolean);
    t.launch({.name = "tril", .kind = OpKind::fill, .traffic = allowed.bytes() * 3, .kernels = 2});
    bias = bias_of(t, allowed, inner);
  }
  const Tensor query = scale(t, query_acc);
  const bool grouped = options.enable_gqa;
  const Tensor keys = grouped ? repeat_heads(t, key_acc, q.size(1)) : key_acc;
  const Tensor values = grouped ? repeat_heads(t, value_acc, q.size(1)) : value_acc;
  Tensor scores;
  {
    Tensor columns = transpose(t, keys, -2, -1);
    columns = scale(t, columns);
    scores = matmul(t, query, columns);
  }
  if (bias.defined()) scores = add_in_place(t, scores, bias);
  // torch 2.5 brought both the fp32 arithmetic and the guard for rows that are masked whole
  scores =
      options.math_in_fp32 ? safe_softmax(t, scores, options.guards_in_place) : softmax(t, scores);
  scores = dropout(t, scores, options.dropout);
  Tensor out = matmul(t, scores, values);
  const Tensor probabilities = to(t, scores.detached(), origin);
  return to(t, out, origin);
}

}  // namespace

Tensor scaled_dot_product_attention(Tape& t,
                                    const Tensor& query,
                                    const Tensor& key,
                                    const Tensor& value,
                                    const Tensor& attention_mask,
                                    const Sdpa& options) {
  const Tensor q = autocast_lower(t, query);
  const Tensor k = autocast_lower(t, key);
  const Tensor v = autocast_lower(t, value);
  const Tensor given = autocast_lower(t, attention_mask);
  const Tape::InsideOperation inside(t);
  ZP_CHECK(q.shape().rank() == 4, "attention: (batch, heads, sequence, head size) expected");
  // Whatever computes it, with the dtype of the queries as they came
  // (scaled_dot_product_attention).
  const Tensor mask = bias_of(t, given, q.dtype());
  switch (options.backend) {
    case SdpaBackend::flash: {
      ZP_CHECK(!mask.defined(), "the flash backend takes no mask");
      const std::int64_t dim = q.size(3);
      if (dim % 8 == 0) return flash(t, q, k, v, options);
      const Tensor q8 = padded(t, q);
      const Tensor k8 = padded(t, k);
      const Tensor v8 = padded(t, v);
      const Tensor out = flash(t, q8, k8, v8, options);
      return slice(t, out, 3, dim);
    }
    case SdpaBackend::mem_efficient:
      return mem_efficient(t, q, k, v, mask, options);
    case SdpaBackend::math:
      return math(t, q, k, v, mask, options);
  }
  return {};
}

}  // namespace zeroplan::aten
