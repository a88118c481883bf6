// What a rehearsed program put on its streams, read, and how long a step of it takes.
#include "base/diagnostic.hpp"
#include "model/hardware/cluster.hpp"
#include "rehearsal/recorded_work.hpp"
#include "rehearsal/timed_step.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;
using namespace zeroplan::rehearsal;

namespace {

RecordedWork read(const std::string& lines) { return read_work(lines, "work"); }

const RecordedOperation& operation_of(const RecordedWork& work, std::size_t call) {
  return work.operations.at(static_cast<std::size_t>(work.calls.at(call).operation));
}

// A step that multiplies, reduces 1 GiB on another stream, and waits for that before it updates.
std::string step(const std::string& host_ns) {
  return "op\t0\t100\tmm.default\n"
         "product\t0\t" +
         host_ns +
         "\t14 TN 4096 4096 4096 1\n"
         "op_end\t0\t100\t67108864 33554432\n"
         "mark\t0\t0\tforward\n"
         "event\t0\t500\t1\n"
         "wait\t3\t500\t1\n"
         "collective\t3\t2000\tall_reduce 1073741824 8 0\n"
         "event\t3\t500\t2\n"
         "mark\t0\t0\tbackward\n"
         "wait\t0\t500\t2\n"
         "op\t0\t100\tadd_.Tensor\n"
         "kernel\t0\t1000\t1,1,1 1,1,1 0 add\n"
         "op_end\t0\t100\t2147483648 1073741824\n"
         "mark\t0\t0\toptimizer\n";
}

std::string steps(const std::string& host_ns) {
  return step(host_ns) + step(host_ns) + step(host_ns);
}

TimedRun timed(const RecordedWork& work) {
  auto run = time_step(work, parse_cluster_text("1x8xH100"), Version{2, 6, 0});
  REQUIRE(run.has_value());
  return std::move(*run);
}

}  // namespace

TEST_CASE(
    "Work belongs to the innermost operation around it, and what launches nothing is left out") {
  const RecordedWork work = read(
      "op\t0\t10\tview.default\n"
      "op_end\t0\t10\t0 0\n"
      "op\t0\t10\tlinear.default\n"
      "op\t0\t10\tmm.default\n"
      "product\t0\t7\t14 TN 8 16 32 2\n"
      "op_end\t0\t10\t100 50\n"
      "kernel\t0\t7\t1,1,1 32,1,1 0 _Z6biases\n"
      "op_end\t0\t10\t20 10\n"
      "kernel\t5\t7\t1,1,1 32,1,1 0 alone\n");
  REQUIRE(work.calls.size() == 3);
  REQUIRE(work.operations.size() == 2);
  CHECK(operation_of(work, 0).name == "mm.default");
  CHECK(operation_of(work, 0).read == Bytes::of(100));
  CHECK(operation_of(work, 0).products == 1);
  CHECK(work.calls[0].product.batch == 2);
  CHECK(work.calls[0].product.dtype == DType::bf16);
  CHECK(operation_of(work, 1).name == "linear.default");
  CHECK(operation_of(work, 1).written == Bytes::of(10));
  CHECK(work.calls[2].operation == -1);
  CHECK(work.calls[2].stream == 5);
}

TEST_CASE("Time of lines that are no call is the next call's") {
  const RecordedWork work = read(
      "op\t0\t10\tmm.default\n"
      "product\t0\t7\t0 NN 1 1 1 1\n"
      "op_end\t0\t20\t1 1\n"
      "mark\t0\t5\tforward\n");
  CHECK(work.calls[0].nanoseconds == 17);
  CHECK(work.calls[1].nanoseconds == 25);
}

TEST_CASE("Copies say their way and whether the host's memory is pinned") {
  const RecordedWork work = read(
      "copy\t4\t1\t1 4096 pinned\n"
      "copy\t4\t1\t2 8192 elsewhere\n"
      "copy\t0\t1\t3 16384 GPU\n");
  CHECK(work.calls[0].way == CopyWay::to_device);
  CHECK(work.calls[0].pinned);
  CHECK(work.calls[1].way == CopyWay::to_host);
  CHECK(!work.calls[1].pinned);
  CHECK(work.calls[2].way == CopyWay::on_device);
  CHECK(work.calls[2].number == 16384);
}

