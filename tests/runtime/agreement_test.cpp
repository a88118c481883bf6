#include "runtime/train/agreement.hpp"

#include <string>
#include <thread>
#include <vector>

#include "runtime/collectives/in_process.hpp"
#include "tests/catch.hpp"

namespace zeroplan::runtime {
namespace {

Fingerprint with_seed(const std::string& seed, bool more = false) {
  Fingerprint print;
  print.add("model.heads", std::int64_t{4});
  print.add("data.seed", seed);
  if (more) print.add("run.saves", true);
  return print;
}

// What each rank's require_agreement() threw.
std::vector<std::string> ends_of(const std::vector<Fingerprint>& prints) {
  const auto group = in_process_ranks(static_cast<int>(prints.size()));
  std::vector<std::string> ends(prints.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < prints.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        require_agreement(*group[rank], prints[rank]);
      } catch (const CollectiveError& error) {
        ends[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

TEST_CASE("ranks that run the same agree") {
  for (const std::string& end : ends_of({with_seed("0"), with_seed("0"), with_seed("0")})) {
    CHECK(end.empty());
  }
}

TEST_CASE("every rank is told which key differs, and who has what") {
  for (const std::string& end : ends_of({with_seed("0"), with_seed("7"), with_seed("0")})) {
    CHECK(end == "the ranks do not run the same: data.seed is 0 on rank 0, 2 and 7 on rank 1");
  }
  for (const std::string& end : ends_of({with_seed("0"), with_seed("0", true)})) {
    CHECK(end ==
          "the ranks do not run the same: run.saves is nothing on rank 0 and true on rank 1");
  }
}

TEST_CASE("many differences and many ranks are counted, not listed") {
  std::vector<Fingerprint> prints(40);
  for (std::size_t rank = 0; rank < prints.size(); ++rank) {
    for (int key = 0; key < 12; ++key) {
      prints[rank].add("key" + std::to_string(key), std::int64_t{rank == 39});
    }
  }
  const std::string text = disagreement(prints);
  CHECK(text.find("and 23 more and 1 on rank 39; key1") != std::string::npos);
  CHECK(text.ends_with("; and 4 more"));
}

}  // namespace
}  // namespace zeroplan::runtime
