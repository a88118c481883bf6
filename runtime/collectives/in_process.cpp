// Ranks as threads. Each collective has a ticket, its number in the order of calls; the ranks post
// their buffers under it. When all have, the work is cut into stretches that the waiting ranks take
// from a counter: whoever waits helps, so that no order of waits can block.
#include "runtime/collectives/in_process.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "base/check.hpp"
#include "base/parallel_for.hpp"
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
  bool incomplete = false;  // a stretch could not be run
  int left = 0;             // ranks that have seen its end
};

// What a group and its parts share.
struct Family {
  explicit Family(std::chrono::milliseconds said) : patience(said) {}
  const std::chrono::milliseconds patience;
  std::mutex mutex;
  std::condition_variable changed;
  bool failed = false;
  std::string reason;
};

class Group {
 public:
  // names: what its ranks are called in messages, their ranks in the group of all.
  Group(std::shared_ptr<Family> family, std::vector<int> names)
      : ranks_(static_cast<int>(names.size())), names_(std::move(names)), of_(std::move(family)) {}
  int ranks() const { return ranks_; }

  void post(int rank, std::int64_t number, const Exchange& exchange);
  void wait(int rank, std::int64_t number);
  void fail(int rank, std::string_view reason) noexcept;
  std::optional<std::string> failure() {
    const std::lock_guard lock(of_->mutex);
    return of_->failed ? std::optional(of_->reason) : std::nullopt;
  }
  std::shared_ptr<Group> part(int rank, std::int64_t number, std::span<const int> members);

 private:
  int name(int rank) const { return names_[static_cast<std::size_t>(rank)]; }
  void throw_if_failed() const {
    if (of_->failed) throw CollectiveError(of_->reason);
  }
  std::shared_ptr<Ticket> ticket(std::int64_t number);
  void work(Ticket& ticket);
  void run_stretch(const Ticket& ticket, std::int64_t stretch) const;
  std::string missing(const Ticket& ticket) const;
  void fail_locked(std::string reason) noexcept {
    if (!of_->failed) of_->reason = std::move(reason);
    of_->failed = true;
    of_->changed.notify_all();
  }

  const int ranks_;
  const std::vector<int> names_;
  const std::shared_ptr<Family> of_;
  std::unordered_map<std::int64_t, std::shared_ptr<Ticket>> tickets_;
  std::map<std::pair<std::int64_t, std::vector<int>>, std::shared_ptr<Group>> parts_;
};

std::shared_ptr<Ticket> Group::ticket(std::int64_t number) {
  if (const auto found = tickets_.find(number); found != tickets_.end()) return found->second;
  auto made = std::make_shared<Ticket>();
  made->posted.resize(static_cast<std::size_t>(ranks_));
  tickets_.emplace(number, made);
  return made;
}

