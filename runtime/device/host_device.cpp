#include "runtime/device/host_device.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "runtime/engine/tensor_ops.hpp"

namespace zeroplan::runtime {
namespace {

constexpr std::int64_t kAtOnce = 1 << 17;  // elements that a thread takes

// 16-bit states: a piece as fp32, updated, rounded once.
void update_in_pieces(const UpdateState& state,
                      const AdamWOptions& options,
                      std::int64_t step,
                      double gradient_scale,
                      int threads) {
  constexpr Elements kPiece = Elements::of(1 << 14);
  constexpr auto kFloats = static_cast<std::size_t>(kPiece.count());
  std::array<std::vector<float>, 4> pieces;
  for (std::vector<float>& piece : pieces) piece.resize(kFloats);
  const auto bytes = [&](std::size_t i) { return reinterpret_cast<std::byte*>(pieces[i].data()); };
  std::byte* const updated[] = {state.weights, state.first_moment, state.second_moment};
  for (Elements begin; begin < state.elements; begin += kPiece) {
    const Elements count = std::min(kPiece, state.elements - begin);
    const auto size = static_cast<std::size_t>(count.count());
    const auto load = [&](const std::byte* from, std::size_t i) {
      const Bytes at = begin * state.dtype;
      runtime::convert(from + at.count(), state.dtype, bytes(i), DType::fp32, count);
    };
    for (std::size_t i = 0; i < 3; ++i) load(updated[i], i);
    load(state.gradient, 3);
    runtime::adamw({.weights = {pieces[0].data(), size},
                    .first_moment = {pieces[1].data(), size},
                    .second_moment = {pieces[2].data(), size},
                    .gradient = {pieces[3].data(), size}},
                   options,
                   step,
                   gradient_scale,
                   threads);
    for (std::size_t i = 0; i < 3; ++i) {
      runtime::convert(
          bytes(i), DType::fp32, advance(updated[i], begin, state.dtype), state.dtype, count);
    }
  }
}

}  // namespace

std::byte* HostDevice::allocate(Bytes bytes) {
  constexpr std::size_t kAlignment = 512;
  const auto size = static_cast<std::size_t>(round_up(bytes.count(), kAlignment));
  return static_cast<std::byte*>(std::aligned_alloc(kAlignment, size));
}

void HostDevice::release(std::byte* data, Bytes) noexcept { std::free(data); }

// Aligned to a page, as page-locked memory is.
std::byte* HostDevice::allocate_pinned(Bytes bytes) {
  constexpr std::size_t kPage = 4096;
  const auto size = static_cast<std::size_t>(round_up(bytes.count(), kPage));
  return static_cast<std::byte*>(std::aligned_alloc(kPage, size));
}

void HostDevice::release_pinned(std::byte* data, Bytes) noexcept { std::free(data); }

void HostDevice::zero(std::byte* to, Bytes bytes) {
  std::memset(to, 0, static_cast<std::size_t>(bytes.count()));
}

void HostDevice::in_pieces(Elements count,
                           const std::function<void(std::int64_t, Elements, Elements)>& body) {
  const std::int64_t pieces = ceil_div(count.count(), kAtOnce);
  const auto piece = [&](std::int64_t index) {
    const std::int64_t begin = index * kAtOnce;
    const std::int64_t size = std::min(kAtOnce, count.count() - begin);
    body(index, Elements::of(begin), Elements::of(size));
  };
  if (pieces <= 1 || threads_ == 1) {
    for (std::int64_t i = 0; i < pieces; ++i) piece(i);
    return;
  }
  if (pool_ == nullptr) pool_ = std::make_unique<ThreadPool>(threads_);
  pool_->run(pieces, piece);
}

void HostDevice::convert(const std::byte* from,
                         DType from_dtype,
                         std::byte* to,
                         DType to_dtype,
                         Elements count,
                         double factor) {
  // Where they overlap the order of bytes matters.
  const bool copies = from_dtype == to_dtype && factor == 1.0;
  if (copies && from < to + (count * to_dtype).count() && to < from + (count * to_dtype).count()) {
    runtime::convert(from, from_dtype, to, to_dtype, count, factor);
    return;
  }
  in_pieces(count, [&](std::int64_t, Elements begin, Elements size) {
    const std::byte* const source = advance(from, begin, from_dtype);
    runtime::convert(source, from_dtype, advance(to, begin, to_dtype), to_dtype, size, factor);
  });
}

void HostDevice::add_to(
    std::byte* to, DType to_dtype, const std::byte* from, DType from_dtype, Elements count) {
  in_pieces(count, [&](std::int64_t, Elements begin, Elements size) {
    const std::byte* const source = advance(from, begin, from_dtype);
    runtime::add_to(advance(to, begin, to_dtype), to_dtype, source, from_dtype, size);
  });
}

void HostDevice::adamw(const UpdateState& state,
                       const AdamWOptions& options,
                       std::int64_t step,
                       double gradient_scale) {
  const auto floats = [](std::byte* data) { return reinterpret_cast<float*>(data); };
  if (state.dtype != DType::fp32) {
    update_in_pieces(state, options, step, gradient_scale, threads_);
  } else {
    const auto size = static_cast<std::size_t>(state.elements.count());
    runtime::adamw({.weights = {floats(state.weights), size},
                    .first_moment = {floats(state.first_moment), size},
                    .second_moment = {floats(state.second_moment), size},
                    .gradient = {reinterpret_cast<const float*>(state.gradient), size}},
                   options,
                   step,
                   gradient_scale,
                   threads_);
  }
  if (state.rounded == nullptr) return;
  convert(state.weights, state.dtype, state.rounded, state.rounded_dtype, state.elements, 1.0);
}

void HostDevice::add_squares_of(const std::byte* data, DType dtype, Elements count, Scalar to) {
  std::vector<double> sums(static_cast<std::size_t>(ceil_div(count.count(), kAtOnce)));
  in_pieces(count, [&](std::int64_t index, Elements begin, Elements size) {
    sums[static_cast<std::size_t>(index)] = squares_of(advance(data, begin, dtype), dtype, size);
  });
  double& sum = scalars_[static_cast<std::size_t>(to)];
  for (const double one : sums) sum += one;
}

void HostDevice::find_overflow(const std::byte* data, DType dtype, Elements count) {
  double& found = scalars_[static_cast<std::size_t>(Scalar::overflow)];
  if (found != 0.0) return;
  std::atomic<bool> overflowed = false;
  in_pieces(count, [&](std::int64_t, Elements begin, Elements size) {
    if (overflows(advance(data, begin, dtype), dtype, size)) overflowed = true;
  });
  if (overflowed) found = 1.0;
}

void HostDevice::upload(std::byte* to, const void* from, Bytes bytes) {
  std::memcpy(to, from, static_cast<std::size_t>(bytes.count()));
}

void HostDevice::download(void* to, const std::byte* from, Bytes bytes) {
  std::memcpy(to, from, static_cast<std::size_t>(bytes.count()));
}

double HostDevice::take(Scalar scalar) {
  return std::exchange(scalars_[static_cast<std::size_t>(scalar)], 0.0);
}

std::unique_ptr<Device> host_device(int threads) { return std::make_unique<HostDevice>(threads); }

}  // namespace zeroplan::runtime
