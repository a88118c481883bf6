#include "model/hardware/hardware.hpp"

#include <set>
#include <string>

#include "model/hardware/known_hardware.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

std::string key_of(std::string_view text, std::int64_t gpus_per_node = 8) {
  const auto match = find_gpu(text, gpus_per_node);
  return match ? match->gpu.key : "";
}

std::string assumption_of(std::string_view text, std::int64_t gpus_per_node = 8) {
  const auto match = find_gpu(text, gpus_per_node);
  REQUIRE(match.has_value());
  return match->assumption;
}

}  // namespace

TEST_CASE("every GPU has plausible numbers with a source") {
  const std::vector<Gpu> gpus = all_gpus();
  CHECK(gpus.size() >= 92);
  std::set<std::string> keys;
  std::set<std::string> names;
  for (const Gpu& gpu : gpus) {
    INFO(gpu.key);
    CHECK(keys.insert(gpu.key).second);
    CHECK(names.insert(gpu.name).second);
    CHECK(gpu.memory.value > Bytes::gib(7));
    CHECK(gpu.memory.value < Bytes::gib(300));
    CHECK(gpu.memory_bandwidth.value.value() >= 200e9);
    CHECK(gpu.memory_bandwidth.value.value() <= 10e12);
    CHECK(gpu.peak.fp16.value >= gpu.peak.fp32.value);
    CHECK(gpu.bf16_supported == (gpu.compute_capability.major >= 8));
    CHECK(gpu.bf16_supported == gpu.peak.bf16.has_value());
    CHECK(gpu.peak.tf32.has_value() == gpu.bf16_supported);
    if (gpu.peak.bf16) CHECK(gpu.peak.bf16->value == gpu.peak.fp16.value);
    CHECK_FALSE(gpu.memory.source.empty());
    CHECK_FALSE(gpu.memory_bandwidth.source.empty());
    CHECK(gpu.memory.relative_sd > 0.0);
    CHECK(gpu.memory.relative_sd < 0.05);
    CHECK(gpu.sm_count.value >= 10);
    CHECK(gpu.host_link.value.value() > 7e9);
    CHECK_FALSE(node_of_key(gpu.usual_node).key.empty());
  }
}

TEST_CASE("capacity is CUDA's total, not the number on the box") {
  CHECK(gpu_of_key("a100_sxm_80gb").memory.value.gib() == Approx(79.15).margin(0.005));
  CHECK(gpu_of_key("v100_sxm2_16gb").memory.value.gib() == Approx(15.77).margin(0.005));
  CHECK(gpu_of_key("h200_sxm").memory.value.gib() == Approx(139.72).margin(0.005));
  // Nobody printed CUDA's total of the A30: derived from nvidia-smi's 24576 MiB.
  const Gpu a30 = gpu_of_key("a30");
  CHECK(a30.memory.confidence == Confidence::derived);
  CHECK(a30.memory.value < Bytes::gib(24));
}

TEST_CASE("peaks are dense and accumulate in fp32") {
  CHECK(gpu_of_key("h100_sxm").peak.bf16->value.value() == 989e12);
  CHECK(gpu_of_key("rtx_4090").peak.fp16.value.value() == Approx(165.2e12));  // not 330
  CHECK(gpu_of_key("rtx_3090").peak.fp16.value.value() == Approx(71.2e12));   // not 142
  const Gpu v100 = gpu_of_key("v100_sxm2_32gb");
  CHECK(&dense_peak(v100, DType::bf16) == &v100.peak.fp32);
  CHECK(&dense_peak(v100, DType::fp16) == &v100.peak.fp16);
}

TEST_CASE("NVLink counts one direction") {
  CHECK(gpu_of_key("a100_sxm_80gb").nvlink->value.value() == 300e9);
  CHECK(gpu_of_key("a800_sxm_80gb").nvlink->value.value() == 200e9);
  CHECK_FALSE(gpu_of_key("l40s").nvlink.has_value());
}

TEST_CASE("a PCIe line rate is that of its generation and lanes") {
  CHECK(pcie_line_rate(3, 16).value() == Approx(15.75e9).epsilon(0.001));
  CHECK(pcie_line_rate(4, 16).value() == Approx(31.5e9).epsilon(0.001));
  CHECK(pcie_line_rate(5, 8).value() == Approx(31.5e9).epsilon(0.001));
}

