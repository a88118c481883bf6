#include "model/hardware/context_memory.hpp"

#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

double mib(const Quantity<Bytes>& quantity) {
  return static_cast<double>(quantity.value.count()) / (1 << 20);
}

double total_gib(std::string_view gpu, Topology topology, CommunicatorUse use, Version torch) {
  const Gpu card = gpu_of_key(gpu);
  return (cuda_context(card, torch).value + nccl_overhead(card, topology, use).value).gib();
}

}  // namespace

TEST_CASE("the CUDA context is as published") {
  // stas00/ml-engineering: 481 MiB on A100 with torch 2.1, 922 with 1.13, 1823 with 1.10.
  CHECK(mib(cuda_context(gpu_of_key("a100_sxm_80gb"), {2, 1})) == Approx(481).epsilon(0.1));
  CHECK(mib(cuda_context(gpu_of_key("a100_sxm_80gb"), {1, 13})) == Approx(922).epsilon(0.1));
  CHECK(mib(cuda_context(gpu_of_key("a100_sxm_80gb"), {1, 10})) == Approx(1823).epsilon(0.1));
  // bigscience 2021: 1113 MiB on V100.
  CHECK(mib(cuda_context(gpu_of_key("v100_sxm2_32gb"), {1, 8})) == Approx(1113).epsilon(0.15));
}

TEST_CASE("cards without a reading take the mean for each SM of their generation") {
  // A800 is A100's silicon; A40 with 84 SM takes 348 MiB, RTX 3090 has 82.
  const Quantity<Bytes> a800 = cuda_context(gpu_of_key("a800_sxm_80gb"), {2, 6});
  CHECK(a800.value == cuda_context(gpu_of_key("a100_sxm_80gb"), {2, 6}).value);
  const Quantity<Bytes> context = cuda_context(gpu_of_key("rtx_3090"), {2, 6});
  CHECK(mib(context) == Approx(348.0 / 84 * 82));
  CHECK(context.confidence == Confidence::derived);
  CHECK(context.relative_sd == Approx(0.12));
  // Nobody read one of compute capability 10.3: all cards' mean.
  const Quantity<Bytes> b300 = cuda_context(gpu_of_key("b300"), {2, 6});
  CHECK(mib(b300) == Approx(4.1 * 148));
  CHECK(b300.relative_sd == Approx(0.2));
  // The rule against every reading: within two of its deviations.
  for (const Gpu& gpu : all_gpus()) {
    const Quantity<Bytes> known = cuda_context(gpu, {2, 6});
    if (known.confidence != Confidence::measured) continue;
    CAPTURE(gpu.key, mib(known));
    CHECK(mib(known) == Approx(4.1 * static_cast<double>(gpu.sm_count.value)).epsilon(0.4));
  }
}

TEST_CASE("NCCL takes nothing alone and more over NVLink than over PCIe") {
  const Gpu a100 = gpu_of_key("a100_sxm_80gb");
  const Gpu card = gpu_of_key("rtx_3090");
  CHECK(nccl_overhead(a100, Topology::nvswitch, {.ranks = 1}).value == Bytes::zero());
  CHECK(nccl_overhead(cpu_rank(), Topology::shared_memory, {.ranks = 4}).value == Bytes::zero());
  CHECK(mib(nccl_overhead(a100, Topology::nvswitch, {.ranks = 2})) == Approx(544));
  CHECK(mib(nccl_overhead(a100, Topology::nvswitch, {.ranks = 8})) == Approx(688));
  // Six NVLinks, not twelve: half the channels.
  const Gpu v100 = gpu_of_key("v100_sxm2_32gb");
  CHECK(mib(nccl_overhead(v100, Topology::nvlink_mesh, {.ranks = 4})) == Approx(344));
  CHECK(mib(nccl_overhead(card, Topology::pcie_no_p2p, {.ranks = 3})) == Approx(228));
}

TEST_CASE("every further group, node and peer adds to NCCL's memory") {
  const Gpu h100 = gpu_of_key("h100_sxm");
  const auto bytes = [&](const CommunicatorUse& use) {
    return nccl_overhead(h100, Topology::nvswitch, use).value;
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
  const double total =
      total_gib("a100_sxm_80gb", Topology::nvswitch, {.ranks = 384, .nodes = 48}, {2, 0});
  CHECK(total >= 1.2);
  CHECK(total <= 1.6);
}

TEST_CASE("usable memory is what is left, never less than nothing") {
  const Gpu gpu = gpu_of_key("t4");
  Quantity<Bytes> huge;
  huge.value = Bytes::gib(100);
  CHECK(usable_memory(gpu, huge, huge) == Bytes::zero());
  const Quantity<Bytes> context = cuda_context(gpu, {2, 6});
  CHECK(usable_memory(gpu, context, {}) == gpu.memory.value - context.value);
}
