#include "model/implementations/traced_operations.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.hpp"
#include "model/graph/aten_recurrent.hpp"
#include "model/implementations/hf_chunk_scan.hpp"
#include "model/implementations/hf_delta_rule.hpp"
#include "model/implementations/hf_sdpa.hpp"
#include "model/implementations/traced_call.hpp"

namespace zeroplan {
namespace {

using Call = TracedOperationCall;

// --- views

// A view whose gradient is viewed back.
void give_view(Call& call,
               const Shape& shape,
               std::string_view name,
               const std::function<Tensor(Tape&, const Tensor&)>& inverse) {
  Tensor out = call.t.alias(call.x(), shape, name);
  if (call.t.trains({&call.x()})) {
    call.t.record(
        {&out}, {&call.x()}, [inverse](Backward& b) { b.give(0, inverse(b.tape, b.gradient())); });
  }
  call.give(std::move(out));
}

Shape permuted(Shape shape, std::vector<int> order) {
  // Selection sort by swaps of dimensions.
  for (int d = 0; d < static_cast<int>(order.size()); ++d) {
    const auto at = static_cast<std::size_t>(d);
    int from = order[at];
    while (from < d) from = order[static_cast<std::size_t>(from)];
    shape = shape.transposed(d, from);
    order[at] = from;
  }
  return shape;
}

void permute(Call& call) {
  const int rank = call.x().shape().rank();
  std::vector<int> order, back(static_cast<std::size_t>(rank));
  for (const std::int64_t d : call.e.dims) order.push_back(static_cast<int>(d < 0 ? d + rank : d));
  for (int d = 0; d < rank; ++d)
    back[static_cast<std::size_t>(order[static_cast<std::size_t>(d)])] = d;
  give_view(call, permuted(call.x().shape(), order), "permute", [back](Tape& t, const Tensor& g) {
    return t.alias(g, permuted(g.shape(), back), "permute");
  });
}

// Without dims the sizes go that are 1 in every batch.
void squeeze(Call& call) {
  Shape shape = call.e.dims.empty() ? call.shape() : call.x().shape();
  std::vector<std::int64_t> dims = call.e.dims;
  for (std::int64_t& d : dims) d = d < 0 ? d + shape.rank() : d;
  std::sort(dims.rbegin(), dims.rend());
  for (const std::int64_t d : dims) {
    if (shape.size(static_cast<int>(d)) == 1) shape = shape.without(static_cast<int>(d));
  }
  give_view(call, shape, "squeeze", [original = call.x().shape()](Tape& t, const Tensor& g) {
    return aten::reshape(t, g, original);
  });
}

void same_view(Call& call) {
  give_view(call,
            call.x().shape(),
            call.e.name == "lift_fresh" ? "" : "alias",
            [](Tape&, const Tensor& g) { return g; });
}

void detach(Call& call) { call.give(call.t.alias(call.x(), call.x().shape(), "detach")); }

void slice(Call& call) {
  const int d = call.dim();
  if (call.e.step == 2) return call.give(aten::every_second(call.t, call.x(), d));
  call.give(aten::slice(call.t, call.x(), d, call.shape().size(d)));
}

void split(Call& call) {
  const int d = call.dim();
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < call.e.out.size(); ++i) sizes.push_back(call.shape(i).size(d));
  std::vector<Tensor> parts = aten::split(call.t, call.x(), sizes, d);
  for (std::size_t i = 0; i < parts.size(); ++i) call.v.at(call.e.out[i]) = std::move(parts[i]);
}

// Its gradient is a stack of the parts' (unbind_backward).
void unbind(Call& call) {
  const int d = call.dim();
  const Shape one = call.x().shape().without(d);
  std::vector<Tensor*> outputs;
  for (std::size_t i = 0; i < call.e.out.size(); ++i) {
    Tensor& part = call.v.at(call.e.out[i]);
    part = call.t.alias(call.x(), one, i == 0 ? "unbind" : "");
    outputs.push_back(&part);
  }
  if (!call.t.trains({&call.x()})) return;
  call.t.record(
      outputs,
      {&call.x()},
      [whole = call.x().shape().as_contiguous(), dtype = call.x().dtype()](Backward& b) {
        Tensor gradient = b.tape.empty(whole, dtype);
        b.tape.launch({.name = "stack", .kind = OpKind::copy, .traffic = gradient.bytes() * 2});
        b.give(0, std::move(gradient));
      });
}

// --- elementwise, reductions

bool one_float_type(const Call& call) {
  for (const Tensor& x : call.in) {
    if (x.defined() && (x.dtype() == DType::int64 || x.dtype() == DType::boolean)) return false;
  }
  return true;
}

void binary(Call& call,
            Tensor (*both)(Tape&, const Tensor&, const Tensor&),
            Tensor (*one)(Tape&, const Tensor&, std::string_view),
            std::string_view name) {
  if (!one_float_type(call)) return play_general(call);
  if (call.in.size() == 1) return call.give(one(call.t, call.x(), name));
  call.give(both(call.t, call.x(0), call.x(1)));
}

// A gradient over what was summed, whose sizes stay in their places: a view that costs nothing.
Shape spread_over(const Shape& gradient, std::vector<std::int64_t> dims, const Shape& whole) {
  Shape shape = gradient;
  for (std::int64_t& d : dims) d = d < 0 ? d + whole.rank() : d;
  std::sort(dims.begin(), dims.end());
  const bool kept = shape.rank() == whole.rank();
  for (const std::int64_t d : dims) {
    if (!kept) shape = shape.unsqueezed(static_cast<int>(d));
  }
  const std::vector<std::int64_t> ones(static_cast<std::size_t>(whole.rank()), 1);
  return (shape.rank() == whole.rank() ? shape : Shape(ones)).expanded(whole);
}

// The gradient is spread over what was summed; a mean's is divided as well.
void reduce(Call& call, bool mean) {
  const Tensor& x = call.x();
  const Shape shape = call.shape();
  if (mean && call.e.dims.size() == 1 && shape.rank() == x.shape().rank() && shape.size(-1) == 1 &&
      (call.dim() == -1 || call.dim() == x.shape().rank() - 1)) {
    return call.give(aten::mean_last(call.t, x));
  }
  Tensor out = call.t.empty(shape, call.dtype());
  Tensor counted;  // truths are made numbers first (ReduceOps.cpp make_reduction)
  if (x.dtype() == DType::boolean)
    counted = call.t.empty(x.shape().as_contiguous(), call.dtype(), MemoryCategory::temporaries);
  call.t.launch({.name = call.e.name,
                 .kind = OpKind::reduction,
                 .traffic = aten::distinct_bytes(x) + out.bytes()});
  if (call.t.trains({&x})) {
    call.t.record(
        {&out},
        {&x},
        [mean, dims = call.e.dims, whole = x.shape(), dtype = x.dtype()](Backward& b) {
          const Shape expanded = spread_over(b.gradient().shape(), dims, whole);
          const Tensor spread = b.tape.alias(b.gradient(), expanded, "expand");
          if (!mean) return b.give(0, spread);
          Tensor divided = b.tape.empty(whole.as_contiguous(), dtype);
          b.tape.launch({.name = "div", .traffic = b.gradient().bytes() + divided.bytes()});
          b.give(0, std::move(divided));
        });
  }
  call.give(std::move(out));
}

void cast(Call& call) { call.give(aten::to(call.t, call.x(), call.dtype())); }

void clone(Call& call) {
  call.give(call.e.contiguous ? aten::contiguous(call.t, call.x()) : aten::clone(call.t, call.x()));
}

void cat(Call& call) {
  std::vector<const Tensor*> parts;
  for (const Tensor& part : call.in) parts.push_back(&part);
  call.give(aten::cat(call.t, parts, call.dim()));
}

void stack(Call& call) {
  std::vector<Tensor> rows;
  for (const Tensor& part : call.in) {
    Tensor row = call.t.alias(part, part.shape().unsqueezed(call.dim()), "");
    if (call.t.trains({&part})) {
      call.t.record({&row}, {&part}, [shape = part.shape()](Backward& b) {
        b.give(0, b.tape.alias(b.gradient(), shape, ""));
      });
    }
    rows.push_back(std::move(row));
  }
  std::vector<const Tensor*> parts;
  for (const Tensor& row : rows) parts.push_back(&row);
  call.give(aten::cat(call.t, parts, call.dim()));
}

// --- products

// F.linear: two or three dimensions as they are, others as rows (Linear.cpp _flatten_nd_linear).
void linear(Call& call) {
  const Tensor& weight = call.x(1);
  const Tensor bias = call.in.size() > 2 ? call.x(2) : Tensor();
  const hf::Context& c = call.v.c;
  const auto product = [&](const Tensor& x) {
    if (call.t.is_quantized(weight))
      return aten::linear_4bit(call.t, x, weight, bias, c.options.weights);
    return c.options.zero3_linear ? aten::zero3_linear(call.t, x, weight, bias)
                                  : aten::linear(call.t, x, weight, bias);
  };
  const Tensor& x = call.x();
  const int rank = x.shape().rank();
  if (rank == 2 || rank == 3) return call.give(product(x));
  const std::int64_t width = x.size(-1);
  const Tensor rows =
      aten::reshape(call.t, x, Shape{width == 0 ? 0 : x.numel().count() / width, width});
  const Tensor out = product(rows);
  call.give(aten::view(call.t, out, call.shape()));
}

// The buffer of a sum over everything but the channels, where these are innermost, as of patches
// that become rows.
Tensor channel_sum_buffer(Tape& t, const Tensor& gradient) {
  const Shape& shape = gradient.shape();
  if (shape.stride(1) != 1 || shape.size(1) == 0) return {};
  const std::int64_t rows = shape.numel().count() / shape.size(1);
  const Bytes bytes = row_sum_buffer(t.reduction_gpu(), rows, shape.size(1), gradient.dtype());
  if (bytes == Bytes::zero()) return {};
  return t.empty(Shape{bytes.count()}, DType::uint8, MemoryCategory::temporaries);
}

// As a product of its patches by its kernels, without a workspace; forward, and for each gradient.
void convolution(Call& call) {
  const Tensor &x = call.x(0), &weight = call.x(1);
  const Tensor bias = call.in.size() > 2 ? call.x(2) : Tensor();
  const Shape out_shape = call.shape();
  const std::int64_t channels = std::max<std::int64_t>(weight.size(0), 1);
  const MatrixProduct product{1,
                              out_shape.numel().count() / channels,
                              channels,
                              weight.numel().count() / channels,
                              x.dtype()};
  const bool trains = call.t.trains({&x, &weight, &bias});
  Tensor saved;
  if (trains) saved = call.t.save(x);
  Tensor out = call.t.empty(out_shape, x.dtype());
  const Bytes traffic = x.bytes() + weight.bytes() + out.bytes();
  call.t.launch(
      {.name = "convolution", .kind = OpKind::matmul, .traffic = traffic, .library = Library::own},
      product);
  if (bias.defined()) call.t.launch({.name = "add_", .traffic = out.bytes() * 2});
  if (trains) {
    call.t.record(
        {&out},
        {&x, &weight, &bias},
        [saved, product, traffic, w = weight.shape(), bias_shape = bias.shape(), dtype = x.dtype()](
            Backward& b) {
          const auto gradient = [&](std::size_t input, const Shape& shape) {
            if (!b.needs(input)) return;
            Tensor result = b.tape.empty(shape.as_contiguous(), dtype);
            b.tape.launch({.name = "convolution_backward",
                           .kind = OpKind::matmul,
                           .traffic = traffic,
                           .library = Library::own},
                          product);
            b.give(input, std::move(result));
          };
          gradient(0, saved.shape());
          gradient(1, w);
          if (b.needs(2)) {
            Tensor sum = b.tape.empty(bias_shape, dtype);
            const Tensor buffer = channel_sum_buffer(b.tape, b.gradient());
            b.tape.launch(
                {.name = "sum", .kind = OpKind::reduction, .traffic = b.gradient().bytes()});
            b.give(2, std::move(sum));
          }
        });
  }
  call.give(std::move(out));
}

void attention(Call& call) {
  Tensor mask = call.in.size() > 3 ? call.x(3) : Tensor();
  if (call.x().shape().rank() != 4) return play_general(call);
  Tensor keys = call.x(1), values = call.x(2);
  if (call.v.pads(call.e)) {
    mask = hf::mask(call.t, call.v.c);
    if (call.e.grouped) {  // use_gqa_in_sdpa: without a mask alone
      keys = hf::repeat_kv(call.t, keys, call.x().size(1));
      values = hf::repeat_kv(call.t, values, call.x().size(1));
    }
  }
  hf::SdpaCall wanted;
  wanted.masked = mask.defined();
  wanted.mask_trains = mask.defined() && mask.requires_grad();
  wanted.causal = call.e.causal;
  wanted.enable_gqa = call.e.grouped;
  wanted.dropout = call.e.p;
  const auto attend = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    const aten::Sdpa options = hf::sdpa_options(call.v.c, q, k, v, wanted);
    return aten::scaled_dot_product_attention(call.t, q, k, v, mask, options);
  };
  const std::int64_t ranks = call.v.c.options.sequence_parallel;
  if (ranks <= 1) return call.give(attend(call.x(0), keys, values));
  // The result is contiguous with tokens before heads, as the class makes it next: no second copy.
  const auto core = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    return aten::contiguous(call.t, aten::transpose(call.t, attend(q, k, v), 1, 2));
  };
  const Tensor out = hf::on_all_tokens(call.t, ranks, call.x(0), keys, values, core);
  call.give(aten::transpose(call.t, out, 1, 2));
}

