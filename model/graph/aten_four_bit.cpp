// Products with weights that are stored in four bits.
#include <utility>

#include "model/graph/aten.hpp"

namespace zeroplan::aten {

namespace {

// dequantize_4bit: twice quantised scales are read first (dequantize_blockwise, then the mean is
// added in place); then one kernel reads the four bits and writes the whole weight.
Tensor dequantized(Tape& t, const Shape& shape, const FourBitWeights& how) {
  const Elements n = shape.numel();
  Tensor scales;
  if (how.double_quant) {
    scales = t.empty(
        Shape{ceil_div(n.count(), kFourBitBlock)}, DType::fp32, MemoryCategory::temporaries);
    t.launch({.name = "dequantize_blockwise", .traffic = scales.bytes() + four_bit_state(n, true)});
    t.launch({.name = "add_", .traffic = scales.bytes() * 2});
  }
  const DType read_as = how.reads_fp16 ? DType::fp16 : t.dtype();
  Tensor weight = t.empty(shape, read_as, MemoryCategory::temporaries);
  t.launch({.name = "dequantize_4bit",
            .traffic = four_bit_weight(n) + four_bit_state(n, false) + weight.bytes()});
  if (read_as == t.dtype()) return weight;
  scales = Tensor();
  Tensor cast = t.empty(shape, t.dtype(), MemoryCategory::temporaries);
  t.launch({.name = "_to_copy", .kind = OpKind::copy, .traffic = weight.bytes() + cast.bytes()});
  return cast;
}

// MatMul4Bit: in the format of the computation.
Tensor matmul_4bit(
    Tape& t, const Tensor& x, const Tensor& weight, const Tensor& bias, const FourBitWeights& how) {
  const bool trains = t.trains({&x, &bias});
  Tensor out;
  {
    const Tensor whole = dequantized(t, weight.shape(), how);
    const Tensor input = x.detached();
    const Tensor shift = bias.defined() ? bias.detached() : Tensor();
    out = linear(t, input, whole, shift);
  }
  if (!trains) return out;
  const Tensor saved = how.keeps_input ? t.save(x) : Tensor();
  t.record(
      {&out},
      {&x, &bias},
      [saved, how, shape = weight.shape(), has_bias = bias.defined(), bias_shape = bias.shape()](
          Backward& b) {
        Tape& tape = b.tape;
        if (has_bias && b.needs(1)) {
          b.give(1, fit_gradient(tape, b.gradient(), bias_shape, b.gradient().dtype()));
        }
        if (!b.needs(0)) return;
        // torch.matmul(grad_output, W): the product of a linear with the weight turned over
        const Tensor whole = dequantized(tape, shape, how);
        const Tensor turned = tape.alias(whole, shape.transposed(0, 1), "t");
        b.give(0, linear(tape, b.gradient(), turned, Tensor()));
      });
  return out;
}

}  // namespace

// nn/modules.py Linear4bit.forward: x.to(compute_dtype), and the product .to() that of x, under
// autocast, too.
Tensor linear_4bit(
    Tape& t, const Tensor& x, const Tensor& weight, const Tensor& bias, const FourBitWeights& how) {
  const DType given = x.dtype();
  return to(t, matmul_4bit(t, to(t, x, t.dtype()), weight, bias, how), given);
}

}  // namespace zeroplan::aten
