// Each kernel's backward against central differences of its forward, in fp32; and the 16-bit
// formats against fp32.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "runtime/kernels/cpu_float.hpp"
#include "runtime/kernels/kernels.hpp"
#include "tests/catch.hpp"
#include "tests/runtime/hashed_model.hpp"

namespace zeroplan {
namespace {

using runtime::Operand;
using Values = std::vector<float>;

Values noise(std::int64_t count, std::uint64_t seed, float width = 1.0F) {
  Values values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back((2.0F * testing::uniform(seed * 7919, i) - 1.0F) * width);
  }
  return values;
}

Operand memory(const Values& values) {
  Operand operand;
  operand.data = reinterpret_cast<std::byte*>(const_cast<float*>(values.data()));
  operand.elements = Elements::of(static_cast<std::int64_t>(values.size()));
  return operand;
}

Operand memory(const std::vector<std::int64_t>& values) {
  Operand operand;
  operand.data = reinterpret_cast<std::byte*>(const_cast<std::int64_t*>(values.data()));
  operand.elements = Elements::of(static_cast<std::int64_t>(values.size()));
  operand.dtype = DType::int64;
  return operand;
}

void run(KernelCall call, Kernel kernel, const std::vector<Operand>& operands) {
  const auto kernels = runtime::cpu_kernels(2);
  call.kernel = kernel;
  for (const Operand& operand : operands) {
    const bool given = operand.data != nullptr;
    call.operands.push_back({given ? KernelOperand::From::storage : KernelOperand::From::none, -1});
  }
  kernels->run(call, operands);
}

// What is differentiated: outputs from inputs, and the inputs' gradients from the outputs'.
struct Function {
  std::function<Values(const std::vector<Values>&)> forward;
  std::function<std::vector<Values>(const std::vector<Values>&, const Values&)> backward;
};

double weighted(const Values& outputs, const Values& weights) {
  double sum = 0.0;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    sum += static_cast<double>(outputs[i]) * static_cast<double>(weights[i]);
  }
  return sum;
}

void check(const Function& function, std::vector<Values> inputs, double tolerance = 3e-3) {
  const Values outputs = function.forward(inputs);
  const Values d_out = noise(static_cast<std::int64_t>(outputs.size()), 99);
  const std::vector<Values> gradients = function.backward(inputs, d_out);
  REQUIRE(gradients.size() == inputs.size());
  constexpr float kStep = 4e-3F;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    REQUIRE(gradients[k].size() == inputs[k].size());
    double largest = 0.0;
    for (const float value : gradients[k]) {
      largest = std::max(largest, std::abs(static_cast<double>(value)));
    }
    REQUIRE(largest > 0.0);
    const std::size_t stride = std::max<std::size_t>(1, inputs[k].size() / 37);
    for (std::size_t i = 0; i < inputs[k].size(); i += stride) {
      const float before = inputs[k][i];
      inputs[k][i] = before + kStep;
      const double above = weighted(function.forward(inputs), d_out);
      const double width_above = static_cast<double>(inputs[k][i] - before);
      inputs[k][i] = before - kStep;
      const double below = weighted(function.forward(inputs), d_out);
      const double width_below = static_cast<double>(before - inputs[k][i]);
      inputs[k][i] = before;
      INFO("input " << k << " entry " << i);
      const double slope = (above - below) / (width_above + width_below);
      CHECK(std::abs(slope - static_cast<double>(gradients[k][i])) < tolerance * largest);
    }
  }
}

std::size_t size(std::int64_t a, std::int64_t b = 1, std::int64_t c = 1) {
  return static_cast<std::size_t>(a * b * c);
}

TEST_CASE("Gradients of RMSNorm and layer norm") {
  KernelCall call;
  call.rows = 11;
  call.columns = 35;
  call.epsilon = 1e-5;
  Values mean(11);
  Values rstd(11);
  const Function rms{
      [&](const std::vector<Values>& in) {
        Values y(in[0].size());
        run(call,
            Kernel::rms_norm_forward,
            {memory(y), memory(rstd), memory(in[0]), memory(in[1])});
        return y;
      },
      [&](const std::vector<Values>& in, const Values& d_y) {
        std::vector<Values> d{Values(in[0].size()), Values(in[1].size())};
        run(call,
            Kernel::rms_norm_backward,
            {memory(d[0]), memory(d[1]), memory(d_y), memory(in[0]), memory(rstd), memory(in[1])});
        return d;
      }};
  check(rms, {noise(11 * 35, 1), noise(35, 2)});
  const Function layer{
      [&](const std::vector<Values>& in) {
        Values y(in[0].size());
        run(call,
            Kernel::layer_norm_forward,
            {memory(y), memory(mean), memory(rstd), memory(in[0]), memory(in[1]), memory(in[2])});
        return y;
      },
      [&](const std::vector<Values>& in, const Values& d_y) {
        std::vector<Values> d{Values(in[0].size()), Values(in[1].size()), Values(in[2].size())};
        run(call,
            Kernel::layer_norm_backward,
            {memory(d[0]),
             memory(d[1]),
             memory(d[2]),
             memory(d_y),
             memory(in[0]),
             memory(mean),
             memory(rstd),
             memory(in[1])});
        return d;
      }};
  check(layer, {noise(11 * 35, 1), noise(35, 2), noise(35, 3)});
}

