// Collectives, copies, both Adams, NVMe and what they cost each other.
#include "model/cost/collective.hpp"
#include "model/cost/contention.hpp"
#include "model/cost/copies.hpp"
#include "model/cost/cpu_optimizer.hpp"
#include "model/cost/device_memory.hpp"
#include "model/cost/nvme.hpp"
#include "model/cost/optimizer_time.hpp"
#include "model/hardware/cluster.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;
using namespace zeroplan::literals;

namespace {

struct Machine {
  Cluster cluster;
  Coefficients coefficients;
};

Machine machine(const char* text) {
  Machine made{parse_cluster_text(text), {}};
  made.coefficients = Coefficients(made.cluster.gpu.key);
  return made;
}

double bus_rate(const Machine& m, Collective kind, Bytes message, const CollectiveGroup& group) {
  const double n = static_cast<double>(group.ranks());
  const double factor = (kind == Collective::all_reduce ? 2.0 : 1.0) * (n - 1.0) / n;
  return factor * static_cast<double>(message.count()) /
         collective_time(kind, message, group, m.cluster, m.coefficients).seconds() / 1e9;
}

}  // namespace

TEST_CASE("large collectives over NVLink reach the published bus rates") {
  const Machine a100 = machine("8xA100-80G-SXM");
  CHECK(bus_rate(a100, Collective::all_gather, 512_MiB, {8}) == Approx(205).epsilon(0.06));
  CHECK(bus_rate(a100, Collective::reduce_scatter, 512_MiB, {8}) == Approx(213).epsilon(0.06));
  const Machine h100 = machine("8xH100-80G-SXM");
  CHECK(bus_rate(h100, Collective::all_gather, 512_MiB, {8}) == Approx(335).epsilon(0.06));
  // NVLink SHARP lifts the all-reduce above the wire.
  CHECK(bus_rate(h100, Collective::all_reduce, 8_GiB, {8}) == Approx(479).epsilon(0.06));
}

TEST_CASE("one rank waits for nobody, and an empty message takes no time") {
  const Machine m = machine("8xA100-80G-SXM");
  CHECK(collective_time(Collective::all_reduce, 1_GiB, {1, 1}, m.cluster, m.coefficients) ==
        Seconds::zero());
  CHECK(collective_time(Collective::all_reduce, 0_B, {8, 1}, m.cluster, m.coefficients) ==
        Seconds::zero());
}

TEST_CASE("between nodes the NICs bound a collective, and groups beside each other share them") {
  const Machine m = machine("2x8xA100-80G-SXM");
  const CollectiveGroup all = whole_cluster(m.cluster);
  CHECK(all.ranks() == 16);
  const CollectiveCost cost =
      collective_cost(Collective::all_gather, 1_GiB, all, m.cluster, m.coefficients);
  CHECK(cost.rate <= m.cluster.inter_node.bandwidth.value);
  const auto group_of_one = [&](std::int64_t concurrent) {
    return collective_cost(
        Collective::all_gather, 1_GiB, {1, 2, concurrent}, m.cluster, m.coefficients);
  };
  CHECK(group_of_one(1).rate / group_of_one(8).rate == Approx(8.0));
}

TEST_CASE("the ring's latency grows with the ranks, a tree's with their logarithm") {
  const Machine m = machine("128x8xA100-80G-SXM");
  const auto latency = [&](Collective kind, Bytes message, std::int64_t nodes) {
    return collective_cost(kind, message, {8, nodes, 1}, m.cluster, m.coefficients)
        .latency.seconds();
  };
  CHECK(latency(Collective::all_gather, 1_GiB, 128) >
        30.0 * latency(Collective::all_gather, 1_GiB, 2));
  CHECK(latency(Collective::all_reduce, 1_MiB, 128) <
        10.0 * latency(Collective::all_reduce, 1_MiB, 2));
  // Small shares go with a flag in every word, which spares most of a step's latency.
  CHECK(latency(Collective::all_gather, 1_MiB, 128) <
        0.5 * latency(Collective::all_gather, 1_GiB, 128));
}

