// The ordered set of free blocks, against std::set.
#include "simulator/free_list.hpp"

#include <random>
#include <set>
#include <tuple>

#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

using Key = std::pair<std::int64_t, std::int64_t>;

Key key(const simulator::FreeList::Entry& entry) { return {entry.size(), entry.order}; }

void check_same(const simulator::FreeList& list, const std::set<Key>& expected) {
  REQUIRE(list.count() == static_cast<std::int64_t>(expected.size()));
  auto at = list.begin();
  for (const Key& k : expected) {
    REQUIRE(at != list.end());
    REQUIRE(key(list[at]) == k);
    REQUIRE(list[at].block == static_cast<std::int32_t>(k.second % 1000003));
    at = list.next(at);
  }
  REQUIRE(at == list.end());
  for (auto it = expected.rbegin(); it != expected.rend(); ++it) {
    at = list.previous(at);
    REQUIRE(key(list[at]) == *it);
  }
  if (!expected.empty()) REQUIRE(at == list.begin());
}

}  // namespace

TEST_CASE("a free list is ordered by size and then by address, however it grew and shrank") {
  // Few to a size, and so many that a bin is cut into chunks.
  const std::int64_t sizes = GENERATE(40, 2);
  std::mt19937 random(7);
  simulator::FreeList list;
  std::set<Key> expected;
  const auto below = [&](std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random);
  };
  // Grows to about 2000 entries, shrinks to few, twice; sizes repeat often.
  for (int i = 0; i < 16000; ++i) {
    const bool grows = (i / 4000) % 2 == 0;
    if (expected.empty() || below(4) < (grows ? 3 : 1)) {
      const Key k{512 * (1 + below(sizes)), 512 * below(1 << 20)};
      if (!expected.insert(k).second) continue;
      list.insert(k.first, k.second, static_cast<std::int32_t>(k.second % 1000003));
    } else {
      auto victim = expected.lower_bound({512 * below(sizes + 2), 512 * below(1 << 20)});
      const auto at = list.lower_bound(victim == expected.end() ? 1 << 30 : victim->first,
                                       victim == expected.end() ? 0 : victim->second);
      REQUIRE((at == list.end()) == (victim == expected.end()));
      if (victim == expected.end()) continue;
      list.erase(at);
      expected.erase(victim);
    }
    const Key probe{512 * below(sizes + 2), 512 * below(1 << 20)};
    const auto bound = expected.lower_bound(probe);
    const auto at = list.lower_bound(probe.first, probe.second);
    REQUIRE((at == list.end()) == (bound == expected.end()));
    if (bound != expected.end()) REQUIRE(key(list[at]) == *bound);
    if (i % 500 == 0) check_same(list, expected);
  }
  check_same(list, expected);
  while (!expected.empty()) {
    list.erase(expected.begin()->first, expected.begin()->second);
    expected.erase(expected.begin());
  }
  check_same(list, expected);
  CHECK(list.empty());
}

TEST_CASE("a free list finds the next size across all sizes a device can have") {
  simulator::FreeList list;
  std::set<Key> expected;
  for (std::int64_t size = 512; size <= simulator::FreeList::kLargestSize / 3;
       size = size / 512 * 5 / 3 * 512 + 512) {
    list.insert(size, 0, 0);
    expected.insert({size, 0});
  }
  list.insert(simulator::FreeList::kLargestSize, 0, 0);
  expected.insert({simulator::FreeList::kLargestSize, 0});
  for (const Key& k : expected) {
    CHECK(key(list[list.lower_bound(k.first)]) == k);
    CHECK(key(list[list.lower_bound(k.first - 511)]) == k);
    CHECK(list.lower_bound(k.first + 1) == list.next(list.lower_bound(k.first)));
  }
  CHECK(list.lower_bound(simulator::FreeList::kLargestSize + 1) == list.end());
}

TEST_CASE("a block that is not in the free list is noticed when it should leave it") {
  simulator::FreeList list;
  list.insert(512, 0, 1);
  CHECK_THROWS_AS(list.erase(512, 512), std::logic_error);
  CHECK_THROWS_AS(list.erase(1024, 0), std::logic_error);
}
