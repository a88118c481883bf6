// The GPU's part of `zeroplan profile` at sizes that mean nothing: that every part runs, what its
// rows look like, and what happens to the others when one fails. How fast the GPU is decides
// nothing here. Runs on a GPU and on the emulated one, as gpu_test.cpp. [cupti]: with CUPTI's
// recorder, which scripts/gpu.sh leaves out under compute-sanitizer.
#include "model/cost/profile.hpp"

#include <chrono>
#include <cstdlib>
#include <map>
#include <set>

#include "base/json.hpp"
#include "runtime/cuda/gpu_profile.hpp"
#include "runtime/cuda/hardware.hpp"
#include "runtime/profile/machine_profile.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/environment.hpp"
#include "tests/gpu/no_gpu.hpp"

namespace zeroplan::runtime {
namespace {

using test::no_gpu;

bool emulated() { return cuda::find_gpus().found.front().name == "emulated"; }

const GpuFindings& findings() {
  static const GpuFindings kFound = cuda::measure_gpus(gpu_scale(false, true), {});
  return kFound;
}

std::string text_of_notes(const GpuFindings& found) {
  std::string text;
  for (const std::string& note : found.notes) text += note + "\n";
  return text;
}

std::map<std::string, int> count_of(const GpuFindings& found) {
  std::map<std::string, int> count;
  for (const ProfileRow& row : found.rows) ++count[row.what];
  return count;
}

// Its variables are for the emulated CUDA (tests/gpu/emulated); another one does not look.
using test::Environment;

}  // namespace

TEST_CASE("a GPU's profile has every part, each row with its spread", "[cupti]") {
  if (no_gpu()) return;
  const std::set<std::string> units = {"bytes/s", "flop/s", "s", "bytes"};
  for (const ProfileRow& row : findings().rows) {
    CAPTURE(row.what, row.unit, row.spread.median);
    CHECK(units.count(row.unit) == 1);
    CHECK(row.megahertz.has_value());
    // What is counted once has no spread, and a library may take no memory of its own.
    if (row.unit == "bytes") continue;
    CHECK(row.spread.q1 > 0.0);
    CHECK(row.spread.q1 <= row.spread.median);
    CHECK(row.spread.median <= row.spread.q3);
    CHECK(row.spread.n >= 3);
  }
  const auto count = count_of(findings());
  const GpuScale scale = gpu_scale(false, true);
  INFO(text_of_notes(findings()));
  for (const char* what : {"gpu_launch",
                           "gpu_launch_round_trip",
                           "gpu_empty_kernel",
                           "gpu_kernel_floor",
                           "gpu_device_copy",
                           "gpu_set",
                           "gpu_adamw",
                           "gpu_product_library"}) {
    INFO(what);
    CHECK(count.count(what) == 1);
  }
  std::map<std::string, int> wanted;
  const bool has_bf16 = findings().facts.major >= 8;
  for (const auto& cases : {product_cases(scale, has_bf16),
                            attention_cases(scale, has_bf16),
                            memory_cases(scale, has_bf16)}) {
    for (const GpuCase& each : cases) ++wanted["gpu_" + std::string(name(each.call.kernel))];
  }
  CHECK(wanted.size() == 14);
  for (const auto& [what, times] : wanted) {
    INFO(what);
    CHECK(count.at(what) == times);
  }
  // Three directions, two sizes; two sizes each taken and given back.
  for (const char* what : {"gpu_pinned_copy", "gpu_pageable_copy"}) CHECK(count.at(what) == 6);
  for (const char* what : {"gpu_malloc", "gpu_free", "gpu_host_alloc", "gpu_host_free"}) {
    CHECK(count.at(what) == 2);
  }
}

TEST_CASE("a GPU's products are measured by format, alone and in a loop", "[cupti]") {
  if (no_gpu()) return;
  std::set<std::string> dtypes, modes;
  for (const ProfileRow& row : findings().rows) {
    if (row.what != "gpu_linear_forward") continue;
    dtypes.insert(text_setting(row, "dtype"));
    modes.insert(text_setting(row, "mode"));
    CHECK(shape_of(row).size() == 3);
  }
  if (findings().facts.major >= 8) {
    CHECK(dtypes == std::set<std::string>{"bf16", "fp16", "fp32", "tf32"});
  }
  CHECK(modes == std::set<std::string>{"isolated", "sustained"});
}

TEST_CASE("a GPU's profile says who computed attention", "[cupti]") {
  if (no_gpu()) return;
  CHECK(text_of_notes(findings()).find("attention on the GPU, forward: ") != std::string::npos);
}

TEST_CASE("collectives are measured between GPUs where there are some", "[cupti]") {
  if (no_gpu()) return;
  const auto count = count_of(findings());
  if (findings().facts.visible < 2) {
    CHECK(text_of_notes(findings()).find("one is visible") != std::string::npos);
    return;
  }
  if (cuda::built_with().find("NCCL") == std::string::npos) {
    CHECK(text_of_notes(findings()).find("built without NCCL") != std::string::npos);
    return;
  }
  for (const char* kind :
       {"all_gather", "reduce_scatter", "all_reduce", "broadcast", "all_to_all"}) {
    INFO(kind);
    CHECK(count.at("gpu_nccl_" + std::string(kind)) >= 2);
  }
  CHECK(count.at("gpu_nccl_communicator") >= 1);
}

TEST_CASE("the context and the clock are NVML's, or the notes say that they are not known",
          "[cupti]") {
  if (no_gpu()) return;
  const bool has_context = count_of(findings()).count("gpu_context") == 1;
  const std::string notes = text_of_notes(findings());
  CHECK(has_context == (notes.find("the context's size is not known") == std::string::npos));
  if (notes.find("the GPU's clock is not known") != std::string::npos) {
    for (const ProfileRow& row : findings().rows) CHECK(row.megahertz == 0.0);
  }
  // The emulated NVML (tests/gpu/emulated/nvml.cpp) was put in the program's way.
  if (!emulated() || std::getenv("ZEROPLAN_EMULATED_NVML") == nullptr) return;
  REQUIRE(has_context);
  for (const ProfileRow& row : findings().rows) {
    if (row.what == "gpu_context") CHECK(row.spread.median == 400e6);
    if (text_setting(row, "mode") == "sustained") {
      CHECK(row.megahertz == 1410.0);
      CHECK(row.beside.front().first == "megahertz_before");
      CHECK(row.beside.front().second == Json(1410.0));
    }
  }
  CHECK(findings().facts.nvlinks == 4);
  CHECK(findings().facts.pcie_generation == 4);
  CHECK(findings().facts.pcie_lanes == 16);
  CHECK(findings().facts.driver == "500.1");
  CHECK(findings().facts.power_limit_watts == 300.0);
}

TEST_CASE("a machine's document holds the GPU's part and is read as a profile", "[cupti]") {
  if (no_gpu()) return;
  MachineOptions options;
  options.tiny = true;
  options.gpus = [](const GpuScale&) { return findings(); };
  const Json document = measure_machine(options);
  const Json* const gpu = document.find("machine")->find("gpus");
  CHECK(*gpu->find("name") == Json(findings().facts.name));
  CHECK(gpu->find("memory_bytes")->as_integer() > 0);
  std::size_t rows = 0;
  for (const Json& row : document.find("measurements")->items()) {
    if (row.find("what")->as_string().starts_with("gpu_")) ++rows;
  }
  CHECK(rows == findings().rows.size());
  CHECK_NOTHROW(parse_profile(document, "profile.json", ""));
  if (emulated()) {
    CHECK(document.find("notes")->dump().find("emulated is not among the GPUs") !=
          std::string::npos);
  }
}

TEST_CASE("calls that are larger than what is free are left out and noted", "[cupti]") {
  if (no_gpu()) return;
  GpuScale scale = gpu_scale(false, true);
  scale.memory_rows = std::int64_t{1} << 40;
  scale.memory_columns = 1;
  scale.adam_parameters = 64;
  scale.free_share = 1e-4;  // so that what follows the size of memory stays small
  const GpuFindings found = cuda::measure_gpus(scale, {});
  INFO(text_of_notes(found));
  CHECK(count_of(found).count("gpu_add") == 0);
  CHECK(text_of_notes(found).find("9 calls were left out") != std::string::npos);
  CHECK(count_of(found).count("gpu_linear_forward") == 1);
}

TEST_CASE("a part that fails is a note, and the others go on", "[cupti]") {
  if (no_gpu()) return;
  if (!emulated()) {
    SUCCEED("only the emulated GPU fails on demand");
    return;
  }
  const Environment fails("ZEROPLAN_EMULATED_PINNED_BYTES", "0");
  const GpuFindings found = cuda::measure_gpus(gpu_scale(false, true), {});
  const auto count = count_of(found);
  INFO(text_of_notes(found));
  CHECK(text_of_notes(found).find(
            "copies between host and GPU: ended early: cudaHostAlloc: an error of the emulation") !=
        std::string::npos);
  CHECK(count.count("gpu_pinned_copy") == 0);
  CHECK(count.count("gpu_host_alloc") == 0);
  CHECK(count.at("gpu_malloc") == 2);  // what the part had before it failed stays
  CHECK(count.count("gpu_adamw") == 1);
}

TEST_CASE("a GPU that fails among several ends the collectives alone", "[cupti]") {
  if (no_gpu()) return;
  if (!emulated() || findings().facts.visible < 2 ||
      cuda::built_with().find("NCCL") == std::string::npos) {
    SUCCEED("needs several emulated GPUs");
    return;
  }
  const Environment fails("ZEROPLAN_EMULATED_BROKEN_GPU", "1");
  const GpuFindings found = cuda::measure_gpus(gpu_scale(false, true), {});
  INFO(text_of_notes(found));
  CHECK(text_of_notes(found).find(
            "collectives between GPUs: ended early: rank 1 failed: GPU 1: cudaSetDevice") !=
        std::string::npos);
  CHECK(count_of(found).count("gpu_nccl_all_reduce") == 0);
  CHECK(count_of(found).count("gpu_adamw") == 1);
}

TEST_CASE("a rank that never comes to NCCL, or fails on its way, ends the others in time",
          "[cupti]") {
  if (no_gpu()) return;
  if (!emulated() || findings().facts.visible < 2 ||
      cuda::built_with().find("NCCL") == std::string::npos) {
    SUCCEED("needs several emulated GPUs");
    return;
  }
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  GpuScale scale = gpu_scale(false, true);
  Clock::time_point begin = Clock::now();
  (void)cuda::measure_gpus(scale, {});
  const double usual = seconds_since(begin);
  // The one on which the ranks meet first, and the blocking one behind it.
  for (const char* variable :
       {"ZEROPLAN_EMULATED_ABSENT_RANK", "ZEROPLAN_EMULATED_ABSENT_BLOCKING"}) {
    CAPTURE(variable);
    const Environment absent(variable, "1");
    scale.patience = Seconds::of(0.5);
    begin = Clock::now();
    const GpuFindings found = cuda::measure_gpus(scale, {});
    CHECK(seconds_since(begin) < 3.0 * usual + 10.0);  // for ever, without patience
    INFO(text_of_notes(found));
    CHECK(text_of_notes(found).find("a rank has not come to NCCL within 0.5 s") !=
          std::string::npos);
    CHECK(count_of(found).count("gpu_nccl_all_reduce") == 0);
    CHECK(count_of(found).count("gpu_adamw") == 1);
  }
  for (const char* variable :
       {"ZEROPLAN_EMULATED_FAILING_RANK", "ZEROPLAN_EMULATED_FAILING_BLOCKING"}) {
    CAPTURE(variable);
    const Environment fails(variable, "1");
    scale.patience = Seconds::of(600.0);
    begin = Clock::now();
    const GpuFindings found = cuda::measure_gpus(scale, {});
    CHECK(seconds_since(begin) < 3.0 * usual + 10.0);
    INFO(text_of_notes(found));
    CHECK(text_of_notes(found).find(
              "GPU 1: ncclCommInitRankConfig: an error of the emulated NCCL") != std::string::npos);
  }
}

}  // namespace zeroplan::runtime
