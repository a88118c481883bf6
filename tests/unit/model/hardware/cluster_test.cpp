#include "model/hardware/cluster.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "model/hardware/known_hardware.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

std::string error_of(std::string_view text) {
  try {
    parse_cluster_text(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

Cluster inline_cluster(std::string_view text) {
  return parse_cluster(parse_json(text, "c.json").root, "c.json", "/cluster");
}

std::string inline_error(std::string_view text) {
  try {
    inline_cluster(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

bool assumes(const Cluster& cluster, std::string_view part) {
  for (const std::string& sentence : cluster.assumptions) {
    if (contains(sentence, part)) return true;
  }
  return false;
}

// A file in the temporary folder that lives as long as the test.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& name, const std::string& text)
      : path_(std::filesystem::temp_directory_path() / ("zeroplan_cluster_test_" + name)) {
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::string hostfile_error(const std::string& text) {
  const TemporaryFile file("hosts", text);
  return error_of("hostfile:" + file.path() + "@A100-80G");
}

}  // namespace

TEST_CASE("cluster text is nodes, GPUs and a name") {
  const Cluster two = parse_cluster_text("2x4xA800-80G");
  CHECK(two.nodes == 2);
  CHECK(two.gpus_per_node() == 4);
  CHECK(two.total_gpus() == 8);
  CHECK(two.gpu.key == "a800_sxm_80gb");
  const Cluster one = parse_cluster_text(" 8xH100 ");
  CHECK(one.nodes == 1);
  CHECK(one.gpus_per_node() == 8);
  CHECK(one.gpu.key == "h100_sxm");
  const Cluster single = parse_cluster_text("H100");
  CHECK(single.total_gpus() == 1);
  CHECK(single.gpu.key == "h100_pcie");
  CHECK(parse_cluster_text("3x4090").gpu.key == "rtx_4090");
  CHECK(parse_cluster_text("2X8 x A100-40G").total_gpus() == 16);
  CHECK(short_name(two) == "2x4xA800-80G-SXM");
}

TEST_CASE("counts that make no sense are refused") {
  CHECK(contains(error_of("0xH100"), "expected a number of GPUs from 1 to 100000, got \"0\""));
  CHECK(contains(error_of("-1x8xH100"), "a number of nodes"));
  CHECK(contains(error_of("1.5xH100"), "\"1.5\""));
  CHECK(contains(error_of("1000000000x8xH100"), "at most 100000 GPUs in all"));
  CHECK(contains(error_of("99999999999999999999x8xH100"), "a number of nodes"));
  CHECK(contains(error_of("2x4x"), "NODESxGPUSxGPU"));
  CHECK(contains(error_of(""), "NODESxGPUSxGPU"));
  CHECK(contains(error_of("2x4"), "the name of a GPU"));
  CHECK(contains(error_of("0x0xnothing"), "a number of nodes"));
  CHECK(contains(error_of("2x8xH10O-SXM"), "hint: did you mean"));
  CHECK(error_of("12500x8xH100").empty());
}

TEST_CASE("cluster text is no number, list or null") {
  CHECK_THROWS_AS(parse_cluster(Json(3), "f", "/cluster"), InputError);
  CHECK_THROWS_AS(parse_cluster(Json(), "f", "/cluster"), InputError);
  CHECK_THROWS_AS(parse_cluster(Json::array(), "f", "/cluster"), InputError);
}

TEST_CASE("what the text leaves open is filled from the usual machine and said") {
  const Cluster cluster = parse_cluster_text("2x8xH100");
  CHECK(cluster.node.topology == Topology::nvswitch);
  CHECK(cluster.node.intra_node.kind == LinkKind::nvlink);
  CHECK(cluster.node.intra_node.bandwidth.value.value() == 450e9);
  CHECK(cluster.inter_node.kind == LinkKind::ib);
  CHECK(cluster.inter_node.bandwidth.value.value() == 400e9);
  CHECK(cluster.network_assumed);
  CHECK(cluster.node.cpu_cores.value == 112);
  CHECK(cluster.node.nvme.has_value());
  CHECK(assumes(cluster, "host memory 2011 GiB per node: assumed, as dgx_h100"));
  CHECK(assumes(cluster, "between nodes ib, 3200 Gb/s per node, latency 2.7 us: assumed"));
  CHECK(assumes(cluster, "H100 is taken as H100-80G-SXM"));
  CHECK(cluster.node.host_memory.confidence == Confidence::assumed);
  CHECK_FALSE(parse_cluster_text("8xH100").network_assumed);
}

TEST_CASE("a job on part of a machine gets its share of the host and whole network cards") {
  const Cluster half = parse_cluster_text("2x4xA100-80G");
  const Cluster whole = parse_cluster_text("2x8xA100-80G");
  CHECK(half.node.host_memory.value * 2 == whole.node.host_memory.value);
  CHECK(half.node.cpu_cores.value * 2 == whole.node.cpu_cores.value);
  CHECK(half.inter_node.bandwidth.value.value() * 2 == whole.inter_node.bandwidth.value.value());
  CHECK(assumes(half, "as dgx_a100_640 (4 of its 8 GPUs)"));
  // A single network card is not divided, nor is a workstation.
  CHECK(parse_cluster_text("4x1xL4").inter_node.bandwidth.value.value() == 25e9 / 8);
  CHECK(parse_cluster_text("RTX4090").node.host_memory.value ==
        parse_cluster_text("4xRTX4090").node.host_memory.value);
}

TEST_CASE("what is said of a host says how much of the machine a job has") {
  const auto node_of = [](const std::string& said) {
    return parse_cluster(
               parse_json(R"({"gpus_per_node":2,"gpu":"A100-40G-SXM")" + said + "}", "c.json").root,
               "c.json",
               "")
        .node;
  };
  const Node whole = parse_cluster_text("8xA100-40G-SXM").node;
  const Node quarter = node_of("");
  CHECK(quarter.host_memory_bandwidth.value.value() * 4 ==
        Approx(whole.host_memory_bandwidth.value.value()));
  CHECK(node_of(R"(,"cpu_cores":128)").host_memory_bandwidth.value ==
        whole.host_memory_bandwidth.value);
  const std::string memory = std::to_string(whole.host_memory.value.count() / 2);
  CHECK(node_of(R"(,"host_memory_bytes":)" + memory).cpu_cores.value * 2 == whole.cpu_cores.value);
}

TEST_CASE("the slower side decides the rate between GPU and host") {
  // p4d: a GPU of generation 4 behind a host of generation 3.
  CHECK(parse_cluster_text("8xA100-40G").node.pcie_bandwidth.value == pcie_line_rate(3, 16));
  CHECK(parse_cluster_text("8xA100-80G").node.pcie_bandwidth.value == pcie_line_rate(4, 16));
  CHECK(parse_cluster_text("8xA100-80G").node.gpus_per_pcie_uplink == 2);
}

TEST_CASE("each superchip brings its own host") {
  const Cluster one = parse_cluster_text("GH200");
  const Cluster four = parse_cluster_text("4xGH200");
  CHECK(one.node.host_memory.value * 4 == four.node.host_memory.value);
  CHECK(four.node.pcie_bandwidth.value.value() == 450e9);
  CHECK(assumes(four, "as a Grace node for each GPU"));
}

TEST_CASE("an SXM board whose network nobody described has 100 Gb/s") {
  const Cluster cluster = parse_cluster_text("2x4xA800-80G");
  CHECK(cluster.inter_node.kind == LinkKind::ib);
  CHECK(cluster.inter_node.bandwidth.value.value() == 100e9 / 8);
  CHECK(cluster.network_assumed);
}

TEST_CASE("GeForce GPUs reach each other through host memory") {
  const Cluster cluster = parse_cluster_text("3xRTX3090");
  CHECK(cluster.node.topology == Topology::pcie_no_p2p);
  CHECK(cluster.node.intra_node.kind == LinkKind::pcie);
  CHECK(parse_cluster_text("2x4xL40S").node.topology == Topology::pcie);
  CHECK(parse_cluster_text("4xA100-80G-PCIe").node.topology == Topology::nvlink_pairs);
  CHECK(parse_cluster_text("8xV100-32G").node.topology == Topology::hybrid_cube_mesh);
  CHECK(parse_cluster_text("4xV100-16G").node.topology == Topology::nvlink_mesh);
}

TEST_CASE("CPU ranks share the host's memory") {
  const Cluster cluster = parse_cluster_text("4xcpu");
  CHECK(cluster.gpu.is_cpu());
  CHECK(cluster.node.topology == Topology::shared_memory);
  CHECK(cluster.gpu.memory.value * 4 == cluster.node.host_memory.value);
  const Cluster given = inline_cluster(
      R"({"nodes":1,"gpus_per_node":2,"gpu":"cpu","host_memory_bytes":34359738368})");
  CHECK(given.gpu.memory.value == Bytes::gib(16));
}

TEST_CASE("an inline cluster keeps what is stated and fills the rest") {
  const Cluster cluster = inline_cluster(
      R"({"nodes": 16, "gpus_per_node": 4, "gpu": "V100-32G-SXM2",
          "inter_node": {"bandwidth": 50000000000.0}, "cpu_cores": 40})");
  CHECK(cluster.total_gpus() == 64);
  CHECK(cluster.node.cpu_cores.value == 40);
  CHECK(cluster.inter_node.bandwidth.value.value() == 50e9);
  // Four V100 with two processors of 20 cores are Jean Zay's, which has Omni-Path.
  CHECK(cluster.inter_node.kind == LinkKind::opa);
  CHECK_FALSE(cluster.network_assumed);
  CHECK_FALSE(assumes(cluster, "Gb/s per node"));
  CHECK_FALSE(assumes(cluster, "CPU cores"));
  CHECK(assumes(cluster, "host memory"));
}

TEST_CASE("one computing centre's machine is taken only where its host is said") {
  const std::string rest = R"("nodes":2,"gpus_per_node":4,"gpu":"V100-32G-SXM2")";
  CHECK_FALSE(assumes(inline_cluster("{" + rest + "}"), "jean_zay"));
  CHECK(assumes(inline_cluster("{" + rest + R"(,"cpu_cores":40})"), "as jean_zay_v100"));
  for (const char* other :
       {R"("cpu_cores":20})", R"("cpu_cores":36})", R"("host_memory_bytes":200e9})"}) {
    CHECK_FALSE(assumes(inline_cluster("{" + rest + "," + other), "jean_zay"));
  }
  // Its network where that is said to be as fast, or where all of the host is its own.
  const auto kind_of = [&](const std::string& said) {
    return inline_cluster("{" + rest + R"(,"cpu_cores":40,)" + said + "}").inter_node.kind;
  };
  CHECK(kind_of(R"("inter_node":{"bandwidth":12.5e9})") == LinkKind::ib);
  CHECK(kind_of(R"("cpu_sockets":2)") == LinkKind::ib);
  CHECK(kind_of(R"("host_memory_bytes":202448790126)") == LinkKind::opa);
  CHECK(kind_of(R"("inter_node":{"bandwidth":50e9})") == LinkKind::opa);
  const Cluster named =
      inline_cluster("{" + rest + R"(,"inter_node":{"link":"opa","bandwidth":5e10}})");
  CHECK(named.inter_node.kind == LinkKind::opa);
}

TEST_CASE("nothing is assumed where all is stated") {
  const Cluster cluster = inline_cluster(R"({
    "nodes": 2, "gpus_per_node": 4, "gpu": "A800-80G-SXM",
    "intra_node": {"link": "nvlink", "topology": "nvswitch", "bandwidth": 200e9, "latency": 1e-6},
    "inter_node": {"link": "roce", "bandwidth": 12.5e9, "latency": 5e-6},
    "host_memory_bytes": 1099511627776, "host_memory_bandwidth": 400e9, "cpu_cores": 56,
    "cpu_sockets": 2, "pcie_bandwidth": 31.5e9, "gpus_per_pcie_uplink": 1,
    "nvme": {"read_bandwidth": 6e9, "write_bandwidth": 3e9, "capacity_bytes": 4e12}})");
  CHECK(cluster.assumptions.empty());
  CHECK(cluster.node.nvme->capacity.value == Bytes::of(4000000000000));
  CHECK(cluster.node.host_memory.confidence == Confidence::stated);
}

TEST_CASE("slow networks are taken for TCP, fast ones for remote memory access") {
  const auto kind_at = [](const std::string& rate) {
    return inline_cluster(R"({"nodes":2,"gpus_per_node":8,"gpu":"A100-80G","inter_node":)" +
                          ("{\"bandwidth\":" + rate + "}}"))
        .inter_node.kind;
  };
  CHECK(kind_at("3.125e9") == LinkKind::tcp);
  CHECK(kind_at("25e9") == LinkKind::ib);
  const Cluster named = inline_cluster(
      R"({"nodes":2,"gpus_per_node":8,"gpu":"A100-80G","inter_node":{"link":"tcp"}})");
  CHECK(named.inter_node.bandwidth.value.value() == 25e9 / 8);
  CHECK(named.network_assumed);
}

TEST_CASE("a described GPU takes its gaps from the nearest named GPU") {
  const Cluster known = inline_cluster(
      R"({"gpus_per_node":1,"nodes":1,"gpu":{"name":"A100-80G-SXM","memory_bytes":42949672960}})");
  CHECK(known.gpu.memory.value == Bytes::gib(40));
  CHECK(known.gpu.key == "a100_sxm_80gb");
  CHECK_FALSE(assumes(known, "nearest"));
  const Cluster unknown = inline_cluster(
      R"({"nodes":1,"gpus_per_node":1,"gpu":{"name":"X1","memory_bytes":85899345920,
          "memory_bandwidth":3.3e12,"peak_flops":1e15,"compute_capability":"9.0"}})");
  CHECK(unknown.gpu.name == "X1");
  CHECK(unknown.gpu.key == "h100_sxm");
  CHECK(unknown.gpu.peak.bf16->value.value() == 1e15);
  CHECK(unknown.gpu.peak.tf32->value.value() == Approx(0.5e15));
  CHECK(unknown.gpu.peak.fp32.value.value() == Approx(67e12));
  CHECK(assumes(unknown, "X1 is no known GPU"));
  const Cluster old = inline_cluster(
      R"({"nodes":1,"gpus_per_node":1,"gpu":{"name":"A100-80G-SXM","compute_capability":7.0}})");
  CHECK_FALSE(old.gpu.bf16_supported);
  CHECK_FALSE(old.gpu.peak.bf16.has_value());
}

TEST_CASE("errors of an inline cluster are all reported with their pointer") {
  const std::string errors = inline_error(R"({
    "nodes": 0, "gpus_per_node": "four", "gpu": "A100-80", "intra_node": {"link": "nvlnk"},
    "inter_node": {"bandwidth": 25}, "host_memory_bytes": -1, "cpu_cores": 2.5,
    "nvme": {"capacity": 1}, "host_memry_bytes": 1, "pcie_bandwidth": true})");
  for (const char* pointer : {"/cluster/nodes: expected an integer from 1 to 100000, got 0",
                              "/cluster/gpus_per_node: expected an integer",
                              "/cluster/gpu: expected the name of a GPU",
                              "/cluster/intra_node/link: expected one of nvlink, pcie, host",
                              "/cluster/inter_node/bandwidth: expected bytes per second",
                              "hint: 25 GB/s is 25e9",
                              "/cluster/host_memory_bytes: expected bytes",
                              "/cluster/cpu_cores: expected an integer",
                              "/cluster/nvme/capacity: expected one of read_bandwidth",
                              "/cluster/host_memry_bytes",
                              "hint: did you mean host_memory_bytes",
                              "/cluster/pcie_bandwidth: expected bytes per second"}) {
    CAPTURE(pointer, errors);
    CHECK(contains(errors, pointer));
  }
}

TEST_CASE("a cluster needs a GPU, and NVLink a rate where the GPU has none") {
  CHECK(contains(inline_error(R"({"nodes":1})"), "/cluster/gpu: expected the name of a GPU"));
  CHECK(contains(inline_error(R"({"gpu":{}})"), "/cluster/gpu/name"));
  CHECK(contains(inline_error(R"({"gpu":{"name":"nothing"}})"), "/cluster/gpu/name"));
  CHECK(contains(inline_error(R"({"gpu":7})"), "/cluster/gpu: expected"));
  CHECK(contains(inline_error(R"({"gpu":"L4","gpus_per_node":2,"intra_node":{"link":"nvlink"}})"),
                 "/cluster/intra_node/bandwidth"));
  CHECK(contains(inline_error(R"({"gpu":"L4","nodes":100000,"gpus_per_node":8})"), "at most"));
  CHECK(contains(inline_error(R"({"gpu":"L4","assumptions":[1]})"), "a list of texts"));
}

TEST_CASE("numbers that are not finite are refused") {
  Json cluster = parse_json(R"({"gpu":"L4","inter_node":{}})", "f").root;
  cluster["inter_node"]["bandwidth"] = std::nan("");
  CHECK_THROWS_AS(parse_cluster(cluster, "f", "/cluster"), InputError);
  cluster["inter_node"]["bandwidth"] = INFINITY;
  CHECK_THROWS_AS(parse_cluster(cluster, "f", "/cluster"), InputError);
}

TEST_CASE("a hostfile gives nodes and GPUs per node") {
  const TemporaryFile file("good", "# nodes\nworker-1 slots=4\n\nworker-2  slots=4  # second\n");
  const Cluster cluster = parse_cluster_text("hostfile:" + file.path() + "@A10-24G");
  CHECK(cluster.nodes == 2);
  CHECK(cluster.gpus_per_node() == 4);
  CHECK(cluster.gpu.key == "a10");
}

TEST_CASE("a bad hostfile is refused with its line") {
  CHECK(contains(hostfile_error("a slots=4\nb slots=8\n"), "line 2: expected as many slots"));
  CHECK(contains(hostfile_error("a slots=4\na slots=4\n"), "line 2: expected each host once"));
  CHECK(contains(hostfile_error("a slots=0\n"), "line 1: expected HOST slots=N"));
  CHECK(contains(hostfile_error("a\n"), "line 1: expected HOST slots=N"));
  CHECK(contains(hostfile_error("a slots=4x\n"), "line 1"));
  CHECK(contains(hostfile_error("# nothing\n"), "no host"));
  CHECK(contains(hostfile_error("slots=4\n"), "line 1: expected HOST slots=N"));
  CHECK(contains(error_of("hostfile:/tmp/hosts"), "hostfile:PATH@GPU"));
  CHECK(contains(error_of("hostfile:/no/such/file@A100"), "/no/such/file"));
}

TEST_CASE("a path leads to a cluster file") {
  const TemporaryFile file("c.json", R"({"nodes":2,"gpus_per_node":4,"gpu":"A10"})");
  CHECK(parse_cluster_text(file.path()).total_gpus() == 8);
  const TemporaryFile list("l.json", "[1]");
  CHECK(contains(error_of(list.path()), "an object that describes a cluster"));
  CHECK(contains(error_of("no/such.json"), "no/such.json"));
  // Beside the scenario that names it.
  const std::string name = std::filesystem::path(file.path()).filename().string();
  const std::string scenario =
      (std::filesystem::path(file.path()).parent_path() / "s.json").string();
  CHECK(parse_cluster(Json(name), scenario, "/cluster").nodes == 2);
}

TEST_CASE("the example clusters are readable") {
  const std::filesystem::path folder =
      std::filesystem::path(ZEROPLAN_SOURCE_DIR) / "configs" / "clusters";
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    CAPTURE(entry.path().string());
    CHECK(parse_cluster_text(entry.path().string()).total_gpus() >= 1);
    ++count;
  }
  CHECK(count >= 4);
}

