// What a rehearsed step put on the GPU, counted by phase.
#include "rehearsal/counted_work.hpp"

#include "tests/catch.hpp"

using namespace zeroplan;
using namespace zeroplan::rehearsal;

namespace {

const char* const kStep =
    "op\t0\t1\tmm.default\n"
    "product\t0\t1\t14 TN 8 16 32 1\n"
    "op_end\t0\t1\t0 0\n"
    "op\t0\t1\t_scaled_dot_product_flash_attention.default\n"
    "kernel\t0\t1\t1,1,1 1,1,1 0 first\n"
    "kernel\t0\t1\t1,1,1 1,1,1 0 second\n"
    "op_end\t0\t1\t0 0 attention 1 2 2 64 64 32 1 0 bfloat16\n"
    "copy\t0\t1\t1 512 pinned\n"
    "mark\t0\t0\tforward\n"
    "collective\t3\t1\treduce_scatter 100 8 0\n"
    "event\t3\t1\t1\n"
    "wait\t0\t1\t1\n"
    "mark\t0\t0\tbackward\n"
    "adam\t0\t1\t77\n"
    "memset\t0\t1\t64\n"
    "sync\t0\t1\tdevice\n"
    "mark\t0\t0\toptimizer\n";

const simulator::PhaseWork& of(const simulator::WorkByPhase& work, Phase phase) {
  return work[static_cast<std::size_t>(phase)];
}

}  // namespace

TEST_CASE("The last step's work is counted in the phase whose end comes next") {
  const std::string lines = std::string(kStep) + kStep;
  const auto counted = count_last_step(read_work(lines, "work"));
  REQUIRE(counted.has_value());
  const simulator::PhaseWork& forward = of(*counted, Phase::forward);
  CHECK(forward.products == std::map<std::string, std::int64_t>{{"bf16 16 x 8 x 32", 1}});
  CHECK(forward.attention == 1);
  CHECK(forward.kernels == 0);
  CHECK(forward.copies == std::map<std::string, std::int64_t>{{"to device, 512 bytes, pinned", 1}});
  const simulator::PhaseWork& backward = of(*counted, Phase::backward);
  CHECK(backward.collectives ==
        std::map<std::string, std::int64_t>{{"reduce_scatter of 8 ranks, 800 bytes", 1}});
  CHECK(backward.events == 1);
  CHECK(backward.stream_waits == 1);
  const simulator::PhaseWork& step = of(*counted, Phase::step);
  CHECK(step.updated_on_host == Elements::of(77));
  CHECK(step.kernels == 1);
  CHECK(step.host_waits == 1);
}

TEST_CASE("Counted work is read back as it was written, and differs from itself in nothing") {
  const auto counted = count_last_step(read_work(std::string(kStep) + kStep, "work"));
  REQUIRE(counted.has_value());
  simulator::WorkByPhase again = simulator::work_from_json(to_json(*counted));
  CHECK(differences(*counted, again).empty());
  again[static_cast<std::size_t>(Phase::backward)].stream_waits = 3;
  const std::vector<simulator::WorkDifference> found = differences(*counted, again);
  REQUIRE(found.size() == 1);
  CHECK(found[0].phase == Phase::backward);
  CHECK(found[0].what == "stream_waits");
  CHECK(found[0].first == 1);
  CHECK(found[0].second == 3);
}

TEST_CASE("One update is no whole step") {
  CHECK_FALSE(count_last_step(read_work(kStep, "work")).has_value());
}
