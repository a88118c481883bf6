#include "runtime/processes/handshake.hpp"

#include <algorithm>
#include <cerrno>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <poll.h>

namespace zeroplan::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr seconds kCaller{10};             // for a caller to say who it is
constexpr std::size_t kMostCallers = 256;  // beside each other; the one that came first gives way
constexpr milliseconds kPause{20};         // where the system has no descriptors left
constexpr seconds kConnect{3};

std::string answer_text(Answer answer) {
  switch (answer) {
    case Answer::other_secret:
      return "has another secret";
    case Answer::other_ranks:
      return "counts another number of ranks";
    case Answer::other_job:
      return "is of another job";
    case Answer::twice:
      return "is there already";
    case Answer::welcome:
      break;
  }
  return "is welcome";
}

// Waits until `socket` is ready; looks at what is watched meanwhile.
void wait_for(const Descriptor& socket, short events, Deadline deadline, const Watch& watch) {
  for (;;) {
    pollfd polls[] = {{socket.number(), events, 0}, {watch.number, POLLIN | POLLRDHUP, 0}};
    poll(polls, watch.number >= 0 ? 2 : 1, milliseconds_until(deadline));
    if (watch.number >= 0 && polls[1].revents != 0) watch.look();
    if (polls[0].revents != 0) return;
    if (Clock::now() >= deadline) throw SocketError("who is there does not answer");
  }
}

template <typename Message>
Message receive(const Descriptor& socket,
                Read<Message> (*read)(BytesView),
                Deadline deadline,
                const Watch& watch) {
  MessageBytes arrived;
  for (;;) {
    Read<Message> so_far = read(arrived);
    if (so_far.reading == Reading::whole) return std::move(so_far.message);
    if (so_far.reading == Reading::foreign) throw SocketError("who answers there is no rank");
    if (so_far.reading == Reading::other_release) {
      throw SocketError("who answers there is a rank of another release of zeroplan");
    }
    const std::size_t before = arrived.size();
    arrived.resize(so_far.size);
    const std::size_t got = receive_some(socket, std::span(arrived).subspan(before));
    arrived.resize(before + got);
    if (got == 0) wait_for(socket, POLLIN, deadline, watch);
  }
}

// All of a short message at once: a fresh connection has room for it.
bool sends_whole(const Descriptor& socket, const MessageBytes& bytes) {
  return send_some(socket, bytes) == bytes.size();
}

}  // namespace

// --- who is called

std::optional<Reception::Guest> Reception::wait(Deadline deadline, std::span<const int> watched) {
  for (;;) {
    std::vector<pollfd> polls = {{listener_.number(), POLLIN, 0}};
    for (const int number : watched) polls.push_back({number, POLLIN | POLLRDHUP, 0});
    Deadline next = deadline;
    for (const Caller& caller : callers_) {
      polls.push_back({caller.socket.number(), POLLIN, 0});
      next = std::min(next, caller.deadline);
    }
    poll(polls.data(), polls.size(), milliseconds_until(next));
    // Those that came first are looked at first: one that was given up by a process is seen to be
    // gone before its next attempt is judged.
    for (auto at = callers_.begin(); at != callers_.end();) {
      const Progress progress = advance(*at);
      if (progress == Progress::arrived) {
        Guest guest{std::move(at->socket), std::move(*at->hello), std::move(at->address)};
        callers_.erase(at);
        return guest;
      }
      at = progress == Progress::dropped ? callers_.erase(at) : at + 1;
    }
    if (polls[0].revents != 0) accept_callers();
    const auto heard = [](const pollfd& one) { return one.revents != 0; };
    const auto first = polls.begin() + 1;
    if (std::any_of(first, first + static_cast<std::ptrdiff_t>(watched.size()), heard)) return {};
    if (Clock::now() >= deadline) return {};
  }
}

void Reception::accept_callers() {
  for (int i = 0; i < 16; ++i) {  // then those who are there have their turn
    errno = 0;
    Caller caller{.socket = accept_from(listener_, Clock::now()),
                  .address = {},
                  .nonce = random_bytes(),
                  .deadline = Clock::now() + kCaller,
                  .arrived = {},
                  .hello = {}};
    if (!caller.socket) {
      // Nobody any more; or no descriptor is left for who is there, and who came first gives way.
      const bool full = errno == EMFILE || errno == ENFILE;
      if (full && !callers_.empty()) callers_.pop_front();
      if (full && callers_.empty()) std::this_thread::sleep_for(kPause);
      return;
    }
    try {
      caller.address = address_of_peer(caller.socket);
      if (!sends_whole(caller.socket, bytes_of(Challenge{caller.nonce}))) continue;
    } catch (const SocketError&) {
      continue;  // came and went
    }
    if (callers_.size() >= kMostCallers) callers_.pop_front();
    callers_.push_back(std::move(caller));
  }
}