TEST_CASE("the clusters of published measurements are readable") {
  const std::filesystem::path folder =
      std::filesystem::path(ZEROPLAN_SOURCE_DIR) / ".." / "shared" / "groundtruth";
  if (!std::filesystem::exists(folder)) {
    WARN("skipped: no measurements beside the repository");
    return;
  }
  int rows = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jsonl") continue;
    std::ifstream lines(entry.path());
    for (std::string line; std::getline(lines, line);) {
      const Json row = parse_json(line, entry.path().string()).root;
      const Json* cluster = row.find("scenario")->find("cluster");
      CAPTURE(line.substr(0, 200));
      CHECK_NOTHROW(parse_cluster(*cluster, "measurements", "/scenario/cluster"));
      ++rows;
    }
  }
  CHECK(rows > 500);
}

TEST_CASE("a consumer GPU's host is a workstation until it is said to have more") {
  const Cluster pair = inline_cluster(R"({"gpu":"RTX4090","gpus_per_node":2})");
  CHECK(pair.node.host_memory_bandwidth.value.value() == Approx(51.2e9));
  // Two GPUs share 16 lanes of the fourth generation.
  CHECK(pair.node.pcie_bandwidth.value.value() == Approx(8 * 16e9 * 128 / 130 / 8));
  const Cluster one = inline_cluster(R"({"gpu":"RTX4090","gpus_per_node":1})");
  CHECK(one.node.pcie_bandwidth.value.value() == Approx(16 * 16e9 * 128 / 130 / 8));
  for (const char* more : {R"("host_memory_bytes":540092137472)", R"("cpu_cores":64)"}) {
    const Cluster server =
        inline_cluster(std::string(R"({"gpu":"RTX4090","gpus_per_node":4,)") + more + "}");
    CHECK(server.node.host_memory_bandwidth.value.value() > 100e9);
    CHECK(server.node.topology == Topology::pcie_no_p2p);
  }
}