TEST_CASE("names match without case, spaces and separators") {
  for (const char* text : {"A800-80G",
                           "A800-80G-SXM",
                           "a800_sxm_80gb",
                           "NVIDIA A800-SXM4-80GB",
                           "A800",
                           "a800 sxm4"}) {
    CAPTURE(text);
    CHECK(key_of(text) == "a800_sxm_80gb");
  }
  CHECK(key_of("4090") == "rtx_4090");
  CHECK(key_of("RTX4090") == "rtx_4090");
  CHECK(key_of("NVIDIA GeForce RTX 4090") == "rtx_4090");
  CHECK(key_of("3090-24G") == "rtx_3090");
  CHECK(key_of("V100-16G") == "v100_sxm2_16gb");
  CHECK(key_of("V100-32G-SXM2") == "v100_sxm2_32gb");
  CHECK(key_of("Tesla V100-SXM3-32GB") == "v100_sxm2_32gb");
  CHECK(key_of("Tesla V100-PCIE-32GB") == "v100_pcie_32gb");
  CHECK(key_of("V100S-32G") == "v100s_pcie_32gb");
  CHECK(key_of("A100-40G-PCIE") == "a100_pcie_40gb");
  CHECK(key_of("NVIDIA A100 80GB PCIe") == "a100_pcie_80gb");
  CHECK(key_of("H100 NVL 96G") == "h100_nvl");
  CHECK(key_of("NVIDIA H100 NVL", 1) == "h100_nvl");
  CHECK(key_of("NVIDIA H100 80GB HBM3", 1) == "h100_sxm");
  CHECK(key_of("NVIDIA H100 PCIe") == "h100_pcie");
  CHECK(key_of("A10-24G") == "a10");
  CHECK(key_of("A10G") == "a10g");
  CHECK(key_of("T4") == "t4");
  CHECK(key_of("L4-24G") == "l4");
  CHECK(key_of("L40-48G") == "l40");
  CHECK(key_of("L40S") == "l40s");
  CHECK(key_of("H20-96G") == "h20");
  CHECK(key_of("H200") == "h200_sxm");
  CHECK(key_of("Titan RTX") == "titan_rtx");
  CHECK(key_of("NVIDIA RTX 6000 Ada Generation") == "rtx_6000_ada");
  CHECK(key_of("NVIDIA RTX PRO 6000 Blackwell Server Edition") == "rtx_pro_6000_server");
  CHECK(key_of("cpu") == "cpu");
}

TEST_CASE("GPUs of workstations are found as people write them, and the smaller size is taken") {
  CHECK(key_of("RTX 3060 12G") == "rtx_3060");
  CHECK(key_of("3080ti") == "rtx_3080_ti");
  CHECK(key_of("NVIDIA GeForce RTX 3080") == "rtx_3080_10gb");
  CHECK(key_of("4060Ti-16G") == "rtx_4060_ti_16gb");
  CHECK(assumption_of("4060 Ti") == "4060 Ti is taken as RTX-4060-Ti-8G: 8 GB assumed");
  CHECK(key_of("4070 Ti SUPER") == "rtx_4070_ti_super");
  CHECK(key_of("RTX4090D") == "rtx_4090_d");
  CHECK(key_of("4090-48G") == "rtx_4090_48gb");
  CHECK(key_of("4090-24G") == "rtx_4090");
  CHECK(assumption_of("4090").empty());
  CHECK(key_of("5060 Ti") == "rtx_5060_ti_16gb");
  CHECK(key_of("A4500") == "rtx_a4500");
  CHECK(key_of("NVIDIA RTX 4000 SFF Ada Generation") == "rtx_4000_sff_ada");
  CHECK(key_of("4500 Ada") == "rtx_4500_ada");
  CHECK(key_of("RTX PRO 5000 72GB Blackwell") == "rtx_pro_5000_72gb");
  CHECK(key_of("RTX PRO 6000 Blackwell Max-Q Workstation Edition") == "rtx_pro_6000_max_q");
  CHECK(key_of("H800", 2) == "h800_pcie");
  CHECK(key_of("H800", 8) == "h800_sxm");
  CHECK(key_of("A16") == "a16");
  CHECK_FALSE(find_gpu("RTX 4090 Laptop GPU", 1));
}

TEST_CASE("each GPU is found by its key, its name and its product name") {
  for (const Gpu& gpu : all_gpus()) {
    for (const std::int64_t count : {1, 8}) {
      CAPTURE(gpu.key, count);
      CHECK(key_of(gpu.key, count) == gpu.key);
      CHECK(key_of(gpu.name, count) == gpu.key);
      CHECK(assumption_of(gpu.name, count).empty());
    }
  }
}

TEST_CASE("an open form factor is SXM for 4 and 8 a node, PCIe for fewer, and said") {
  CHECK(key_of("H100", 8) == "h100_sxm");
  CHECK(key_of("H100", 4) == "h100_sxm");
  CHECK(key_of("H100", 2) == "h100_pcie");
  CHECK(key_of("A100-40G", 1) == "a100_pcie_40gb");
  CHECK(assumption_of("H100", 8) == "H100 is taken as H100-80G-SXM: SXM assumed for 8 a node");
  CHECK(assumption_of("H100", 1) == "H100 is taken as H100-80G-PCIe: PCIe assumed for 1 a node");
  CHECK(assumption_of("H100-SXM", 8).empty());
  CHECK(assumption_of("H200", 1).empty());
}

