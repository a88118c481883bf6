// Random clusters: reading the resolved form gives the same cluster and assumes nothing new; no
// text makes the reader fail otherwise than with InputError.

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "model/hardware/cluster.hpp"
#include "model/hardware/known_hardware.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::int64_t integer(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(engine_);
  }
  bool chance() { return integer(0, 1) == 1; }
  double rate(double least, double most) {
    return std::exp(
        std::uniform_real_distribution<double>(std::log(least), std::log(most))(engine_));
  }
  template <typename T>
  const T& one_of(const std::vector<T>& items) {
    return items[static_cast<std::size_t>(integer(0, static_cast<std::int64_t>(items.size()) - 1))];
  }

 private:
  std::mt19937 engine_;
};

Json random_gpu(Random& random, const std::vector<std::string>& names) {
  if (random.chance()) return Json(random.one_of(names));
  Json gpu = Json::object();
  gpu["name"] = random.chance() ? random.one_of(names) : std::string("unheard-of");
  gpu["memory_bytes"] = random.integer(std::int64_t{8} << 30, std::int64_t{200} << 30);
  if (random.chance()) gpu["memory_bandwidth"] = random.rate(1e11, 1e13);
  if (random.chance()) gpu["peak_flops"] = random.rate(1e13, 5e15);
  if (random.chance()) gpu["compute_capability"] = random.chance() ? "7.5" : "9.0";
  return gpu;
}

Json random_link(Random& random, const std::vector<std::string>& kinds) {
  Json link = Json::object();
  link["bandwidth"] = random.rate(1e8, 1e12);
  if (random.chance()) link["link"] = random.one_of(kinds);
  if (random.chance()) link["latency"] = random.rate(1e-7, 1e-3);
  return link;
}

Json random_cluster(Random& random, const std::vector<std::string>& names) {
  Json cluster = Json::object();
  if (random.chance()) cluster["nodes"] = random.integer(1, 64);
  if (random.chance()) cluster["gpus_per_node"] = random.integer(1, 16);
  cluster["gpu"] = random_gpu(random, names);
  if (random.chance()) cluster["intra_node"] = random_link(random, {"nvlink", "pcie"});
  if (random.chance())
    cluster["inter_node"] = random_link(random, {"ib", "roce", "opa", "tcp", "vxlan"});
  if (random.chance())
    cluster["host_memory_bytes"] = random.integer(1 << 30, std::int64_t{1} << 42);
  if (random.chance()) cluster["host_memory_bandwidth"] = random.rate(1e10, 1e12);
  if (random.chance()) cluster["cpu_cores"] = random.integer(1, 256);
  if (random.chance()) cluster["cpu_sockets"] = random.integer(1, 4);
  if (random.chance()) cluster["pcie_bandwidth"] = random.rate(1e9, 1e11);
  if (random.chance()) cluster["nvme"] = Json(false);
  return cluster;
}

void check_round_trip(const Cluster& cluster) {
  const Json written = to_json(cluster);
  INFO(written.dump(2));
  const Cluster again = parse_cluster(written, "resolved", "/cluster");
  CHECK(again.assumptions == cluster.assumptions);
  CHECK(again.network_assumed == cluster.network_assumed);
  CHECK(to_json(again).dump() == written.dump());
  CHECK(again.gpu.key == cluster.gpu.key);
  CHECK(again.gpu.memory.value == cluster.gpu.memory.value);
  CHECK(again.gpu.bf16_supported == cluster.gpu.bf16_supported);
  CHECK(again.node.topology == cluster.node.topology);
  CHECK(again.node.intra_node.kind == cluster.node.intra_node.kind);
  CHECK(again.node.intra_node.bandwidth.value == cluster.node.intra_node.bandwidth.value);
  CHECK(again.inter_node.bandwidth.value == cluster.inter_node.bandwidth.value);
  CHECK(again.inter_node.latency.value == cluster.inter_node.latency.value);
  CHECK(again.node.host_memory.confidence == cluster.node.host_memory.confidence);
  CHECK(again.node.host_memory.relative_sd == cluster.node.host_memory.relative_sd);
  CHECK(again.node.nvme.has_value() == cluster.node.nvme.has_value());
}

std::vector<std::string> known_names() {
  std::vector<std::string> names = {"A100", "H100", "V100", "cpu", "4090"};
  for (const Gpu& gpu : all_gpus()) names.push_back(gpu.name);
  return names;
}

}  // namespace

TEST_CASE("a resolved cluster reads back as itself, for every GPU and count") {
  for (const std::string& name : known_names()) {
    for (const char* counts : {"", "2x", "3x", "8x", "2x4x", "4x1x", "16x8x"}) {
      CAPTURE(name, counts);
      check_round_trip(parse_cluster_text(counts + name));
    }
  }
}

TEST_CASE("a resolved cluster reads back as itself, for random descriptions") {
  const std::vector<std::string> names = known_names();
  Random random(20240607);
  for (int i = 0; i < 600; ++i) {
    const Json description = random_cluster(random, names);
    CAPTURE(i, description.dump());
    check_round_trip(parse_cluster(description, "random", ""));
  }
}

TEST_CASE("fewer GPUs of a kind never come with more host memory") {
  for (const Gpu& gpu : all_gpus()) {
    CAPTURE(gpu.key);
    const Cluster one = parse_cluster_text(gpu.name);
    const Cluster eight = parse_cluster_text("8x" + gpu.name);
    CHECK(one.node.host_memory.value <= eight.node.host_memory.value);
    CHECK(one.gpu.key == eight.gpu.key);
  }
}

TEST_CASE("random text is read or refused, nothing else") {
  Random random(7);
  const std::string letters = "0123456789x-+*.AHVSXMRTPCIEGgb _@#{}\"\xc3\x97";
  int refused = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text;
    const std::int64_t length = random.integer(0, 24);
    for (std::int64_t j = 0; j < length; ++j) {
      text += letters[static_cast<std::size_t>(
          random.integer(0, static_cast<std::int64_t>(letters.size()) - 1))];
    }
    CAPTURE(text);
    try {
      const Cluster cluster = parse_cluster_text(text);
      CHECK(cluster.total_gpus() >= 1);
    } catch (const InputError& error) {
      CHECK_FALSE(error.diagnostics().empty());
      ++refused;
    }
  }
  CHECK(refused > 3000);
}