void softmax(Call& call) {
  const DType dtype = call.dtype();
  const bool said = dtype != call.x().dtype();
  call.give(aten::softmax(call.t, call.x(), said ? std::optional(dtype) : std::nullopt));
}

void embedding(Call& call) {
  if (call.x(1).shape().rank() > 2) return play_general(call);
  Tensor out = aten::embedding(call.t, call.x(1), call.x(0));
  if (call.v.is_token_embedding(call.e) && hf::asks_gradients_of_embeddings(call.v.c))
    call.t.require_grad(out);
  call.give(std::move(out));
}

// (b, s, heads, d) each but the last two, which have no d.
void delta_rule(Call& call) {
  const hf::DeltaRuleInputs given{call.x(0), call.x(1), call.x(2), call.x(3), call.x(4)};
  Tensor state;
  call.give(hf::gated_delta_rule(call.t, call.v.c.options.linear_attention, given, false, state));
}

// x, dt, A, B, C, D and dt_bias of Mamba 2; the positions of a chunk.
void chunk_scan(Call& call) {
  call.give(
      hf::mamba_chunk_scan(call.t,
                           {call.x(0),
                            call.x(1),
                            call.x(2),
                            call.x(3),
                            call.x(4),
                            call.x(5),
                            call.x(6),
                            call.e.step,
                            call.v.c.options.transformers_act(ReleaseRule::scans_by_products)}));
}