TEST_CASE("a machine by name is a cluster of which nothing is assumed that is known of it") {
  const Cluster cluster = parse_cluster_text("2xaws_p4d.24xlarge");
  const NodeProfile machine = node_of_key("aws_p4d.24xlarge");
  CHECK(cluster.nodes == 2);
  CHECK(cluster.gpus_per_node() == 8);
  CHECK(cluster.gpu.key == "a100_sxm_40gb");
  CHECK(cluster.node.host_memory.value == machine.host_memory->value);
  CHECK(cluster.node.host_memory.confidence != Confidence::assumed);
  CHECK(cluster.inter_node.bandwidth.value.value() == machine.inter_node->bandwidth.value.value());
  CHECK_FALSE(cluster.network_assumed);
  CHECK(parse_cluster_text("p4d.24xlarge").nodes == 1);
  const Cluster half = inline_cluster(R"({"machine":"dgx_h100","gpus_per_node":4})");
  CHECK(half.gpus_per_node() == 4);
  CHECK(assumes(half, "4 of its 8 GPUs"));
  CHECK(contains(inline_error(R"({"machine":"dgx_h100","gpus_per_node":16})"), "at most 8"));
  CHECK(contains(inline_error(R"({"machine":"dgx_h999"})"), "the name of a machine"));
}

