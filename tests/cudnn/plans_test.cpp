// cuDNN's plans for attention, made for an A100 and an H100 that are not there. cuDNN is asked
// whether it knows the graphs, which engine takes them, what workspace that needs, and compiles its
// kernels; whether their results are right only a GPU says (tests/cuda_kernels, label gpu).
#include <cstdint>

#include <dlfcn.h>

#include "runtime/cuda/cudnn/cudnn_graph.hpp"
#include "runtime/cuda/cudnn/slices.hpp"
#include "runtime/cuda/kernels/workspace.hpp"
#include "tests/catch.hpp"

namespace zeroplan::runtime::cuda {
namespace {

// What cuDNN writes and reads as CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION. Numbers: CUDA C++
// Programming Guide, "Technical Specifications per Compute Capability"; the GPUs' data sheets.
std::string properties(int version, int processors, int shared, std::int64_t memory, int l2) {
  const auto number = [](const char* name, std::int64_t value) {
    return std::string("\"") + name + "\":" + std::to_string(value) + ",";
  };
  return "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64]," +
         number("regsPerBlock", 65536) + number("multiProcessorCount", processors) +
         number("warpSize", 32) + number("maxSharedMemoryPerBlock", 49152) +
         number("maxSharedMemoryPerBlockOptin", shared) +
         number("reservedSharedMemoryPerBlock", 1024) + number("maxRegistersPerSM", 65536) +
         number("maxCtasPerSM", 32) + number("maxThreadsPerBlock", 1024) +
         number("maxThreadsPerSM", 2048) + number("pciDeviceId", 0) + number("isTccDriver", 0) +
         number("supportCoopLaunch", 1) + number("totalGlobalMem", memory) +
         number("smClockRateKHz", 1410000) + number("memClockRateKHz", 1593000) +
         number("l2CacheSize", l2) + number("cudaDeviceId", 0) + number("deviceVer", version) +
         number("driverVer", 13000) + "\"deviceName\":\"no GPU\"}";
}
const std::string& a100() {
  static const std::string text =
      properties(800, 108, 163 * 1024, std::int64_t{80} << 30, 40 << 20);
  return text;
}
const std::string& h100() {
  static const std::string text =
      properties(900, 132, 227 * 1024, std::int64_t{80} << 30, 50 << 20);
  return text;
}

const CudnnLibrary* library() {
  const char* why = nullptr;
  const CudnnLibrary* found = cudnn_library(&why);
  if (found == nullptr) WARN("skipped: " << why);
  if (found == nullptr || ::dlopen("libcuda.so.1", RTLD_NOW) != nullptr) return found;
  WARN("skipped: no driver's library, nor the emulated one in LD_LIBRARY_PATH");
  return nullptr;
}

AttentionProblem problem(std::int64_t batch,
                         std::int64_t sequence,
                         std::int64_t heads,
                         std::int64_t kv_heads,
                         std::int64_t head_dim) {
  AttentionProblem made;
  made.batch = batch;
  made.sequence = sequence;
  made.heads = heads;
  made.kv_heads = kv_heads;
  made.head_dim = head_dim;
  made.q = made.out = {heads * head_dim, head_dim};
  made.k = made.v = {kv_heads * head_dim, head_dim};
  made.scale = 0.125;
  made.causal = true;
  return made;
}

std::int64_t workspace_of(const CudnnLibrary& cudnn,
                          const AttentionProblem& asked,
                          const std::string& gpu) {
  INFO("heads " << asked.heads << "/" << asked.kv_heads << " of " << asked.head_dim << ", "
                << asked.sequence << " queries, backward " << asked.backward << ", causal "
                << asked.causal);
  try {
    const CudnnPlan plan(cudnn, asked, {nullptr, gpu});
    CHECK(plan.engine() >= 0);
    return plan.workspace_bytes();
  } catch (const CudnnError& error) {
    FAIL_CHECK(error.what());
  }
  return -1;
}

// Those of tests/cuda_kernels/attention_test.cpp, which on a GPU have to be cuDNN's; and where a
// warp, a tile and a row of the training tests end.
TEST_CASE("cuDNN has plans for the shapes that are compared on a GPU") {
  const CudnnLibrary* cudnn = library();
  if (cudnn == nullptr) return;
  struct Shape {
    std::int64_t batch, sequence, heads, kv_heads, head_dim;
    bool causal = true;
  };
  for (const Shape& shape : {Shape{1, 1, 1, 1, 64},
                             Shape{1, 130, 2, 1, 64},
                             Shape{1, 70, 1, 1, 80, false},
                             Shape{1, 100, 2, 2, 128},
                             Shape{1, 67, 1, 1, 128, false},
                             Shape{1, 300, 3, 1, 64},
                             Shape{1, 200, 1, 1, 64, false},
                             Shape{1, 210, 2, 1, 128},
                             Shape{2, 192, 1, 1, 128, false},
                             Shape{1, 150, 1, 1, 80},
                             Shape{1, 140, 1, 1, 64},
                             Shape{1, 70, 2, 1, 64},
                             Shape{1, 64, 1, 1, 64},
                             Shape{2, 8, 2, 1, 8},
                             Shape{1, 70, 2, 1, 8}}) {
    AttentionProblem asked =
        problem(shape.batch, shape.sequence, shape.heads, shape.kv_heads, shape.head_dim);
    asked.causal = shape.causal;
    CHECK(workspace_of(*cudnn, asked, h100()) >= 0);
    asked.backward = true;
    for (const bool ordered : {true, false}) {
      asked.ordered = ordered;
      CHECK(workspace_of(*cudnn, asked, h100()) >= 0);
    }
  }
}

TEST_CASE("cuDNN has plans for attention on an A100 and an H100") {
  const CudnnLibrary* cudnn = library();
  if (cudnn == nullptr) return;
  AttentionProblem fused = problem(2, 256, 4, 4, 64);  // {heads, 3, head_dim} in a row
  fused.q = fused.k = fused.v = {4 * 3 * 64, 3 * 64};
  AttentionProblem full = problem(1, 200, 4, 4, 80);
  full.causal = false;
  full.dtype = DType::fp16;
  for (const std::string& gpu : {a100(), h100()}) {
    for (AttentionProblem asked : {problem(1, 1024, 16, 16, 64),
                                   problem(1, 77, 6, 2, 40),
                                   problem(2, 512, 8, 8, 128),
                                   fused,
                                   full}) {
      const std::int64_t forward = workspace_of(*cudnn, asked, gpu);
      CHECK(forward >= 0);
      CHECK(forward <= 4096);
      asked.backward = true;
      const std::int64_t backward = workspace_of(*cudnn, asked, gpu);
      CHECK(backward >= least_workspace(asked));
    }
  }
}

// The reason for which long sequences' backward stays with this program's kernels.
TEST_CASE("cuDNN's backward with sums in one order keeps all gradients of scores") {
  const CudnnLibrary* cudnn = library();
  if (cudnn == nullptr) return;
  for (AttentionProblem asked : {problem(1, 1024, 16, 16, 64), problem(1, 4096, 32, 8, 128)}) {
    asked.backward = true;
    const std::int64_t least = least_workspace(asked);
    CHECK(least == asked.heads * asked.sequence * asked.sequence * 2);
    const std::int64_t taken = workspace_of(*cudnn, asked, h100());
    CHECK(taken >= least);
    CHECK(taken <= least + least / 8);
  }
}

// One of Qwen2.5-3B's groups of heads of 4,096 queries: what has no order fits where the other does
// not.
TEST_CASE("cuDNN's backward with sums in any order keeps those of queries' gradients") {
  const CudnnLibrary* cudnn = library();
  if (cudnn == nullptr) return;
  for (const std::string* known : {&a100(), &h100()}) {
    const std::string& gpu = *known;
    for (AttentionProblem asked : {problem(1, 4096, 8, 1, 128),
                                   problem(1, 4096, 4, 4, 128),
                                   problem(3, 1024, 14, 2, 64),
                                   problem(1, 77, 6, 2, 40)}) {
      asked.backward = true;
      asked.ordered = false;
      const std::int64_t sums = bytes_of_sums(asked);
      CHECK(sums >= asked.batch * asked.heads * asked.sequence * asked.head_dim * 4);
      const std::int64_t taken = workspace_of(*cudnn, asked, gpu);
      CAPTURE(taken, sums, asked.heads, asked.sequence);
      // Beside them dK and dV of every head where heads share keys; on an A100 the sums once more.
      const std::int64_t by_head = asked.heads == asked.kv_heads ? 0 : sums;
      const std::int64_t again = &gpu == &a100() ? sums : 0;
      CHECK(least_workspace(asked) == sums + by_head);
      CHECK(taken >= sums + by_head);
      CHECK(taken <= sums + by_head + again + 4096);
      if (&gpu == &h100()) CHECK(taken <= kWorkspace);
    }
  }
}

TEST_CASE("What cuDNN does not know it refuses with a reason") {
  const CudnnLibrary* cudnn = library();
  if (cudnn == nullptr) return;
  CHECK_THROWS_AS(CudnnPlan(*cudnn, problem(1, 64, 2, 2, 44), {nullptr, h100()}), CudnnError);
  CHECK_THROWS_WITH(CudnnPlan(*cudnn, problem(1, 64, 2, 2, 64), {nullptr, "{}"}),
                    Catch::Contains("maxGridSize"));
}

}  // namespace
}  // namespace zeroplan::runtime::cuda
