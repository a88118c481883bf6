#include "runtime/processes/rendezvous_host.hpp"

#include <utility>

#include <fmt/format.h>
#include <poll.h>

namespace zeroplan::runtime {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr int kPortsBehind = 16;              // tried where the port itself may be another's
constexpr std::chrono::seconds kHostSend{5};  // of a few bytes

double seconds_of(milliseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

std::string meeting_place(const ProcessGroup& group) {
  return fmt::format("{} port {}", group.host, group.port);
}

// Its own alone where a user chose it and nobody is known to sit there: a second job with the same
// MASTER_PORT is to be told, not moved.
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

bool stays_here(const ProcessGroup& group) {
  return group.one_machine || group.host == "localhost" || group.host == "127.0.0.1";
}

RendezvousHost::RendezvousHost(const ProcessGroup& group,
                               const Identity& own,
                               milliseconds patience)
    : group_(group),
      patience_(patience),
      reception_(listener_, own, [this](const Hello& hello) { return judge(hello); }),
      members_(static_cast<std::size_t>(group.ranks)) {
  for (const int port : ports_of(group)) {
    if (!listener_) listener_ = listen_on(port, stays_here(group));
  }
  if (listener_) return;
  throw SocketError(
      fmt::format("rank 0 cannot listen at {}: the port is in use; another "
                  "MASTER_PORT may be free",
                  meeting_place(group)));
}

void RendezvousHost::gather(int own_port) {
  member(0).place.port = own_port;
  const Deadline deadline = Clock::now() + patience_;
  int missing = group_.ranks - 1;
  while (missing > 0) {
    std::optional<Reception::Guest> guest = reception_.wait(deadline, watched());
    if (guest) {
      take(std::move(*guest));
      --missing;
    } else if (Clock::now() >= deadline) {
      waited_ = true;
      throw SocketError(who_is_missing());
    }
    look();
  }
  reception_.dismiss();
}

Answer RendezvousHost::judge(const Hello& hello) const {
  if (failing_ || hello.purpose == Purpose::failure) return Answer::welcome;
  const bool there = hello.rank == 0 || hello.purpose == Purpose::data ||
                     static_cast<bool>(member(hello.rank).socket);
  return there ? Answer::twice : Answer::welcome;
}

void RendezvousHost::take(Reception::Guest guest) {
  const int rank = guest.hello.rank;
  came_.insert(rank);
  if (guest.hello.purpose == Purpose::failure) {
    throw SocketError(fmt::format("rank {} failed: {}", rank, guest.hello.reason));
  }
  Member& known = member(rank);
  known.place = {is_loopback(guest.address) ? "" : guest.address, guest.hello.port};
  known.socket = std::move(guest.socket);
}

std::string RendezvousHost::who_is_missing() const {
  std::vector<int> missing;
  for (int rank = 1; rank < group_.ranks; ++rank) {
    if (!member(rank).socket) missing.push_back(rank);
  }
  return fmt::format("rank {} did not come to {} in {} s (--join-timeout){}",
                     fmt::join(missing, ", "),
                     meeting_place(group_),
                     seconds_of(patience_),
                     reception_.sent_away());
}

void RendezvousHost::tell_places() {
  std::vector<RankAddress> places;
  for (const Member& one : members_) places.push_back(one.place);
  const MessageBytes bytes = bytes_of(places);
  const Deadline deadline = Clock::now() + patience_;
  for (int rank = 1; rank < group_.ranks; ++rank) {
    try {
      send_all(member(rank).socket, bytes, deadline);
    } catch (const SocketError&) {
      look_at(rank);  // says more
      throw;
    }
  }
}

std::vector<int> RendezvousHost::watched() const {
  std::vector<int> numbers;
  for (const Member& one : members_) {
    if (one.socket) numbers.push_back(one.socket.number());
  }
  return numbers;
}

void RendezvousHost::look() {
  for (int rank = 1; rank < group_.ranks; ++rank) {
    if (member(rank).socket) look_at(rank);
  }
}

void RendezvousHost::look_at(int rank) {
  Member& one = member(rank);
  try {
    while (const auto word = one.words.next(one.socket, group_.ranks)) {
      if (word->word == Word::failure) {
        throw SocketError(fmt::format("rank {} failed: {}", rank, word->reason));
      }
      if (word->word != Word::connected || one.connected) {
        throw SocketError(fmt::format(
            "rank {} says \"{}\" where it may not", rank, name(kWordNames, word->word)));
      }
      one.connected = true;
      ++connected_;
    }
  } catch (const BadMessage& error) {
    one.socket.reset();
    throw SocketError(fmt::format("rank {} {}", rank, error.what()));
  } catch (const SocketClosed&) {
    one.socket.reset();
    throw SocketError(
        fmt::format("rank {} came and went before all were connected (killed, out of "
                    "memory, or its machine went down)",
                    rank));
  }
}

void RendezvousHost::wait_for_connected(Deadline deadline) {
  for (;;) {
    look();
    if (connected_ == group_.ranks - 1) return;
    if (Clock::now() >= deadline) {
      throw SocketError(fmt::format("{} ranks are not connected to all others in time",
                                    group_.ranks - 1 - connected_));
    }
    std::vector<pollfd> polls;
    for (const int number : watched()) polls.push_back({number, POLLIN, 0});
    poll(polls.data(), polls.size(), milliseconds_until(deadline));
  }
}

std::vector<Descriptor> RendezvousHost::go() {
  std::vector<Descriptor> control;
  const MessageBytes bytes = bytes_of(Word::go);
  for (Member& one : members_) {
    if (one.socket) send_all(one.socket, bytes, Clock::now() + kHostSend);
    control.push_back(std::move(one.socket));
  }
  return control;
}

void RendezvousHost::fail(const std::string& reason) noexcept {
  try {
    const MessageBytes bytes = bytes_of_failure(reason);
    for (int rank = 1; rank < group_.ranks; ++rank) {
      if (!member(rank).socket) continue;
      try {
        send_all(member(rank).socket, bytes, Clock::now() + kHostSend);
      } catch (const SocketError&) {
        // It is gone itself.
      }
    }
    if (!waited_) tell_late_comers(reason);
  } catch (const std::exception&) {
    // Who is not told waits for as long as the rendezvous may take.
  }
}

void RendezvousHost::tell_late_comers(const std::string& reason) {
  const MessageBytes bytes = bytes_of_failure(reason);
  failing_ = true;
  const Deadline deadline = Clock::now() + kLastWords;
  while (static_cast<int>(came_.size()) < group_.ranks - 1 && Clock::now() < deadline) {
    const auto guest = reception_.wait(deadline, {});
    if (!guest) continue;
    if (guest->hello.rank > 0) came_.insert(guest->hello.rank);
    try {
      send_all(guest->socket, bytes, Clock::now() + kHostSend);
    } catch (const SocketError&) {
    }
  }
}

}  // namespace zeroplan::runtime
