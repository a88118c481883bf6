#include "runtime/profile/cpu_cases.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "runtime/profile/kernel_cases.hpp"

namespace zeroplan::runtime {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::array kProducts = {
    Kernel::linear_forward, Kernel::linear_backward_input, Kernel::linear_backward_weight};
constexpr std::array kRowwise = {Kernel::rms_norm_forward,
                                 Kernel::rms_norm_backward,
                                 Kernel::layer_norm_forward,
                                 Kernel::layer_norm_backward,
                                 Kernel::swiglu_forward,
                                 Kernel::swiglu_backward,
                                 Kernel::gelu_forward,
                                 Kernel::gelu_backward};

bool is_gelu(Kernel kernel) {
  return kernel == Kernel::gelu_forward || kernel == Kernel::gelu_backward;
}

bool is_product(Kernel kernel) {
  return std::find(kProducts.begin(), kProducts.end(), kernel) != kProducts.end();
}

// A quarter of the tokens at the widths of small models; few rows, few columns and little depth
// tell the terms of a product apart.
struct Sizes {
  std::vector<Shape> products, rowwise, heads;
  Shape half_product, loss, table;
};

Sizes sizes_of(const ProfileScale& scale) {
  const std::int64_t t = scale.tokens;
  const std::int64_t h = scale.hidden.front() / 2;
  Sizes sizes;
  sizes.products = {{t / 2, h / 3, h / 3},
                    {4 * t, h / 3, h},
                    {2 * t, h, h / 3},
                    {2 * t, h, h},
                    {2 * t, 3 * h, h}};
  sizes.rowwise = {{2 * t, h}, {4 * t, 3 * h}};
  sizes.heads = {{2, t, 4, 32}, {1, 4 * t, 4, 64}};
  sizes.half_product = {2 * t, h, h};
  sizes.loss = {2 * t, 10 * h};
  sizes.table = {4 * t, h, 10 * h};
  if (scale.hidden.size() > 2) sizes.products.push_back({t, scale.hidden[1], scale.hidden[1]});
  return sizes;
}

}  // namespace

std::vector<CpuCase> cpu_cases(const ProfileScale& scale) {
  const Sizes sizes = sizes_of(scale);
  std::vector<CpuCase> cases;
  const auto add = [&](Kernel kernel, const Shape& shape, DType dtype = DType::fp32) {
    cases.push_back({kernel, shape, dtype, false});
    if (!is_gelu(kernel)) return;
    cases.push_back({kernel, shape, dtype, true});
  };
  for (const Shape& shape : sizes.products) {
    for (const Kernel kernel : kProducts) add(kernel, shape);
  }
  for (const Shape& shape : sizes.heads) {
    for (const Kernel kernel :
         {Kernel::attention_forward, Kernel::attention_backward, Kernel::rotary_forward}) {
      add(kernel, shape);
    }
  }
  for (const Shape& shape : sizes.rowwise) {
    for (const Kernel kernel : kRowwise) add(kernel, shape);
    add(Kernel::add, shape);
  }
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    add(Kernel::cross_entropy_forward, sizes.loss, dtype);
    add(Kernel::cross_entropy_backward, sizes.loss, dtype);
    add(Kernel::embedding_backward, sizes.table, dtype);
    if (dtype == DType::fp32) continue;
    for (const Kernel kernel : kProducts) add(kernel, sizes.half_product, dtype);
    for (const Kernel kernel :
         {Kernel::swiglu_forward, Kernel::swiglu_backward, Kernel::rms_norm_forward}) {
      add(kernel, sizes.rowwise.front(), dtype);
    }
  }
  return cases;
}

std::vector<CpuCase> threaded_cases(const ProfileScale& scale) {
  const Sizes sizes = sizes_of(scale);
  std::vector<CpuCase> cases;
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{4}}) {
    cases.push_back({Kernel::linear_backward_input, sizes.products[i]});
  }
  for (const Shape& shape : sizes.heads) cases.push_back({Kernel::attention_backward, shape});
  for (const Shape& shape : sizes.rowwise) {
    cases.push_back({Kernel::gelu_forward, shape});
    cases.push_back({Kernel::rms_norm_forward, shape});
  }
  return cases;
}

KernelCall call_of(const CpuCase& c) {
  const Shape& shape = c.shape;
  if (is_product(c.kernel)) return linear_call(c.kernel, shape[0], shape[1], shape[2]);
  switch (c.kernel) {
    case Kernel::attention_forward:
    case Kernel::attention_backward:
      return attention_call(c.kernel, shape[0], shape[1], shape[2], shape[3]);
    case Kernel::rotary_forward: {
      KernelCall call =
          attention_call(Kernel::attention_forward, shape[0], shape[1], shape[2], shape[3]);
      call.kernel = c.kernel;
      call.operands.resize(2);
      call.rotary_base = 1e4;
      return call;
    }
    case Kernel::cross_entropy_forward:
    case Kernel::cross_entropy_backward:
    case Kernel::embedding_backward: {
      KernelCall call;
      call.kernel = c.kernel;
      call.operands.resize(c.kernel == Kernel::embedding_backward ? 3 : 4,
                           {KernelOperand::From::storage, 0});
      call.batch = 1;
      call.sequence = call.rows = shape[0];
      call.columns = shape[1];
      if (shape.size() > 2) call.inner = shape[2];
      return call;
    }
    default: {
      KernelCall call = rowwise_call(c.kernel, shape[0], shape[1]);
      call.exact_gelu = c.exact_gelu;
      return call;
    }
  }
}

ProfileRow row_of(const CpuCase& c, std::int64_t threads, Spread seconds) {
  Json shape = Json::array();
  for (const std::int64_t size : c.shape) shape.push_back(Json(size));
  ProfileRow row{std::string(name(c.kernel)),
                 {{"dtype", Json(text_of(c.dtype))},
                  {"shape", std::move(shape)},
                  {"threads", Json(threads)},
                  {"mode", Json(kInARow)}},
                 "s",
                 seconds};
  if (c.exact_gelu) row.settings.emplace_back("exact", Json(true));
  return row;
}

std::optional<CpuCase> case_of(const ProfileRow& row) {
  if (text_setting(row, "mode") != kInARow) return std::nullopt;
  const auto kernel = std::find(kKernelNames.begin(), kKernelNames.end(), row.what);
  if (kernel == kKernelNames.end()) return std::nullopt;
  CpuCase found;
  found.kernel = static_cast<Kernel>(kernel - kKernelNames.begin());
  found.shape = shape_of(row);
  const std::string dtype = text_setting(row, "dtype");
  found.dtype = dtype == "bf16" ? DType::bf16 : dtype == "fp16" ? DType::fp16 : DType::fp32;
  found.exact_gelu = setting(row, "exact") != nullptr;
  return found;
}

}  // namespace zeroplan::runtime
