// NCCL alone is emulated, on a GPU that is there: here a driver that is not.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <dlfcn.h>

#include "model/hardware/cluster.hpp"
#include "rehearsal/real_gpu/collective_times.hpp"
#include "rehearsal/timed_step.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

TEST_CASE("times of collectives are linear between their lines") {
  const gpu::CollectiveTimes times("all_gather 8 8 100\nall_gather 8 16 200\nall_gather 2 8 50\n");
  CHECK(times.nanoseconds("all_gather", 8, 1) == 100);
  CHECK(times.nanoseconds("all_gather", 8, 8) == 100);
  CHECK(times.nanoseconds("all_gather", 8, 12) == 150);
  CHECK(times.nanoseconds("all_gather", 8, 160) == 2000);
  CHECK(times.nanoseconds("all_gather", 2, 8) == 50);
  CHECK(times.nanoseconds("all_gather", 4, 8) == 0);
  CHECK(times.nanoseconds("all_reduce", 8, 8) == 0);
}

TEST_CASE("a cluster's collectives have lines for each group that divides it") {
  const std::string lines =
      rehearsal::collective_times(parse_cluster_text("2x8xH100-80G-SXM"), {2, 11, 0});
  const gpu::CollectiveTimes times(lines);
  constexpr std::size_t kPart = 64 << 20;
  CHECK(times.nanoseconds("all_gather", 3, kPart) == 0);
  const std::uint64_t inside = times.nanoseconds("all_gather", 8, kPart);
  const std::uint64_t across = times.nanoseconds("all_gather", 16, kPart);
  CHECK(inside > 0);
  CHECK(across > 2 * inside);  // the network is slower than NVLink
}

namespace {

struct Identity {
  char bytes[128];
};

template <typename Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

TEST_CASE("a collective of a rank without others copies what it has, and takes its time") {
  const std::string file = "collective_times_of_test.txt";
  std::ofstream(file) << "all_gather 4 8 1000\nall_gather 4 1048576 1000000\nall_reduce 4 8 500\n";
  setenv("ZEROPLAN_GPU_COLLECTIVES", file.c_str(), 1);
  setenv("ZEROPLAN_GPU_CHANNELS", "24", 1);
  void* const driver = dlopen(ZEROPLAN_FAKE_CUDA, RTLD_NOW);
  REQUIRE(driver != nullptr);
  void* const nccl = dlopen(ZEROPLAN_NCCL, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(nccl != nullptr);
  using Buffer = const void*;
  void* comm = nullptr;
  REQUIRE(find<int(void**, int, Identity, int)>(nccl, "ncclCommInitRank")(
              &comm, 4, Identity{}, 2) == 0);

  const std::int64_t mine = 7;
  std::vector<std::int64_t> all(4, 0);
  constexpr int kInt64 = 4, kSum = 0;
  const auto gather =
      find<int(Buffer, void*, std::size_t, int, void*, void*)>(nccl, "ncclAllGather");
  REQUIRE(gather(&mine, all.data(), 1, kInt64, comm, nullptr) == 0);
  CHECK(all == std::vector<std::int64_t>(4, 7));

  std::int64_t sum = 5;
  const auto reduce =
      find<int(Buffer, void*, std::size_t, int, int, void*, void*)>(nccl, "ncclAllReduce");
  REQUIRE(reduce(&sum, &sum, 1, kInt64, kSum, comm, nullptr) == 0);
  CHECK(sum == 20);

  const std::string calls = find<const char*()>(driver, "fake_cuda_calls")();
  CHECK(calls == "begin copy copy copy copy occupy:24:1000 begin multiply8 occupy:24:500 ");

  // Of two that are launched together the second takes what both take more than the first.
  find<int()>(nccl, "ncclGroupStart")();
  gather(&mine, all.data(), 1, kInt64, comm, nullptr);
  gather(&mine, all.data(), 1, kInt64, comm, nullptr);
  find<int()>(nccl, "ncclGroupEnd")();
  const std::string after =
      std::string(find<const char*()>(driver, "fake_cuda_calls")()).substr(calls.size());
  CHECK(after == "begin copy copy copy copy occupy:24:1000 begin copy copy copy copy occupy:24:7 ");
  CHECK(find<std::size_t(const char*)>(nccl, "zeroplan_gpu_number")("collectives") == 4);
  std::remove(file.c_str());
}