TEST_CASE("copies share the uplink and pageable memory is slower") {
  const Machine m = machine("8xA100-80G-SXM");
  const Node& node = m.cluster.node;
  const BytesPerSecond alone = copy_rate(node, {}, m.coefficients);
  const BytesPerSecond all = copy_rate(node, {.copying_gpus = 8}, m.coefficients);
  CHECK(alone / all >= static_cast<double>(node.gpus_per_pcie_uplink) * 0.99);
  CHECK(alone / copy_rate(node, {.pinned = false}, m.coefficients) ==
        Approx(m.coefficients[Coefficient::pageable_copy_slowdown]));
  const Seconds many = copy_time(1_MiB, 256, node, {}, m.coefficients);
  const Seconds one = copy_time(1_MiB, 1, node, {}, m.coefficients);
  CHECK((many - one).seconds() == Approx(255 * m.coefficients[Coefficient::copy_fixed_seconds]));
}

TEST_CASE("GPU memory is taken from the driver at a rate, and each call has its time") {
  Coefficients coefficients;
  coefficients.set(Coefficient::gpu_allocation_call_seconds, 1e-4, 0.1);
  coefficients.set(Coefficient::gpu_allocation_rate, 5e10, 0.1);
  const DeviceMemoryCost cost = device_memory_cost(coefficients);
  CHECK(cost.of(3, Bytes::zero()).seconds() == Approx(3e-4));
  CHECK(cost.of(2, Bytes::of(5'000'000'000)).seconds() == Approx(0.1 + 2e-4));
  // 16 GB on an A10, measured between 300 and 400 ms; the table's values.
  const DeviceMemoryCost usual = device_memory_cost(Coefficients());
  CHECK(usual.of(1, Bytes::of(16'000'000'000)).seconds() > 0.3);
  CHECK(usual.of(1, Bytes::of(16'000'000'000)).seconds() < 0.4);
  CHECK(DeviceMemoryCost{}.of(2, 1_GiB) == Seconds::zero());
}

TEST_CASE("CPU Adam is bound by threads, by the process or by memory") {
  Machine m = machine("8xA100-80G-SXM");
  Node node = m.cluster.node;
  node.cpu_cores.value = 48;
  node.host_memory_bandwidth.value = 512.0_GBps;
  const auto rate = [&](const HostLoad& load) {
    return cpu_adam_parameters_per_second(DType::fp32, node, load, m.coefficients);
  };
  CHECK(rate({.ranks = 1}) == Approx(4.1e9));
  CHECK(rate({.ranks = 1, .threads = 1}) == Approx(7.5e8));
  CHECK(rate({.ranks = 8, .bound = true}) == Approx(0.38 * 512e9 / 28.0));
  CHECK(rate({.ranks = 8, .bound = true}) == Approx(rate({.ranks = 8}) * 1.4));
  // That is of two sockets: on one no memory is far away.
  Node one_socket = node;
  one_socket.cpu_sockets = 1;
  CHECK(cpu_adam_parameters_per_second(DType::fp32, one_socket, {.ranks = 8}, m.coefficients) ==
        Approx(rate({.ranks = 8, .bound = true})));
  // Who says how many threads there are starts no more than there are cores for.
  CHECK(rate({.ranks = 8, .threads = 6}) == Approx(rate({.ranks = 8, .bound = true})));
  CHECK(rate({.ranks = 2, .threads = 1}) == Approx(1.5e9));
  CHECK(rate({.ranks = 8, .threads = 100}) == Approx(rate({.ranks = 8, .threads = 6})));
  // Ranks that outnumber the cores share them.
  node.cpu_cores.value = 2;
  CHECK(rate({.ranks = 8, .bound = true}) == Approx(rate({.ranks = 2, .bound = true})));
}

TEST_CASE("a slice of a machine has its share of the memory's rate, and no less") {
  Machine m = machine("8xA100-80G-SXM");
  Node node = m.cluster.node;
  node.cpu_cores.value = 64;
  node.host_memory_bandwidth.value = 400.0_GBps;
  const auto rate = [&](double share) {
    Node slice = node;
    slice.host_share = share;
    slice.host_memory_bandwidth.value = 400.0_GBps * share;
    return host_pass_rate(slice, {.bound = true}, m.coefficients).value();
  };
  CHECK(rate(1.0) == Approx(0.24 * 400e9));
  CHECK(rate(0.5) == Approx(0.24 * 400e9));
  CHECK(rate(0.125) == Approx(0.125 * 400e9));
}

TEST_CASE("torch's own Adam goes over host memory again and again") {
  Machine m = machine("8xA100-80G-SXM");
  Node node = m.cluster.node;
  const HostLoad load{.ranks = 8, .threads = 1};
  const CpuAdamWork one{.parameters = Elements::of(1'000'000'000)};
  CpuAdamWork many = one;
  many.kernel = CpuAdamKernel::passes;
  CHECK(cpu_adam_bytes(many, m.coefficients) == 80_GB);
  CHECK(cpu_adam_time(many, node, load, m.coefficients) ==
        host_pass_time({.traffic = 80_GB, .new_pages = 8_GB}, node, load, m.coefficients));
  CHECK(cpu_adam_time(many, node, load, m.coefficients) >
        cpu_adam_time(one, node, load, m.coefficients) * 2.8);
  // One thread touches new pages at 2.8 GB/s, however many bytes it streams.
  const HostPass touching{.traffic = {}, .new_pages = 28_GB};
  CHECK(host_pass_time(touching, node, load, m.coefficients).seconds() == Approx(10.0));
  // States of 16 bits are half of it.
  CpuAdamWork half = one;
  half.dtype = DType::bf16;
  CHECK(cpu_adam_bytes(half, m.coefficients) == 14_GB);
}

TEST_CASE("NVMe: reads and writes add up, and shallow queues cost") {
  Machine m = machine("8xA100-80G-SXM");
  Node node = m.cluster.node;
  CHECK(node.nvme.has_value());
  NvmeLoad load{.read = 10_GB, .write = 10_GB, .ranks = 1};
  const Seconds both = nvme_time(load, node, m.coefficients);
  const Seconds read = nvme_time({.read = 10_GB, .ranks = 1}, node, m.coefficients);
  const Seconds written = nvme_time({.write = 10_GB, .ranks = 1}, node, m.coefficients);
  CHECK(both.seconds() == Approx((read + written).seconds()));
  // The ranks of a node share the drives.
  load.ranks = 4;
  CHECK(nvme_time(load, node, m.coefficients) > both * 3.0);
  load.requests.queue_depth = 1;
  const Seconds shallow = nvme_time(load, node, m.coefficients);
  load.requests.queue_depth = 32;
  CHECK(nvme_time(load, node, m.coefficients) < shallow);
  node.nvme.reset();
  CHECK(nvme_time(load, node, m.coefficients).is_infinite());
  CHECK(nvme_time({}, node, m.coefficients) == Seconds::zero());
}

TEST_CASE("fused Adam moves 30 bytes a parameter, foreach twice that") {
  const Coefficients c;
  GpuAdamWork work{.parameters = Elements::of(1000)};
  CHECK(gpu_adam_bytes(work, c) == Bytes::of(30'000));
  work.kind = GpuAdam::foreach;
  CHECK(gpu_adam_bytes(work, c) ==
        Bytes::nearest(30'000 * c[Coefficient::adam_foreach_traffic_ratio]));
}

TEST_CASE("what runs at the same time slows down, and nothing speeds up") {
  const Machine m = machine("8xA100-80G-SXM");
  const Gpu& gpu = m.cluster.gpu;
  CHECK(kernel_slowdown(KernelBound::none, 200.0_GBps, gpu, m.coefficients) == 1.0);
  CHECK(kernel_slowdown(KernelBound::compute, 200.0_GBps, gpu, m.coefficients) == Approx(1.125));
  const double fast = kernel_slowdown(KernelBound::memory, 200.0_GBps, gpu, m.coefficients);
  CHECK(fast > kernel_slowdown(KernelBound::memory, 20.0_GBps, gpu, m.coefficients));
}
