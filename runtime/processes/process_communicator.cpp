#include "runtime/processes/process_communicator.hpp"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.hpp"
#include "runtime/collectives/reduce_kernels.hpp"
#include "runtime/data/fnv1a.hpp"
#include "runtime/processes/rank_messages.hpp"

namespace zeroplan::runtime {
namespace {

// What others sent waits here to be summed; the same size on every rank.
constexpr std::int64_t kStaging = 1 << 20;  // bytes
// All-reduces up to this many bytes are gathered and summed everywhere: one round instead of two.
constexpr std::int64_t kSmall = 16 << 10;

// Ranks that call a collective together.
struct Members {
  std::vector<int> ranks;   // of the links, ascending
  int place = 0;            // of this rank among them
  std::int64_t call = -1;   // of split() that made them, and who they are; -1: all
  std::int64_t next = 0;    // number of their next collective; the caller's
  std::int64_t splits = 0;  // into parts; the caller's

  int count() const { return static_cast<int>(ranks.size()); }
  int rank(int at) const { return ranks[static_cast<std::size_t>(at)]; }
};

// Names a part on all its ranks alike: by what was split, for the how manieth time, into whom.
// Ranks that disagree about the members have different numbers, and are told.
std::int64_t number_of_part(const Members& of, const std::vector<int>& ranks) {
  Fnv1a hash;
  hash.add(static_cast<std::uint64_t>(of.call));
  hash.add(static_cast<std::uint64_t>(of.splits));
  for (const int rank : ranks) hash.add(static_cast<std::uint64_t>(rank));
  return static_cast<std::int64_t>(hash.value() >> 1);
}

CollectiveCall call_of(const Members& members, std::int64_t number, const Exchange& exchange) {
  return {.number = number,
          .part = members.call,
          .elements = exchange.elements.count(),
          .kind = static_cast<std::int32_t>(exchange.kind),
          .operation = static_cast<std::int32_t>(exchange.operation),
          .dtype = static_cast<std::int32_t>(exchange.dtype),
          .root = exchange.root};
}

// Precondition: read_call() gave it, or call_of().
std::string text_of(const CollectiveCall& call) {
  const std::string_view kind = name_of(static_cast<CollectiveKind>(call.kind));
  const char* const where = call.part < 0 ? "" : " in a part";
  const std::string_view dtype = name(static_cast<DType>(call.dtype));
  return fmt::format("{} of {} {}{}", kind, call.elements, dtype, where);
}

std::string list_of(const std::vector<int>& ranks) {
  return fmt::format("rank {}", fmt::join(ranks, ", "));
}

// Carries out collectives; the worker thread's alone.
class Collectives {
 public:
  Collectives(Links& links, std::chrono::milliseconds patience)
      : links_(links), patience_(patience) {}

  void run(const Members& members, std::int64_t number, const Exchange& exchange);

 private:
  void agree(std::int64_t number, const Exchange& exchange);
  void all_reduce(const Exchange& exchange);
  void small_all_reduce(const Exchange& exchange);
  void reduce(const Exchange& exchange);
  void reduce_scatter(const Exchange& exchange);
  void all_gather(const Exchange& exchange);
  void broadcast(const Exchange& exchange);
  void all_to_all(const Exchange& exchange);

  // One Transfer for each other rank, made by of(peer), carried out.
  template <typename Of>
  void with_others(Of&& of) {
    transfers_.clear();
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer == rank_) continue;
      transfers_.push_back(of(peer));
      transfers_.back().peer = members_->rank(peer);
    }
    links_.transfer(transfers_, deadline_);
  }
  void with_root(const Exchange& exchange, Transfer transfer) {
    transfer.peer = members_->rank(exchange.root);
    links_.transfer({&transfer, 1}, deadline_);
  }
  // Elements that one rank may send another between two sums.
  std::int64_t slice(std::int64_t width) const {
    return std::max<std::int64_t>(kStaging / ranks_ / width, 1);
  }
  std::byte* staged(int peer, std::int64_t bytes) {
    staging_.resize(static_cast<std::size_t>(bytes * ranks_));
    return staging_.data() + peer * bytes;
  }
  // outputs = the sum over ranks of `own` and what the others sent, each `bytes` apart.
  void sum_staged(const std::byte* own,
                  std::byte* output,
                  std::int64_t count,
                  std::int64_t bytes,
                  const Exchange& exchange);

