#include "base/parallel_for.hpp"

#include <algorithm>
#include <atomic>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/catch.hpp"

namespace zeroplan {
namespace {

TEST_CASE("every item is worked on once, by any number of threads") {
  for (const std::int64_t jobs : {-1, 0, 1, 2, 7, 1000}) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{500}}) {
      std::vector<std::atomic<int>> times(count);
      parallel_for(count, jobs, [&](std::size_t i) { ++times[i]; });
      CHECK(std::all_of(times.begin(), times.end(), [](const auto& n) { return n == 1; }));
    }
  }
}

TEST_CASE("what is thrown is that of the first item that throws, whoever comes first") {
  for (int round = 0; round < 50; ++round) {
    std::string said;
    try {
      parallel_for(200, 8, [](std::size_t i) {
        if (i % 10 == 7) throw std::runtime_error(std::to_string(i));
      });
    } catch (const std::runtime_error& error) {
      said = error.what();
    }
    CHECK(said == "7");
  }
}

TEST_CASE("after a failure little more is begun, and the pool can be used again") {
  WorkerPool pool(4);
  std::atomic<int> begun = 0;
  const auto fails = [&](std::size_t) {
    ++begun;
    throw std::bad_alloc();
  };
  CHECK_THROWS_AS(pool.run(10'000, fails), std::bad_alloc);
  CHECK(begun <= 4);
  std::atomic<std::size_t> sum = 0;
  for (int round = 0; round < 100; ++round) pool.run(10, [&](std::size_t i) { sum += i; });
  CHECK(sum == 4500);
}

TEST_CASE("a pool of no or one thread works on the caller's") {
  for (const std::size_t threads : {std::size_t{0}, std::size_t{1}}) {
    const auto caller = std::this_thread::get_id();
    bool here = true;
    WorkerPool(threads).run(
        20, [&](std::size_t) { here = here && std::this_thread::get_id() == caller; });
    CHECK(here);
  }
}

TEST_CASE("threads are told their numbers and joined when they go") {
  std::vector<int> seen(5, 0);
  {
    Threads threads;
    CHECK(threads.start(seen.size(), [&](std::size_t i) { seen[i] = static_cast<int>(i) + 1; }) ==
          5);
    CHECK(threads.size() == 5);
  }
  CHECK(seen == std::vector<int>{1, 2, 3, 4, 5});
}

}  // namespace
}  // namespace zeroplan
