// The emulation notices what a GPU would leave undefined, and lays fragments out as the PTX ISA
// says: else the tests of kernels beside this one prove nothing.
#include <cmath>
#include <vector>

#include "runtime/cuda/kernels/async_copy.cuh"
#include "tests/catch.hpp"

namespace zeroplan::runtime::cuda {
namespace {

using emulation::Fault;
using Order = emulation::Schedule::Order;

// Neighbours exchange numbers through shared memory, with or without the barrier between.
__global__ void neighbours(int* out, bool barrier) {
  int* shared = reinterpret_cast<int*>(shared_memory());
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (barrier) __syncthreads();
  out[threadIdx.x] = shared[(threadIdx.x + 1) % blockDim.x];
}

// One warp reads what the other has written, after an operation in which each warp waits for itself
// alone.
__global__ void across_warps(int* out, bool barrier) {
  int* shared = reinterpret_cast<int*>(shared_memory());
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (barrier) __syncthreads();
  __syncwarp();
  out[threadIdx.x] = shared[threadIdx.x ^ 32U];
}

// Each thread copies four numbers, in two groups, and reads those of another.
struct Copies {
  bool first = true, second = true;  // waited for
  bool barrier = true;
  int other = 0;  // whose are read: threadIdx.x ^ other
};
__global__ void copied(const float* from, float* out, Copies copies) {
  auto* shared = reinterpret_cast<float*>(shared_memory());
  const unsigned mine = 4 * threadIdx.x;
  begin_copy<4>(shared + mine, from + mine, true);
  begin_copy<4>(shared + mine + 1, from + mine, false);
  commit_copies();
  begin_copy<4>(shared + mine + 2, from + mine + 2, true);
  commit_copies();
  if (copies.first) wait_for_copies<1>();
  if (copies.second) wait_for_copies<0>();
  if (copies.barrier) __syncthreads();
  const unsigned read = 4 * (threadIdx.x ^ static_cast<unsigned>(copies.other));
  for (unsigned i = 0; i < 3; ++i) out[mine + i] = shared[read + i];
  wait_for_copies<0>();
}

std::vector<float> copied_by(Copies copies) {
  std::vector<float> from(256);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i + 1);
  std::vector<float> out(256);
  launch(copied, 1, 64, 256 * sizeof(float), nullptr, from.data(), out.data(), copies);
  return out;
}

__global__ void copies_before(std::byte* from, int bytes_off, bool commit) {
  begin_copy<16>(shared_memory() + bytes_off, from, true);
  if (commit) commit_copies();
  wait_for_copies<0>();
}

std::vector<int> neighbours_of(Order order, bool barrier) {
  emulation::set_schedule({order});
  std::vector<int> out(64);
  launch(neighbours, 1, 64, 64 * sizeof(int), nullptr, out.data(), barrier);
  return out;
}

__global__ void some_wait(int threads) {
  if (threadIdx.x < static_cast<unsigned>(threads)) __syncthreads();
}

__global__ void wait_apart() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

__global__ void half_a_warp(float* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(kAllLanes, 1.0F, 1);
}

__global__ void lanes_apart(float* out) {
  if (threadIdx.x % 2 == 0) {
    out[threadIdx.x] = __shfl_xor_sync(kAllLanes, 1.0F, 1);
  } else {
    out[threadIdx.x] = __shfl_xor_sync(kAllLanes, 2.0F, 1);
  }
}

__global__ void part_of_a_mask(float* out) { out[threadIdx.x] = __shfl_xor_sync(0xffffU, 1.0F, 1); }

__global__ void write_past(int index) {
  reinterpret_cast<volatile std::byte*>(shared_memory())[index] = std::byte{0};
}

__global__ void read_unset(float* out) {
  *out = reinterpret_cast<float*>(shared_memory())[threadIdx.x % 2];
}

__global__ void shuffles(int* out, unsigned* bits) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  out[threadIdx.x] = __shfl_xor_sync(kAllLanes, lane, 5) * 100 + __shfl_sync(kAllLanes, lane, 7);
  const unsigned odd = __ballot_sync(kAllLanes, lane % 2);
  if (lane == 3) *bits = odd;
}

TEST_CASE("Without its barrier an exchange depends on the order of threads") {
  std::vector<int> right(64);
  for (int i = 0; i < 64; ++i) right[static_cast<std::size_t>(i)] = (i + 1) % 64;
  for (const Order order : {Order::forward, Order::reversed, Order::shuffled}) {
    CHECK(neighbours_of(order, true) == right);
    CHECK(neighbours_of(order, false) != right);
  }
  emulation::set_schedule({});
}

TEST_CASE("A warp runs ahead of those it does not wait for") {
  std::vector<int> right(64);
  for (int i = 0; i < 64; ++i) right[static_cast<std::size_t>(i)] = i ^ 32;
  for (const Order order : {Order::forward, Order::reversed}) {
    emulation::set_schedule({order});
    std::vector<int> out(64);
    launch(across_warps, 1, 64, 64 * sizeof(int), nullptr, out.data(), true);
    CHECK(out == right);
    launch(across_warps, 1, 64, 64 * sizeof(int), nullptr, out.data(), false);
    CHECK(out != right);
  }
  emulation::set_schedule({});
}

