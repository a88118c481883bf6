// What holds for every cost: more bytes never take less time, one rank waits for nobody, nothing is
// negative or infinite.
#include <cmath>
#include <random>

#include "model/cost/collective.hpp"
#include "model/cost/copies.hpp"
#include "model/cost/gemm.hpp"
#include "model/cost/kernel_time.hpp"
#include "model/hardware/cluster.hpp"
#include "model/hardware/known_hardware.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

constexpr Collective kKinds[] = {Collective::all_gather,
                                 Collective::reduce_scatter,
                                 Collective::all_reduce,
                                 Collective::broadcast,
                                 Collective::all_to_all};

}  // namespace

TEST_CASE("collectives take longer for more bytes, on every GPU and any shape of cluster") {
  std::mt19937_64 random(20261121);
  for (const Gpu& gpu : all_gpus()) {
    for (const std::int64_t nodes : {1, 2, 16}) {
      const std::int64_t per_node = std::int64_t{1} << (random() % 4);
      const Cluster cluster = parse_cluster_text(std::to_string(nodes) + "x" +
                                                 std::to_string(per_node) + "x" + gpu.name);
      const Coefficients coefficients(gpu.key);
      const CollectiveGroup group = whole_cluster(cluster);
      for (const Collective kind : kKinds) {
        INFO(gpu.key << " " << nodes << "x" << per_node << " " << name(kCollectiveNames, kind));
        Seconds last;
        for (Bytes message = Bytes::of(1); message < Bytes::gib(4); message = message * 3) {
          const CollectiveCost cost = collective_cost(kind, message, group, cluster, coefficients);
          CHECK(std::isfinite(cost.total().seconds()));
          CHECK(cost.total() >= last);
          CHECK((group.ranks() > 1) == (cost.total() > Seconds::zero()));
          last = cost.total();
        }
      }
    }
  }
}

TEST_CASE(
    "every GPU computes products and copies in finite time, and deeper products take longer") {
  std::mt19937_64 random(7);
  for (const Gpu& gpu : all_gpus()) {
    INFO(gpu.key);
    const Coefficients coefficients(gpu.key);
    const MatmulTimes times(gpu, coefficients);
    for (int i = 0; i < 50; ++i) {
      const auto size = [&] { return static_cast<std::int64_t>(1 + random() % 20000); };
      MatrixProduct product{1 + static_cast<std::int64_t>(random() % 64), size(), size(), size()};
      product.dtype = random() % 2 == 0 ? DType::fp32 : DType::fp16;
      // Batched rows of other lengths do without tensor cores: k stays a multiple of 8.
      if (product.batch > 1) product.k = round_up(product.k, 8);
      const Seconds time = times.sustained(product);
      const double flops = 2.0 * static_cast<double>(product.batch) *
                           static_cast<double>(product.m) * static_cast<double>(product.n) *
                           static_cast<double>(product.k);
      CHECK(std::isfinite(time.seconds()));
      // The split of k may change, so the last candidate bounds it from above only.
      product.k *= 8;
      CHECK(times.sustained(product) > time);
      const double peak = dense_peak(gpu, product.dtype).value.value();
      CHECK(flops / time.seconds() < 1.15 * peak);
    }
  }
}
