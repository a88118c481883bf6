#include "runtime/collectives/communicator.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <functional>

#include "base/check.hpp"

namespace zeroplan::runtime {

std::string_view name_of(CollectiveKind kind) {
  constexpr std::array<std::string_view, 7> kNames = {
      "all_reduce", "reduce", "reduce_scatter", "all_gather", "broadcast", "barrier", "all_to_all"};
  return kNames[static_cast<std::size_t>(kind)];
}

int place_among(std::span<const int> members, int rank, int ranks) {
  const auto found = std::find(members.begin(), members.end(), rank);
  ZP_CHECK(found != members.end(), "a rank is in its own part of a group");
  ZP_CHECK(members.front() >= 0 && members.back() < ranks, "a part has ranks of its group");
  const bool ascends =
      std::adjacent_find(members.begin(), members.end(), std::greater_equal<>()) == members.end();
  ZP_CHECK(ascends, "the members of a part ascend");
  return static_cast<int>(found - members.begin());
}

Pending::~Pending() {
  if (!wait_) return;
  // Somebody else may still write into the buffers; that they are given up shows in who else waits.
  try {
    wait_();
  } catch (const std::exception&) {
  }
}

void Pending::wait() {
  if (!wait_) return;
  const std::function<void()> wait = std::exchange(wait_, nullptr);
  wait();
}

namespace {

Exchange in_place(std::byte* data, DType dtype, Elements elements, ReduceOperation operation) {
  return {.kind = CollectiveKind::all_reduce,
          .operation = operation,
          .dtype = dtype,
          .elements = elements,
          .input = data,
          .output = data};
}

}  // namespace

void Communicator::all_reduce(float* data, Elements elements, ReduceOperation operation) {
  run(in_place(reinterpret_cast<std::byte*>(data), DType::fp32, elements, operation));
}

void Communicator::all_reduce(double* data, Elements elements, ReduceOperation operation) {
  run(in_place(reinterpret_cast<std::byte*>(data), DType::fp64, elements, operation));
}

void Communicator::barrier() { run({.kind = CollectiveKind::barrier}); }

}  // namespace zeroplan::runtime
