// Parts of attention that are computed one after the other cover every row and head once.
#include "runtime/cuda/cudnn/slices.hpp"

#include <algorithm>
#include <set>

#include "tests/catch.hpp"

namespace zeroplan::runtime::cuda {
namespace {

AttentionProblem shared_heads(std::int64_t batch, std::int64_t sequence) {
  AttentionProblem made{
      .batch = batch, .sequence = sequence, .heads = 12, .kv_heads = 6, .head_dim = 8};
  made.backward = true;
  made.q = made.out = {12 * 8, 8};
  made.k = made.v = {6 * 8, 8};
  return made;
}

TEST_CASE("A problem is the first of its slices, and the others are smaller and smaller") {
  const auto all = slices(shared_heads(3, 16));
  REQUIRE(all.size() == 5);
  CHECK(all.front() == shared_heads(3, 16));
  CHECK(all[1].batch == 1);
  CHECK(all[1].kv_heads == 6);
  CHECK(all[2].kv_heads == 3);
  CHECK(all[2].heads == 6);
  CHECK(all[4].kv_heads == 1);
  CHECK(least_workspace(all[4]) == 2 * 2 * 16 * 16);
}

TEST_CASE("Sequences go together as far as they fit") {
  // Qwen2.5-3B: 8 MiB of sums a sequence, and as much for heads that share keys.
  AttentionProblem many = shared_heads(24, 1024);
  many.heads = 16;
  many.kv_heads = 2;
  many.head_dim = 128;
  many.ordered = false;
  const auto tried = candidates(many, 129 << 20);
  REQUIRE_FALSE(tried.empty());
  CHECK_FALSE(tried.front().ordered);
  CHECK(tried.front().batch == 8);
  CHECK(tried.front().heads == 16);
  // 32 MiB of gradients of scores a sequence.
  many.ordered = true;
  CHECK(candidates(many, 129 << 20).front().batch == 4);
}

TEST_CASE("Slices whose statistics would begin between 16 bytes are left out") {
  for (const AttentionProblem& slice : slices(shared_heads(2, 3))) {
    CHECK((slice.batch == 2 || slice.heads * slice.sequence % 4 == 0));
  }
  CHECK(slices(shared_heads(2, 3)).size() == 3);  // whole, 12 heads, 4 heads
}

AttentionProblem heads_of(std::int64_t batch,
                          std::int64_t sequence,
                          std::int64_t heads,
                          std::int64_t kv_heads,
                          std::int64_t head_dim) {
  return {.backward = true,
          .batch = batch,
          .sequence = sequence,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .ordered = false};
}

TEST_CASE("Of plans to try those with fewer parts come first, and with one order of sums") {
  constexpr std::int64_t kRoom = 33 << 20;
  // 2 MiB of gradients of scores a head: all in one.
  const auto small = candidates(heads_of(1, 1024, 16, 16, 64), kRoom);
  REQUIRE_FALSE(small.empty());
  CHECK(small.front().ordered);
  CHECK(small.front().kv_heads == 16);
  // 8 MiB a head, four at a time; in any order 1 MiB a head, all at once.
  const auto middle = candidates(heads_of(1, 2048, 16, 16, 128), kRoom);
  REQUIRE_FALSE(middle.empty());
  CHECK_FALSE(middle.front().ordered);
  CHECK(middle.front().kv_heads == 16);
  const auto last =
      std::find_if(middle.begin(), middle.end(), [](const auto& p) { return p.ordered; });
  REQUIRE(last != middle.end());
  CHECK(last->kv_heads == 4);
  // 32 MiB a head, eight that share keys: none with one order.
  for (const AttentionProblem& each : candidates(heads_of(1, 4096, 16, 2, 128), kRoom)) {
    CHECK_FALSE(each.ordered);
    CHECK(bytes_of_sums(each) == each.heads * 4096 * 128 * 4);
  }
  AttentionProblem ordered = heads_of(1, 4096, 16, 2, 128);
  ordered.ordered = true;
  CHECK(candidates(ordered, kRoom).empty());
  CHECK(bytes_of_sums(ordered) == 0);
  // Forward has nothing to choose.
  ordered = heads_of(4, 4096, 16, 2, 128);
  ordered.backward = false;
  ordered.ordered = true;
  REQUIRE_FALSE(candidates(ordered, kRoom).empty());
  CHECK(candidates(ordered, kRoom).front() == ordered);
}

TEST_CASE("Slices cover every operand once") {
  const AttentionProblem whole = shared_heads(2, 4);
  std::vector<std::byte> memory(std::size_t{2} * 4 * 12 * 8 * 2);
  AttentionMemory at;
  at.q = at.k = at.lse = memory.data();
  for (const AttentionProblem& slice : slices(whole)) {
    std::set<std::int64_t> queries;
    std::set<std::int64_t> keys;
    std::set<std::int64_t> statistics;
    for (const AttentionMemory& part : slices_of(whole, slice, at)) {
      CHECK(part.d_q == nullptr);
      for (std::int64_t b = 0; b < slice.batch; ++b) {
        for (std::int64_t row = 0; row < slice.sequence; ++row) {
          for (std::int64_t head = 0; head < slice.heads; ++head) {
            const std::int64_t step =
                (b * slice.sequence + row) * slice.q.row + head * slice.q.head;
            CHECK(queries.insert((part.q - memory.data()) / 2 + step).second);
            const std::int64_t statistic = (b * slice.heads + head) * slice.sequence + row;
            CHECK(statistics.insert((part.lse - memory.data()) / 4 + statistic).second);
          }
          for (std::int64_t head = 0; head < slice.kv_heads; ++head) {
            const std::int64_t step =
                (b * slice.sequence + row) * slice.k.row + head * slice.k.head;
            CHECK(keys.insert((part.k - memory.data()) / 2 + step).second);
          }
        }
      }
    }
    CHECK(queries.size() == 2 * 4 * 12);
    CHECK(*queries.rbegin() == 2 * 4 * 12 * 8 - 8);
    CHECK(keys.size() == 2 * 4 * 6);
    CHECK(*keys.rbegin() == 2 * 4 * 6 * 8 - 8);
    CHECK(statistics.size() == 2 * 4 * 12);
    CHECK(*statistics.rbegin() == 2 * 4 * 12 - 1);
  }
}

}  // namespace
}  // namespace zeroplan::runtime::cuda