// Whether so many bytes have come. Throws SocketError.
bool Reception::read_more(Caller& caller, std::size_t size) {
  const std::size_t before = caller.arrived.size();
  caller.arrived.resize(size);
  std::size_t got = 0;
  try {
    got = receive_some(caller.socket, std::span(caller.arrived).subspan(before));
  } catch (const SocketError&) {
    caller.arrived.resize(before);
    throw;
  }
  caller.arrived.resize(before + got);
  return caller.arrived.size() == size;
}

Reception::Progress Reception::advance(Caller& caller) {
  try {
    for (;;) {
      std::size_t needed = 0;
      if (!caller.hello) {
        Read<Hello> read = read_hello(caller.arrived);
        if (read.reading == Reading::other_release) {
          sent_away_ = fmt::format("; a caller at {} is of another release", caller.address);
        }
        if (read.reading == Reading::whole) {
          caller.arrived.clear();
          if (!welcome(caller, std::move(read.message))) return Progress::dropped;
          continue;
        }
        if (read.reading != Reading::more) return Progress::dropped;
        needed = read.size;
      } else {
        const Read<WordMessage> read = read_word(caller.arrived, own_.ranks);
        if (read.reading == Reading::whole) {
          const bool here = read.message.word == Word::here;
          return here ? Progress::arrived : Progress::dropped;
        }
        if (read.reading != Reading::more || read.size > bytes_of(Word::here).size()) {
          return Progress::dropped;
        }
        needed = read.size;
      }
      if (read_more(caller, needed)) continue;
      return Clock::now() < caller.deadline ? Progress::waits : Progress::dropped;
    }
  } catch (const SocketError&) {
    return Progress::dropped;
  }
}

Answer Reception::answer_to(const Caller& caller, const Hello& hello) const {
  if (hello.job != own_.job) return Answer::other_job;
  if (!proves(hello, own_.secret, caller.nonce)) return Answer::other_secret;
  if (hello.ranks != own_.ranks) return Answer::other_ranks;
  for (const Caller& other : callers_) {
    const bool same = other.hello && other.hello->rank == hello.rank &&
                      other.hello->purpose == hello.purpose &&
                      other.hello->process != hello.process;
    if (same && &other != &caller) return Answer::twice;
  }
  return judge_(hello);
}

bool Reception::welcome(Caller& caller, Hello hello) {
  const Answer answer = answer_to(caller, hello);
  const bool sent =
      sends_whole(caller.socket, bytes_of(answer, own_.secret, caller.nonce, hello.nonce));
  if (answer == Answer::other_secret || answer == Answer::other_ranks) {
    sent_away_ = fmt::format("; a caller at {}, which says it is rank {}, {}",
                             caller.address,
                             hello.rank,
                             answer_text(answer));
  }
  if (!sent || answer != Answer::welcome) return false;
  caller.hello = std::move(hello);
  return true;
}

// --- who calls

std::optional<Called> call(const std::string& host,
                           int port,
                           const Identity& own,
                           Hello hello,
                           Deadline deadline,
                           const Watch& watch) {
  Descriptor socket = connect_to(host, port, std::min(deadline, Clock::now() + kConnect));
  if (!socket) return std::nullopt;
  const Challenge challenge = receive(socket, read_challenge, deadline, watch);
  hello.job = own.job;
  hello.process = own.process;
  hello.rank = own.rank;
  hello.ranks = own.ranks;
  hello.nonce = random_bytes();
  send_all(socket, bytes_of(hello, own.secret, challenge.nonce), deadline);
  const Reply reply = receive(socket, read_reply, deadline, watch);
  if (reply.answer != Answer::welcome) return Called{.socket = {}, .answer = reply.answer};
  if (!proves(reply, own.secret, challenge.nonce, hello.nonce)) {
    throw SocketError("who answers there does not prove that it has the secret");
  }
  send_all(socket, bytes_of(Word::here), deadline);
  return Called{.socket = std::move(socket), .answer = Answer::welcome};
}

}  // namespace zeroplan::runtime
