// Ranks that are connected by TCP. Here they are threads, each with its own sockets; as processes,
// and killed, in tests/processes.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <sys/socket.h>

#include "base/half_floats.hpp"
#include "runtime/collectives/in_process.hpp"
#include "runtime/processes/join.hpp"
#include "runtime/processes/process_communicator.hpp"
#include "runtime/processes/rank_messages.hpp"
#include "runtime/processes/tcp_links.hpp"
#include "tests/catch.hpp"
#include "tests/free_port.hpp"

namespace zeroplan::runtime {
namespace {

using test::free_port;

using std::chrono::milliseconds;
using Body = std::function<void(Communicator&)>;

// A port that nobody listens on now.
ProcessGroup member(int rank, int ranks, int port) {
  return {.launcher = Launcher::torchrun,
          .rank = rank,
          .ranks = ranks,
          .local_rank = rank,
          .local_ranks = ranks,
          .host = "127.0.0.1",
          .port = port,
          .job = "test"};
}

// What every rank ended with, "" where all went well.
std::vector<std::string> on_tcp(int ranks, const Body& body, const JoinOptions& options = {}) {
  const int port = free_port();
  std::vector<std::string> ends(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::string& end = ends[static_cast<std::size_t>(rank)];
      try {
        const auto group = join(member(rank, ranks, port), options);
        try {
          body(*group);
        } catch (const std::exception& error) {
          end = error.what();
          group->fail(end);
        }
      } catch (const std::exception& error) {
        end = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

void on_threads(int ranks, const Body& body) {
  const auto group = in_process_ranks(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { body(*group[static_cast<std::size_t>(rank)]); });
  }
  for (std::thread& thread : threads) thread.join();
}

void check_all_well(const std::vector<std::string>& ends) {
  for (const std::string& end : ends) CHECK(end.empty());
}

// Bytes that a collective leaves in `output`, for numbers whose sums depend on their order.
std::vector<std::byte> result_of(Communicator& group, Exchange exchange, bool in_place) {
  const auto ranks = static_cast<std::size_t>(group.ranks());
  const auto share = static_cast<std::size_t>(exchange.elements.count());
  const auto size = static_cast<std::size_t>(width(exchange.dtype));
  std::vector<std::byte> input(share * ranks * size);
  for (std::size_t i = 0; i < share * ranks; ++i) {
    const auto seed =
        static_cast<float>((i * 7919 + static_cast<std::size_t>(group.rank()) * 31) % 1009);
    const float value = 1.0F / (seed + 1.0F);
    if (exchange.dtype == DType::bf16) {
      const std::uint16_t half = bf16_of_float(value);
      std::memcpy(input.data() + i * size, &half, size);
    } else {
      std::memcpy(input.data() + i * size, &value, size);
    }
  }
  std::vector<std::byte> output(share * ranks * size);
  exchange.input = input.data();
  exchange.output = in_place ? input.data() : output.data();
  const std::size_t own = share * size * static_cast<std::size_t>(group.rank());
  if (in_place && exchange.kind == CollectiveKind::all_gather) exchange.input = input.data() + own;
  if (in_place && exchange.kind == CollectiveKind::reduce_scatter) {
    exchange.output = input.data() + own;
  }
  group.run(exchange);
  return in_place ? input : output;
}

TEST_CASE("every collective over TCP gives the bits of in-process ranks") {
  struct Kind {
    CollectiveKind kind;
    bool in_place;
  };
  const Kind kinds[] = {{CollectiveKind::all_reduce, false},
                        {CollectiveKind::all_reduce, true},
                        {CollectiveKind::reduce, true},
                        {CollectiveKind::reduce_scatter, false},
                        {CollectiveKind::all_gather, true},
                        {CollectiveKind::broadcast, true},
                        {CollectiveKind::all_to_all, false}};
  const int ranks = GENERATE(2, 3, 4);
  // Below and above what is gathered whole, and more than one slice of the staging buffer.
  for (const std::int64_t elements : {1, 1001, 300'001}) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      if (dtype == DType::bf16 && elements > 1001) continue;
      const auto run_all = [&](Communicator& group, std::vector<std::vector<std::byte>>& results) {
        for (const Kind& kind : kinds) {
          // In place, reduce-scatter leaves its other shares as they come.
          const Exchange exchange{.kind = kind.kind,
                                  .dtype = dtype,
                                  .elements = Elements::of(elements),
                                  .root = ranks - 1};
          results.push_back(result_of(group, exchange, kind.in_place));
        }
      };
      std::vector<std::vector<std::vector<std::byte>>> threads(static_cast<std::size_t>(ranks));
      std::vector<std::vector<std::vector<std::byte>>> tcp(static_cast<std::size_t>(ranks));
      on_threads(ranks, [&](Communicator& group) {
        run_all(group, threads[static_cast<std::size_t>(group.rank())]);
      });
      check_all_well(on_tcp(ranks, [&](Communicator& group) {
        run_all(group, tcp[static_cast<std::size_t>(group.rank())]);
      }));
      CAPTURE(ranks, elements, name(dtype));
      CHECK(tcp == threads);
    }
  }
}

TEST_CASE("collectives of parts over TCP give the bits of in-process ranks' parts") {
  constexpr int kRanks = 4;
  const CollectiveKind kinds[] = {CollectiveKind::all_reduce,
                                  CollectiveKind::reduce,
                                  CollectiveKind::reduce_scatter,
                                  CollectiveKind::all_gather,
                                  CollectiveKind::broadcast,
                                  CollectiveKind::all_to_all};
  const auto run_all = [&](Communicator& group, std::vector<std::vector<std::byte>>& results) {
    const int rank = group.rank();
    const int first = rank / 2 * 2;
    const auto near = group.split(std::vector<int>{first, first + 1});
    const auto far = group.split(std::vector<int>{rank % 2, rank % 2 + 2});
    for (Communicator* part : {near.get(), far.get(), &group}) {
      for (const CollectiveKind kind : kinds) {
        for (const std::int64_t elements : {1001, 300'001}) {
          const Exchange exchange{
              .kind = kind, .elements = Elements::of(elements), .root = part->ranks() - 1};
          results.push_back(result_of(*part, exchange, kind == CollectiveKind::reduce));
        }
      }
    }
  };
  std::vector<std::vector<std::vector<std::byte>>> threads(kRanks);
  std::vector<std::vector<std::vector<std::byte>>> tcp(kRanks);
  on_threads(kRanks, [&](Communicator& group) {
    run_all(group, threads[static_cast<std::size_t>(group.rank())]);
  });
  check_all_well(on_tcp(kRanks, [&](Communicator& group) {
    run_all(group, tcp[static_cast<std::size_t>(group.rank())]);
  }));
  CHECK(tcp == threads);
}

TEST_CASE("a part's collective over TCP that meets another's is told by the ranks among all") {
  const auto ends = on_tcp(4, [](Communicator& group) {
    const int first = group.rank() / 2 * 2;
    const auto part = group.split(std::vector<int>{first, first + 1});
    std::vector<float> values(8, 1.0F);
    if (group.rank() < 2) return part->barrier();
    part->run({.kind = CollectiveKind::all_reduce,
               .elements = Elements::of(group.rank()),
               .input = reinterpret_cast<const std::byte*>(values.data()),
               .output = reinterpret_cast<std::byte*>(values.data())});
    group.barrier();
  });
  CAPTURE(ends.at(2), ends.at(3));
  // By whichever of the two notices first.
  const std::string first =
      "rank 2 calls all_reduce of 2 fp32 in a part, rank 3 all_reduce of 3 fp32 in a part";
  const std::string other =
      "rank 3 calls all_reduce of 3 fp32 in a part, rank 2 all_reduce of 2 fp32 in a part";
  for (const std::size_t rank : {2, 3}) {
    const std::string& end = ends.at(rank);
    CHECK((end.find(first) != std::string::npos || end.find(other) != std::string::npos));
  }
}

TEST_CASE("a part over TCP may be split where another is not") {
  check_all_well(on_tcp(4, [](Communicator& group) {
    const int rank = group.rank();
    const int first = rank / 2 * 2;
    const auto row = group.split(std::vector<int>{first, first + 1});
    if (rank < 2) row->split(std::vector<int>{row->rank()})->barrier();
    const auto column = group.split(std::vector<int>{rank % 2, rank % 2 + 2});
    double sum = rank;
    column->all_reduce(&sum, Elements::of(1));
    if (sum != 2.0 * (rank % 2) + 2.0) throw std::runtime_error("another sum");
  }));
}

TEST_CASE("ranks that disagree over TCP about who is in a part are told") {
  const auto ends = on_tcp(3, [](Communicator& group) {
    if (group.rank() == 2) return group.barrier();
    const std::vector<int> members = group.rank() == 0 ? std::vector{0, 1} : std::vector{1, 2};
    const auto part = group.split(members);
    part->barrier();
  });
  CHECK(ends.at(0) != "");
  CHECK(ends.at(1) != "");
}

TEST_CASE("collectives over TCP may be waited for in any order") {
  std::atomic<int> wrong = 0;
  check_all_well(on_tcp(3, [&](Communicator& group) {
    std::vector<std::vector<float>> data(3, std::vector<float>(40'000, 1.0F));
    std::vector<Pending> pending;
    for (std::vector<float>& one : data) {
      pending.push_back(group.start({.elements = Elements::of(40'000),
                                     .input = reinterpret_cast<const std::byte*>(one.data()),
                                     .output = reinterpret_cast<std::byte*>(one.data())}));
    }
    for (std::size_t i = 3; i-- > 0;) pending[i].wait();
    for (const std::vector<float>& one : data) wrong += one[39'999] == 3.0F ? 0 : 1;
  }));
  CHECK(wrong == 0);
}

TEST_CASE("a rank that fails over TCP ends the others with its reason, rank 0 as well") {
  const int failing = GENERATE(0, 2);
  const auto ends = on_tcp(4, [&](Communicator& group) {
    group.barrier();
    if (group.rank() == failing) throw std::runtime_error("the disk is full");
    float value = 1.0F;
    for (;;) group.all_reduce(&value, Elements::of(1));
  });
  for (int rank = 0; rank < 4; ++rank) {
    const std::string expected =
        rank == failing ? "the disk is full"
                        : "rank " + std::to_string(failing) + " failed: the disk is full";
    CHECK(ends[static_cast<std::size_t>(rank)] == expected);
  }
}

TEST_CASE("a rank that leaves in the middle is missed") {
  const auto began = std::chrono::steady_clock::now();
  const auto ends = on_tcp(3, [](Communicator& group) {
    group.barrier();
    if (group.rank() == 1) return;
    group.barrier();
  });
  CHECK(ends[1].empty());
  for (const std::size_t rank : {0U, 2U}) {
    CHECK(ends[rank].find("lost its connection to rank 1") != std::string::npos);
  }
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(30));
}

TEST_CASE("who waits too long over TCP says for whom, and different calls are told") {
  const auto late = on_tcp(3,
                           [](Communicator& group) {
                             if (group.rank() == 1) std::this_thread::sleep_for(milliseconds(3000));
                             group.barrier();
                           },
                           {.patience = milliseconds(800)});
  CHECK(late[0].find("has waited 0.8 s in collective 0 for rank 1") != std::string::npos);
  CHECK(late[2].find("has waited 0.8 s in collective 0 for rank 1") != std::string::npos);
  CHECK_FALSE(late[1].empty());
  const auto different = on_tcp(2, [](Communicator& group) {
    std::vector<float> mine(4);
    group.all_reduce(mine.data(), Elements::of(group.rank() == 0 ? 4 : 3));
  });
  for (const std::string& end : different) {
    CHECK(end.find("collective 0: rank ") != std::string::npos);
    CHECK(end.find("all_reduce of 4 fp32") != std::string::npos);
    CHECK(end.find("all_reduce of 3 fp32") != std::string::npos);
  }
}

TEST_CASE("who computes on after the group failed is ended") {
  std::atomic<int> called = 0;
  std::string reason;
  JoinOptions options;
  options.times.unnoticed = milliseconds(100);
  options.abandoned = [&](const std::string& why) {
    reason = why;
    ++called;
  };
  on_tcp(
      2,
      [&](Communicator& group) {
        if (group.rank() == 1) throw std::runtime_error("no more");
        for (int i = 0; called == 0 && i < 1000; ++i) {
          std::this_thread::sleep_for(milliseconds(10));
        }
      },
      options);
  CHECK(called == 1);
  CHECK(reason == "rank 1 failed: no more");
}

// Two ends of one connection.
std::array<Descriptor, 2> connected() {
  std::array<int, 2> ends{};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

TEST_CASE("who says that it is done and stays without its part is given up") {
  auto [control, its_control] = connected();
  auto [data, its_data] = connected();
  Connections connections;
  connections.control.resize(2);
  connections.data.resize(2);
  connections.control[1] = std::move(control);
  connections.data[1] = std::move(data);
  TcpTimes times;
  times.silence = milliseconds(200);
  const auto links = tcp_links(0, std::move(connections), {}, times);
  send_all(its_control, bytes_of(Word::done), std::chrono::steady_clock::now() + milliseconds(500));
  std::array<std::byte, 4> bytes{};
  std::array<Transfer, 1> wanted = {Transfer{.peer = 1, .send = {}, .receive = bytes}};
  std::string end;
  try {
    links->transfer(wanted, std::chrono::steady_clock::now() + std::chrono::seconds(60));
  } catch (const CollectiveError& error) {
    end = error.what();
  }
  CHECK(end.find("said that it was done") != std::string::npos);
}

std::string end_of_joining(const ProcessGroup& group, milliseconds rendezvous) {
  try {
    join(group, {.rendezvous = rendezvous});
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("ranks that do not come are named, on both sides") {
  const int port = free_port();
  const std::string place = "127.0.0.1 port " + std::to_string(port);
  CHECK(end_of_joining(member(0, 3, port), milliseconds(100)) ==
        "the ranks do not come together: rank 1, 2 did not come to " + place +
            " in 0.1 s (--join-timeout)");
  CHECK(end_of_joining(member(1, 3, port), milliseconds(100)) ==
        "the ranks do not come together: rank 1 did not reach rank 0 at " + place +
            " in 0.1 s (--join-timeout): nobody of this job answers there");
}

TEST_CASE("a second job at the same port is refused, a second process of a rank too") {
  const int port = free_port();
  const Descriptor other = listen_on(port, true);
  CHECK(end_of_joining(member(0, 2, port), milliseconds(100)).find("the port is in use") !=
        std::string::npos);
  const int second = free_port();
  std::vector<std::string> ends(3);
  std::vector<std::thread> threads;
  for (const int rank : {0, 1, 2}) {
    threads.emplace_back([&, rank] {
      ends[static_cast<std::size_t>(rank)] =
          end_of_joining(member(std::min(rank, 1), 3, second), milliseconds(2000));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string both = ends[1] + ends[2];
  CHECK(both.find("is rank 1 as well") != std::string::npos);
}

TEST_CASE("where torchrun's store has the port, ranks meet behind it") {
  const int port = free_port();
  // It takes callers and says nothing, as a store does to who speaks another language.
  const Descriptor store = listen_on(port, true);
  std::atomic<int> met = 0;
  std::vector<std::thread> threads;
  for (const int rank : {0, 1, 2}) {
    threads.emplace_back([&, rank] {
      ProcessGroup group = member(rank, 3, port);
      group.port_is_taken = true;
      const auto communicator = join(group, {.rendezvous = std::chrono::seconds(20)});
      communicator->barrier();
      ++met;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(met == 3);
}

}  // namespace
}  // namespace zeroplan::runtime
