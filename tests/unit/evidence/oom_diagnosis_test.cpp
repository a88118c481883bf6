#include "evidence/oom_diagnosis.hpp"

#include <algorithm>

#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

std::vector<std::string_view> codes(const std::string& text) {
  const std::vector<evidence::OomEvent> events = evidence::read_oom_text(text);
  REQUIRE(events.size() == 1);
  std::vector<std::string_view> result;
  for (const evidence::OomCause& cause : evidence::diagnose(events.front()))
    result.push_back(cause.code);
  return result;
}

using Codes = std::vector<std::string_view>;

}  // namespace

TEST_CASE("more unallocated memory than was asked for is fragmentation") {
  CHECK(codes("CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 39.59 GiB total capacity; "
              "34.00 GiB already allocated; 300.00 MiB free; 37.90 GiB reserved in total by "
              "PyTorch)") == Codes{"fragmentation"});
  CHECK(codes("CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 39.59 GiB total capacity; "
              "37.40 GiB already allocated; 300.00 MiB free; 37.90 GiB reserved in total by "
              "PyTorch)") == Codes{"card-full"});
}

TEST_CASE("a full GPU with a few free pieces is told what lowers its peak first") {
  const std::vector<evidence::OomEvent> events = evidence::read_oom_text(
      "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 39.59 GiB total capacity; 37.85 GiB "
      "already allocated; 10.00 MiB free; 37.90 GiB reserved in total by PyTorch)");
  const std::vector<evidence::OomCause> causes = evidence::diagnose(events.front());
  REQUIRE(causes.size() == 2);
  CHECK(causes[0].code == "card-full");
  CHECK(causes[0].advice.english().find("smaller micro-batch") != std::string::npos);
  CHECK(causes[1].code == "fragmentation");
}

TEST_CASE("a GPU that is not full is told, unless a limit explains it") {
  CHECK(codes("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 47.54 GiB total capacity; "
              "6.15 GiB already allocated; 37.32 GiB free; 6.40 GiB reserved in total by PyTorch)")
            .front() == "free-memory-left");
  CHECK(codes("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 39.59 GiB total capacity; "
              "17.10 GiB already allocated; 20.00 GiB free; 19.79 GiB allowed; 18.20 GiB reserved "
              "in total by PyTorch)") == Codes{"process-limit"});
}

TEST_CASE("contexts of other ranks and other runs are told apart") {
  const std::string head =
      "CUDA out of memory. Tried to allocate 136.00 MiB. GPU 0 has a total capacity of 23.65 GiB "
      "of "
      "which 90.00 MiB is free. ";
  const std::string tail =
      "Including non-PyTorch memory, this process has 11.00 GiB memory in use. Of the allocated "
      "memory 10.50 GiB is allocated by PyTorch, and 2.30 MiB is reserved by PyTorch but "
      "unallocated.";
  CHECK(codes(head + "Process 11 has 398.00 MiB memory in use. " + tail) ==
        Codes{"contexts-of-other-ranks"});
  CHECK(codes(head + "Process 11 has 12.00 GiB memory in use. " + tail) ==
        Codes{"other-processes"});
  const std::vector<evidence::OomEvent> unnamed = evidence::read_oom_text(head + tail);
  const auto others = evidence::memory_of_others(unnamed.front());
  REQUIRE(others);
  CHECK(others->gib() == Approx(23.65 - 90.0 / 1024 - 11.0).margin(0.01));
}

TEST_CASE("a request larger than the GPU is told") {
  CHECK(codes("CUDA out of memory. Tried to allocate 128.00 GiB (GPU 0; 39.59 GiB total capacity; "
              "1.00 GiB already allocated; 38.00 GiB free; 1.10 GiB reserved in total by PyTorch)")
            .front() == "larger-than-card");
}

TEST_CASE("memory outside PyTorch and on the host is told by its kind") {
  CHECK(codes("exits with return code = -9") == Codes{"host-killed"});
  CHECK(codes("exits with return code = -7") == Codes{"shared-memory"});
  CHECK(codes("CUDA error: cudaHostAlloc out of memory") == Codes{"pinned-memory"});
}
