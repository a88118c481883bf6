#include "runtime/processes/tcp_rendezvous.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <poll.h>

#include "base/check.hpp"
#include "runtime/data/fnv1a.hpp"
#include "runtime/processes/control.hpp"
#include "runtime/processes/handshake.hpp"
#include "runtime/processes/rendezvous_host.hpp"

namespace zeroplan::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

// For an answer, at first: who is there may be somebody else, who says nothing. Doubled with every
// round, because rank 0 may be busy.
constexpr milliseconds kAnswer{3000};
constexpr milliseconds kLongestAnswer{60'000};
// The others wait for rank 0 to give up, which knows who is missing.
constexpr seconds kSlack{10};
// Rank 0's reason may arrive behind the end of connections to ranks that have heard it.
constexpr milliseconds kWordsBehind{2000};

Identity identity_of(const ProcessGroup& group, const std::string& secret) {
  Fnv1a job;
  job.add_text(fmt::format("{}:{}", group.job, group.port));
  Identity own{.job = job.value(), .rank = group.rank, .ranks = group.ranks, .secret = secret};
  const Digest random = random_bytes();
  std::memcpy(&own.process, random.data(), sizeof own.process);
  return own;
}

// Rank 0's host, as this machine reaches it.
std::string host_of(const ProcessGroup& group) {
  return group.one_machine ? "127.0.0.1" : group.host;
}

[[noreturn]] void refused(const ProcessGroup& group, Answer answer) {
  const std::string place = meeting_place(group);
  if (answer == Answer::other_secret) {
    throw SocketError(fmt::format(
        "rank 0 at {} has another secret than rank {} (ZEROPLAN_SECRET or --secret-file), or none",
        place,
        group.rank));
  }
  if (answer == Answer::other_ranks) {
    throw SocketError(fmt::format(
        "rank 0 at {} belongs to a job of another number of ranks than {}", place, group.ranks));
  }
  throw SocketError(fmt::format("another process at {} is rank {} as well", place, group.rank));
}

// What rank 0 answered at one of its ports, if it did.
std::optional<Called> call_rank_0(const ProcessGroup& group,
                                  const Identity& own,
                                  const Hello& hello,
                                  Deadline deadline,
                                  milliseconds answer,
                                  std::string& why) {
  for (const int port : ports_of(group)) {
    try {
      const Deadline answered = std::min(deadline, Clock::now() + answer);
      auto called = call(host_of(group), port, own, hello, answered);
      if (called && called->answer != Answer::other_job) return called;
    } catch (const SocketError& error) {
      why = error.what();  // an unknown host may become known, a busy one answer
    }
  }
  return std::nullopt;
}

Descriptor find_rank_0(const ProcessGroup& group,
                       const Identity& own,
                       const Hello& hello,
                       milliseconds patience) {
  const Deadline deadline = Clock::now() + patience;
  milliseconds pause{10};
  milliseconds answer = kAnswer;
  std::string why = "nobody of this job answers there";
  while (Clock::now() < deadline) {
    auto called = call_rank_0(group, own, hello, deadline, answer, why);
    if (called && called->answer == Answer::welcome) return std::move(called->socket);
    if (called) refused(group, called->answer);
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, milliseconds(500));
    answer = std::min(2 * answer, kLongestAnswer);
  }
  throw SocketError(fmt::format("rank {} did not reach rank 0 at {} in {} s (--join-timeout): {}",
                                group.rank,
                                meeting_place(group),
                                std::chrono::duration<double>(patience).count(),
                                why));
}

// Ranks 1 and up: what rank 0 says.
class RankZero {
 public:
  RankZero(Descriptor socket, int ranks) : socket_(std::move(socket)), ranks_(ranks) {}

  // Waits for a word; throws SocketError where another comes, the reason of a failure for one.
  WordMessage wait_for(Word expected, Deadline deadline) {
    for (;;) {
      if (auto word = next()) {
        if (word->word == expected) return std::move(*word);
        unexpected(word->word);
      }
      if (Clock::now() >= deadline) throw SocketError("rank 0 says nothing in time");
      pollfd poll_for{socket_.number(), POLLIN, 0};
      poll(&poll_for, 1, milliseconds_until(deadline));
    }
  }
  // While nothing but a failure is to be heard.
  void look() {
    if (const auto word = next()) unexpected(word->word);
  }
  void say(const MessageBytes& bytes) { send_all(socket_, bytes, Clock::now() + kSlack); }

  // Why the group failed, where rank 0 has said it or says it within `patience`. Connections to
  // other ranks break as soon as these have heard it: what broke here may be its consequence.
  std::optional<std::string> reason_of_failure(milliseconds patience) {
    try {
      for (const Deadline deadline = Clock::now() + patience; !failure_;) {
        if (!next() && Clock::now() >= deadline) break;
        pollfd poll_for{socket_.number(), POLLIN, 0};
        poll(&poll_for, 1, milliseconds_until(deadline));
      }
    } catch (const SocketError&) {
      // A failure is kept; what else it says, or that it is gone, explains nothing.
    }
    return failure_;
  }

  int number() const { return socket_.number(); }
  Descriptor take() { return std::move(socket_); }

 private:
  std::optional<WordMessage> next() {
    try {
      auto word = words_.next(socket_, ranks_);
      if (word && word->word == Word::failure) {
        failure_ = word->reason;
        throw SocketError(word->reason);
      }
      return word;
    } catch (const BadMessage& error) {
      throw SocketError(fmt::format("rank 0 {}", error.what()));
    } catch (const SocketClosed&) {
      throw SocketError(
          "rank 0 is gone: its connection closed without a word (killed, out of memory, or its "
          "machine went down)");
    }
  }
  [[noreturn]] static void unexpected(Word word) {
    throw SocketError(fmt::format("rank 0 says \"{}\" where it may not", name(kWordNames, word)));
  }