TEST_CASE("Divergent barriers and warps are faults") {
  std::vector<float> out(64);
  CHECK_THROWS_WITH(launch(some_wait, 1, 64, 0, nullptr, 32),
                    Catch::Contains("threads returned while others wait"));
  CHECK_NOTHROW(launch(some_wait, 1, 64, 0, nullptr, 64));
  CHECK_THROWS_WITH(launch(wait_apart, 1, 64, 0, nullptr), Catch::Contains("different barriers"));
  CHECK_THROWS_WITH(launch(half_a_warp, 1, 32, 0, nullptr, out.data()),
                    Catch::Contains("lanes wait for others"));
  CHECK_THROWS_WITH(launch(lanes_apart, 1, 32, 0, nullptr, out.data()),
                    Catch::Contains("different operations"));
  CHECK_THROWS_WITH(launch(part_of_a_mask, 1, 32, 0, nullptr, out.data()),
                    Catch::Contains("without all its lanes"));
}

TEST_CASE("Launches that no device takes are faults") {
  CHECK_THROWS_AS(launch(some_wait, 1, 33, 0, nullptr, 64), Fault);
  CHECK_THROWS_AS(launch(some_wait, 1, 2048, 0, nullptr, 64), Fault);
  CHECK_THROWS_AS(launch(some_wait, dim3(0), 32, 0, nullptr, 64), Fault);
  CHECK_THROWS_AS(launch(some_wait, dim3(1, 70000), 32, 0, nullptr, 64), Fault);
  CHECK_THROWS_AS(launch(some_wait, 1, 32, std::size_t{200} * 1024, nullptr, 64), Fault);
}

TEST_CASE("Shared memory begins as NaN and ends where the launch says") {
  float value = 0.0F;
  launch(read_unset, 1, 32, 8, nullptr, &value);
  CHECK(value != value);
  CHECK_NOTHROW(launch(write_past, 1, 32, 8, nullptr, 7));
  CHECK_THROWS_WITH(launch(write_past, 1, 32, 8, nullptr, 8),
                    Catch::Contains("past its shared memory"));
}

TEST_CASE("A copy arrives at the wait that covers it") {
  for (const Order order : {Order::forward, Order::reversed, Order::shuffled}) {
    emulation::set_schedule({order});
    std::vector<float> out = copied_by({});
    CHECK(out[0] == 1.0F);
    CHECK(out[1] == 0.0F);  // nothing was there to be read
    CHECK(out[2] == 3.0F);
    CHECK(out[252] == 253.0F);
    out = copied_by({.second = false});
    CHECK(out[0] == 1.0F);
    CHECK(std::isnan(out[2]));
    out = copied_by({.first = false, .second = false});
    CHECK(std::isnan(out[0]));
    CHECK(std::isnan(out[1]));
  }
  emulation::set_schedule({});
}

TEST_CASE("A copy that another thread waits for is seen behind a barrier alone") {
  for (const Order order : {Order::forward, Order::reversed}) {
    emulation::set_schedule({order});
    std::vector<float> out = copied_by({.other = 32});
    CHECK(out[0] == 129.0F);
    CHECK(out[130] == 3.0F);
    out = copied_by({.barrier = false, .other = 32});
    // The warp that comes first reads what nobody has waited for.
    CHECK(std::isnan(out[order == Order::forward ? 0 : 128]));
  }
  emulation::set_schedule({});
}

TEST_CASE("Copies that no device takes, or that outlive their thread, are faults") {
  alignas(16) std::byte from[32] = {};
  CHECK_NOTHROW(launch(copies_before, 1, 32, 64, nullptr, from, 16, true));
  CHECK_THROWS_WITH(launch(copies_before, 1, 32, 64, nullptr, from, 16, false),
                    Catch::Contains("before its copy arrived"));
  CHECK_THROWS_WITH(launch(copies_before, 1, 32, 64, nullptr, from, 8, true),
                    Catch::Contains("no multiple"));
  CHECK_THROWS_WITH(launch(copies_before, 1, 32, 64, nullptr, from + 4, 16, true),
                    Catch::Contains("no multiple"));
  CHECK_THROWS_WITH(launch(copies_before, 1, 32, 64, nullptr, from, 64, true),
                    Catch::Contains("past the block's shared memory"));
}

TEST_CASE("Shuffles and ballots") {
  std::vector<int> out(64);
  unsigned bits = 0;
  launch(shuffles, 1, 64, 0, nullptr, out.data(), &bits);
  for (int i = 0; i < 64; ++i) {
    CHECK(out[static_cast<std::size_t>(i)] == ((i % 32) ^ 5) * 100 + 7);
  }
  CHECK(bits == 0xaaaaaaaaU);
}

}  // namespace
}  // namespace zeroplan::runtime::cuda