TEST_CASE("the assumptions of a resolved document are known again, what somebody wrote is not") {
  const Cluster said = parse_cluster_text("2x4xA800-80G");
  Json document = to_json(said);
  document["assumptions"].push_back("the switch is an old one");
  const Cluster read = parse_cluster(document, "c.json", "/cluster");
  REQUIRE(read.assumptions.size() == said.assumptions.size() + 1);
  std::size_t known = 0;
  for (const Phrase& sentence : read.assumptions) {
    const bool filled = contains(sentence, ": assumed, as ");
    INFO(sentence.english());
    CHECK((!filled || !sentence.is_value()));
    if (filled) ++known;
  }
  CHECK(known >= 4);
  CHECK(read.assumptions.back().is_value());
}

TEST_CASE("clusters are read as people write them") {
  struct Written {
    const char* text;
    std::int64_t nodes, gpus;
    const char* key;
  };
  for (const Written& one : {Written{"8 A100 80G", 1, 8, "a100_sxm_80gb"},
                             Written{"2 nodes x 4 A800", 2, 4, "a800_sxm_80gb"},
                             Written{"2 nodes of 8 H100", 2, 8, "h100_sxm"},
                             Written{"A100-80Gx8", 1, 8, "a100_sxm_80gb"},
                             Written{"RTX 4090 x 2", 1, 2, "rtx_4090"},
                             Written{"2080 Ti", 1, 1, "rtx_2080_ti"},
                             Written{"4x24G", 1, 4, "rtx_3090"},
                             Written{"24GB", 1, 1, "rtx_3090"},
                             Written{"24 GB", 1, 1, "rtx_3090"},
                             Written{"2x8x80G", 2, 8, "a100_sxm_80gb"}}) {
    CAPTURE(one.text);
    const Cluster cluster = parse_cluster_text(one.text);
    CHECK(cluster.nodes == one.nodes);
    CHECK(cluster.gpus_per_node() == one.gpus);
    CHECK(cluster.gpu.key == one.key);
  }
  CHECK(assumes(parse_cluster_text("4x24G"), "a usual GPU of that memory"));
  CHECK(contains(error_of("4x25G"), "the name of a GPU"));
}

