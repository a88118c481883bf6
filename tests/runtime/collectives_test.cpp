#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/half_floats.hpp"
#include "runtime/collectives/in_process.hpp"
#include "tests/catch.hpp"

namespace zeroplan::runtime {
namespace {

using Body = std::function<void(Communicator&)>;

// Runs `body` on every rank; what each ended with, "" where all went well.
std::vector<std::string> on_ranks(int ranks,
                                  const Body& body,
                                  std::chrono::milliseconds patience = std::chrono::minutes(1)) {
  const auto group = in_process_ranks(ranks, patience);
  std::vector<std::string> ends(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(*group[static_cast<std::size_t>(r)]);
      } catch (const std::exception& error) {
        ends[static_cast<std::size_t>(r)] = error.what();
        group[static_cast<std::size_t>(r)]->fail(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

bool all_well(const std::vector<std::string>& ends) {
  for (const std::string& end : ends) {
    if (!end.empty()) UNSCOPED_INFO(end);
    if (!end.empty()) return false;
  }
  return true;
}

template <typename T>
std::byte* bytes_of(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

// Values that differ by rank and place, exact in fp32.
float value(int rank, std::size_t at) {
  return static_cast<float>(rank + 1) * static_cast<float>(at % 1001);
}

std::vector<float> values_of(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value(rank, i);
  return values;
}

constexpr std::size_t kCounts[] = {1, 7, 70'001};

TEST_CASE("what a rank throws ends all ranks of the process, and is thrown again") {
  for (const int failing : {0, 1, 3}) {
    const auto group = in_process_ranks(4);
    std::atomic<int> told = 0;
    const auto body = [&](int rank) {
      Communicator& own = *group[static_cast<std::size_t>(rank)];
      own.barrier();
      if (rank == failing) throw std::bad_alloc();
      try {
        own.barrier();
      } catch (const CollectiveError& error) {
        told += std::string(error.what()).starts_with("rank " + std::to_string(failing) + " failed")
                    ? 1
                    : 0;
        throw;
      }
    };
    CHECK_THROWS_AS(run_in_process(group, body), std::bad_alloc);
    CHECK(told == 3);
  }
}

TEST_CASE("every rank gets the sum, however many ranks and elements there are") {
  const int ranks = GENERATE(1, 2, 4, 8);
  for (const std::size_t count : kCounts) {
    std::atomic<int> wrong = 0;
    const auto ends = on_ranks(ranks, [&](Communicator& group) {
      std::vector<float> mine = values_of(group.rank(), count);
      group.all_reduce(mine.data(), Elements::of(static_cast<std::int64_t>(count)));
      const float factor = static_cast<float>(ranks * (ranks + 1) / 2);
      for (std::size_t i = 0; i < count; ++i) {
        wrong += mine[i] == factor * static_cast<float>(i % 1001) ? 0 : 1;
      }
      double largest = group.rank();
      group.all_reduce(&largest, Elements::of(1), ReduceOperation::maximum);
      wrong += largest == ranks - 1 ? 0 : 1;
    });
    CHECK(all_well(ends));
    CHECK(wrong == 0);
  }
}

TEST_CASE("a reduce-scatter in place and an all-gather in place give the all-reduce") {
  const int ranks = GENERATE(1, 2, 4, 8);
  for (const std::size_t share : kCounts) {
    std::atomic<int> wrong = 0;
    const auto ends = on_ranks(ranks, [&](Communicator& group) {
      const std::size_t count = share * static_cast<std::size_t>(ranks);
      std::vector<float> mine = values_of(group.rank(), count);
      std::vector<float> expected = mine;
      group.all_reduce(expected.data(), Elements::of(static_cast<std::int64_t>(count)));
      float* own = mine.data() + share * static_cast<std::size_t>(group.rank());
      Exchange exchange{.kind = CollectiveKind::reduce_scatter,
                        .elements = Elements::of(static_cast<std::int64_t>(share)),
                        .input = bytes_of(mine),
                        .output = reinterpret_cast<std::byte*>(own)};
      group.run(exchange);
      exchange.kind = CollectiveKind::all_gather;
      exchange.input = reinterpret_cast<const std::byte*>(own);
      exchange.output = bytes_of(mine);
      group.run(exchange);
      wrong += mine == expected ? 0 : 1;
    });
    CHECK(all_well(ends));
    CHECK(wrong == 0);
  }
}

TEST_CASE("reduce, broadcast and all-to-all move what they say") {
  const int ranks = GENERATE(1, 2, 4, 8);
  std::atomic<int> wrong = 0;
  const auto ends = on_ranks(ranks, [&](Communicator& group) {
    const int root = ranks - 1;
    std::vector<float> mine = values_of(group.rank(), 5);
    group.run({.kind = CollectiveKind::reduce,
               .elements = Elements::of(5),
               .root = root,
               .input = bytes_of(mine),
               .output = bytes_of(mine)});
    const float factor =
        group.rank() == root ? static_cast<float>(ranks * (ranks + 1) / 2) : value(group.rank(), 1);
    wrong += mine[4] == 4.0F * factor ? 0 : 1;
    group.run({.kind = CollectiveKind::broadcast,
               .elements = Elements::of(5),
               .root = root,
               .input = bytes_of(mine),
               .output = bytes_of(mine)});
    wrong += mine[3] == 3.0F * static_cast<float>(ranks * (ranks + 1) / 2) ? 0 : 1;
    std::vector<std::int64_t> out(static_cast<std::size_t>(ranks));
    std::vector<std::int64_t> in(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) in[static_cast<std::size_t>(r)] = 100 * group.rank() + r;
    group.run({.kind = CollectiveKind::all_to_all,
               .dtype = DType::int64,
               .elements = Elements::of(1),
               .input = bytes_of(in),
               .output = bytes_of(out)});
    for (int r = 0; r < ranks; ++r) {
      wrong += out[static_cast<std::size_t>(r)] == 100 * r + group.rank() ? 0 : 1;
    }
    group.barrier();
  });
  CHECK(all_well(ends));
  CHECK(wrong == 0);
}

TEST_CASE("16-bit sums are taken in fp32 and rounded once") {
  // 256 + 1 + 1 + ...: in bf16 each single addition of 1 would be lost.
  constexpr int kRanks = 8;
  std::atomic<int> wrong = 0;
  const auto ends = on_ranks(kRanks, [&](Communicator& group) {
    std::vector<std::uint16_t> b = {bf16_of_float(group.rank() == 0 ? 256.0F : 1.0F)};
    group.run({.dtype = DType::bf16,
               .elements = Elements::of(1),
               .input = bytes_of(b),
               .output = bytes_of(b)});
    wrong += float_of_bf16(b[0]) == 264.0F ? 0 : 1;  // 263 lies between 262 and 264: to even
    std::vector<std::uint16_t> h = {fp16_of_float(group.rank() == 0 ? 2048.0F : 1.0F)};
    group.run({.dtype = DType::fp16,
               .elements = Elements::of(1),
               .input = bytes_of(h),
               .output = bytes_of(h)});
    wrong += float_of_fp16(h[0]) == 2056.0F ? 0 : 1;  // 2055 lies between 2054 and 2056: to even
  });
  CHECK(all_well(ends));
  CHECK(wrong == 0);
}

TEST_CASE("sums do not depend on who comes first") {
  std::vector<float> first;
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::vector<float> result;
    const auto ends = on_ranks(4, [&](Communicator& group) {
      std::vector<float> mine(1000);
      for (std::size_t i = 0; i < mine.size(); ++i) {
        mine[i] = 1.0F / static_cast<float>(3 * i + static_cast<std::size_t>(group.rank()) + 1);
      }
      group.all_reduce(mine.data(), Elements::of(1000));
      if (group.rank() == 0) result = mine;
    });
    REQUIRE(all_well(ends));
    if (first.empty()) first = result;
    CHECK(result == first);
  }
}

TEST_CASE("collectives under way may be waited for in any order") {
  const int ranks = GENERATE(2, 4);
  std::atomic<int> wrong = 0;
  const auto ends = on_ranks(ranks, [&](Communicator& group) {
    std::vector<std::vector<float>> data(3, values_of(group.rank(), 40'000));
    std::vector<Pending> pending;
    for (std::vector<float>& one : data) {
      pending.push_back(group.start(
          {.elements = Elements::of(40'000), .input = bytes_of(one), .output = bytes_of(one)}));
    }
    const bool forward = group.rank() % 2 == 0;
    for (std::size_t i = 0; i < 3; ++i) pending[forward ? i : 2 - i].wait();
    const float factor = static_cast<float>(ranks * (ranks + 1) / 2);
    for (const std::vector<float>& one : data) wrong += one[999] == 999.0F * factor ? 0 : 1;
  });
  CHECK(all_well(ends));
  CHECK(wrong == 0);
}

TEST_CASE("a rank that fails ends the others with its reason") {
  const auto ends = on_ranks(4, [](Communicator& group) {
    group.barrier();
    if (group.rank() == 2) throw std::runtime_error("the disk is full");
    float value = 1.0F;
    group.all_reduce(&value, Elements::of(1));
  });
  CHECK(ends[2] == "the disk is full");
  for (const std::size_t r : {0U, 1U, 3U}) CHECK(ends[r] == "rank 2 failed: the disk is full");
}

TEST_CASE("who waits too long says for whom") {
  const auto ends = on_ranks(
      3,
      [](Communicator& group) {
        if (group.rank() != 1) group.barrier();
      },
      std::chrono::milliseconds(50));
  CHECK(ends[1].empty());
  CHECK(ends[0].find("has waited 0.05 s in collective 0 for rank 1") != std::string::npos);
  CHECK(ends[2] == ends[0].substr(ends[0].find("rank")));
}

TEST_CASE("ranks that call different collectives are told") {
  const auto ends = on_ranks(2, [](Communicator& group) {
    std::vector<float> mine(4);
    group.all_reduce(mine.data(), Elements::of(group.rank() == 0 ? 4 : 3));
  });
  CHECK(ends[0].find("calls all_reduce of") != std::string::npos);
  CHECK(ends[1].find("another rank all_reduce of") != std::string::npos);
}

// Ranks of one row or one column of ranks written row by row.
std::vector<int> row_of(int rank, int columns) {
  std::vector<int> members;
  for (int c = 0; c < columns; ++c) members.push_back(rank / columns * columns + c);
  return members;
}
std::vector<int> column_of(int rank, int rows, int columns) {
  std::vector<int> members;
  for (int r = 0; r < rows; ++r) members.push_back(r * columns + rank % columns);
  return members;
}

TEST_CASE("sums over rows and then over columns of ranks are those over all") {
  constexpr int kRows = 3;
  constexpr int kColumns = 2;
  std::atomic<int> wrong = 0;
  const auto ends = on_ranks(kRows * kColumns, [&](Communicator& group) {
    const auto row = group.split(row_of(group.rank(), kColumns));
    const auto column = group.split(column_of(group.rank(), kRows, kColumns));
    wrong += row->ranks() == kColumns && row->rank() == group.rank() % kColumns ? 0 : 1;
    wrong += column->ranks() == kRows && column->rank() == group.rank() / kColumns ? 0 : 1;
    for (const std::size_t count : kCounts) {
      const auto elements = Elements::of(static_cast<std::int64_t>(count));
      std::vector<float> in_two = values_of(group.rank(), count);
      std::vector<float> of_row = in_two;
      std::vector<float> at_once = in_two;
      // Begun beside one of all, and waited for after it.
      Pending pending =
          row->start({.elements = elements, .input = bytes_of(of_row), .output = bytes_of(of_row)});
      group.all_reduce(at_once.data(), elements);
      pending.wait();
      row->all_reduce(in_two.data(), elements);
      wrong += in_two == of_row ? 0 : 1;
      column->all_reduce(in_two.data(), elements);
      wrong += in_two == at_once ? 0 : 1;
    }
    // A part of a part, whose ranks are the part's.
    const auto alone = row->split(std::vector<int>{row->rank()});
    double own = group.rank();
    alone->all_reduce(&own, Elements::of(1));
    wrong += own == group.rank() ? 0 : 1;
  });
  CHECK(all_well(ends));
  CHECK(wrong == 0);
}

TEST_CASE("what ends one part of a group ends all of it, with the rank's own number") {
  const auto ends = on_ranks(4, [](Communicator& group) {
    const auto row = group.split(row_of(group.rank(), 2));
    if (group.rank() == 3) {
      row->fail("no more");
      return;
    }
    float value = 1.0F;
    row->all_reduce(&value, Elements::of(1));
    group.barrier();
  });
  for (int r = 0; r < 3; ++r) {
    CAPTURE(r);
    CHECK(ends[static_cast<std::size_t>(r)] == "rank 3 failed: no more");
  }
}

TEST_CASE("a wait in a part names who is missing by its rank among all") {
  const auto ends = on_ranks(
      4,
      [](Communicator& group) {
        const auto row = group.split(row_of(group.rank(), 2));
        if (group.rank() == 2) row->barrier();
      },
      std::chrono::milliseconds(50));
  CHECK(ends[2].find("rank 2 has waited") == 0);
  CHECK(ends[2].find("for rank 3") != std::string::npos);
}

TEST_CASE("ranks that do not agree about who is in a part are told") {
  const auto ends = on_ranks(3, [](Communicator& group) {
    const auto part =
        group.split(group.rank() == 0 ? std::vector<int>{0, 1} : std::vector<int>{1, 2});
    part->barrier();
    group.barrier();
  });
  for (const std::string& end : ends) {
    CHECK(end.find("in a part, which another rank has in another") != std::string::npos);
  }
}

}  // namespace
}  // namespace zeroplan::runtime
