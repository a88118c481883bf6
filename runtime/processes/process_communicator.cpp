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
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "model/check.hpp"
#include "runtime/collectives/reduce_kernels.hpp"

namespace zeroplan::runtime {
namespace {

// What others sent waits here to be summed; the same size on every rank.
constexpr std::int64_t kStaging = 1 << 20;  // bytes
// All-reduces up to this many bytes are gathered and summed everywhere: one round instead of two.
constexpr std::int64_t kSmall = 16 << 10;

// What every rank tells every other before a collective, so that different calls are noticed.
struct Call {
  std::int64_t number = 0;
  std::int64_t elements = 0;
  std::int32_t kind = 0, operation = 0, dtype = 0, root = 0;
  bool operator==(const Call&) const = default;
};

Call call_of(std::int64_t number, const Exchange& exchange) {
  return {.number = number,
          .elements = exchange.elements.count(),
          .kind = static_cast<std::int32_t>(exchange.kind),
          .operation = static_cast<std::int32_t>(exchange.operation),
          .dtype = static_cast<std::int32_t>(exchange.dtype),
          .root = exchange.root};
}

std::string text_of(const Call& call) {
  const std::string_view kind = name_of(static_cast<CollectiveKind>(call.kind));
  return fmt::format("{} of {} {}", kind, call.elements, name(static_cast<DType>(call.dtype)));
}

std::string list_of(const std::vector<int>& ranks) {
  return fmt::format("rank {}", fmt::join(ranks, ", "));
}

// Carries out collectives; the worker thread's alone.
class Collectives {
 public:
  Collectives(Links& links, std::chrono::milliseconds patience)
      : links_(links), patience_(patience), rank_(links.rank()), ranks_(links.ranks()) {}

  void run(std::int64_t number, const Exchange& exchange);

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
      if (peer != rank_) transfers_.push_back(of(peer));
    }
    links_.transfer(transfers_, deadline_);
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
  const int rank_;
  const int ranks_;
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

void Collectives::run(std::int64_t number, const Exchange& exchange) {
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
  const Call mine = call_of(number, exchange);
  std::vector<Call> calls(static_cast<std::size_t>(ranks_), mine);
  const auto bytes = static_cast<std::int64_t>(sizeof(Call));
  with_others([&](int peer) -> Transfer {
    Call& theirs = calls[static_cast<std::size_t>(peer)];
    return {peer,
            out(reinterpret_cast<const std::byte*>(&mine), bytes),
            in(reinterpret_cast<std::byte*>(&theirs), bytes)};
  });
  for (int peer = 0; peer < ranks_; ++peer) {
    const Call& theirs = calls[static_cast<std::size_t>(peer)];
    if (theirs == mine) continue;
    throw CollectiveError(fmt::format("collective {}: rank {} calls {}, rank {} {}",
                                      number,
                                      rank_,
                                      text_of(mine),
                                      peer,
                                      text_of(theirs)));
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
      Transfer give{.peer = exchange.root, .send = out(own, count * size)};
      links_.transfer({&give, 1}, deadline_);
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
    Transfer take{.peer = exchange.root, .send = {}, .receive = in(exchange.output, bytes)};
    links_.transfer({&take, 1}, deadline_);
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
      : links_(std::move(links)), patience_(patience) {
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

  Pending start(const Exchange& exchange) override {
    if (const auto reason = links_->failure()) throw CollectiveError(*reason);
    std::int64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      if (ended_) throw CollectiveError(reason_);
      number = posted_++;
      queue_.push_back(exchange);
    }
    changed_.notify_all();
    return Pending([this, number] { wait(number); });
  }

  void fail(const std::string& reason) override {
    links_->fail(fmt::format("rank {} failed: {}", links_->rank(), reason));
    // Under the lock, so that a worker about to sleep does not miss it.
    { const std::lock_guard lock(mutex_); }
    changed_.notify_all();
  }

 private:
  // Throws only when the worker no longer touches the buffers.
  void wait(std::int64_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ > number || ended_; });
    if (done_ <= number) throw CollectiveError(reason_);
  }

  void work(std::promise<void>& begun);
  void carry_out();

  std::unique_ptr<Links> links_;
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Exchange> queue_;
  std::int64_t posted_ = 0;
  std::int64_t done_ = 0;
  bool closing_ = false;
  bool ended_ = false;  // after a failure: the worker is done
  std::string reason_;
  std::thread worker_;
};

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
    reason = fmt::format("rank {} has waited {} s in collective {} for {}",
                         links_->rank(),
                         std::chrono::duration<double>(patience_).count(),
                         done_,
                         list_of(late.missing()));
  } catch (const std::exception& error) {
    reason = error.what();
  }
  if (!reason.empty()) links_->fail(reason);
  links_->end();
  const std::optional<std::string> first = links_->failure();
  const std::lock_guard lock(mutex_);
  ended_ = first.has_value();
  if (first) reason_ = *first;
  changed_.notify_all();
}

// Returns when the communicator closes or fails while nothing is under way.
void ProcessCommunicator::carry_out() {
  Collectives collectives(*links_, patience_);
  for (;;) {
    Exchange exchange;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !queue_.empty() || closing_ || links_->failure(); });
      if (queue_.empty() || links_->failure()) return;
      exchange = queue_.front();
      queue_.pop_front();
    }
    collectives.run(done_, exchange);
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
