#include <algorithm>
#include <numeric>

#include "model/graph/autograd.hpp"

namespace zeroplan {

Shape::Shape(std::initializer_list<std::int64_t> sizes) : rank_(static_cast<int>(sizes.size())) {
  ZP_CHECK(rank_ <= kMaxRank, "a tensor has too many dimensions");
  std::copy(sizes.begin(), sizes.end(), sizes_.begin());
  make_contiguous();
}

Shape::Shape(const std::vector<std::int64_t>& sizes) : rank_(static_cast<int>(sizes.size())) {
  ZP_CHECK(rank_ <= kMaxRank, "a tensor has too many dimensions");
  std::copy(sizes.begin(), sizes.end(), sizes_.begin());
  make_contiguous();
}

void Shape::make_contiguous() {
  std::int64_t stride = 1;
  for (int d = rank_ - 1; d >= 0; --d) {
    strides_[index(d)] = stride;
    stride = detail::checked_product(stride, std::max<std::int64_t>(sizes_[index(d)], 1));
  }
}

void Shape::no_dimension(int d) const {
  check_failed(__FILE__,
               __LINE__,
               "index",
               "dimension " + std::to_string(d) + " of a tensor with " + std::to_string(rank_));
}

Elements Shape::numel() const {
  Elements n = 1_elements;
  for (int d = 0; d < rank_; ++d) n = n * size(d);
  return n;
}

bool Shape::contiguous() const {
  std::int64_t expected = 1;
  for (int d = rank_ - 1; d >= 0; --d) {
    if (size(d) == 1) continue;
    if (stride(d) != expected) return false;
    expected *= size(d);
  }
  return true;
}

bool Shape::dense() const {
  return as_dense().strides_ == strides_ || contiguous() || [&] {
    // Equal up to dimensions of size 1, whose stride means nothing.
    const Shape packed = as_dense();
    for (int d = 0; d < rank_; ++d) {
      if (size(d) > 1 && packed.stride(d) != stride(d)) return false;
    }
    return true;
  }();
}

bool Shape::same_sizes(const Shape& other) const {
  return rank_ == other.rank_ && sizes_ == other.sizes_;
}

Shape Shape::transposed(int a, int b) const {
  Shape result = *this;
  std::swap(result.sizes_[index(a)], result.sizes_[index(b)]);
  std::swap(result.strides_[index(a)], result.strides_[index(b)]);
  return result;
}

Shape Shape::with_size(int d, std::int64_t size) const {
  Shape result = *this;
  result.sizes_[index(d)] = size;
  return result;
}

Shape Shape::stepped(int d, std::int64_t step) const {
  Shape result = *this;
  result.sizes_[index(d)] = ceil_div(size(d), step);
  result.strides_[index(d)] *= step;
  return result;
}

Shape Shape::unsqueezed(int d) const {
  ZP_CHECK(rank_ < kMaxRank, "a tensor has too many dimensions");
  Shape result;
  result.rank_ = rank_ + 1;
  const int at = d < 0 ? d + result.rank_ : d;
  if (at < 0 || at > rank_) no_dimension(d);
  for (int i = 0; i < result.rank_; ++i) {
    const auto to = static_cast<std::size_t>(i);
    if (i == at) {
      result.sizes_[to] = 1;
      result.strides_[to] = at < rank_ ? stride(at) * size(at) : 1;
    } else {
      result.sizes_[to] = size(i < at ? i : i - 1);
      result.strides_[to] = stride(i < at ? i : i - 1);
    }
  }
  return result;
}

Shape Shape::without(int d) const {
  const std::size_t left_out = index(d);
  Shape result;
  for (int i = 0; i < rank_; ++i) {
    if (static_cast<std::size_t>(i) == left_out) continue;
    result.sizes_[static_cast<std::size_t>(result.rank_)] = size(i);
    result.strides_[static_cast<std::size_t>(result.rank_)] = stride(i);
    ++result.rank_;
  }
  return result;
}

Shape Shape::expanded(const Shape& to) const {
  ZP_CHECK(to.rank_ >= rank_, "expand cannot drop dimensions");
  Shape result = to;
  const int offset = to.rank_ - rank_;
  for (int d = 0; d < to.rank_; ++d) {
    const bool grows = d < offset || (size(d - offset) == 1 && to.size(d) != 1);
    ZP_CHECK(grows || size(d - offset) == to.size(d), "expand: sizes do not match");
    result.strides_[static_cast<std::size_t>(d)] = grows ? 0 : stride(d - offset);
  }
  return result;
}

Shape Shape::as_contiguous() const {
  Shape result = *this;
  result.make_contiguous();
  return result;
}

Shape Shape::as_dense() const {
  std::array<int, kMaxRank> order{};
  std::iota(order.begin(), order.begin() + rank_, 0);
  // Outer dimensions first; ties, expanded and single dimensions keep their place.
  std::stable_sort(order.begin(), order.begin() + rank_, [&](int a, int b) {
    if (size(a) == 1 || size(b) == 1 || stride(a) == 0 || stride(b) == 0) return false;
    return stride(a) > stride(b);
  });
  Shape result = *this;
  std::int64_t step = 1;
  for (int i = rank_ - 1; i >= 0; --i) {
    const int d = order[static_cast<std::size_t>(i)];
    result.strides_[static_cast<std::size_t>(d)] = step;
    step *= size(d);
  }
  return result;
}

bool Shape::viewable_as(const Shape& sizes, Shape& out) const {
  out = sizes;
  // Nothing has no strides to keep: any shape of as few elements is a view of it.
  if (numel() == 0_elements) {
    out.make_contiguous();
    return sizes.numel() == 0_elements;
  }
  // computeStride_impl (aten/src/ATen/TensorUtils.cpp): walk both shapes from the innermost
  // dimension; a run of old dimensions that is contiguous among itself can be cut anew.
  int view_d = sizes.rank_ - 1;
  std::int64_t base = rank_ == 0 ? 1 : stride(rank_ - 1);
  std::int64_t run = 1, view_run = 1;
  for (int d = rank_ - 1; d >= 0; --d) {
    run *= size(d);
    const bool chunk_ends = d == 0 || (size(d - 1) != 1 && stride(d - 1) != run * base);
    if (!chunk_ends) continue;
    while (view_d >= 0 && (view_run < run || sizes.size(view_d) == 1)) {
      out.strides_[static_cast<std::size_t>(view_d)] = view_run * base;
      view_run *= sizes.size(view_d);
      --view_d;
    }
    if (view_run != run) return false;
    if (d > 0) {
      base = stride(d - 1);
      run = 1;
      view_run = 1;
    }
  }
  return view_d == -1;
}

Shape Shape::broadcast(const Shape& a, const Shape& b) {
  const Shape& big = a.rank_ >= b.rank_ ? a : b;
  const Shape& small = a.rank_ >= b.rank_ ? b : a;
  Shape result = big;
  const int offset = big.rank_ - small.rank_;
  for (int d = 0; d < small.rank_; ++d) {
    const int axis = d + offset;
    auto& size = result.sizes_[static_cast<std::size_t>(axis)];
    ZP_CHECK(size == small.size(d) || size == 1 || small.size(d) == 1,
             "broadcast: sizes do not match");
    size = std::max(size, small.size(d));
  }
  // TensorIterator: the result keeps the stride order of the operand that has all its sizes.
  if (a.same_sizes(result)) return a.as_dense();
  if (b.same_sizes(result)) return b.as_dense();
  return result.as_contiguous();
}

}  // namespace zeroplan
