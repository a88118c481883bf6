#include "runtime/processes/tcp_links.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <poll.h>

#include "runtime/collectives/communicator.hpp"
#include "runtime/processes/control.hpp"

namespace zeroplan::runtime {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr seconds kVerdict{3};   // a broken data connection waits for control to say why
constexpr seconds kFarewell{5};  // rank 0 stays for the others' last words
constexpr seconds kSend{1};      // control messages are a few bytes

// A control connection as the watching thread sees it.
struct Wire {
  int rank = 0;
  const Descriptor* socket = nullptr;
  WordReader words;
  Clock::time_point heard;  // the last word; nothing counts behind "done"
  bool done = false;        // said so
  bool closed = false;      // nothing comes any more
};

class TcpLinks : public Links {
 public:
  TcpLinks(int rank, Connections connections, Abandoned abandoned, const TcpTimes& times)
      : rank_(rank),
        connections_(std::move(connections)),
        abandoned_(std::move(abandoned)),
        times_(times) {
    for (std::size_t peer = 0; peer < connections_.control.size(); ++peer) {
      const Descriptor& socket = connections_.control[peer];
      if (socket)
        wires_.push_back({.rank = static_cast<int>(peer),
                          .socket = &socket,
                          .words = {},
                          .heard = Clock::now()});
    }
    watcher_ = std::thread([this] { watch(); });
  }
  TcpLinks(const TcpLinks&) = delete;
  TcpLinks& operator=(const TcpLinks&) = delete;
  ~TcpLinks() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake_watcher_.wake();
    watcher_.join();
  }

  int rank() const override { return rank_; }
  int ranks() const override { return static_cast<int>(connections_.data.size()); }

  void transfer(std::span<Transfer> transfers, Deadline deadline) override;
  void fail(std::string_view reason) noexcept override { declare(reason, rank_); }
  std::optional<std::string> failure() const override {
    const std::lock_guard lock(mutex_);
    return reason_;
  }

 private:
  const Descriptor& data(int peer) const {
    return connections_.data[static_cast<std::size_t>(peer)];
  }
  void throw_if_failed() const {
    if (const auto reason = failure()) throw CollectiveError(*reason);
  }
  [[noreturn]] void lost(int peer, const std::string& why);
  void declare(std::string_view reason, int said_by) noexcept;

  void watch();
  bool look_once();
  Clock::time_point next_look() const;
  void listen();
  void take_words(Wire& wire);
  void look_for_silence();
  void send_beats();
  void tell_failure();
  bool may_leave() const;
  void say(Wire& wire, const MessageBytes& bytes);
  void mind_the_unnoticed();

  const int rank_;
  const Connections connections_;
  const Abandoned abandoned_;
  const TcpTimes times_;
  Waker stop_transfers_;  // stays awake once the group has failed

  mutable std::mutex mutex_;
  std::condition_variable failed_;
  std::optional<std::string> reason_;
  int said_by_ = -1;
  Clock::time_point failed_at_;
  bool closing_ = false;

  // The watching thread's.
  Waker wake_watcher_;
  std::vector<Wire> wires_;
  Clock::time_point next_beat_ = Clock::now();
  bool told_ = false;
  bool abandoned_called_ = false;
  bool said_done_ = false;
  Clock::time_point leave_by_ = Clock::time_point::max();
  std::thread watcher_;
};

void TcpLinks::declare(std::string_view reason, int said_by) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (reason_) return;
    reason_ = failure_text([&] { return reason; });
    said_by_ = said_by;
    failed_at_ = Clock::now();
  }
  failed_.notify_all();
  stop_transfers_.wake();
  wake_watcher_.wake();
}

// The watching thread knows more: who was killed, or why the peer left.
void TcpLinks::lost(int peer, const std::string& why) {
  {
    std::unique_lock lock(mutex_);
    failed_.wait_for(lock, kVerdict, [&] { return reason_.has_value(); });
  }
  declare(fmt::format("rank {} lost its connection to rank {}: {}", rank_, peer, why), rank_);
  throw_if_failed();
  throw CollectiveError(why);
}

void TcpLinks::transfer(std::span<Transfer> transfers, Deadline deadline) {
  std::vector<pollfd> polls;
  std::vector<Transfer*> of_poll;
  for (;;) {
    polls.assign(1, {stop_transfers_.number(), POLLIN, 0});
    of_poll.assign(1, nullptr);
    for (Transfer& one : transfers) {
      try {
        if (!one.send.empty()) one.send = one.send.subspan(send_some(data(one.peer), one.send));
        if (!one.receive.empty()) {
          one.receive = one.receive.subspan(receive_some(data(one.peer), one.receive));
        }
      } catch (const SocketError& error) {
        lost(one.peer, error.what());
      }
      const short events =
          static_cast<short>((one.send.empty() ? 0 : POLLOUT) | (one.receive.empty() ? 0 : POLLIN));
      if (events == 0) continue;
      polls.push_back({data(one.peer).number(), events, 0});
      of_poll.push_back(&one);
    }
    if (polls.size() == 1) return;
    poll(polls.data(), polls.size(), milliseconds_until(deadline));
    if (polls[0].revents != 0) throw_if_failed();
    if (Clock::now() < deadline) continue;
    std::vector<int> missing;
    for (std::size_t i = 1; i < of_poll.size(); ++i) missing.push_back(of_poll[i]->peer);
    throw TransferTimeout(std::move(missing));
  }
}

