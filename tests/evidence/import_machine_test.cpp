#include <algorithm>
#include <string>

#include "evidence/validate.hpp"
#include "tests/catch.hpp"
#include "tests/evidence/import_support.hpp"

namespace {

using zeroplan::ScenarioKey;
using zeroplan::evidence::CollectiveTiming;
using zeroplan::evidence::ImportedFile;
using zeroplan::evidence::KernelTiming;
using zeroplan::evidence::Measurement;
using zeroplan::evidence::Metric;
using zeroplan::test::import_text;
using zeroplan::test::kMib;
using zeroplan::test::measure;
using zeroplan::test::notes_have;
using zeroplan::test::scenario_text;
using zeroplan::test::value_of;

std::string devices(int ranks, int hosts) {
  std::string text =
      "# nThread 1 nGpus 1 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 5 iters: 20 agg "
      "iters: "
      "1 validation: 1 graph: 0\n#\n# Using devices\n";
  for (int rank = 0; rank < ranks; ++rank) {
    text += "#  Rank  " + std::to_string(rank) + " Group  0 Pid  4711 on    node-" +
            std::to_string(rank * hosts / ranks) + " device  0 [0x07] NVIDIA A100-SXM4-80GB\n";
  }
  return text;
}

constexpr const char* kTable =
    "#                                                              out-of-place                   "
    "    "
    "in-place          \n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time "
    "  "
    "algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us) "
    " "
    "(GB/s)  (GB/s)       \n";

}  // namespace

TEST_CASE("nccl-tests' rows become collectives, out of place and in place") {
  const Measurement run =
      *measure("$ ./build/all_reduce_perf -b 8G -e 8G\n" + devices(8, 1) + kTable +
               "  10737418240    2684354560     float     sum      -1    90330  118.87  208.02     "
               " 0    91945  "
               "116.78  204.37      0\n# Avg bus bandwidth    : 206.2\n");
  REQUIRE(run.parts.collectives.size() == 2);
  const CollectiveTiming& first = run.parts.collectives.front();
  CHECK(first.operation == "all_reduce");
  CHECK(first.bytes.count() == 10737418240);
  CHECK(first.ranks == 8);
  CHECK(first.nodes == 1);
  CHECK(first.count == 20);
  CHECK(first.seconds.seconds() == Approx(0.09033));
  CHECK_FALSE(first.in_place);
  CHECK(run.parts.collectives.back().in_place);
  CHECK(run.measured.empty());
  const zeroplan::Json& cluster = run.scenario.find(ScenarioKey::cluster)->value;
  CHECK(cluster.find("gpus_per_node")->as_integer() == 8);
}

TEST_CASE("Without its command, the ratio of the two rates tells the collective") {
  const auto operation = [](const std::string& redop, const std::string& rates) {
    const Measurement run = *measure(devices(4, 2) + kTable + "1048576 262144 float " + redop +
                                     " -1 100.0 " + rates + " 0 100.0 " + rates + " 0\n");
    CHECK(notes_have(run, "taken from busbw / algbw") ==
          (run.parts.collectives.front().operation != "unknown"));
    return run.parts.collectives.front().operation;
  };
  CHECK(operation("sum", "100.00 150.00") == "all_reduce");
  CHECK(operation("sum", "100.00 75.00") == "reduce_scatter");
  CHECK(operation("none", "100.00 75.00") == "all_gather");
  CHECK(operation("none", "100.00 100.00") == "unknown");
}

TEST_CASE("A row of nccl-tests with a word for a time is a bad line") {
  const ImportedFile file =
      import_text(devices(2, 1) + kTable + "8 2 float sum -1 5.63 0.00 0.00 0 x.20 0.04 0.00 0\n");
  REQUIRE(file.runs.front().findings.bad_lines().size() == 1);
  CHECK(file.runs.front().findings.parts.collectives.size() == 1);
}

TEST_CASE("Collectives alone are a measurement that validate skips") {
  const Measurement run =
      *measure(devices(2, 1) + kTable + "8 2 float sum -1 5.0 1.0 1.0 0 5.0 1.0 1.0 0\n");
  const auto file = zeroplan::evidence::parse_measurements(to_json(run).dump() + "\n", "m.jsonl");
  REQUIRE(file.measurements.size() == 1);
  CHECK(file.bad_lines.empty());
  CHECK(file.measurements.front().parts == run.parts);
  const auto report = zeroplan::evidence::validate({file});
  REQUIRE(report.skipped.size() == 1);
  CHECK(report.skipped.front().reason == "collectives and kernels, no metric of a step");
}

TEST_CASE("A row of collectives or kernels that is no timing is a bad line") {
  const auto problems = [](const std::string& parts) {
    return zeroplan::evidence::parse_measurements(
               R"({"id":"a","source":"b","scenario":{},)" + parts + "}\n", "m.jsonl")
        .bad_lines.size();
  };
  CHECK(problems(R"("collectives":[{"operation":"all_reduce","bytes":8,"seconds":1e-6}])") == 0);
  CHECK(problems(R"("collectives":[{"operation":"all_reduce","bytes":-8,"seconds":1e-6}])") > 0);
  CHECK(problems(R"("collectives":[{"operation":"","bytes":8,"seconds":1e-6}])") > 0);
  CHECK(problems(R"("collectives":{})") > 0);
  CHECK(problems(R"("kernels":[{"kernel":"k","count":1,"seconds":1}])") > 0);
  CHECK(problems(R"("kernels":[3])") > 0);
}