TEST_CASE("Gradients of linear layers, with the weight either way round") {
  for (const bool transposed : {false, true}) {
    KernelCall call;
    call.rows = 9;
    call.columns = 20;
    call.inner = 14;
    call.transposed = transposed;
    const Function linear{
        [&](const std::vector<Values>& in) {
          Values y(size(9, 20));
          run(call,
              Kernel::linear_forward,
              {memory(y), memory(in[0]), memory(in[1]), memory(in[2])});
          return y;
        },
        [&](const std::vector<Values>& in, const Values& d_y) {
          std::vector<Values> d{Values(in[0].size()), Values(in[1].size()), Values(in[2].size())};
          run(call, Kernel::linear_backward_input, {memory(d[0]), memory(d_y), memory(in[1])});
          run(call, Kernel::linear_backward_weight, {memory(d[1]), memory(d_y), memory(in[0])});
          run(call, Kernel::linear_backward_bias, {memory(d[2]), memory(d_y)});
          return d;
        }};
    check(linear, {noise(9 * 14, 1), noise(20 * 14, 2), noise(20, 3)});
  }
}

TEST_CASE("A call that accumulates adds to what is there") {
  KernelCall call;
  call.rows = 5;
  call.columns = 6;
  call.inner = 7;
  const Values x = noise(35, 1);
  const Values weight = noise(42, 2);
  Values once(size(5, 6));
  run(call, Kernel::linear_forward, {memory(once), memory(x), memory(weight), Operand{}});
  Values twice = once;
  call.accumulate = true;
  run(call, Kernel::linear_forward, {memory(twice), memory(x), memory(weight), Operand{}});
  for (std::size_t i = 0; i < once.size(); ++i) CHECK(twice[i] == Approx(2.0F * once[i]));
}

TEST_CASE("Rotary positions turn back, and keep lengths") {
  KernelCall call;
  call.batch = 2;
  call.sequence = 9;
  call.rows = 18;
  call.heads = 3;
  call.kv_heads = 1;
  call.head_dim = 8;
  call.rotary_base = 10000.0;
  const Values q = noise(18 * 3 * 8, 1);
  const Values k = noise(18 * 8, 2);
  Values turned_q = q;
  Values turned_k = k;
  run(call, Kernel::rotary_forward, {memory(turned_q), memory(turned_k)});
  CHECK(weighted(turned_q, turned_q) == Approx(weighted(q, q)));
  CHECK(turned_q[30] != q[30]);
  // By the angle of the position itself in the first pair of a head: base^0 = 1.
  const std::size_t row = size(4, 8);
  CHECK(turned_k[row] == Approx(k[row] * std::cos(4.0F) - k[row + 4] * std::sin(4.0F)));
  run(call, Kernel::rotary_backward, {memory(turned_q), memory(turned_k)});
  for (std::size_t i = 0; i < q.size(); ++i) CHECK(turned_q[i] == Approx(q[i]).margin(1e-6));
  for (std::size_t i = 0; i < k.size(); ++i) CHECK(turned_k[i] == Approx(k[i]).margin(1e-6));
}

struct AttentionCase {
  std::string what;
  std::int64_t kv_heads = 2;
  bool causal = true, alibi = false;
};

