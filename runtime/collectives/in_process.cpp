// Ranks as threads. Each collective has a ticket, its number in the order of calls; the ranks post
// their buffers under it. When all have, the work is cut into stretches that the waiting ranks take
// from a counter: whoever waits helps, so that no order of waits can block.
#include "runtime/collectives/in_process.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "model/check.hpp"
#include "runtime/collectives/reduce_kernels.hpp"

namespace zeroplan::runtime {
namespace {

constexpr std::int64_t kStretch = 1 << 15;  // elements

bool same_call(const Exchange& a, const Exchange& b) {
  return a.kind == b.kind && a.operation == b.operation && a.dtype == b.dtype &&
         a.elements == b.elements && a.root == b.root;
}

// One collective of the group.
struct Ticket {
  std::vector<std::optional<Exchange>> posted;  // by rank
  int arrived = 0;
  std::int64_t stretches = 0;
  std::atomic<std::int64_t> next{0};
  std::int64_t finished = 0;
  int left = 0;  // ranks that have seen its end
};

class Group {
 public:
  Group(int ranks, std::chrono::milliseconds patience) : ranks_(ranks), patience_(patience) {}
  int ranks() const { return ranks_; }

  void post(int rank, std::int64_t number, const Exchange& exchange);
  void wait(int rank, std::int64_t number);
  void fail(int rank, const std::string& reason);
  std::optional<std::string> failure() {
    const std::lock_guard lock(mutex_);
    return failed_ ? std::optional(reason_) : std::nullopt;
  }

 private:
  void throw_if_failed() const {
    if (failed_) throw CollectiveError(reason_);
  }
  std::shared_ptr<Ticket> ticket(std::int64_t number);
  void work(Ticket& ticket);
  void run_stretch(const Ticket& ticket, std::int64_t stretch) const;
  std::string missing(const Ticket& ticket) const;
  void fail_locked(const std::string& reason) {
    if (!failed_) reason_ = reason;
    failed_ = true;
    changed_.notify_all();
  }