TEST_CASE("nvidia-smi's CSV gives the fullest GPU and the cluster") {
  const Measurement run = *measure(
      "index, name, memory.used [MiB], memory.total [MiB]\n0, NVIDIA A100-SXM4-80GB, 8311 MiB, "
      "81920 "
      "MiB\n1, NVIDIA A100-SXM4-80GB, 9001 MiB, 81920 MiB\n0, NVIDIA A100-SXM4-80GB, 41000 MiB, "
      "81920 "
      "MiB\n1, NVIDIA A100-SXM4-80GB, 40990 MiB, 81920 MiB\n");
  CHECK(value_of(run, Metric::peak_total_bytes) == Approx(41000.0 * kMib));
  const zeroplan::Json& cluster = run.scenario.find(ScenarioKey::cluster)->value;
  CHECK(cluster.find("gpus_per_node")->as_integer() == 2);
  CHECK_FALSE(run.measured.has(Metric::fits));
}

TEST_CASE("nvidia-smi without units and with [N/A] is read; a wrong unit is a bad line") {
  const Measurement run = *measure("index, memory.used [MiB]\r\n0, 9120\r\n1, [N/A]\r\n");
  CHECK(value_of(run, Metric::peak_total_bytes) == Approx(9120.0 * kMib));
  CHECK(notes_have(run, "no memory.used"));
  const ImportedFile file = import_text("index, memory.used [MiB]\n0, 9120 apples\n0, 12 MiB\n");
  CHECK(file.runs.front().findings.bad_lines().size() == 1);
}

TEST_CASE("nvidia-smi's table is read by its column of memory") {
  const Measurement run = *measure(
      "| N/A   34C    P0             60W /  400W |   38213MiB /  40960MiB |      0%      Default "
      "|\n"
      "| 30%   45C    P2            150W /  250W |   10000MiB /  24576MiB |      0%      Default "
      "|\n");
  CHECK(value_of(run, Metric::peak_total_bytes) == Approx(38213.0 * kMib));
}

TEST_CASE("A trace's kernels are grouped by operation and shapes, its collectives by size") {
  const Measurement run = *measure(R"({"traceEvents": [
    {"ph":"X","cat":"cpu_op","name":"aten::mm","ts":1,"dur":9,
     "args":{"External id":7,"Input Dims":[[2,3],[3,4]],"Input type":["float","float"]}},
    {"ph":"X","cat":"kernel","name":"gemm","ts":2,"dur":10,"args":{"External id":7}},
    {"ph":"X","cat":"kernel","name":"gemm","ts":9,"dur":30,"args":{"External id":7}},
    {"ph":"X","cat":"kernel","name":"gemm","ts":9,"dur":5,"args":{"External id":8}},
    {"ph":"X","cat":"kernel","name":"ncclDevKernel_ReduceScatter","ts":9,"dur":50,"args":{
     "Collective name":"_reduce_scatter_base","dtype":"BFloat16","In msg nelems":800,
     "Out msg nelems":100,"Group size":8}},
    {"ph":"X","cat":"kernel","name":"ncclDevKernel_ReduceScatter","ts":19,"dur":70,"args":{
     "Collective name":"_reduce_scatter_base","dtype":"BFloat16","In msg nelems":800,
     "Out msg nelems":100,"Group size":8}},
    {"ph":"X","cat":"user_annotation","name":"ProfilerStep#3","ts":1,"dur":2000000},
    {"ph":"i","name":"[Memory]","ts":1,"args":{"Device Type":1,"Device Id":0,
     "Total Allocated":1000,"Total Reserved":4096}},
    {"ph":"i","name":"[Memory]","ts":1,"args":{"Device Type":0,"Total Allocated":99999}}]})");
  REQUIRE(run.parts.kernels.size() == 2);
  const KernelTiming& gemm = run.parts.kernels.front();
  CHECK(gemm.operation == "aten::mm");
  CHECK(gemm.shapes == "[[2,3],[3,4]]");
  CHECK(gemm.count == 2);
  CHECK(gemm.seconds.seconds() == Approx(20e-6));
  CHECK(gemm.total.seconds() == Approx(40e-6));
  REQUIRE(run.parts.collectives.size() == 1);
  const CollectiveTiming& collective = run.parts.collectives.front();
  CHECK(collective.operation == "reduce_scatter");
  CHECK(collective.bytes.count() == 1600);
  CHECK(collective.ranks == 8);
  CHECK(collective.fastest->seconds() == Approx(50e-6));
  CHECK(value_of(run, Metric::step_seconds) == Approx(2.0));
  CHECK(value_of(run, Metric::peak_allocated_bytes) == Approx(1000.0));
  CHECK(value_of(run, Metric::peak_reserved_bytes) == Approx(4096.0));
}
