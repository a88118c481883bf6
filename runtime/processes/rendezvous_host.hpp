// Rank 0 while the ranks come together: takes the others in, tells everybody where everybody is,
// waits until all are connected, and lets all begin at once. It hears of every rank that fails or
// goes meanwhile, and tells the others.
#pragma once

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "runtime/processes/control.hpp"
#include "runtime/processes/handshake.hpp"
#include "runtime/processes/process_group.hpp"

namespace zeroplan::runtime {

// How long rank 0 stays behind a failure, to tell those that have not come yet, and how long a rank
// that failed before it joined looks for rank 0.
inline constexpr std::chrono::seconds kLastWords{10};

// Where the ranks meet, for messages.
std::string meeting_place(const ProcessGroup& group);
// The ports at which rank 0 may be, the best first.
std::vector<int> ports_of(const ProcessGroup& group);
// Whether nobody from outside this machine is expected.
bool stays_here(const ProcessGroup& group);

class RendezvousHost {
 public:
  // Listens. Throws SocketError where the port is in use.
  RendezvousHost(const ProcessGroup& group,
                 const Identity& own,
                 std::chrono::milliseconds patience);

  RendezvousHost(const RendezvousHost&) = delete;
  RendezvousHost& operator=(const RendezvousHost&) = delete;

  // Until all are there. Throws SocketError: who is missing, failed or went.
  void gather(int own_port);
  // Sends everybody's place to everybody.
  void tell_places();
  // Numbers of the control connections, to be watched, and what is to be done when one of them is
  // readable. Throws SocketError where a rank failed or is gone.
  std::vector<int> watched() const;
  void look();
  // Until all have said that they are connected to all.
  void wait_for_connected(Deadline deadline);
  // All begin. The control connections, by rank.
  std::vector<Descriptor> go();

  // Everybody who is there, or comes within kLastWords, is told why the group ends; those who have
  // had all the time there is are not waited for. Never throws.
  void fail(const std::string& reason) noexcept;

 private:
  struct Member {
    Descriptor socket;
    WordReader words;
    RankAddress place;
    bool connected = false;
  };
  Member& member(int rank) { return members_[static_cast<std::size_t>(rank)]; }
  const Member& member(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  Answer judge(const Hello& hello) const;
  void take(Reception::Guest guest);
  void look_at(int rank);
  std::string who_is_missing() const;
  void tell_late_comers(const std::string& reason);

  const ProcessGroup& group_;
  const std::chrono::milliseconds patience_;
  Descriptor listener_;
  Reception reception_;  // whoever is half in when the group fails is told, too
  std::vector<Member> members_;
  std::set<int> came_;  // ranks that have joined or said that they fail
  int connected_ = 0;
  bool waited_ = false;   // as long as it may
  bool failing_ = false;  // everybody is welcome to hear why
};

}  // namespace zeroplan::runtime