void Group::post(int rank, std::int64_t number, const Exchange& exchange) {
  const std::lock_guard lock(of_->mutex);
  throw_if_failed();
  const std::shared_ptr<Ticket> at = ticket(number);
  for (const std::optional<Exchange>& other : at->posted) {
    if (!other || same_call(*other, exchange)) continue;
    fail_locked(fmt::format("collective {}: rank {} calls {} of {} {}, another rank {} of {} {}",
                            number,
                            name(rank),
                            name_of(exchange.kind),
                            exchange.elements.count(),
                            zeroplan::name(exchange.dtype),
                            name_of(other->kind),
                            other->elements.count(),
                            zeroplan::name(other->dtype)));
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
  of_->changed.notify_all();
}

// Runs the stretches that nobody has taken. One that cannot be run is finished, too, and the group
// has failed: the others wait for the end of all stretches, whatever happens.
void Group::work(Ticket& at) {
  std::int64_t done = 0;
  std::exception_ptr failure;
  for (;;) {
    const std::int64_t stretch = at.next.fetch_add(1);
    if (stretch >= at.stretches) break;
    try {
      run_stretch(at, stretch);
    } catch (const std::bad_alloc&) {
      failure = std::current_exception();
    }
    ++done;
  }
  if (done == 0) return;
  const std::lock_guard lock(of_->mutex);
  if (failure) {
    at.incomplete = true;
    fail_locked("out of memory");
  }
  at.finished += done;
  if (at.finished == at.stretches) of_->changed.notify_all();
  if (failure) std::rethrow_exception(failure);
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
  std::unique_lock lock(of_->mutex);
  const std::shared_ptr<Ticket> at = ticket(number);
  const auto deadline = std::chrono::steady_clock::now() + of_->patience;
  const auto until = [&](auto&& reached) {
    while (!reached()) {
      throw_if_failed();
      if (of_->changed.wait_until(lock, deadline) == std::cv_status::timeout && !reached()) {
        fail_locked(fmt::format("rank {} has waited {} s in collective {} for {}",
                                name(rank),
                                std::chrono::duration<double>(of_->patience).count(),
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
  of_->changed.wait(lock, [&] { return at->finished == at->stretches; });
  if (++at->left == ranks_) tickets_.erase(number);
  if (at->incomplete) throw_if_failed();
}

std::string Group::missing(const Ticket& at) const {
  std::string text;
  for (int r = 0; r < ranks_; ++r) {
    if (at.posted[static_cast<std::size_t>(r)]) continue;
    text += fmt::format("{}{}", text.empty() ? "rank " : ", ", name(r));
  }
  return text;
}

void Group::fail(int rank, std::string_view reason) noexcept {
  std::string text =
      failure_text([&] { return fmt::format("rank {} failed: {}", name(rank), reason); });
  const std::lock_guard lock(of_->mutex);
  fail_locked(std::move(text));
}

// The one that another member has called for, or a new one.
std::shared_ptr<Group> Group::part(int rank, std::int64_t number, std::span<const int> members) {
  const std::lock_guard lock(of_->mutex);
  throw_if_failed();
  const auto called = std::pair(number, std::vector<int>(members.begin(), members.end()));
  for (const auto& [other, group] : parts_) {
    if (other.first != number || other.second == called.second) continue;
    for (const int member : members) {
      const bool twice = std::binary_search(other.second.begin(), other.second.end(), member);
      if (!twice) continue;
      fail_locked(fmt::format("rank {} wants rank {} in a part, which another rank has in another",
                              name(rank),
                              name(member)));
      throw_if_failed();
    }
  }
  std::shared_ptr<Group>& found = parts_[called];
  if (!found) {
    std::vector<int> names;
    for (const int member : members) names.push_back(name(member));
    found = std::make_shared<Group>(of_, std::move(names));
  }
  return found;
}

class InProcessRank : public Communicator {
 public:
  InProcessRank(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int ranks() const override { return group_->ranks(); }

  Pending start(const Exchange& exchange) override {
    const std::int64_t number = next_++;
    // Whoever has posted must wait, so what it takes to wait comes first.
    std::function<void()> wait = [group = group_, rank = rank_, number] {
      group->wait(rank, number);
    };
    group_->post(rank_, number, exchange);
    return Pending(std::move(wait));
  }
  void fail(std::string_view reason) noexcept override { group_->fail(rank_, reason); }
  std::optional<std::string> failure() const override { return group_->failure(); }

  std::unique_ptr<Communicator> split(std::span<const int> members) override {
    const int place = place_among(members, rank_, ranks());
    return std::make_unique<InProcessRank>(group_->part(rank_, next_part_++, members), place);
  }

 private:
  std::shared_ptr<Group> group_;
  int rank_ = 0;
  std::int64_t next_ = 0;
  std::int64_t next_part_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> in_process_ranks(int ranks,
                                                            std::chrono::milliseconds patience) {
  ZP_CHECK(ranks >= 1, "a group has ranks");
  std::vector<int> names(static_cast<std::size_t>(ranks));
  std::iota(names.begin(), names.end(), 0);
  const auto family = std::make_shared<Family>(patience);
  const auto group = std::make_shared<Group>(family, std::move(names));
  std::vector<std::unique_ptr<Communicator>> result;
  for (int r = 0; r < ranks; ++r) result.push_back(std::make_unique<InProcessRank>(group, r));
  return result;
}

void run_in_process(const std::vector<std::unique_ptr<Communicator>>& group,
                    const std::function<void(int)>& body) {
  std::mutex mutex;
  std::exception_ptr first;
  // Of the exception at hand, which also is the reason that the others hear.
  const auto note = [&](int rank, const char* what) noexcept {
    {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
    group[static_cast<std::size_t>(rank)]->fail(what);
  };
  const auto run = [&](int rank) noexcept {
    try {
      body(rank);
    } catch (const std::exception& error) {
      note(rank, error.what());
    }
  };
  Threads others;
  const std::size_t wanted = group.size() - 1;
  const std::size_t started =
      others.start(wanted, [&](std::size_t i) { run(static_cast<int>(i) + 1); });
  if (started < wanted) {
    const int rank = static_cast<int>(started) + 1;
    try {
      throw CollectiveError(fmt::format("rank {}: no thread or memory for one more rank", rank));
    } catch (const std::exception& error) {
      note(rank, error.what());
    }
  } else {
    run(0);
  }
  others.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace zeroplan::runtime
