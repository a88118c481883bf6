// The engine on a GPU: the losses of CPU ranks, whatever the stage, the precision and where states
// are, and collectives of ranks that share a GPU. The same cases run twice: on the GPU of this
// machine (label gpu, skipped without one), and in a program whose CUDA runtime and kernels are
// emulated (label emulated_gpu), which runs wherever CUDA's headers are.
#include <algorithm>
#include <cmath>
#include <thread>

#include "model/implementations/embedded_memory.hpp"
#include "runtime/collectives/in_process.hpp"
#include "runtime/cuda/hardware.hpp"
#include "runtime/engine/tensor_ops.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/gpu_training.hpp"
#include "tests/gpu/no_gpu.hpp"

namespace zeroplan::runtime {
namespace {

using test::no_gpu;
using test::plan_of;
using test::Point;
using test::train_on;

void check(const Point& point) {
  CAPTURE(point.stage, point.ranks, point.accumulation, point.precision, point.offload);
  const Plan plan = plan_of(point);
  const TrainingReport cpu = train_on(plan, {.gpu = false});
  const TrainingReport gpu = train_on(plan, {});
  // fp32 without TF32: sums in another order. 16 bits: two orders of rounding.
  const double tolerance = std::string(point.precision) == "fp32" ? 2e-5 : 5e-3;
  REQUIRE(gpu.losses.size() == cpu.losses.size());
  for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
    CHECK(std::abs(gpu.losses[i] / cpu.losses[i] - 1.0) < tolerance);
    CHECK(std::abs(gpu.gradient_norms[i] / cpu.gradient_norms[i] - 1.0) < 50.0 * tolerance);
  }
  for (std::size_t r = 0; r < cpu.ranks.size(); ++r) {
    const PlaceAccount& account = gpu.ranks[r].memory.of(Place::device);
    CategoryBytes expected = cpu.ranks[r].memory.of(Place::device).at_peak;
    at(expected, MemoryCategory::temporaries) += Bytes::of(kEmbeddedWorkspace);
    CHECK(account.at_peak == expected);
    CHECK(gpu.ranks[r].use.reserved >= account.peak);
  }
  // What a shared GPU lost since a rank began misses what others gave back meanwhile: it holds for
  // the rank that began first.
  const auto less_measured = [](const RankReport& a, const RankReport& b) {
    return a.use.measured < b.use.measured;
  };
  const auto less_reserved = [](const RankReport& a, const RankReport& b) {
    return a.use.reserved < b.use.reserved;
  };
  const auto& ranks = gpu.ranks;
  CHECK(std::max_element(ranks.begin(), ranks.end(), less_measured)->use.measured >=
        std::min_element(ranks.begin(), ranks.end(), less_reserved)->use.reserved);
}

TEST_CASE("a GPU trains what CPU ranks train, stage by stage") {
  if (no_gpu()) return;
  for (const int stage : {0, 1, 2, 3}) {
    for (const int ranks : {1, 2}) check({.stage = stage, .ranks = ranks});
    check({.stage = stage, .ranks = 2, .accumulation = 2, .overlap = false});
  }
}

TEST_CASE("a GPU trains 16-bit weights with fp32 masters") {
  if (no_gpu()) return;
  for (const int stage : {0, 1, 2, 3}) {
    check({.stage = stage, .ranks = 2, .precision = "bf16"});
  }
  check({.stage = 2, .ranks = 1, .precision = "fp16"});
}

TEST_CASE("a GPU trains with a loss by chunks") {
  if (no_gpu()) return;
  for (const char* precision : {"fp32", "bf16"}) {
    check({.stage = 1, .precision = precision, .fused_loss = true});
    check({.stage = 3, .ranks = 2, .precision = precision, .fused_loss = true});
  }
}

TEST_CASE("a GPU's states and weights can be on the host") {
  if (no_gpu()) return;
  for (const int stage : {1, 2, 3}) {
    check({.stage = stage, .ranks = 2, .accumulation = 2, .offload = true});
    check({.stage = stage, .ranks = 1, .precision = "bf16", .offload = true});
  }
}

TEST_CASE("a GPU's states and weights can be on a drive") {
  if (no_gpu()) return;
  check({.stage = 3, .ranks = 1, .offload = true, .on_drive = true});
  check({.stage = 3, .ranks = 1, .precision = "bf16", .offload = true, .on_drive = true});
}

TEST_CASE("a GPU trains with bf16 masters and moments") {
  if (no_gpu()) return;
  for (const int stage : {1, 2, 3}) {
    check({.stage = stage, .ranks = 2, .precision = "bf16", .pure = true});
  }
}

TEST_CASE("a GPU trains with secondary partitions of the weights") {
  if (no_gpu()) return;
  check({.stage = 3, .ranks = 4, .secondary_partitions = 2});
  check(
      {.stage = 3, .ranks = 2, .accumulation = 2, .precision = "bf16", .secondary_partitions = 2});
}

TEST_CASE("GPUs train in shards and replicas") {
  if (no_gpu()) return;
  check({.stage = 3, .ranks = 4, .shard = 2});
  check({.stage = 3, .ranks = 2, .accumulation = 2, .precision = "bf16", .shard = 1});
}

TEST_CASE("a step on a GPU has a trace with its kernel calls", "[cupti]") {
  if (no_gpu()) return;
  const TrainingReport report = train_on(plan_of({.stage = 2, .ranks = 2}), {.trace = true});
  REQUIRE(report.timeline.has_value());
  const std::string trace = report.timeline->chrome_trace("test");
  for (const char* name : {"linear_forward", "attention_forward", "optimizer", "all"}) {
    CAPTURE(name);
    CHECK(trace.find(name) != std::string::npos);
  }
}

// --- collectives

struct Call {
  CollectiveKind kind;
  ReduceOperation operation = ReduceOperation::sum;
  DType dtype = DType::fp32;
  bool in_place = false;
};

// Values of a rank, small whole numbers, so that every order of summation gives the same.
std::vector<std::byte> values_of(int rank, std::int64_t count, DType dtype) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>((static_cast<int>(i) * 7 + rank * 3) % 13 - 6);
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * width(dtype)));
  convert(reinterpret_cast<const std::byte*>(values.data()),
          DType::fp32,
          bytes.data(),
          dtype,
          Elements::of(count));
  return bytes;
}

