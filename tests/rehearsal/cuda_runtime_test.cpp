// The emulated runtime as torch calls it (rehearsal/libraries/cuda_runtime): on this program's own
// GPU, an A100 of 80 GiB.
#include <cstdint>
#include <cstring>
#include <vector>

#include "rehearsal/libraries/cuda_abi.hpp"
#include "tests/catch.hpp"

using namespace zeroplan::gpu;

extern "C" {
int cudaMalloc(void** address, std::size_t bytes);
int cudaFree(void* address);
int cudaMallocManaged(void** address, std::size_t bytes, unsigned flags);
int cuFuncGetAttribute(int* value, int asked, void* function);
int cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total);
int cudaGetLastError();
int cudaPeekAtLastError();
int cudaGetDeviceProperties(void* to, int device);
int cudaGetDeviceProperties_v2(void* to, int device);
int cudaSetDevice(int device);
int cudaPointerGetAttributes(PointerAttributes* attributes, const void* address);
int cudaMemcpy(void* to, const void* from, std::size_t bytes, int kind);
int cudaStreamBeginCapture(void* stream, int mode);
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                  const void*,
                                                  int threads,
                                                  std::size_t);
}

TEST_CASE("cudaMalloc takes of what cudaMemGetInfo reports, and cudaFree gives it back") {
  std::size_t before = 0;
  std::size_t total = 0;
  REQUIRE(cudaMemGetInfo(&before, &total) == kSuccess);
  void* address = nullptr;
  REQUIRE(cudaMalloc(&address, std::size_t{3} << 20) == kSuccess);
  std::size_t after = 0;
  cudaMemGetInfo(&after, &total);
  CHECK(before - after == std::size_t{4} << 20);
  CHECK(total == std::size_t{80} << 30);
  PointerAttributes attributes{};
  cudaPointerGetAttributes(&attributes, address);
  CHECK(attributes.type == 2);
  CHECK(attributes.device == 0);
  CHECK(cudaFree(address) == kSuccess);
  cudaMemGetInfo(&after, &total);
  CHECK(before == after);
  CHECK(cudaFree(nullptr) == kSuccess);
}

TEST_CASE("What is larger than the GPU is out of memory, which is the last error once") {
  void* address = &address;
  CHECK(cudaMalloc(&address, std::size_t{81} << 30) == kOutOfMemory);
  CHECK(address == nullptr);
  CHECK(cudaPeekAtLastError() == kOutOfMemory);
  CHECK(cudaGetLastError() == kOutOfMemory);
  CHECK(cudaGetLastError() == kSuccess);
}

TEST_CASE(
    "Managed memory takes nothing of the GPU, may be larger than it, and is freed like the rest") {
  std::size_t before = 0;
  std::size_t total = 0;
  cudaMemGetInfo(&before, &total);
  void* address = nullptr;
  REQUIRE(cudaMallocManaged(&address, std::size_t{100} << 30, 1) == kSuccess);
  static_cast<char*>(address)[0] = 1;  // the host reads and writes it
  std::size_t after = 0;
  cudaMemGetInfo(&after, &total);
  CHECK(before == after);
  CHECK(cudaFree(address) == kSuccess);
}

TEST_CASE("A kernel of Triton's may have as many threads as a block, and spills nothing") {
  int value = -1;
  CHECK(cuFuncGetAttribute(&value, 0, nullptr) == kSuccess);
  CHECK(value == 1024);
  CHECK(cuFuncGetAttribute(&value, 3, nullptr) == kSuccess);
  CHECK(value == 0);
  CHECK(cuFuncGetAttribute(&value, 4, nullptr) == kSuccess);
  CHECK(value == 32);
}

TEST_CASE("Small copies carry values, and there is one GPU") {
  void* address = nullptr;
  REQUIRE(cudaMalloc(&address, 64) == kSuccess);
  const std::int64_t said = 42;
  std::int64_t heard = 0;
  cudaMemcpy(address, &said, sizeof said, 1);
  cudaMemcpy(&heard, address, sizeof heard, 2);
  CHECK(heard == 42);
  cudaFree(address);
  CHECK(cudaSetDevice(1) == kInvalidDevice);
  CHECK(cudaSetDevice(-1) == kInvalidDevice);
  CHECK(cudaGetLastError() == kInvalidDevice);
}

TEST_CASE(
    "Properties stand where CUDA 12's programs look for them, and nothing is written behind") {
  std::vector<char> memory(kProperties12.size + 64, 'x');
  REQUIRE(cudaGetDeviceProperties_v2(memory.data(), 0) == kSuccess);
  const auto number = [&](std::size_t at) {
    int value = 0;
    std::memcpy(&value, memory.data() + at, sizeof value);
    return value;
  };
  CHECK(std::string(memory.data()) == "NVIDIA A100-SXM4-80GB");
  CHECK(number(kCommonPropertyPlaces.major) == 8);
  CHECK(number(kCommonPropertyPlaces.warp) == 32);
  CHECK(number(kProperties12.processors) == 108);
  CHECK(number(kProperties12.threads_per_processor) == 2048);
  CHECK(memory[kProperties12.size] == 'x');
  CHECK(cudaGetDeviceProperties(memory.data(), 7) == kInvalidDevice);
  cudaGetLastError();
}

TEST_CASE("Graphs are refused, and occupancy is within what a multiprocessor holds") {
  CHECK(cudaStreamBeginCapture(nullptr, 0) == kNotSupported);
  CHECK(cudaGetLastError() == kNotSupported);
  int blocks = 0;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nullptr, 1024, 0);
  CHECK(blocks == 2);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nullptr, 1, 0);
  CHECK(blocks == 32);
}