// --- the watching thread

// Without memory the group has failed; that is told once there is some again, which who fails
// soon gives back.
void TcpLinks::watch() {
  for (;;) {
    try {
      if (!look_once()) return;
    } catch (const std::bad_alloc&) {
      declare("out of memory", rank_);
      if (Clock::now() >= leave_by_) return;
    }
  }
}

// False: it may go.
bool TcpLinks::look_once() {
  {
    const std::lock_guard lock(mutex_);
    if (closing_ && leave_by_ == Clock::time_point::max()) leave_by_ = Clock::now() + kFarewell;
  }
  listen();
  look_for_silence();
  tell_failure();
  send_beats();
  mind_the_unnoticed();
  {
    const std::lock_guard lock(mutex_);
    if (!closing_) return true;
  }
  if (!said_done_) {
    for (Wire& wire : wires_) say(wire, bytes_of(Word::done));
    said_done_ = true;
    leave_by_ = Clock::now() + kFarewell;
  }
  return rank_ == 0 && !may_leave() && Clock::now() < leave_by_;
}

// Rank 0 goes last: it is what tells the others of each other.
bool TcpLinks::may_leave() const {
  return std::all_of(
      wires_.begin(), wires_.end(), [](const Wire& wire) { return wire.done || wire.closed; });
}

// The next beat, or the moment at which a failure has gone unnoticed for too long.
Clock::time_point TcpLinks::next_look() const {
  const std::lock_guard lock(mutex_);
  if (!reason_ || closing_ || abandoned_called_) return next_beat_;
  return std::min(next_beat_, failed_at_ + times_.unnoticed);
}

void TcpLinks::listen() {
  std::vector<pollfd> polls = {{wake_watcher_.number(), POLLIN, 0}};
  std::vector<Wire*> of_poll = {nullptr};
  for (Wire& wire : wires_) {
    if (wire.closed) continue;
    polls.push_back({wire.socket->number(), POLLIN, 0});
    of_poll.push_back(&wire);
  }
  poll(polls.data(), polls.size(), milliseconds_until(next_look()));
  if (polls[0].revents != 0) wake_watcher_.forget();
  for (std::size_t i = 1; i < polls.size(); ++i) {
    if (polls[i].revents != 0) take_words(*of_poll[i]);
  }
}

void TcpLinks::take_words(Wire& wire) {
  try {
    while (const auto word = wire.words.next(*wire.socket, ranks())) {
      if (!wire.done) wire.heard = Clock::now();
      if (word->word == Word::done) wire.done = true;
      if (word->word == Word::failure) declare(word->reason, wire.rank);
      if (word->word > Word::done) {
        throw BadMessage(fmt::format("says \"{}\" where it may not", name(kWordNames, word->word)));
      }
    }
  } catch (const BadMessage& error) {
    wire.closed = true;
    declare(fmt::format("rank {} {}", wire.rank, error.what()), rank_);
  } catch (const SocketClosed&) {
    wire.closed = true;
    if (wire.done) return;
    declare(fmt::format("rank {} is gone: its connection closed without a word (killed, out of "
                        "memory, or its machine went down)",
                        wire.rank),
            wire.rank);
  }
}

// Who is done goes at once, rank 0 a few seconds later: who stays may owe others its part.
void TcpLinks::look_for_silence() {
  const Clock::time_point now = Clock::now();
  for (Wire& wire : wires_) {
    if (wire.closed || now - wire.heard < times_.silence) continue;
    wire.closed = true;
    declare(fmt::format("rank {} {} {} s: it is stopped, or its machine or network is down",
                        wire.rank,
                        wire.done ? "said that it was done and has not left for"
                                  : "has not been heard of for",
                        std::chrono::duration<double>(times_.silence).count()),
            wire.rank);
  }
}

void TcpLinks::send_beats() {
  if (Clock::now() < next_beat_) return;
  next_beat_ = Clock::now() + times_.beat;
  for (Wire& wire : wires_) say(wire, bytes_of(Word::beat));
}

// Rank 0 tells everybody but who said it; the others tell rank 0, if it was not rank 0.
void TcpLinks::tell_failure() {
  std::string reason;
  int said_by = -1;
  {
    const std::lock_guard lock(mutex_);
    if (!reason_ || told_) return;
    reason = *reason_;
    said_by = said_by_;
  }
  told_ = true;
  for (Wire& wire : wires_) {
    if (wire.rank != said_by) say(wire, bytes_of_failure(reason));
  }
}

void TcpLinks::say(Wire& wire, const MessageBytes& bytes) {
  if (wire.closed) return;
  try {
    send_all(*wire.socket, bytes, Clock::now() + kSend);
  } catch (const SocketError&) {
    // That nobody is there shows when nothing comes from there.
  }
}

void TcpLinks::mind_the_unnoticed() {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    const bool unnoticed = reason_ && !closing_ && Clock::now() - failed_at_ >= times_.unnoticed;
    if (!unnoticed || abandoned_called_) return;
    reason = *reason_;
  }
  abandoned_called_ = true;
  if (abandoned_) abandoned_(reason);
}

}  // namespace

std::unique_ptr<Links> tcp_links(int rank,
                                 Connections connections,
                                 Abandoned abandoned,
                                 const TcpTimes& times) {
  return std::make_unique<TcpLinks>(rank, std::move(connections), std::move(abandoned), times);
}

}  // namespace zeroplan::runtime
