// Who calls the ports of ranks: strangers at every stage, ranks that go, fail or have another
// secret. Ranks are threads here, and one of them may be played by hand; as processes in
// tests/processes.
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <sys/socket.h>

#include "runtime/data/fnv1a.hpp"
#include "runtime/processes/control.hpp"
#include "runtime/processes/handshake.hpp"
#include "runtime/processes/join.hpp"
#include "runtime/processes/rendezvous_host.hpp"
#include "runtime/processes/tcp_rendezvous.hpp"
#include "tests/catch.hpp"
#include "tests/free_port.hpp"

namespace zeroplan::runtime {
namespace {

using test::free_port;

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

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

// A rank as a thread that joins, and does something with the group; how it ended.
class Rank {
 public:
  Rank(
      const ProcessGroup& group,
      const JoinOptions& options = {},
      std::function<void(Communicator&)> body = [](Communicator& all) { all.barrier(); })
      : thread_([this, group, options, body] {
          try {
            body(*join(group, options));
          } catch (const std::exception& error) {
            end_ = error.what();
          }
        }) {}
  ~Rank() {
    if (thread_.joinable()) thread_.join();
  }
  // "" where all went well.
  const std::string& end() {
    if (thread_.joinable()) thread_.join();
    return end_;
  }

 private:
  std::string end_;
  std::thread thread_;
};

void repeat_barriers(Communicator& group) {
  for (;;) group.barrier();
}

Deadline soon() { return Clock::now() + seconds(60); }

// Somebody who connects as soon as there is somebody to connect to.
Descriptor stranger(int port) {
  const Deadline deadline = soon();
  while (Clock::now() < deadline) {
    Descriptor socket = connect_to("127.0.0.1", port, deadline);
    if (socket) return socket;
    std::this_thread::sleep_for(milliseconds(2));
  }
  throw SocketError("nobody listens");
}

MessageBytes random_message(std::mt19937& random, std::size_t most) {
  MessageBytes bytes(1 + random() % most);
  for (std::byte& one : bytes) one = static_cast<std::byte>(random());
  return bytes;
}

// Its connection is reset instead of closed.
void vanish(Descriptor socket) {
  const linger at_once{1, 0};
  setsockopt(socket.number(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  socket.reset();
}

// Sends what it can; the other side may have hung up.
void try_to_send(const Descriptor& socket, const MessageBytes& bytes) {
  try {
    send_all(socket, bytes, Clock::now() + seconds(5));
  } catch (const SocketError&) {
  }
}

// What a good rank would send first, but for its secret.
MessageBytes hello_of(const ProcessGroup& group, const std::string& secret) {
  Fnv1a job;
  job.add_text(group.job + ":" + std::to_string(group.port));
  return bytes_of(Hello{.purpose = Purpose::join,
                        .job = job.value(),
                        .process = 1,
                        .rank = group.rank,
                        .ranks = group.ranks,
                        .port = 1,
                        .reason = {},
                        .nonce = {},
                        .proof = {}},
                  secret,
                  {});
}

// Silent, slow, gone, resetting and nonsensical callers, for good; they stay until they go.
std::vector<Descriptor> crowd(int port, const ProcessGroup& posing_as) {
  std::mt19937 random(20261123);
  std::vector<Descriptor> there;
  for (int i = 0; i < 120; ++i) {
    Descriptor socket = stranger(port);
    const MessageBytes hello = hello_of(posing_as, "a secret that is not theirs");
    switch (i % 6) {
      case 0:
        break;  // silent
      case 1:
        try_to_send(socket, random_message(random, 4096));
        break;
      case 2:
        vanish(std::move(socket));
        break;
      case 3:
        socket.reset();
        break;
      case 4:  // slow: the beginning of a good message
        try_to_send(socket, MessageBytes(hello.begin(), hello.begin() + 1 + random() % 40));
        break;
      case 5:
        try_to_send(socket, hello);
        break;
    }
    if (socket) there.push_back(std::move(socket));
  }
  return there;
}

TEST_CASE("strangers at rank 0's port do the ranks no harm, silent or not") {
  const int port = free_port();
  JoinOptions options;
  options.secret = GENERATE("", "the secret of this job");
  Rank first(member(0, 4, port), options);
  // Whose rank is the one that some of the strangers say they are.
  const std::vector<Descriptor> strangers = crowd(port, member(2, 4, port));
  Rank second(member(1, 4, port), options);
  Rank third(member(2, 4, port), options);
  Rank fourth(member(3, 4, port), options);
  for (Rank* rank : {&first, &second, &third, &fourth}) CHECK(rank->end() == "");
}

TEST_CASE("a caller that sends its words one byte after the other is served beside the others") {
  const int port = free_port();
  Rank first(member(0, 3, port));
  const Descriptor slow = stranger(port);
  std::atomic<bool> over = false;
  std::thread drops([&] {
    const MessageBytes bytes = hello_of(member(1, 3, port), "");
    for (std::size_t i = 0; i < bytes.size() && !over; ++i) {
      try_to_send(slow, {bytes[i]});
      std::this_thread::sleep_for(milliseconds(50));
    }
  });
  Rank second(member(1, 3, port));
  Rank third(member(2, 3, port));
  CHECK(first.end() == "");
  CHECK(second.end() == "");
  CHECK(third.end() == "");
  over = true;
  drops.join();
}

// A rank played by hand, as far as a test needs it.
class ByHand {
 public:
  ByHand(const ProcessGroup& group, const std::string& secret = "") : group_(group) {
    Fnv1a job;
    job.add_text(group.job + ":" + std::to_string(group.port));
    own_ = {.job = job.value(),
            .process = 77,
            .rank = group.rank,
            .ranks = group.ranks,
            .secret = secret};
    listener_ = listen_on(0, true);
  }

  Identity& identity() { return own_; }

  // Until rank 0 is there; its answer.
  Answer join_rank_0() {
    const Hello hello{.purpose = Purpose::join, .port = port_of(listener_)};
    for (;;) {
      auto called = call("127.0.0.1", group_.port, own_, hello, soon());
      if (!called) {
        std::this_thread::sleep_for(milliseconds(2));
        continue;
      }
      control_ = std::move(called->socket);
      return called->answer;
    }
  }
  WordMessage word() {
    const Deadline deadline = soon();
    while (Clock::now() < deadline) {
      if (auto word = words_.next(control_, group_.ranks)) return std::move(*word);
      std::this_thread::sleep_for(milliseconds(2));
    }
    throw SocketError("no word");
  }
  // Where the others listen.
  const std::vector<RankAddress>& places() {
    if (places_.empty()) places_ = word().places;
    return places_;
  }
  Descriptor data_to(int rank) {
    const int port = places()[static_cast<std::size_t>(rank)].port;
    auto called = call("127.0.0.1", port, own_, {.purpose = Purpose::data}, soon());
    if (!called) throw SocketError("nobody listens for data");
    return std::move(called->socket);
  }
  void say(const MessageBytes& bytes) { try_to_send(control_, bytes); }
  void leave() { control_.reset(); }

 private:
  const ProcessGroup group_;
  Identity own_;
  Descriptor listener_;
  Descriptor control_;
  WordReader words_;
  std::vector<RankAddress> places_;
};

TEST_CASE("strangers at the ports for data do the ranks no harm") {
  const int port = free_port();
  Rank first(member(0, 3, port));
  Rank second(member(1, 3, port));
  ByHand third(member(2, 3, port));
  REQUIRE(third.join_rank_0() == Answer::welcome);
  std::vector<std::vector<Descriptor>> strangers;
  for (const std::size_t rank : {0U, 1U}) {
    strangers.push_back(crowd(third.places()[rank].port, member(2, 3, port)));
  }
  const Descriptor to_first = third.data_to(0);
  const Descriptor to_second = third.data_to(1);
  third.say(bytes_of(Word::connected));
  CHECK(third.word().word == Word::go);
  // All are there: what the third does not do ends the group.
  third.say(bytes_of_failure("rank 2 failed: by hand"));
  CHECK(first.end() == "rank 2 failed: by hand");
  CHECK(second.end() == "rank 2 failed: by hand");
}

TEST_CASE("nonsense on a control connection ends the group at any stage, and names the sender") {
  // 0: before the others have come; 1: while data connections are made; 2: later.
  const int stage = GENERATE(0, 1, 2);
  CAPTURE(stage);
  const int port = free_port();
  std::mt19937 random(7);
  Rank first(member(0, 3, port), {}, repeat_barriers);
  std::unique_ptr<Rank> second;
  if (stage > 0)
    second = std::make_unique<Rank>(member(1, 3, port), JoinOptions{}, repeat_barriers);
  ByHand third(member(2, 3, port));
  REQUIRE(third.join_rank_0() == Answer::welcome);
  Descriptor to_first;
  Descriptor to_second;
  if (stage > 0) third.places();
  if (stage > 1) {
    to_first = third.data_to(0);
    to_second = third.data_to(1);
    third.say(bytes_of(Word::connected));
    REQUIRE(third.word().word == Word::go);
  }
  MessageBytes nonsense = random_message(random, 4096);
  nonsense.resize(64);
  third.say(nonsense);
  if (stage == 0) second = std::make_unique<Rank>(member(1, 3, port));
  const std::string expected = "rank 2 sends what nobody understands";
  CHECK(first.end().find(expected) != std::string::npos);
  CHECK(second->end().find(expected) != std::string::npos);
}

TEST_CASE("a word at the wrong time ends the group, and names the sender") {
  const int port = free_port();
  Rank first(member(0, 2, port));
  ByHand second(member(1, 2, port));
  REQUIRE(second.join_rank_0() == Answer::welcome);
  second.say(bytes_of(Word::go));
  CHECK(first.end().find("rank 1 says \"go\" where it may not") != std::string::npos);
}

TEST_CASE("nonsense where a collective should begin ends the group, and names the sender") {
  const int port = free_port();
  std::mt19937 random(11);
  Rank first(member(0, 2, port));
  ByHand second(member(1, 2, port));
  REQUIRE(second.join_rank_0() == Answer::welcome);
  const Descriptor data = second.data_to(0);
  second.say(bytes_of(Word::connected));
  REQUIRE(second.word().word == Word::go);
  MessageBytes nonsense = random_message(random, 4096);
  nonsense.resize(kCallBytes, std::byte{0xff});
  try_to_send(data, nonsense);
  CHECK(first.end() == "collective 0: rank 1 sends what is none");
}

TEST_CASE("a rank that goes while the ranks come together is missed by all at once") {
  // 0: before the others have come; 1: while data connections are made.
  const int stage = GENERATE(0, 1);
  CAPTURE(stage);
  const int port = free_port();
  Rank first(member(0, 3, port));
  std::unique_ptr<Rank> second;
  if (stage > 0) second = std::make_unique<Rank>(member(1, 3, port));
  ByHand third(member(2, 3, port));
  REQUIRE(third.join_rank_0() == Answer::welcome);
  if (stage > 0) third.places();
  const auto left = Clock::now();
  third.leave();
  if (stage == 0) second = std::make_unique<Rank>(member(1, 3, port));
  const std::string expected = "rank 2 came and went before all were connected";
  CHECK(first.end().find(expected) != std::string::npos);
  CHECK(second->end().find(expected) != std::string::npos);
  CHECK(Clock::now() - left < seconds(30));  // they may wait for five minutes
}

TEST_CASE("when rank 0 goes while the ranks come together, those who are there hear it at once") {
  const int port = free_port();
  const ProcessGroup group = member(0, 3, port);
  Rank second(member(1, 3, port));
  const auto began = Clock::now();
  {
    ByHand as_rank_0(group);
    const Descriptor listener = listen_on(port, true);
    Reception reception(
        listener, as_rank_0.identity(), [](const Hello&) { return Answer::welcome; });
    REQUIRE(reception.wait(soon(), {}).has_value());
  }
  CHECK(second.end().find("rank 0 is gone: its connection closed without a word") !=
        std::string::npos);
  CHECK(Clock::now() - began < seconds(60));
}

TEST_CASE("rank 0's reason counts, not the connection that broke because of it, in either order") {
  const bool breaks_first = GENERATE(false, true);
  CAPTURE(breaks_first);
  const int port = free_port();
  const ProcessGroup group = member(0, 2, port);
  Rank second(member(1, 2, port));
  ByHand as_rank_0(group);
  Descriptor listener = listen_on(0, true);
  RendezvousHost host(group, as_rank_0.identity(), seconds(60));
  host.gather(port_of(listener));
  host.tell_places();
  Descriptor called = accept_from(listener, soon());
  REQUIRE(called);
  if (breaks_first) {
    vanish(std::move(called));
    std::this_thread::sleep_for(milliseconds(50));
  }
  host.fail("rank 0 failed: by hand");
  CHECK(second.end().find("rank 0 failed: by hand") != std::string::npos);
}

TEST_CASE("a rank that fails before it joins ends the others with its reason") {
  const int failing = GENERATE(0, 2);
  CAPTURE(failing);
  const int port = free_port();
  const auto began = Clock::now();
  std::vector<std::unique_ptr<Rank>> others;
  for (const int rank : {0, 1, 2, 3}) {
    if (rank != failing) others.push_back(std::make_unique<Rank>(member(rank, 4, port)));
  }
  join_to_fail(member(failing, 4, port), {}, "error: command line: --sed: expected a flag");
  const std::string expected = "the ranks do not come together: rank " + std::to_string(failing) +
                               " failed: error: command line: --sed: expected a flag";
  for (const auto& other : others) CHECK(other->end() == expected);
  CHECK(Clock::now() - began < seconds(60));
}

TEST_CASE("ranks that all fail before they join do not wait for each other") {
  const int port = free_port();
  const auto began = Clock::now();
  std::vector<std::thread> ranks;
  for (const int rank : {0, 1, 2, 3}) {
    ranks.emplace_back([&, rank] { join_to_fail(member(rank, 4, port), {}, "bad flags"); });
  }
  for (std::thread& rank : ranks) rank.join();
  CHECK(Clock::now() - began < kLastWords);
}

TEST_CASE("a rank with another secret, or none, is told so and joins nobody") {
  const int port = free_port();
  JoinOptions options;
  options.secret = "the secret of this job";
  options.rendezvous = milliseconds(1500);
  Rank first(member(0, 2, port), options);
  JoinOptions other = options;
  other.secret = GENERATE("", "the secret of another job");
  other.rendezvous = seconds(60);
  Rank second(member(1, 2, port), other);
  CHECK(second.end().find("has another secret than rank 1 (ZEROPLAN_SECRET or --secret-file)") !=
        std::string::npos);
  CHECK(
      first.end().find(
          "rank 1 did not come to 127.0.0.1 port " + std::to_string(port) +
          " in 1.5 s (--join-timeout); a caller at 127.0.0.1, which says it is rank 1, has another "
          "secret") != std::string::npos);
}

TEST_CASE("ranks with a secret do not join a host that has none") {
  const int port = free_port();
  Rank first(member(0, 2, port), {.rendezvous = milliseconds(1000)});
  JoinOptions options;
  options.secret = "the secret of this job";
  Rank second(member(1, 2, port), options);
  CHECK(second.end().find("has another secret") != std::string::npos);
  CHECK_FALSE(first.end().empty());
}

TEST_CASE("where other machines can reach the ports a secret is asked for") {
  ProcessGroup group = member(0, 2, free_port());
  group.host = "192.0.2.1";
  Rank without(group);
  CHECK(without.end().find("environment: ZEROPLAN_SECRET: expected a secret that all ranks have") !=
        std::string::npos);
  // All are on this machine, whatever it is called: the port is this machine's alone.
  std::vector<std::unique_ptr<Rank>> ranks;
  for (const int rank : {0, 1}) {
    group.rank = rank;
    group.one_machine = true;
    ranks.push_back(std::make_unique<Rank>(group));
  }
  for (const auto& rank : ranks) CHECK(rank->end() == "");
}

TEST_CASE("a rank of another number of ranks is told so") {
  const int port = free_port();
  Rank first(member(0, 2, port), {.rendezvous = milliseconds(1000)});
  Rank second(member(1, 3, port));
  CHECK(second.end().find("belongs to a job of another number of ranks than 3") !=
        std::string::npos);
  CHECK_FALSE(first.end().empty());
}

namespace {

void receive_all(const Descriptor& socket, std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    REQUIRE(milliseconds_until(deadline) > 0);
    bytes = bytes.subspan(receive_some(socket, bytes));
    std::this_thread::yield();
  }
}

}  // namespace

TEST_CASE("a process that tries again is not taken for a second one of its rank") {
  const int port = free_port();
  Rank first(member(0, 2, port));
  ByHand gives_up(member(1, 2, port));
  // Welcomed, but it leaves before it says that it is there.
  Descriptor socket = stranger(port);
  MessageBytes challenge(bytes_of(Challenge{}).size());
  receive_all(socket, challenge, soon());
  Hello hello{.purpose = Purpose::join, .port = 1};
  hello.job = gives_up.identity().job;
  hello.process = gives_up.identity().process;
  hello.rank = 1;
  hello.ranks = 2;
  send_all(socket, bytes_of(hello, "", read_challenge(challenge).message.nonce), soon());
  MessageBytes reply(bytes_of(Answer::welcome, "", {}, {}).size());
  receive_all(socket, reply, soon());
  CHECK(read_reply(reply).message.answer == Answer::welcome);
  CHECK(gives_up.join_rank_0() == Answer::welcome);  // beside its first call
  gives_up.leave();
  CHECK(first.end().find("rank 1 came and went") != std::string::npos);
}

}  // namespace
}  // namespace zeroplan::runtime
