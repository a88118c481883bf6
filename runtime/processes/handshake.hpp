// The beginning of a connection between two ranks (rank_messages.hpp), from both sides.
//
// Anybody may call a port. Callers are served beside each other, each with a time limit of its own:
// who is silent, slow or gone, or sends anything else, is dropped and costs the others nothing.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "runtime/processes/rank_messages.hpp"
#include "runtime/processes/socket.hpp"

namespace zeroplan::runtime {

// Who this process is to the others of its group.
struct Identity {
  std::uint64_t job = 0;
  std::uint64_t process = 0;  // random
  int rank = 0;
  int ranks = 1;
  std::string secret;  // empty: there is none
};

// What else ends a wait: when `number` is readable, `look` is called, which throws or reads.
struct Watch {
  int number = -1;
  std::function<void()> look;
};

// Takes callers of a listener in.
class Reception {
 public:
  struct Guest {
    Descriptor socket;
    Hello hello;
    std::string address;
  };
  // Of a caller of the group that has the secret: welcome or twice.
  using Judge = std::function<Answer(const Hello&)>;

  Reception(const Descriptor& listener, const Identity& own, Judge judge)
      : listener_(listener), own_(own), judge_(std::move(judge)) {}

  // The next caller that was welcomed and is still there; nothing where one of `watched` is
  // readable or hung up, or the deadline comes, first.
  std::optional<Guest> wait(Deadline deadline, std::span<const int> watched);

  // Nobody is expected any more: gives back the descriptors of who has not said who it is.
  void dismiss() { callers_.clear(); }

  // "; a caller at 10.0.0.7, which says it is rank 3, has another secret": of the last one of the
  // group that was sent away; empty where none was.
  const std::string& sent_away() const { return sent_away_; }

 private:
  struct Caller {
    Descriptor socket;
    std::string address;
    Digest nonce{};
    Deadline deadline;
    MessageBytes arrived;
    std::optional<Hello> hello;  // once it was welcomed
  };
  enum class Progress { waits, arrived, dropped };

  void accept_callers();
  Progress advance(Caller& caller);
  bool read_more(Caller& caller, std::size_t size);
  bool welcome(Caller& caller, Hello hello);
  Answer answer_to(const Caller& caller, const Hello& hello) const;

  const Descriptor& listener_;
  const Identity& own_;
  const Judge judge_;
  std::deque<Caller> callers_;  // in the order of their coming
  std::string sent_away_;
};

// Where a call went, and what was answered.
struct Called {
  Descriptor socket;  // of Answer::welcome; the other side knows that this one is there
  Answer answer = Answer::welcome;
};

// One call. Nothing where nobody listens there (yet). Throws SocketError: silence, or no rank of
// this release and with the secret; and what `watch` throws.
std::optional<Called> call(const std::string& host,
                           int port,
                           const Identity& own,
                           Hello hello,
                           Deadline deadline,
                           const Watch& watch = {});

}  // namespace zeroplan::runtime
