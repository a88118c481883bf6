// CPU Adam and rooted collectives against published steps.
#include "model/cost/collective.hpp"
#include "model/cost/cpu_optimizer.hpp"
#include "model/hardware/cluster.hpp"
#include "tests/published/published_data.hpp"
#include "tests/published/timing_errors.hpp"

using namespace zeroplan;
using namespace zeroplan::testing;

TEST_CASE("Adam and gradient scaling on the CPU take what DeepSpeed's reports say") {
  const Json table = published("cpu_adam.json");
  Node node;
  node.cpu_cores.value = whole(table, "cores");
  node.cpu_sockets = 2;
  node.host_memory_bandwidth.value = BytesPerSecond::of(number(table, "dram_bytes_per_second"));
  const HostLoad load{.ranks = 1, .bound = true};
  const Coefficients coefficients;
  for (const Json& row : table.find("rows")->items()) {
    INFO(text(row, "source"));
    const std::string kernel = text(row, "kernel");
    CpuAdamWork work{.parameters = Elements::of(whole(row, "parameters"))};
    if (kernel == "passes") work.kernel = CpuAdamKernel::passes;
    const Seconds time =
        kernel == "scale"
            ? host_pass_time({.traffic = work.parameters * DType::fp32 * 2, .new_pages = {}},
                             node,
                             load,
                             coefficients)
            : cpu_adam_time(work, node, load, coefficients);
    const double tolerance = number(row.find("tolerance") != nullptr ? row : table, "tolerance");
    if (std::getenv("ZEROPLAN_SHOW_ERRORS") != nullptr) {
      std::cout << text(row, "source") << ": " << time.seconds() << " s\n";
    }
    CHECK(time.seconds() == Approx(number(row, "seconds")).epsilon(tolerance));
  }
}

TEST_CASE("broadcasts over a thousand GPUs cost InternEvo's step what its table shows") {
  // zero1 = -1 shards the optimizer over all ranks, zero1 = 8 inside nodes: the difference of their
  // steps is the parameters' way back over all ranks. Whole tensors belong to ranks, so there are
  // as many broadcasts as ranks, and at most as many as tensors.
  const Json table = published("internevo_broadcast.json");
  const double bytes = number(table, "bytes");
  for (const Json& row : table.find("rows")->items()) {
    const std::int64_t gpus = whole(row, "gpus");
    INFO(gpus << " GPUs");
    Cluster cluster = parse_cluster(*table.find("node"), "published", "/node");
    cluster.nodes = gpus / 8;
    const Coefficients coefficients(cluster.gpu.key);
    const auto added = [&](std::int64_t count, const CollectiveGroup& group) {
      const Bytes message = Bytes::nearest(bytes / static_cast<double>(count));
      return collective_time(Collective::broadcast, message, group, cluster, coefficients) *
             static_cast<double>(count);
    };
    const std::int64_t count = std::min(gpus, whole(table, "tensors"));
    const Seconds difference = added(count, {8, cluster.nodes, 1}) - added(8, {8, 1, 1});
    const double tokens = number(table, "tokens_per_step_and_gpu");
    const double measured = tokens / number(row, "all_ranks") - tokens / number(row, "node");
    if (std::getenv("ZEROPLAN_SHOW_ERRORS") != nullptr) {
      std::cout << gpus << " GPUs: " << difference.seconds() << " s, measured " << measured << '\n';
    }
    CHECK(difference.seconds() == Approx(measured).epsilon(number(table, "tolerance")));
  }
}