  Links& links_;
  const std::chrono::milliseconds patience_;
  const Members* members_ = nullptr;  // of the collective at hand
  int rank_ = 0;                      // among them
  int ranks_ = 0;
  Deadline deadline_;
  std::vector<Transfer> transfers_;
  std::vector<std::byte> staging_;
};

std::span<const std::byte> out(const std::byte* from, std::int64_t bytes) {
  return {from, static_cast<std::size_t>(bytes)};
}
std::span<std::byte> in(std::byte* to, std::int64_t bytes) {
  return {to, static_cast<std::size_t>(bytes)};
}
void copy(const std::byte* from, std::byte* to, std::int64_t bytes) {
  if (from != to && bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

void Collectives::run(const Members& members, std::int64_t number, const Exchange& exchange) {
  members_ = &members;
  rank_ = members.place;
  ranks_ = members.count();
  deadline_ = std::chrono::steady_clock::now() + patience_;
  agree(number, exchange);
  switch (exchange.kind) {
    case CollectiveKind::all_reduce:
      all_reduce(exchange);
      break;
    case CollectiveKind::reduce:
      reduce(exchange);
      break;
    case CollectiveKind::reduce_scatter:
      reduce_scatter(exchange);
      break;
    case CollectiveKind::all_gather:
      all_gather(exchange);
      break;
    case CollectiveKind::broadcast:
      broadcast(exchange);
      break;
    case CollectiveKind::all_to_all:
      all_to_all(exchange);
      break;
    case CollectiveKind::barrier:
      break;  // that everybody came is known
  }
}

void Collectives::agree(std::int64_t number, const Exchange& exchange) {
  const CollectiveCall mine = call_of(*members_, number, exchange);
  std::array<std::byte, kCallBytes> said;
  write_call(mine, said);
  std::vector<std::array<std::byte, kCallBytes>> heard(static_cast<std::size_t>(ranks_));
  with_others([&](int peer) -> Transfer {
    return {peer, said, heard[static_cast<std::size_t>(peer)]};
  });
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    const int rank = members_->rank(peer);
    const auto theirs = read_call(heard[static_cast<std::size_t>(peer)], ranks_);
    if (!theirs) {
      throw CollectiveError(fmt::format("collective {}: rank {} sends what is none", number, rank));
    }
    if (*theirs == mine) continue;
    throw CollectiveError(fmt::format("collective {}: rank {} calls {}, rank {} {}",
                                      number,
                                      links_.rank(),
                                      text_of(mine),
                                      rank,
                                      text_of(*theirs)));
  }
}

void Collectives::sum_staged(const std::byte* own,
                             std::byte* output,
                             std::int64_t count,
                             std::int64_t bytes,
                             const Exchange& exchange) {
  std::vector<const std::byte*> inputs;
  for (int r = 0; r < ranks_; ++r) inputs.push_back(r == rank_ ? own : staged(r, bytes));
  combine(inputs, {&output, 1}, count, exchange.dtype, exchange.operation);
}

void Collectives::small_all_reduce(const Exchange& exchange) {
  const std::int64_t bytes = (exchange.elements * exchange.dtype).count();
  with_others([&](int peer) -> Transfer {
    return {peer, out(exchange.input, bytes), in(staged(peer, bytes), bytes)};
  });
  sum_staged(exchange.input, exchange.output, exchange.elements.count(), bytes, exchange);
}

// Part p of the elements is summed on rank p, slice by slice, and goes to everybody.
void Collectives::all_reduce(const Exchange& exchange) {
  const std::int64_t size = width(exchange.dtype);
  const std::int64_t elements = exchange.elements.count();
  if (elements * size <= kSmall) {
    small_all_reduce(exchange);
    return;
  }
  const std::int64_t part = ceil_div(elements, ranks_);
  const std::int64_t step = slice(size);
  const auto first_of = [&](int rank, std::int64_t at) { return rank * part + at; };
  for (std::int64_t at = 0; at < part; at += step) {
    const auto count_of = [&](int rank) {
      const std::int64_t end = std::min(elements, first_of(rank, std::min(part, at + step)));
      return std::max<std::int64_t>(0, end - first_of(rank, at));
    };
    const std::int64_t own = count_of(rank_);
    const std::int64_t own_first = first_of(rank_, at) * size;
    with_others([&](int peer) -> Transfer {
      const std::byte* theirs = exchange.input + first_of(peer, at) * size;
      return {peer, out(theirs, count_of(peer) * size), in(staged(peer, step * size), own * size)};
    });
    std::byte* sum = exchange.output + own_first;
    if (own > 0) sum_staged(exchange.input + own_first, sum, own, step * size, exchange);
    with_others([&](int peer) -> Transfer {
      std::byte* theirs = exchange.output + first_of(peer, at) * size;
      return {peer, out(sum, own * size), in(theirs, count_of(peer) * size)};
    });
  }
}

void Collectives::reduce(const Exchange& exchange) {
  const std::int64_t size = width(exchange.dtype);
  const std::int64_t elements = exchange.elements.count();
  const std::int64_t step = slice(size);
  for (std::int64_t at = 0; at < elements; at += step) {
    const std::int64_t count = std::min(step, elements - at);
    const std::byte* own = exchange.input + at * size;
    if (rank_ != exchange.root) {
      with_root(exchange, {.send = out(own, count * size)});
      continue;
    }
    with_others([&](int peer) -> Transfer {
      return {peer, {}, in(staged(peer, step * size), count * size)};
    });
    sum_staged(own, exchange.output + at * size, count, step * size, exchange);
  }
}

void Collectives::reduce_scatter(const Exchange& exchange) {
  const std::int64_t size = width(exchange.dtype);
  const std::int64_t share = exchange.elements.count();
  const std::int64_t step = slice(size);
  for (std::int64_t at = 0; at < share; at += step) {
    const std::int64_t bytes = std::min(step, share - at) * size;
    const auto part = [&](int rank) { return exchange.input + (rank * share + at) * size; };
    with_others([&](int peer) -> Transfer {
      return {peer, out(part(peer), bytes), in(staged(peer, step * size), bytes)};
    });
    sum_staged(part(rank_), exchange.output + at * size, bytes / size, step * size, exchange);
  }
}

void Collectives::all_gather(const Exchange& exchange) {
  const std::int64_t bytes = (exchange.elements * exchange.dtype).count();
  copy(exchange.input, exchange.output + rank_ * bytes, bytes);
  with_others([&](int peer) -> Transfer {
    return {peer, out(exchange.input, bytes), in(exchange.output + peer * bytes, bytes)};
  });
}

void Collectives::broadcast(const Exchange& exchange) {
  const std::int64_t bytes = (exchange.elements * exchange.dtype).count();
  if (rank_ != exchange.root) {
    with_root(exchange, {.receive = in(exchange.output, bytes)});
    return;
  }
  with_others([&](int peer) -> Transfer { return {peer, out(exchange.input, bytes), {}}; });
  copy(exchange.input, exchange.output, bytes);
}

void Collectives::all_to_all(const Exchange& exchange) {
  const std::int64_t bytes = (exchange.elements * exchange.dtype).count();
  copy(exchange.input + rank_ * bytes, exchange.output + rank_ * bytes, bytes);
  with_others([&](int peer) -> Transfer {
    return {
        peer, out(exchange.input + peer * bytes, bytes), in(exchange.output + peer * bytes, bytes)};
  });
}

class ProcessCommunicator : public Communicator {
 public:
  ProcessCommunicator(std::unique_ptr<Links> links, std::chrono::milliseconds patience)
      : links_(std::move(links)), patience_(patience), all_(std::make_shared<Members>()) {
    all_->ranks.resize(static_cast<std::size_t>(links_->ranks()));
    std::iota(all_->ranks.begin(), all_->ranks.end(), 0);
    all_->place = links_->rank();
    std::promise<void> begun;
    std::future<void> ready = begun.get_future();
    worker_ = std::thread([this, &begun] { work(begun); });
    try {
      ready.get();
    } catch (...) {
      worker_.join();
      throw;
    }
  }
  ProcessCommunicator(const ProcessCommunicator&) = delete;
  ProcessCommunicator& operator=(const ProcessCommunicator&) = delete;
  ~ProcessCommunicator() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    worker_.join();
  }

  int rank() const override { return links_->rank(); }
  int ranks() const override { return links_->ranks(); }

  std::optional<std::string> failure() const override { return links_->failure(); }

  Pending start(const Exchange& exchange) override { return start(exchange, all_); }

  // One queue for all groups: collectives run in the order of calls, which fits on all ranks.
  Pending start(const Exchange& exchange, const std::shared_ptr<Members>& members) {
    if (const auto reason = links_->failure()) throw CollectiveError(*reason);
    std::int64_t ticket = 0;
    {
      const std::lock_guard lock(mutex_);
      if (ended_) throw CollectiveError(reason_);
      ticket = posted_++;
      queue_.push_back({exchange, members, members->next++});
    }
    changed_.notify_all();
    return Pending([this, ticket] { wait(ticket); });
  }

  std::unique_ptr<Communicator> split(std::span<const int> members) override {
    return split(members, *all_);
  }
  std::unique_ptr<Communicator> split(std::span<const int> members, Members& of);

  void fail(std::string_view reason) noexcept override {
    links_->fail(
        failure_text([&] { return fmt::format("rank {} failed: {}", links_->rank(), reason); }));
    // Under the lock, so that a worker about to sleep does not miss it.
    { const std::lock_guard lock(mutex_); }
    changed_.notify_all();
  }

 private:
  struct Order {
    Exchange exchange;
    std::shared_ptr<const Members> members;
    std::int64_t number = 0;  // among the collectives of those
  };

  // Throws only when the worker no longer touches the buffers.
  void wait(std::int64_t ticket) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ > ticket || ended_; });
    if (done_ <= ticket) throw CollectiveError(reason_);
  }

  void work(std::promise<void>& begun);
  void carry_out();

  std::unique_ptr<Links> links_;
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::shared_ptr<Members> all_;
  std::deque<Order> queue_;
  std::int64_t posted_ = 0;
  std::int64_t done_ = 0;
  std::int64_t at_hand_ = 0;  // number of the collective at hand; the worker's
  bool closing_ = false;
  bool ended_ = false;  // after a failure: the worker is done
  std::string reason_;
  std::thread worker_;
};