TEST_CASE("Gradients of attention: grouped, causal or not, with ALiBi, across blocks") {
  for (const AttentionCase& one : {AttentionCase{"grouped", 2, true, false},
                                   AttentionCase{"bidirectional", 4, false, false},
                                   AttentionCase{"ALiBi", 4, true, true}}) {
    INFO(one.what);
    KernelCall call;
    call.batch = 2;
    call.sequence = 70;  // more than a block
    call.rows = 140;
    call.heads = 4;
    call.kv_heads = one.kv_heads;
    call.head_dim = 6;
    call.scale = 0.4;
    call.causal = one.causal;
    call.alibi = one.alibi;
    Values out(size(140, 4, 6));
    Values lse(size(140, 4));
    Values delta(size(140, 4));
    const Function attention{
        [&](const std::vector<Values>& in) {
          run(call,
              Kernel::attention_forward,
              {memory(out), memory(lse), memory(in[0]), memory(in[1]), memory(in[2])});
          return out;
        },
        [&](const std::vector<Values>& in, const Values& d_out) {
          std::vector<Values> d{Values(in[0].size()), Values(in[1].size()), Values(in[2].size())};
          run(call,
              Kernel::attention_backward,
              {memory(d[0]),
               memory(d[1]),
               memory(d[2]),
               memory(delta),
               memory(d_out),
               memory(out),
               memory(lse),
               memory(in[0]),
               memory(in[1]),
               memory(in[2])});
          return d;
        }};
    const std::int64_t keys = 140 * one.kv_heads * 6;
    check(attention, {noise(140 * 4 * 6, 1), noise(keys, 2), noise(keys, 3)});
  }
}

TEST_CASE("Heads of a fused projection give what separate tensors give") {
  KernelCall call;
  call.batch = 1;
  call.sequence = call.rows = 7;
  call.heads = call.kv_heads = 2;
  call.head_dim = 4;
  call.causal = true;
  const Values fused = noise(7 * 24, 5);
  // {T, A, 3, D}, as BLOOM's query_key_value gives it.
  Values q(56);
  Values k(56);
  Values v(56);
  for (std::size_t row = 0; row < 7; ++row) {
    for (std::size_t i = 0; i < 8; ++i) {
      const std::size_t from = row * 24 + i / 4 * 12 + i % 4;
      q[row * 8 + i] = fused[from];
      k[row * 8 + i] = fused[from + 4];
      v[row * 8 + i] = fused[from + 8];
    }
  }
  Values expected(56);
  Values out(56);
  Values lse(14);
  run(call,
      Kernel::attention_forward,
      {memory(expected), memory(lse), memory(q), memory(k), memory(v)});
  call.layout = {24, 12, {0, 4, 8}};
  run(call,
      Kernel::attention_forward,
      {memory(out), memory(lse), memory(fused), memory(fused), memory(fused)});
  CHECK(out == expected);
}

TEST_CASE("Gradients of activation functions") {
  KernelCall call;
  call.rows = 6;
  call.columns = 13;
  const auto one_input = [&](Kernel forward, Kernel backward, bool reads_output) {
    Values y(78);
    const Function function{
        [&, forward](const std::vector<Values>& in) {
          run(call, forward, {memory(y), memory(in[0])});
          return y;
        },
        [&, backward, reads_output](const std::vector<Values>& in, const Values& d_y) {
          std::vector<Values> d{Values(78)};
          run(call, backward, {memory(d[0]), memory(d_y), memory(reads_output ? y : in[0])});
          return d;
        }};
    check(function, {noise(78, 1, 2.0F)});
  };
  one_input(Kernel::gelu_forward, Kernel::gelu_backward, false);
  call.exact_gelu = true;
  one_input(Kernel::gelu_forward, Kernel::gelu_backward, false);
  one_input(Kernel::tanh_forward, Kernel::tanh_backward, true);
  const Function swiglu{
      [&](const std::vector<Values>& in) {
        Values y(78);
        run(call, Kernel::swiglu_forward, {memory(y), memory(in[0]), memory(in[1])});
        return y;
      },
      [&](const std::vector<Values>& in, const Values& d_y) {
        std::vector<Values> d = in;  // in place
        run(call,
            Kernel::swiglu_backward,
            {memory(d[0]), memory(d[1]), memory(d_y), memory(d[0]), memory(d[1])});
        return d;
      }};
  check(swiglu, {noise(78, 1, 2.0F), noise(78, 2)});
}

TEST_CASE("Gradients of tables are sums over the tokens that looked a row up") {
  const std::vector<std::int64_t> ids = {3, 0, 3, 3, 1, 0};
  KernelCall call;
  call.rows = 6;
  call.columns = 5;
  call.inner = 4;
  const Function embedding{
      [&](const std::vector<Values>& in) {
        Values out(30);
        run(call, Kernel::embedding_forward, {memory(out), memory(ids), memory(in[0])});
        return out;
      },
      [&](const std::vector<Values>&, const Values& d_out) {
        std::vector<Values> d{Values(20, 7.0F)};
        run(call, Kernel::embedding_backward, {memory(d[0]), memory(ids), memory(d_out)});
        return d;
      }};
  check(embedding, {noise(20, 1)});
  call.sequence = 3;
  const Function positions{[&](const std::vector<Values>& in) {
                             Values x(30);
                             run(call, Kernel::position_forward, {memory(x), memory(in[0])});
                             return x;
                           },
                           [&](const std::vector<Values>&, const Values& d_x) {
                             std::vector<Values> d{Values(20, 7.0F)};
                             run(call, Kernel::position_backward, {memory(d[0]), memory(d_x)});
                             return d;
                           }};
  check(positions, {noise(20, 1)});
}

