#include "runtime/processes/tcp_rendezvous.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <poll.h>

#include "model/check.hpp"
#include "runtime/data/fnv1a.hpp"

namespace zeroplan::runtime {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Also tells machines of another byte order.
constexpr std::uint64_t kMagic = 0x7a65726f706c616eU;
constexpr milliseconds kAnswer{3000};  // of who is there and is one of us
constexpr int kPortsBehind = 16;       // tried where the port itself may be another's

enum class Answer : std::int32_t { welcome, other_job, twice };

struct Hello {
  std::uint64_t magic = kMagic;
  std::uint64_t job = 0;
  std::int32_t rank = 0;
  std::int32_t port = 0;  // where this rank listens
};
struct Reply {
  std::uint64_t magic = kMagic;
  Answer answer = Answer::welcome;
  std::int32_t reserved = 0;
};
struct Place {
  std::array<char, 64> host{};  // empty: the host of rank 0, as everybody knows it
  std::int32_t port = 0;
};

template <typename T>
std::span<const std::byte> sent(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <typename T>
std::span<std::byte> received(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

// Processes of different jobs that meet by mistake have different numbers.
std::uint64_t job_number(const ProcessGroup& group) {
  Fnv1a hash;
  hash.add_text(fmt::format("{}:{}:{}", group.job, group.port, group.ranks));
  return hash.value();
}

// The ports at which rank 0 may be. Its own alone where a user chose it and nobody is known to sit
// there: a second job with the same MASTER_PORT is to be told, not moved.
std::vector<int> ports_of(const ProcessGroup& group) {
  std::vector<int> ports;
  if (!group.port_is_taken) ports.push_back(group.port);
  const bool chosen = group.launcher == Launcher::torchrun && !group.port_is_taken;
  for (int i = 1; i <= kPortsBehind && !chosen; ++i) {
    const int port = group.port + i;
    ports.push_back(port <= 65535 ? port : port - 2 * kPortsBehind);
  }
  return ports;
}

std::string meeting_place(const ProcessGroup& group) {
  return fmt::format("{} port {}", group.host, group.port);
}

// Nobody from outside is expected: the ranks need not be reached from there.
bool stays_here(const ProcessGroup& group) {
  return group.host == "localhost" || group.host == "127.0.0.1";
}

double seconds(milliseconds time) { return std::chrono::duration<double>(time).count(); }

// Whether the other side has hung up.
bool hung_up(const pollfd& poll_for) {
  return (poll_for.revents & (POLLHUP | POLLERR | POLLRDHUP)) != 0;
}

// Rank 0: takes the callers in.
class Host {
 public:
  Host(const ProcessGroup& group, milliseconds patience)
      : group_(group),
        patience_(patience),
        deadline_(Clock::now() + patience),
        control_(static_cast<std::size_t>(group.ranks)),
        places_(static_cast<std::size_t>(group.ranks)) {
    for (const int port : ports_of(group)) {
      if (!listener_) listener_ = listen_on(port, stays_here(group));
    }
    if (!listener_) {
      throw SocketError(
          fmt::format("rank 0 cannot listen at {}: the port is in use; another "
                      "MASTER_PORT may be free",
                      meeting_place(group)));
    }
  }

  // The control connections, and everybody's place, which everybody is told.
  std::pair<std::vector<Descriptor>, std::vector<Place>> gather(int own_port) {
    places_[0].port = own_port;
    int missing = group_.ranks - 1;
    while (missing > 0) {
      Descriptor caller = wait_for_caller();
      if (caller && take(std::move(caller))) --missing;
    }
    for (int rank = 1; rank < group_.ranks; ++rank) {
      send_all(
          control_[static_cast<std::size_t>(rank)], std::as_bytes(std::span(places_)), deadline_);
    }
    return {std::move(control_), std::move(places_)};
  }

 private:
  Descriptor wait_for_caller() {
    std::vector<pollfd> polls = {{listener_.number(), POLLIN, 0}};
    std::vector<int> ranks = {0};
    for (int rank = 1; rank < group_.ranks; ++rank) {
      const Descriptor& known = control_[static_cast<std::size_t>(rank)];
      if (!known) continue;
      polls.push_back({known.number(), POLLRDHUP, 0});
      ranks.push_back(rank);
    }
    poll(polls.data(), polls.size(), milliseconds_until(deadline_));
    for (std::size_t i = 1; i < polls.size(); ++i) {
      if (!hung_up(polls[i])) continue;
      throw SocketError(fmt::format("rank {} came and went before all were there", ranks[i]));
    }
    if (Clock::now() >= deadline_) throw SocketError(who_is_missing());
    return (polls[0].revents & POLLIN) != 0 ? accept_from(listener_, deadline_) : Descriptor();
  }

  // False for strangers and members of other jobs.
  bool take(Descriptor caller) {
    Hello hello{.magic = 0};
    try {
      receive_all(caller, received(hello), Clock::now() + kAnswer);
      if (hello.magic != kMagic) return false;
      Reply reply;
      const bool known = hello.rank > 0 && hello.rank < group_.ranks;
      const bool twice = known && control_[static_cast<std::size_t>(hello.rank)];
      if (twice) reply.answer = Answer::twice;
      if (hello.job != job_number(group_) || !known) reply.answer = Answer::other_job;
      send_all(caller, sent(reply), Clock::now() + kAnswer);
      if (reply.answer != Answer::welcome) return false;
    } catch (const SocketError&) {
      return false;
    }
    const auto rank = static_cast<std::size_t>(hello.rank);
    Place& place = places_[rank];
    const std::string host = address_of_peer(caller);
    // Who calls from here is where rank 0 is, for everybody.
    if (!is_loopback(host))
      std::copy_n(host.data(), std::min(host.size(), std::size_t{63}), place.host.data());
    place.port = hello.port;
    control_[rank] = std::move(caller);
    return true;
  }

  std::string who_is_missing() const {
    std::vector<int> missing;
    for (int rank = 1; rank < group_.ranks; ++rank) {
      if (!control_[static_cast<std::size_t>(rank)]) missing.push_back(rank);
    }
    return fmt::format("rank {} did not come to {} in {} s",
                       fmt::join(missing, ", "),
                       meeting_place(group_),
                       seconds(patience_));
  }

  const ProcessGroup& group_;
  const milliseconds patience_;
  const Deadline deadline_;
  Descriptor listener_;
  std::vector<Descriptor> control_;
  std::vector<Place> places_;
};

// Ranks 1 and up: one attempt at one port.
Descriptor call_rank_0(const ProcessGroup& group, int port, const Hello& hello) {
  Descriptor socket = connect_to(group.host, port, Clock::now() + kAnswer);
  if (!socket) return {};
  Reply reply{.magic = 0};
  try {
    send_all(socket, sent(hello), Clock::now() + kAnswer);
    receive_all(socket, received(reply), Clock::now() + kAnswer);
  } catch (const SocketError&) {
    return {};  // a stranger's port, or rank 0 is busy: it is tried again
  }
  if (reply.magic != kMagic || reply.answer == Answer::other_job) return {};
  if (reply.answer == Answer::twice) {
    throw SocketError(
        fmt::format("another process at {} is rank {} as well", meeting_place(group), hello.rank));
  }
  return socket;
}

Descriptor find_rank_0(const ProcessGroup& group, const Hello& hello, milliseconds patience) {
  const Deadline deadline = Clock::now() + patience;
  milliseconds pause{10};
  std::string why = "nobody of this job answers there";
  while (Clock::now() < deadline) {
    for (const int port : ports_of(group)) {
      try {
        Descriptor found = call_rank_0(group, port, hello);
        if (found) return found;
      } catch (const SocketError& error) {
        why = error.what();  // an unknown host may become known
      }
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, milliseconds(500));
  }
  throw SocketError(fmt::format("rank {} did not reach rank 0 at {} in {} s: {}",
                                group.rank,
                                meeting_place(group),
                                seconds(patience),
                                why));
}

// To every rank below by calling it, to every rank above by being called.
std::vector<Descriptor> connect_all(const ProcessGroup& group,
                                    const std::vector<Place>& places,
                                    const Descriptor& listener,
                                    Deadline deadline) {
  std::vector<Descriptor> data(static_cast<std::size_t>(group.ranks));
  const Hello hello{.job = job_number(group), .rank = group.rank};
  for (int rank = 0; rank < group.rank; ++rank) {
    const Place& place = places[static_cast<std::size_t>(rank)];
    const std::string host = place.host[0] == '\0' ? group.host : std::string(place.host.data());
    Descriptor socket = connect_to(host, place.port, deadline);
    if (!socket) {
      throw SocketError(fmt::format(
          "rank {} cannot reach rank {} at {} port {}", group.rank, rank, host, place.port));
    }
    send_all(socket, sent(hello), deadline);
    data[static_cast<std::size_t>(rank)] = std::move(socket);
  }
  int missing = group.ranks - 1 - group.rank;
  while (missing > 0) {
    Descriptor caller = accept_from(listener, deadline);
    if (!caller) {
      throw SocketError(fmt::format(
          "rank {}: {} of the ranks behind it did not call in time", group.rank, missing));
    }
    Hello theirs{.magic = 0};
    try {
      receive_all(caller, received(theirs), std::min(deadline, Clock::now() + kAnswer));
    } catch (const SocketError&) {
      continue;
    }
    const bool ours = theirs.magic == kMagic && theirs.job == hello.job &&
                      theirs.rank > group.rank && theirs.rank < group.ranks;
    if (!ours || data[static_cast<std::size_t>(theirs.rank)]) continue;
    data[static_cast<std::size_t>(theirs.rank)] = std::move(caller);
    --missing;
  }
  return data;
}

}  // namespace

Connections meet(const ProcessGroup& group, milliseconds patience) {
  ZP_CHECK(!group.host.empty() && group.port > 0, "a group that meets has a place");
  const Deadline deadline = Clock::now() + patience;
  const Descriptor listener = listen_on(0, stays_here(group));
  Connections connections;
  std::vector<Place> places;
  if (group.rank == 0) {
    Host host(group, patience);
    std::tie(connections.control, places) = host.gather(port_of(listener));
  } else {
    const Hello hello{.job = job_number(group), .rank = group.rank, .port = port_of(listener)};
    connections.control.resize(static_cast<std::size_t>(group.ranks));
    connections.control[0] = find_rank_0(group, hello, patience);
    places.resize(static_cast<std::size_t>(group.ranks));
    try {
      receive_all(connections.control[0], std::as_writable_bytes(std::span(places)), deadline);
    } catch (const SocketError& error) {
      throw SocketError(fmt::format("rank {} waits for the other ranks at {}: {}",
                                    group.rank,
                                    meeting_place(group),
                                    error.what()));
    }
  }
  connections.data = connect_all(group, places, listener, deadline);
  return connections;
}

}  // namespace zeroplan::runtime
