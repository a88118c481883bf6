#include "model/implementations/hf_rotary.hpp"

namespace zeroplan::hf {

void share_complex_table(Tape& t, const Context& c) {
  const auto scope = t.enter("model.rotary_emb");
  const Shape half{1, c.sequence, c.shape().rotary_dim / 2};
  const Shape pairs{1, c.sequence, c.shape().rotary_dim};
  const Tensor angles = t.empty(half, DType::fp32);
  t.launch({.name = "bmm", .traffic = angles.bytes(), .library = Library::cublas});
  Tensor table = t.empty(pairs, DType::fp32);
  {
    const Tensor ones = t.empty(half, DType::fp32);
    t.launch({.name = "polar", .traffic = table.bytes() * 2});
  }
  table = aten::scale(t, table);
  t.share(static_cast<std::int32_t>(Slot::cos), table);
  t.leave(scope, Tensor());
}

Tensor turned_complex(Tape& t, const Context& c, const Tensor& wide, int heads) {
  const Shape pairs{1, c.sequence, c.shape().rotary_dim};
  Tensor table = t.shared(static_cast<std::int32_t>(Slot::cos), pairs, DType::fp32);
  table = aten::unsqueeze(t, table, heads);
  return aten::mul(t, wide, table);
}

}  // namespace zeroplan::hf