// Some of the ranks, over the same links. A collective of theirs has the same place in every
// member's order of calls, so that it meets nothing else on the links between them.
class ProcessPart : public Communicator {
 public:
  ProcessPart(ProcessCommunicator& whole, std::shared_ptr<Members> members)
      : whole_(whole), members_(std::move(members)) {}

  int rank() const override { return members_->place; }
  int ranks() const override { return members_->count(); }
  Pending start(const Exchange& exchange) override { return whole_.start(exchange, members_); }
  void fail(std::string_view reason) noexcept override { whole_.fail(reason); }
  std::optional<std::string> failure() const override { return whole_.failure(); }
  std::unique_ptr<Communicator> split(std::span<const int> members) override {
    return whole_.split(members, *members_);
  }

 private:
  ProcessCommunicator& whole_;
  const std::shared_ptr<Members> members_;
};

std::unique_ptr<Communicator> ProcessCommunicator::split(std::span<const int> members,
                                                         Members& of) {
  auto part = std::make_shared<Members>();
  part->place = place_among(members, of.place, of.count());
  for (const int member : members) part->ranks.push_back(of.rank(member));
  part->call = number_of_part(of, part->ranks);
  ++of.splits;
  return std::make_unique<ProcessPart>(*this, std::move(part));
}

void ProcessCommunicator::work(std::promise<void>& begun) {
  try {
    links_->begin();
  } catch (...) {
    begun.set_exception(std::current_exception());
    return;
  }
  begun.set_value();
  std::string reason;
  try {
    carry_out();
  } catch (const TransferTimeout& late) {
    reason = failure_text([&] {
      return fmt::format("rank {} has waited {} s in collective {} for {}",
                         links_->rank(),
                         std::chrono::duration<double>(patience_).count(),
                         at_hand_,
                         list_of(late.missing()));
    });
  } catch (const std::exception& error) {
    reason = failure_text([&] { return error.what(); });
  }
  if (!reason.empty()) links_->fail(reason);
  try {
    links_->end();
  } catch (const std::exception& error) {
    links_->fail(failure_text([&] { return error.what(); }));  // nobody else can be told
  }
  const std::lock_guard lock(mutex_);
  reason_ = failure_text([&] { return links_->failure().value_or(""); });
  ended_ = !reason_.empty();
  changed_.notify_all();
}

// Returns when the communicator closes or fails while nothing is under way.
void ProcessCommunicator::carry_out() {
  Collectives collectives(*links_, patience_);
  for (;;) {
    Order order;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !queue_.empty() || closing_ || links_->failure(); });
      if (queue_.empty() || links_->failure()) return;
      order = std::move(queue_.front());
      queue_.pop_front();
    }
    at_hand_ = order.number;
    collectives.run(*order.members, order.number, order.exchange);
    {
      const std::lock_guard lock(mutex_);
      ++done_;
    }
    changed_.notify_all();
  }
}

}  // namespace

std::unique_ptr<Communicator> communicator_over(std::unique_ptr<Links> links,
                                                std::chrono::milliseconds patience) {
  return std::make_unique<ProcessCommunicator>(std::move(links), patience);
}

}  // namespace zeroplan::runtime