  Descriptor socket_;
  const int ranks_;
  WordReader words_;
  std::optional<std::string> failure_;
};

// What is kept an eye on while data connections are made: control connections.
struct Eye {
  std::function<std::vector<int>()> numbers;
  std::function<void()> look;
};

// A data connection to a rank below.
Descriptor call_rank(const ProcessGroup& group,
                     const Identity& own,
                     int rank,
                     const RankAddress& place,
                     Deadline deadline,
                     const Eye& eye) {
  const std::string host = place.host.empty() ? host_of(group) : place.host;
  const Watch watch{.number = eye.numbers().front(), .look = eye.look};
  std::string why = "nobody answers there";
  while (Clock::now() < deadline) {
    eye.look();
    auto called = call(host, place.port, own, {.purpose = Purpose::data}, deadline, watch);
    if (called && called->answer == Answer::welcome) return std::move(called->socket);
    if (called) {
      why = "it refuses";
      break;
    }
    std::this_thread::sleep_for(milliseconds(100));
  }
  throw SocketError(fmt::format(
      "rank {} cannot reach rank {} at {} port {}: {}", group.rank, rank, host, place.port, why));
}

// To every rank below by calling it, to every rank above by being called.
std::vector<Descriptor> connect_all(const ProcessGroup& group,
                                    const Identity& own,
                                    const std::vector<RankAddress>& places,
                                    const Descriptor& listener,
                                    Deadline deadline,
                                    const Eye& eye) {
  std::vector<Descriptor> data(static_cast<std::size_t>(group.ranks));
  for (int rank = 0; rank < group.rank; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    data[at] = call_rank(group, own, rank, places[at], deadline, eye);
  }
  Reception reception(listener, own, [&](const Hello& hello) {
    const bool expected = hello.purpose == Purpose::data && hello.rank > group.rank &&
                          !data[static_cast<std::size_t>(hello.rank)];
    return expected ? Answer::welcome : Answer::twice;
  });
  int missing = group.ranks - 1 - group.rank;
  while (missing > 0) {
    auto guest = reception.wait(deadline, eye.numbers());
    eye.look();
    if (guest) {
      data[static_cast<std::size_t>(guest->hello.rank)] = std::move(guest->socket);
      --missing;
    } else if (Clock::now() >= deadline) {
      throw SocketError(fmt::format(
          "rank {}: {} of the ranks behind it did not call in time", group.rank, missing));
    }
  }
  return data;
}

Connections meet_as_rank_0(const ProcessGroup& group, const Identity& own, milliseconds patience) {
  const Descriptor listener = listen_on(0, stays_here(group));
  RendezvousHost host(group, own, patience);
  const Eye eye{.numbers = [&] { return host.watched(); }, .look = [&] { host.look(); }};
  try {
    host.gather(port_of(listener));
    host.tell_places();
    const Deadline deadline = Clock::now() + patience;
    Connections connections;
    connections.data = connect_all(group, own, {}, listener, deadline, eye);
    host.wait_for_connected(deadline);
    connections.control = host.go();
    return connections;
  } catch (const SocketError& error) {
    host.fail(error.what());
    throw;
  }
}

Connections meet_as_other(const ProcessGroup& group, const Identity& own, milliseconds patience) {
  const Descriptor listener = listen_on(0, stays_here(group));
  const Hello hello{.purpose = Purpose::join, .port = port_of(listener)};
  RankZero rank_0(find_rank_0(group, own, hello, patience), group.ranks);
  const Eye eye{.numbers = [&] { return std::vector<int>{rank_0.number()}; },
                .look = [&] { rank_0.look(); }};
  // Rank 0 gives up before, and says why.
  const auto later = [&] { return Clock::now() + patience + kSlack; };
  Connections connections;
  try {
    const WordMessage places = rank_0.wait_for(Word::places, later());
    connections.data = connect_all(group, own, places.places, listener, later(), eye);
    rank_0.say(bytes_of(Word::connected));
    rank_0.wait_for(Word::go, later());
  } catch (const SocketError& error) {
    if (const auto reason = rank_0.reason_of_failure(kWordsBehind)) throw SocketError(*reason);
    try {
      rank_0.say(bytes_of_failure(error.what()));
    } catch (const SocketError&) {
      // It is gone, or has said so itself.
    }
    throw;
  }
  connections.control.resize(static_cast<std::size_t>(group.ranks));
  connections.control[0] = rank_0.take();
  return connections;
}

}  // namespace

bool is_reachable_from_outside(const ProcessGroup& group) { return !stays_here(group); }

Connections meet(const ProcessGroup& group, const std::string& secret, milliseconds patience) {
  ZP_CHECK(!group.host.empty() && group.port > 0, "a group that meets has a place");
  const Identity own = identity_of(group, secret);
  return group.rank == 0 ? meet_as_rank_0(group, own, patience)
                         : meet_as_other(group, own, patience);
}

void meet_to_fail(const ProcessGroup& group,
                  const std::string& secret,
                  const std::string& reason) noexcept {
  try {
    if (group.host.empty() || group.port <= 0) return;
    if (is_reachable_from_outside(group) && secret.empty()) return;  // nobody listens without one
    const Identity own = identity_of(group, secret);
    if (group.rank == 0) {
      RendezvousHost(group, own, kLastWords).fail(fmt::format("rank 0 failed: {}", reason));
    } else {
      find_rank_0(group, own, {.purpose = Purpose::failure, .reason = reason}, kLastWords);
    }
  } catch (const std::exception&) {
    // Nobody is there to be told.
  }
}

}  // namespace zeroplan::runtime