TEST_CASE("GPUs of 2024 and 2025 are known by the names that people write") {
  CHECK(parse_cluster_text("4xRTX-4080").gpu.key == "rtx_4080");
  CHECK(parse_cluster_text("2xRTX5070Ti").gpu.key == "rtx_5070_ti");
  CHECK(parse_cluster_text("1x5080").gpu.key == "rtx_5080");
  CHECK(parse_cluster_text("8xH20").gpu.key == "h20");
  CHECK(parse_cluster_text("8xH20-141G").gpu.key == "h20_141gb");
  CHECK(parse_cluster_text("4xGB300").gpu.key == "gb300");
}

TEST_CASE("a GPU that exists and is not known is no misspelling of another") {
  CHECK(contains(error_of("4xRTX-2070"), "known and not modelled"));
  CHECK_FALSE(contains(error_of("4xRTX-2070"), "4090"));
  CHECK(contains(error_of("8xMI300X"), "PyTorch for ROCm"));
  CHECK(contains(error_of("8xaws_p4d.24xlrage"), "did you mean aws_p4d.24xlarge"));
}

TEST_CASE("more GPUs than a machine takes are nodes of the usual size, and it is said") {
  for (const char* text : {"64xH100", "H100 x 64", "64 H100"}) {
    CAPTURE(text);
    const Cluster cluster = parse_cluster_text(text);
    CHECK(cluster.nodes == 8);
    CHECK(cluster.gpus_per_node() == 8);
    CHECK(cluster.gpu.form == FormFactor::sxm);
    CHECK(assumes(cluster, "nodes of the usual size"));
  }
  CHECK(parse_cluster_text("32xA10").gpus_per_node() == 4);
  CHECK(parse_cluster_text("16xRTX-4090").gpus_per_node() == 8);
  CHECK(parse_cluster_text("16xV100-32G").nodes == 1);  // a DGX-2
  CHECK(parse_cluster_text("8xH100").nodes == 1);
  CHECK(parse_cluster_text("10xA40").nodes == 1);
  const Cluster one = parse_cluster_text("1x64xH100");
  CHECK(one.nodes == 1);
  CHECK_FALSE(assumes(one, "nodes of the usual size"));
  CHECK(parse_cluster_text("64xcpu").nodes == 1);
  CHECK(contains(error_of("12xH100"), "nodes of the usual size do not make"));
  CHECK(contains(error_of("12xH100"), "1x12xH100"));
}
