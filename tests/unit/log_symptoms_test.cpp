#include "evidence/log_symptoms.hpp"

#include "tests/catch.hpp"
#include "tests/support/small_models.hpp"

using namespace zeroplan;

namespace {

// DeepSpeed#5394
constexpr std::string_view kWatchdog =
    "[rank3]:[E ProcessGroupNCCL.cpp:523] [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=9314, OpType=_REDUCE_SCATTER_BASE, NumelIn=131072000, NumelOut=32768000, "
    "Timeout(ms)=600000) ran for 600524 milliseconds before timing out.";

}  // namespace

TEST_CASE("A collective that timed out tells its size, its ranks and the weight of that size") {
  const auto alone = read_log_symptoms(kWatchdog);
  REQUIRE(alone.size() == 1);
  CHECK(alone[0].code == "collective-timeout");
  CHECK(alone[0].text ==
        "_REDUCE_SCATTER_BASE of 131072000 elements over 4 ranks did not end in 600 s: a rank did "
        "not come to it");
  const Model model = testing::llama({.hidden = 4096});
  const auto named = read_log_symptoms(kWatchdog, &model);
  CHECK(named[0].text.find("as many as model.embed_tokens.weight has") != std::string::npos);
}

TEST_CASE("A collective whose numbers are missing or absurd is told without them") {
  for (const std::string_view rest : {"",
                                      ": WorkNCCL(OpType=ALLREDUCE, NumelIn=0, NumelOut=0, "
                                      "Timeout(ms)=5)",
                                      ": WorkNCCL(OpType=ALLREDUCE, NumelIn=-4, Timeout(ms)=x)"}) {
    CAPTURE(rest);
    const auto found =
        read_log_symptoms("Watchdog caught collective operation timeout" + std::string(rest));
    REQUIRE(found.size() == 1);
    CHECK(found[0].text == "a collective did not end: a rank did not come to it");
  }
  const auto reduced = read_log_symptoms(
      "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, "
      "NumelIn=7, NumelOut=7, Timeout(ms)=1800000)");
  CHECK(reduced[0].text ==
        "ALLREDUCE of 7 elements did not end in 1800 s: a rank did not come to it");
}

TEST_CASE("Symptoms come in the order of the log, repeats are counted") {
  const auto found = read_log_symptoms(
      "[WARNING] [runner.py:190:fetch_hostfile] Unable to find hostfile, will proceed with "
      "training\r\n"
      "[stage3.py:2069:step] 27 pytorch allocator cache flushes since last step. this happens\r\n"
      "[stage3.py:2069:step] 3 pytorch allocator cache flushes since last step. this happens\r\n"
      "Exception: Current loss scale already at minimum - cannot decrease scale anymore.\r\n");
  REQUIRE(found.size() == 3);
  CHECK(found[0].code == "no-hostfile");
  CHECK(found[1].line == 2);
  CHECK(found[1].times == 2);
  CHECK(found[1].text.rfind("27 times in a step", 0) == 0);
  CHECK(found[2].code == "loss-scale");
  CHECK(read_log_symptoms("all is well").empty());
}

TEST_CASE("Versions, the Trainer's message and the rendezvous are read") {
  const auto cuda = read_log_symptoms(
      "CUDAMismatchException: >- DeepSpeed Op Builder: Installed CUDA version 12.2 does not match "
      "the version torch was compiled with 11.7, unable to compile cuda/cpp extensions without a "
      "matching cuda version.");
  REQUIRE(cuda.size() == 1);
  CHECK(cuda[0].text.find("toolkit is 12.2 and torch was built with 11.7:") != std::string::npos);
  CHECK(read_log_symptoms("Please correct the following DeepSpeed config values that mismatch "
                          "TrainingArguments values:")[0]
            .code == "trainer-mismatch");
  CHECK(
      read_log_symptoms("Timed out after 1801 seconds waiting for clients. 1/2 clients joined.")[0]
          .text == "not all processes came to the rendezvous in 1801 s");
}