// What a rank has after the call, through the host's collectives or the GPU's.
std::vector<std::byte> outcome(const Call& call, Communicator& host, RankHardware* gpu) {
  constexpr std::int64_t kShare = 1001;
  const int ranks = host.ranks();
  const bool gathers = call.kind == CollectiveKind::all_gather;
  const bool scatters = call.kind == CollectiveKind::reduce_scatter;
  const bool both = call.kind == CollectiveKind::all_to_all;
  const std::int64_t in = scatters || both ? ranks * kShare : kShare;
  const std::int64_t out = gathers || both ? ranks * kShare : kShare;
  const std::vector<std::byte> input = values_of(host.rank(), in, call.dtype);
  const auto place = static_cast<std::size_t>(host.rank() * kShare * width(call.dtype));
  const auto out_bytes = static_cast<std::size_t>(out * width(call.dtype));
  // One stretch for all: in place the input stands in the output, or the output in the input.
  const std::size_t size = input.size() + out_bytes;
  std::vector<std::byte> memory(size, std::byte{0});
  const std::size_t input_at = call.in_place && gathers ? place : 0;
  std::size_t output_at = input.size();
  if (call.in_place) output_at = scatters ? place : 0;
  std::copy(input.begin(), input.end(), memory.begin() + static_cast<std::ptrdiff_t>(input_at));
  std::byte* data = memory.data();
  const Bytes bytes =
      Bytes::of(static_cast<std::int64_t>(round_up(static_cast<std::int64_t>(size), 512)));
  if (gpu != nullptr) {
    data = gpu->device->allocate(bytes);
    gpu->device->upload(data, memory.data(), Bytes::of(static_cast<std::int64_t>(size)));
  }
  Communicator& group = gpu != nullptr ? *gpu->group : host;
  group.run({.kind = call.kind,
             .operation = call.operation,
             .dtype = call.dtype,
             .elements = Elements::of(kShare),
             .root = ranks - 1,
             .input = data + input_at,
             .output = data + output_at});
  if (gpu != nullptr) {
    gpu->device->download(memory.data(), data, Bytes::of(static_cast<std::int64_t>(size)));
    gpu->device->release(data, bytes);
  }
  const bool has_result = call.kind != CollectiveKind::reduce || host.rank() == ranks - 1;
  if (!has_result) return {};
  const auto begin = memory.begin() + static_cast<std::ptrdiff_t>(output_at);
  return {begin, begin + static_cast<std::ptrdiff_t>(out_bytes)};
}