void layer_norm(Call& call) {
  const Tensor none;
  call.give(aten::layer_norm(call.t,
                             call.x(),
                             call.in.size() > 1 ? call.x(1) : none,
                             call.in.size() > 2 ? call.x(2) : none));
}

void nll_loss(Call& call) {
  const Tensor& labels = call.x(1);
  call.give(aten::nll_loss(call.t, call.x(), labels.storage() >= 0 ? labels : Tensor()));
}

using Handler = void (*)(Call&);
struct Row {
  std::string_view name;
  Handler play;
};

template <Tensor (*Function)(Tape&, const Tensor&)>
void unary(Call& call) {
  call.give(Function(call.t, call.x()));
}

// The function takes tensors of one floating point type; the general rule plays others.
template <Tensor (*Function)(Tape&, const Tensor&)>
void float_unary(Call& call) {
  if (one_float_type(call)) return call.give(Function(call.t, call.x()));
  play_general(call);
}

constexpr std::array kOperations = {
    Row{"view", [](Call& k) { k.give(aten::reshape(k.t, k.x(), k.shape())); }},
    Row{"_unsafe_view", [](Call& k) { k.give(aten::reshape(k.t, k.x(), k.shape())); }},
    Row{"reshape", [](Call& k) { k.give(aten::reshape(k.t, k.x(), k.shape())); }},
    Row{"_reshape_alias", [](Call& k) { k.give(aten::reshape(k.t, k.x(), k.shape())); }},
    Row{"transpose", [](Call& k) { k.give(aten::transpose(k.t, k.x(), k.dim(0), k.dim(1))); }},
    Row{"t", [](Call& k) { k.give(aten::transpose(k.t, k.x(), 0, 1)); }},
    Row{"permute", permute},
    Row{"unsqueeze", [](Call& k) { k.give(aten::unsqueeze(k.t, k.x(), k.dim())); }},
    Row{"squeeze", squeeze},
    Row{"expand", [](Call& k) { k.give(aten::expand(k.t, k.x(), k.shape())); }},
    Row{"slice", slice},
    Row{"select", [](Call& k) { k.give(aten::select(k.t, k.x(), k.dim())); }},
    Row{"split", split},
    Row{"split_with_sizes", split},
    Row{"unbind", unbind},
    Row{"alias", same_view},
    Row{"lift_fresh", same_view},
    Row{"detach", detach},
    Row{"contiguous", unary<aten::contiguous>},
    Row{"clone", clone},
    Row{"_to_copy", cast},
    Row{"cat", cat},
    Row{"stack", stack},
    Row{"add", [](Call& k) { binary(k, aten::add, aten::shift, "add"); }},
    Row{"sub", [](Call& k) { binary(k, aten::sub, aten::shift, "sub"); }},
    Row{"rsub",
        [](Call& k) {
          k.in.size() == 1 ? k.give(aten::shift(k.t, k.x(), "rsub")) : play_general(k);
        }},
    Row{"mul", [](Call& k) { binary(k, aten::mul, aten::scale, "mul"); }},
    Row{"div",
        [](Call& k) {
          k.in.size() == 1 && one_float_type(k) ? k.give(aten::scale(k.t, k.x(), "div"))
                                                : play_general(k);
        }},
    Row{"neg", unary<aten::neg>},
    Row{"pow",
        [](Call& k) {
          k.in.size() == 1 && one_float_type(k)
              ? k.give(aten::pow(k.t, k.x(), static_cast<int>(k.e.p)))
              : play_general(k);
        }},
    Row{"rsqrt", unary<aten::rsqrt>},
    Row{"exp", float_unary<aten::exp>},
    Row{"softplus", float_unary<aten::softplus>},
    Row{"clamp", float_unary<aten::clamp>},
    Row{"tanh", unary<aten::tanh>},
    Row{"sigmoid", unary<aten::sigmoid>},
    Row{"relu", unary<aten::relu>},
    Row{"silu", unary<aten::silu>},
    Row{"gelu", unary<aten::gelu>},
    Row{"masked_fill",
        [](Call& k) {
          k.x().shape().same_sizes(k.v.shape_of(k.e.out.front()))
              ? k.give(aten::masked_fill(k.t, k.x(0), k.x(1)))
              : play_general(k);  // what is filled is broadcast
        }},
    Row{"dropout", [](Call& k) { k.give(aten::dropout(k.t, k.x(), k.e.p)); }},
    Row{"mean", [](Call& k) { reduce(k, true); }},
    Row{"sum", [](Call& k) { reduce(k, false); }},
    Row{"softmax", softmax},
    Row{"_softmax", softmax},
    Row{"_safe_softmax",
        [](Call& k) {
          k.give(aten::safe_softmax(
              k.t, k.x(), k.v.c.options.torch_acts(ReleaseRule::safe_softmax_in_place)));
        }},
    Row{"_log_softmax", unary<aten::log_softmax>},
    Row{"nll_loss_forward", nll_loss},
    Row{"native_layer_norm", layer_norm},
    Row{"embedding", embedding},
    Row{"linear", linear},
    Row{"mm", [](Call& k) { k.give(aten::mm(k.t, k.x(0), k.x(1))); }},
    Row{"addmm", [](Call& k) { k.give(aten::addmm(k.t, k.x(0), k.x(1), k.x(2))); }},
    Row{"bmm", [](Call& k) { k.give(aten::bmm(k.t, k.x(0), k.x(1))); }},
    Row{"baddbmm", [](Call& k) { k.give(aten::baddbmm(k.t, k.x(0), k.x(1), k.x(2))); }},
    Row{"convolution", convolution},
    Row{"scaled_dot_product_attention", attention},
    Row{"flash_attention", play_flash_attention},
    Row{hf::kUpdateCache, play_update_cache},
    Row{hf::kBloomGelu, [](Call& k) { k.give(hf::bloom_gelu(k.t, k.x(0))); }},
    Row{"_grouped_mm", play_grouped_product},
    Row{hf::kDeltaRule, delta_rule},
    Row{hf::kChunkScan, chunk_scan},
    Row{"topk", play_topk},
    Row{"max", [](Call& k) { k.e.out.size() == 2 ? play_topk(k) : play_general(k); }},
    Row{"sort", play_sort},
    Row{"index", play_index},
    Row{"masked_scatter",
        [](Call& k) { k.give(aten::masked_scatter(k.t, k.x(0), k.x(1), k.x(2))); }},
    Row{"add_",
        [](Call& k) {
          k.in.size() == 2 && one_float_type(k) ? k.give(aten::add_in_place(k.t, k.x(0), k.x(1)))
                                                : play_general(k);
        }},
    Row{"masked_fill_", [](Call& k) { k.give(aten::masked_fill_in_place(k.t, k.x(0), k.x(1))); }},
};

