// Collectives against nccl-tests curves, inside a node and between nodes.
#include "model/cost/collective.hpp"
#include "model/hardware/cluster.hpp"
#include "tests/published/published_data.hpp"
#include "tests/published/timing_errors.hpp"

using namespace zeroplan;
using namespace zeroplan::testing;

namespace {

TimingErrors errors_of(const Json& group, const Cluster& cluster, const CollectiveGroup& ranks) {
  const Coefficients coefficients(cluster.gpu.key);
  const auto kind = find(kCollectiveNames, text(group, "collective"));
  REQUIRE(kind.has_value());
  TimingErrors errors;
  for (const Json& row : group.find("rows")->items()) {
    const Bytes message = Bytes::nearest(row.items()[0].as_number());
    errors.add(collective_time(*kind, message, ranks, cluster, coefficients),
               row.items()[1].as_number());
  }
  return errors;
}

}  // namespace

TEST_CASE(
    "collectives inside a node: errors per GPU, kind and ranks stay within the recorded bounds") {
  const Json table = published("collective_times.json");
  for (const Json& group : table.find("groups")->items()) {
    const Cluster cluster = parse_cluster(*group.find("cluster"), "published", "/groups");
    const std::int64_t ranks = whole(group, "ranks");
    check_errors(
        short_name(cluster) + " " + text(group, "collective") + " " + std::to_string(ranks),
        errors_of(group, cluster, {ranks, 1, 1}),
        number(group, "median"),
        number(group, "p95"));
  }
}

TEST_CASE("collectives between nodes: errors per cluster stay within the recorded bounds") {
  const Json table = published("network_collective_times.json");
  for (const Json& group : table.find("groups")->items()) {
    const Cluster cluster = parse_cluster(*group.find("cluster"), "published", "/groups");
    check_errors(text(group, "label"),
                 errors_of(group, cluster, whole_cluster(cluster)),
                 number(group, "median"),
                 number(group, "p95"));
  }
}
