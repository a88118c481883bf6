#include "model/cost/context_memory.hpp"

#include <cmath>
#include <vector>

#include "model/hardware/known_hardware.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

double mib(const UncertainBytes& bytes) {
  return static_cast<double>(bytes.value.count()) / (1 << 20);
}

// With the table's coefficients of the GPU.
UncertainBytes context_of(std::string_view gpu, Version torch = {2, 6}) {
  return cuda_context(gpu_of_key(gpu), torch, Coefficients(gpu));
}
UncertainBytes nccl_of(const Gpu& gpu, Topology topology, const CommunicatorUse& use) {
  return nccl_overhead(gpu, topology, use, Coefficients(gpu.key));
}

}  // namespace

TEST_CASE("the CUDA context is as published") {
  // stas00/ml-engineering: 481 MiB on A100 with torch 2.1, 922 with 1.13, 1823 with 1.10.
  CHECK(mib(context_of("a100_sxm_80gb", {2, 1})) == Approx(481).epsilon(0.1));
  CHECK(mib(context_of("a100_sxm_80gb", {1, 13})) == Approx(922).epsilon(0.1));
  CHECK(mib(context_of("a100_sxm_80gb", {1, 10})) == Approx(1823).epsilon(0.1));
  // bigscience 2021: 1113 MiB on V100.
  CHECK(mib(context_of("v100_sxm2_32gb", {1, 8})) == Approx(1113).epsilon(0.15));
}

TEST_CASE("the context grows with the multiprocessors of GPUs of one kind") {
  // A800 is A100's silicon; A40 with 84 SM takes 348 MiB, RTX 3090 has 82, A10 72.
  CHECK(context_of("a800_sxm_80gb").value == context_of("a100_sxm_80gb").value);
  CHECK(mib(context_of("rtx_3090")) == Approx(348.0 / 84 * 82));
  CHECK(context_of("rtx_3090").relative_sd == Approx(0.12));
  CHECK(mib(context_of("a10")) == Approx(348.0 / 84 * 72));
  CHECK(mib(context_of("h100_pcie")) == Approx(604.0 / 132 * 114));
  // L40S is no L4, whose key its own begins with: between L4 and RTX 4090.
  const double between = 0.5 * (256.0 / 58 + 430.0 / 128);
  CHECK(mib(context_of("l40s")) == Approx(between * 142).epsilon(1e-3));
  CHECK(mib(context_of("l4")) == Approx(256));
  // Nobody read P100's: all GPUs' mean.
  CHECK(mib(context_of("p100_pcie_16gb")) == Approx(4.1 * 56));
  CHECK(context_of("p100_pcie_16gb").relative_sd == Approx(0.2));
  // The rule for every GPU against its own value: within two of its deviations.
  for (const Gpu& gpu : all_gpus()) {
    CAPTURE(gpu.key);
    CHECK(mib(context_of(gpu.key)) ==
          Approx(4.1 * static_cast<double>(gpu.sm_count.value)).epsilon(0.4));
  }
}

TEST_CASE("what a profile says of context and NCCL counts, with its deviation") {
  const Gpu gpu = gpu_of_key("a100_sxm_80gb");
  const std::vector<CoefficientValue> profile = {
      {Coefficient::cuda_context_bytes_per_sm, "a100", 5e6, 0.01},
      {Coefficient::nccl_ring_bytes, "", 9e8, 0.02}};
  const Coefficients changed(gpu.key, profile);
  const UncertainBytes context = cuda_context(gpu, {2, 6}, changed);
  CHECK(context.value == Bytes::of(108 * 5'000'000));
  CHECK(context.relative_sd == Approx(0.01));
  CHECK(cuda_context(gpu, {1, 13}, changed).relative_sd == Approx(std::hypot(0.01, 0.12)));
  const UncertainBytes nccl = nccl_overhead(gpu, Topology::nvswitch, {.ranks = 8}, changed);
  CHECK(nccl.value == Bytes::of(900'000'000));
  CHECK(nccl.relative_sd == Approx(0.02));
}

TEST_CASE("NCCL takes nothing alone and more over NVLink than over PCIe") {
  const Gpu a100 = gpu_of_key("a100_sxm_80gb");
  const Gpu gpu = gpu_of_key("rtx_3090");
  CHECK(nccl_of(a100, Topology::nvswitch, {.ranks = 1}).value == Bytes::zero());
  CHECK(nccl_of(cpu_rank(), Topology::shared_memory, {.ranks = 4}).value == Bytes::zero());
  CHECK(mib(nccl_of(a100, Topology::nvswitch, {.ranks = 2})) == Approx(544));
  CHECK(mib(nccl_of(a100, Topology::nvswitch, {.ranks = 8})) == Approx(688));
  // Six NVLinks, not twelve: half the channels.
  const Gpu v100 = gpu_of_key("v100_sxm2_32gb");
  CHECK(mib(nccl_of(v100, Topology::nvlink_mesh, {.ranks = 4})) == Approx(344));
  CHECK(mib(nccl_of(gpu, Topology::pcie_no_p2p, {.ranks = 3})) == Approx(228));
}

TEST_CASE("every further group, node and peer adds to NCCL's memory") {
  const Gpu h100 = gpu_of_key("h100_sxm");
  const auto bytes = [&](const CommunicatorUse& use) {
    return nccl_of(h100, Topology::nvswitch, use).value;
  };
  const Bytes one = bytes({.ranks = 8});
  CHECK(bytes({.ranks = 8, .communicators = 2}) > one);
  CHECK(bytes({.ranks = 16, .nodes = 2}) > one);
  CHECK(bytes({.ranks = 16, .nodes = 2, .light_communicators = 3}) -
            bytes({.ranks = 16, .nodes = 2}) ==
        Bytes::mib(600));
  // NVIDIA/nccl issue 1685: 1.06 GB before, 4.34 GB after an all-to-all on 8 GPUs.
  CHECK((bytes({.ranks = 8, .all_to_all_ranks = 8}) - one).gb() == Approx(3.28).epsilon(0.01));
  CHECK((bytes({.ranks = 8, .all_to_all_ranks = 2}) - one).gb() == Approx(3.28 / 7).epsilon(0.01));
}

TEST_CASE("context and NCCL of A100 in many nodes are in the range that was seen") {
  const Gpu gpu = gpu_of_key("a100_sxm_80gb");
  const UncertainBytes nccl = nccl_of(gpu, Topology::nvswitch, {.ranks = 384, .nodes = 48});
  const double total = (context_of(gpu.key, {2, 0}).value + nccl.value).gib();
  CHECK(total >= 1.2);
  CHECK(total <= 1.6);
}