const Row* row_of(std::string_view name) {
  const auto* const found = std::find_if(
      kOperations.begin(), kOperations.end(), [&](const Row& row) { return row.name == name; });
  return found == kOperations.end() ? nullptr : found;
}

}  // namespace

hf::SplitScanInputs split_scan_inputs(const TracedOperationCall& k) {
  return {k.x(0),
          k.x(1),
          k.x(2),
          k.x(3),
          k.x(4),
          k.x(5),
          k.x(6),
          k.x(7),
          k.x(8),
          k.e.step,
          k.e.dims.at(0)};
}

bool has_formula(std::string_view operation) { return row_of(operation) != nullptr; }

void play_operation(TracedValues& values, const TracedEvent& event) {
  Call call(values, event);
  const Row* row = row_of(event.name);
  ZP_CHECK(row == nullptr || !call.in.empty(), "no operands");
  const bool gives = !event.out.empty() || event.name == hf::kUpdateCache;  // or keeps a pair
  if (row != nullptr && gives && !call.in.empty() && call.x().defined()) return row->play(call);
  if (event.out.empty()) {  // .item(): the host waits for a number
    values.t.launch({.name = event.name, .kind = OpKind::view, .kernels = 0});
    return;
  }
  play_general(call);
}

}  // namespace zeroplan