TEST_CASE("an open size is the most common one, and said") {
  CHECK(key_of("A100", 8) == "a100_sxm_80gb");
  CHECK(assumption_of("A100", 8) ==
        "A100 is taken as A100-80G-SXM: SXM assumed for 8 a node, 80 GB assumed");
  CHECK(assumption_of("A100-80G-SXM", 8).empty());
}

TEST_CASE("an unknown name is answered with the nearest ones") {
  CHECK_FALSE(find_gpu("A1000", 8).has_value());
  CHECK_FALSE(find_gpu("", 8).has_value());
  CHECK_FALSE(find_gpu("H100-96G-SXM", 8).has_value());
  CHECK_FALSE(find_gpu("RTX 4090 X", 8).has_value());
  CHECK_FALSE(find_gpu("99999999999999999999G", 8).has_value());
  const Diagnostic typo = unknown_gpu("A10O-80G-SXM", "f", "/cluster");
  CHECK(typo.got == "\"A10O-80G-SXM\"");
  CHECK(typo.hint.english().find("A100-80G-SXM") != std::string::npos);
  CHECK(unknown_gpu("A100-96G", "f", "/cluster").hint ==
        "A100 is known as A100-40G-PCIe, A100-40G-SXM, A100-80G-PCIe, A100-80G-SXM");
  CHECK(unknown_gpu("quantum", "f", "/cluster").hint == "`zeroplan gpus` lists all names");
}

TEST_CASE("the GPU names of published measurements resolve") {
  for (const char* text : {"A100-40G-PCIE",
                           "A100-40G-SXM",
                           "A100-80G-SXM",
                           "A800-80G-SXM",
                           "B200",
                           "H100-80G-SXM",
                           "H200",
                           "Quadro-RTX-6000",
                           "RTX-A6000",
                           "RTX-PRO-6000",
                           "RTX3090",
                           "RTX4090",
                           "RTX5060Ti",
                           "V100-16G-SXM2",
                           "V100-32G-SXM2"}) {
    for (const std::int64_t count : {1, 4, 8}) {
      CAPTURE(text, count);
      CHECK_FALSE(key_of(text, count).empty());
      CHECK(assumption_of(text, count).empty());
    }
  }
}

TEST_CASE("every machine names known GPUs and has plausible numbers") {
  const std::vector<NodeProfile> nodes = all_nodes();
  CHECK(nodes.size() >= 28);
  for (const NodeProfile& node : nodes) {
    INFO(node.key);
    for (const std::string& gpu : node.gpus) CHECK_FALSE(gpu_of_key(gpu).name.empty());
    CHECK(node.gpus_per_node >= 1);
    if (node.host_memory) CHECK(node.host_memory->value >= Bytes::gib(16));
    if (node.inter_node) CHECK(node.inter_node->bandwidth.value.value() >= 1e9);
    if (node.nvme_read) CHECK(node.has_nvme == true);
    CHECK(node.nvme_read.has_value() == node.nvme_write.has_value());
  }
  CHECK(node_of_key("dgx_h100").inter_node->bandwidth.value.value() == 8 * 400e9 / 8);
  CHECK(node_of_key("dgx_1v").has_nvme == false);
}

TEST_CASE("what is said of a machine chooses among those with its GPUs") {
  const Gpu gpu = gpu_of_key("a100_sxm_40gb");
  const auto key = [&](HostGiven given) { return likely_node(gpu, 8, given).key; };
  CHECK(key({}) == "aws_p4d.24xlarge");
  CHECK(key({1024_GiB, 128}) == "dgx_a100_320");
  CHECK(key({1152_GiB, std::nullopt}) == "aws_p4d.24xlarge");
  CHECK(key({std::nullopt, 96}) == "azure_nd96asr_v4");
  CHECK(likely_node(gpu, 2, {1024_GiB, 128}).key == "dgx_a100_320");  // two of its eight GPUs
  CHECK(key({96_GiB, 12}) == "aws_p4d.24xlarge");  // none is like it: the usual one
}

TEST_CASE("the usual machine of a GPU has as many of them where one is known") {
  CHECK(usual_node(gpu_of_key("v100_sxm2_32gb"), 16).key == "dgx_2");
  CHECK(usual_node(gpu_of_key("v100_sxm2_32gb"), 8).key == "dgx_1v");
  CHECK(usual_node(gpu_of_key("a100_sxm_40gb"), 16).key == "gcp_a2-megagpu-16g");
  CHECK(usual_node(gpu_of_key("a100_sxm_40gb"), 4).key == "aws_p4d.24xlarge");
  CHECK(usual_node(gpu_of_key("b200"), 8).key == "dgx_h200");
}