  const int ranks_;
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<std::int64_t, std::shared_ptr<Ticket>> tickets_;
  bool failed_ = false;
  std::string reason_;
};

std::shared_ptr<Ticket> Group::ticket(std::int64_t number) {
  std::shared_ptr<Ticket>& found = tickets_[number];
  if (!found) {
    found = std::make_shared<Ticket>();
    found->posted.resize(static_cast<std::size_t>(ranks_));
  }
  return found;
}

void Group::post(int rank, std::int64_t number, const Exchange& exchange) {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  const std::shared_ptr<Ticket> at = ticket(number);
  for (const std::optional<Exchange>& other : at->posted) {
    if (!other || same_call(*other, exchange)) continue;
    fail_locked(fmt::format("collective {}: rank {} calls {} of {} {}, another rank {} of {} {}",
                            number,
                            rank,
                            name_of(exchange.kind),
                            exchange.elements.count(),
                            name(exchange.dtype),
                            name_of(other->kind),
                            other->elements.count(),
                            name(other->dtype)));
    throw_if_failed();
  }
  at->posted[static_cast<std::size_t>(rank)] = exchange;
  if (++at->arrived < ranks_) return;
  const bool barrier = exchange.kind == CollectiveKind::barrier;
  const bool divided = exchange.kind == CollectiveKind::all_gather ||
                       exchange.kind == CollectiveKind::reduce_scatter ||
                       exchange.kind == CollectiveKind::all_to_all;
  const std::int64_t parts = divided ? ranks_ : 1;
  at->stretches = barrier ? 0 : parts * ceil_div(exchange.elements.count(), kStretch);
  changed_.notify_all();
}

// Runs the stretches that nobody has taken.
void Group::work(Ticket& at) {
  std::int64_t done = 0;
  for (;;) {
    const std::int64_t stretch = at.next.fetch_add(1);
    if (stretch >= at.stretches) break;
    run_stretch(at, stretch);
    ++done;
  }
  if (done == 0) return;
  const std::lock_guard lock(mutex_);
  at.finished += done;
  if (at.finished == at.stretches) changed_.notify_all();
}

void Group::run_stretch(const Ticket& at, std::int64_t stretch) const {
  const Exchange& call = *at.posted[0];
  const std::int64_t share = call.elements.count();
  const std::int64_t per_part = ceil_div(share, kStretch);
  const std::int64_t part = stretch / per_part;  // 0 where nothing is divided
  const std::int64_t begin = stretch % per_part * kStretch;
  const std::int64_t count = std::min(kStretch, share - begin);
  const std::int64_t size = width(call.dtype);
  const auto bytes = static_cast<std::size_t>(count * size);
  const auto of = [&](int rank) -> const Exchange& {
    return *at.posted[static_cast<std::size_t>(rank)];
  };
  const bool reduces = call.kind == CollectiveKind::all_reduce ||
                       call.kind == CollectiveKind::reduce ||
                       call.kind == CollectiveKind::reduce_scatter;
  if (reduces && ranks_ > 1) {
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
    for (int r = 0; r < ranks_; ++r) {
      inputs.push_back(of(r).input + (part * share + begin) * size);
      const bool gets = call.kind == CollectiveKind::all_reduce ||
                        (call.kind == CollectiveKind::reduce ? r == call.root : r == part);
      if (gets) outputs.push_back(of(r).output + begin * size);
    }
    combine(inputs, outputs, count, call.dtype, call.operation);
    return;
  }
  const auto copy = [&](const std::byte* from, std::byte* to) {
    if (from != to) std::memcpy(to, from, bytes);
  };
  for (int r = 0; r < ranks_; ++r) {
    if (reduces) {  // of one rank: what it was
      copy(of(r).input + begin * size, of(r).output + begin * size);
    } else if (call.kind == CollectiveKind::all_gather) {
      copy(of(static_cast<int>(part)).input + begin * size,
           of(r).output + (part * share + begin) * size);
    } else if (call.kind == CollectiveKind::broadcast) {
      copy(of(call.root).input + begin * size, of(r).output + begin * size);
    } else {  // all_to_all: the part that goes to that rank
      copy(of(r).input + (part * share + begin) * size,
           of(static_cast<int>(part)).output + (r * share + begin) * size);
    }
  }
}

void Group::wait(int rank, std::int64_t number) {
  std::unique_lock lock(mutex_);
  const std::shared_ptr<Ticket> at = ticket(number);
  const auto deadline = std::chrono::steady_clock::now() + patience_;
  const auto until = [&](auto&& reached) {
    while (!reached()) {
      throw_if_failed();
      if (changed_.wait_until(lock, deadline) == std::cv_status::timeout && !reached()) {
        fail_locked(fmt::format("rank {} has waited {} s in collective {} for {}",
                                rank,
                                std::chrono::duration<double>(patience_).count(),
                                number,
                                missing(*at)));
        throw_if_failed();
      }
    }
  };
  until([&] { return at->arrived == ranks_; });
  lock.unlock();
  work(*at);
  lock.lock();
  // Even after a failure: somebody may be writing into this rank's buffers.
  changed_.wait(lock, [&] { return at->finished == at->stretches; });
  if (++at->left == ranks_) tickets_.erase(number);
}

std::string Group::missing(const Ticket& at) const {
  std::string text;
  for (int r = 0; r < ranks_; ++r) {
    if (at.posted[static_cast<std::size_t>(r)]) continue;
    text += fmt::format("{}{}", text.empty() ? "rank " : ", ", r);
  }
  return text;
}

void Group::fail(int rank, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  fail_locked(fmt::format("rank {} failed: {}", rank, reason));
}

class InProcessRank : public Communicator {
 public:
  InProcessRank(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int ranks() const override { return group_->ranks(); }

  Pending start(const Exchange& exchange) override {
    const std::int64_t number = next_++;
    group_->post(rank_, number, exchange);
    return Pending([group = group_, rank = rank_, number] { group->wait(rank, number); });
  }
  void fail(const std::string& reason) override { group_->fail(rank_, reason); }
  std::optional<std::string> failure() const override { return group_->failure(); }

 private:
  std::shared_ptr<Group> group_;
  int rank_ = 0;
  std::int64_t next_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> in_process_ranks(int ranks,
                                                            std::chrono::milliseconds patience) {
  ZP_CHECK(ranks >= 1, "a group has ranks");
  const auto group = std::make_shared<Group>(ranks, patience);
  std::vector<std::unique_ptr<Communicator>> result;
  for (int r = 0; r < ranks; ++r) result.push_back(std::make_unique<InProcessRank>(group, r));
  return result;
}

}  // namespace zeroplan::runtime