void check_collectives(int ranks) {
  std::vector<Call> calls;
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const CollectiveKind kind : {CollectiveKind::all_reduce,
                                      CollectiveKind::reduce,
                                      CollectiveKind::reduce_scatter,
                                      CollectiveKind::all_gather,
                                      CollectiveKind::broadcast,
                                      CollectiveKind::all_to_all}) {
      calls.push_back({.kind = kind, .dtype = dtype});
      if (kind == CollectiveKind::all_to_all) continue;
      calls.push_back({.kind = kind, .dtype = dtype, .in_place = true});
    }
  }
  calls.push_back({.kind = CollectiveKind::all_reduce, .operation = ReduceOperation::maximum});
  const auto make = cuda::hardware({.ranks = ranks});
  const auto host = in_process_ranks(ranks, std::chrono::seconds(60));
  std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
  const auto body = [&](int rank) {
    Communicator& own = *host[static_cast<std::size_t>(rank)];
    try {
      RankHardware gpu = make(own, 1, false);
      for (std::size_t i = 0; i < calls.size(); ++i) {
        if (outcome(calls[i], own, &gpu) == outcome(calls[i], own, nullptr)) continue;
        wrong[static_cast<std::size_t>(rank)] += " " + std::to_string(i);
      }
    } catch (const std::exception& error) {
      wrong[static_cast<std::size_t>(rank)] += error.what();
      own.fail(error.what());
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < ranks; ++rank) threads.emplace_back(body, rank);
  body(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : wrong) CHECK(text == "");
}

TEST_CASE("collectives between ranks on GPUs give what those of CPU ranks give") {
  if (no_gpu()) return;
  for (const int ranks : {1, 3}) {
    CAPTURE(ranks);
    check_collectives(ranks);
  }
}

TEST_CASE("parts of ranks on GPUs sum what those of CPU ranks sum, beside each other") {
  if (no_gpu()) return;
  constexpr int kRanks = 4;
  constexpr std::int64_t kCount = 5120;
  const auto make = cuda::hardware({.ranks = kRanks});
  const auto host = in_process_ranks(kRanks, std::chrono::seconds(60));
  std::vector<std::string> wrong(kRanks);
  const auto body = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    Communicator& own = *host[r];
    try {
      RankHardware gpu = make(own, 1, false);
      const int first = rank / 2 * 2;
      const auto near = gpu.group->split(std::vector<int>{first, first + 1});
      const auto far = gpu.group->split(std::vector<int>{rank % 2, rank % 2 + 2});
      const Bytes bytes = Elements::of(kCount) * DType::fp32;
      const std::vector<std::byte> input = values_of(rank, kCount, DType::fp32);
      std::vector<std::byte> expected = input;
      own.run(
          {.elements = Elements::of(kCount), .input = expected.data(), .output = expected.data()});
      std::byte* data = gpu.device->allocate(bytes);
      for (int round = 0; round < 3; ++round) {
        gpu.device->upload(data, input.data(), bytes);
        for (Communicator* part : {near.get(), far.get()}) {
          part->run({.elements = Elements::of(kCount), .input = data, .output = data});
        }
        std::vector<std::byte> sum(input.size());
        gpu.device->download(sum.data(), data, bytes);
        if (sum != expected) wrong[r] += " round " + std::to_string(round);
      }
      gpu.device->release(data, bytes);
    } catch (const std::exception& error) {
      wrong[r] += error.what();
      own.fail(error.what());
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < kRanks; ++rank) threads.emplace_back(body, rank);
  body(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : wrong) CHECK(text == "");
}

TEST_CASE("a rank that fails ends the others' collectives on the GPU") {
  if (no_gpu()) return;
  const auto make = cuda::hardware({.ranks = 2});
  const auto host = in_process_ranks(2, std::chrono::seconds(60));
  std::string heard;
  std::thread other([&] {
    const RankHardware gpu = make(*host[1], 1, false);
    gpu.group->fail("no more");
  });
  try {
    const RankHardware gpu = make(*host[0], 1, false);
    std::byte* data = gpu.device->allocate(Bytes::kib(4));
    gpu.device->zero(data, Bytes::kib(4));
    gpu.group->run({.elements = Elements::of(1024), .input = data, .output = data});
    gpu.device->synchronize();
    gpu.device->release(data, Bytes::kib(4));
  } catch (const CollectiveError& error) {
    heard = error.what();
  }
  other.join();
  CHECK(heard.find("rank 1 failed: no more") != std::string::npos);
}

TEST_CASE("a GPU without room says who asked, and gives again what came back") {
  if (no_gpu()) return;
  const auto host = in_process_ranks(1);
  const RankHardware gpu = cuda::hardware({.ranks = 1})(*host.front(), 1, false);
  Memory memory({}, gpu.device.get());
  const auto ask = [&](Bytes bytes) {
    return memory.allocate(bytes, MemoryCategory::gradients, Place::device, "a gradient");
  };
  CHECK_THROWS_AS(ask(Bytes::gib(4'000)), OutOfMemory);
  { const Buffer held = ask(Bytes::mib(100)); }
  const Bytes reserved = gpu.device->measured_use().reserved;
  { const Buffer held = ask(Bytes::mib(90)); }
  CHECK(gpu.device->measured_use().reserved == reserved);
}

}  // namespace
}  // namespace zeroplan::runtime