TEST_CASE("Gradients of the cross entropy, which leaves out tokens without a label") {
  const std::vector<std::int64_t> labels = {4, -1, 0, 10};
  KernelCall call;
  call.rows = 4;
  call.columns = 11;
  call.scale = 3.0;
  Values lse(4);
  const auto loss_of = [&](const Values& logits) {
    Values loss(1);
    run(call,
        Kernel::cross_entropy_forward,
        {memory(loss), memory(lse), memory(logits), memory(labels)});
    return loss[0];
  };
  const Function loss{[&](const std::vector<Values>& in) { return Values{3.0F * loss_of(in[0])}; },
                      [&](const std::vector<Values>& in, const Values& d_loss) {
                        Values d = in[0];  // in place
                        run(call,
                            Kernel::cross_entropy_backward,
                            {memory(d), memory(d), memory(lse), memory(labels)});
                        for (float& value : d) value *= d_loss[0];
                        return std::vector<Values>{d};
                      }};
  check(loss, {noise(44, 1, 3.0F)});
  CHECK(loss_of(Values(44, 2.0F)) == Approx(std::log(11.0F)));
}

template <typename T>
std::vector<T> narrow(const Values& values) {
  std::vector<T> result;
  for (const float value : values) result.push_back(runtime::from_float<T>(value));
  return result;
}

template <typename T>
Operand memory_of(std::vector<T>& values, DType dtype) {
  Operand operand;
  operand.data = reinterpret_cast<std::byte*>(values.data());
  operand.elements = Elements::of(static_cast<std::int64_t>(values.size()));
  operand.dtype = dtype;
  return operand;
}

template <typename T>
void check_format(DType dtype, float tolerance) {
  // Every number of the format is its own nearest.
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const T value{static_cast<std::uint16_t>(bits)};
    const float wide = runtime::to_float(value);
    if (std::isnan(wide)) continue;
    REQUIRE(runtime::from_float<T>(wide).bits == bits);
  }
  KernelCall call;
  call.rows = 8;
  call.columns = 12;
  call.inner = 300;
  std::vector<T> x = narrow<T>(noise(8 * 300, 1));
  std::vector<T> weight = narrow<T>(noise(12 * 300, 2));
  std::vector<T> y(size(8, 12));
  Values wide_x;
  Values wide_weight;
  for (const T value : x) wide_x.push_back(runtime::to_float(value));
  for (const T value : weight) wide_weight.push_back(runtime::to_float(value));
  Values expected(size(8, 12));
  run(call,
      Kernel::linear_forward,
      {memory_of(y, dtype), memory_of(x, dtype), memory_of(weight, dtype), Operand{}});
  run(call,
      Kernel::linear_forward,
      {memory(expected), memory(wide_x), memory(wide_weight), Operand{}});
  for (std::size_t i = 0; i < y.size(); ++i) {
    // One rounding, of the sum.
    CHECK(runtime::to_float(y[i]) == Approx(expected[i]).epsilon(tolerance));
  }
}

TEST_CASE("16-bit operands are summed in fp32 and rounded once") {
  check_format<runtime::Bf16>(DType::bf16, 0x1p-8F);
  check_format<runtime::Fp16>(DType::fp16, 0x1p-11F);
  CHECK(runtime::from_float<runtime::Fp16>(65520.0F).bits == 0x7c00);     // past the largest
  CHECK(runtime::from_float<runtime::Fp16>(0x1p-25F).bits == 0);          // half of the smallest
  CHECK(runtime::from_float<runtime::Bf16>(1.00390625F).bits == 0x3f80);  // a tie, to even
}

TEST_CASE("A call refuses operands of another size") {
  KernelCall call;
  call.rows = 2;
  call.columns = 3;
  Values y(6);
  Values a(6);
  Values b(5);
  CHECK_THROWS_AS(run(call, Kernel::add, {memory(y), memory(a), memory(b)}), std::logic_error);
}

}  // namespace
}  // namespace zeroplan