TEST_CASE("A line without its end is left out, one of another form is an error that names it") {
  CHECK(read("memset\t0\t1\t64\nmemset\t0\t1\t6").calls.size() == 1);
  for (const char* line : {"memset\t0\t64\n",
                           "memset\t0\t1\tmany\n",
                           "memset\t0\t-1\t64\n",
                           "dance\t0\t1\t64\n",
                           "sync\t0\t1\tmoon\n",
                           "op_end\t0\t1\t1 1\n",
                           "product\t0\t1\t14 TN 4 4\n"}) {
    INFO(line);
    try {
      read(std::string("memset\t0\t1\t64\n") + line);
      FAIL("it was read");
    } catch (const InputError& error) {
      CHECK(error.diagnostics().front().pointer == "line 2");
    }
  }
}

TEST_CASE("The host's time is another run's only where that did the same") {
  RecordedWork work = read(steps("900000"));
  CHECK(take_host_time(read(steps("3000")), work));
  CHECK(work.calls.front().nanoseconds == 3100);
  CHECK_FALSE(take_host_time(read(step("3000")), work));
  CHECK_FALSE(take_host_time(read(steps("3000").replace(0, 0, "event\t0\t1\t9\n")), work));
  RecordedWork other = read(steps("3000"));
  other.calls[0].kind = CallKind::memset;
  CHECK_FALSE(take_host_time(other, work));
  CHECK(work.calls.front().nanoseconds == 3100);
}

TEST_CASE("A step takes what its streams take, and says what waits for what") {
  const TimedRun run = timed(read(steps("3000")));
  const TimedStep& step = run.step;
  CHECK(step.counts.products == 1);
  CHECK(step.counts.kernels == 1);
  CHECK(step.counts.collectives == 1);
  CHECK(step.counts.collective_bytes == Bytes::gib(1));
  CHECK(step.counts.kernels_of_no_operation == 0);
  // 8 H100 reduce a GiB in some 5 ms, and nothing else is to be done meanwhile.
  CHECK(step.exposed_communication.seconds() > 3e-3);
  CHECK(step.exposed_communication.seconds() < 10e-3);
  CHECK(step.exposed_communication < step.total());
  CHECK(step.bound() == Bound::communication);
  const double sum = step.account.phase[static_cast<std::size_t>(Phase::forward)] +
                     step.account.phase[static_cast<std::size_t>(Phase::backward)] +
                     step.account.phase[static_cast<std::size_t>(Phase::step)];
  CHECK(sum == Approx(step.total().seconds()).epsilon(0.01));
}

TEST_CASE("A host that is slow holds the GPU up") {
  const double quick = timed(read(steps("3000"))).step.total().seconds();
  const TimedRun slow = timed(read(steps("20000000")));
  CHECK(slow.step.total().seconds() > quick + 0.019);
  CHECK(slow.step.bound() == Bound::dispatch);
}

TEST_CASE("Collectives that are launched together are one") {
  const std::string two = step("3000").replace(
      step("3000").find("event\t3"), 0, "collective\t3\t10\tall_reduce 1073741824 8 1\n");
  const TimedRun run = timed(read(two + two));
  CHECK(run.step.counts.collectives == 1);
  CHECK(run.step.counts.collective_bytes == Bytes::gib(2));
}

TEST_CASE("One update alone is no step that could be timed") {
  CHECK_FALSE(time_step(read(step("1")), parse_cluster_text("1x8xH100"), Version{2, 6, 0}));
}

TEST_CASE("Files are read while the GPU computes, and the host waits for a handle's own") {
  const std::string begun = "file\t0\t0\t1 read 35000000000 1048576 8 1\n";
  const auto seconds_with = [&](const std::string& lines) {
    const std::string one = step("3000").insert(step("3000").find("event\t3"), lines);
    return timed(read(one + one)).step.total().seconds();
  };
  const double without = seconds_with("");
  const double waited = seconds_with(begun + "file_wait\t0\t0\t1\n");
  CHECK(waited > without + 1.0);  // drives of a few GB/s
  CHECK(seconds_with(begun + "file_wait\t0\t0\t0\n") < waited);
  CHECK_THROWS_AS(read("file\t0\t0\t1 read 64 1048576 0 1\n"), InputError);
  CHECK_THROWS_AS(read("file\t0\t0\t1 erase 64 1048576 8 1\n"), InputError);
}
