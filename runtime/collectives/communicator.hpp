// Collectives between the ranks of a run, as an interface: ranks as threads of one process
// (in_process.hpp), ranks as processes (processes/process_communicator.hpp: TCP or MPI), later NCCL
// between GPUs.
//
// Every rank calls the same collectives in the same order with the same sizes. Sums are taken in
// the order of the ranks, in fp32 (fp64 for fp64), and rounded once, so that the result does not
// depend on who came first. A rank that ends calls fail(); everybody who waits then throws, as does
// who has waited longer than the time limit: no rank is left behind waiting.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "base/units.hpp"
#include "model/dtype.hpp"
#include "model/engine/engine_action.hpp"

namespace zeroplan::runtime {

// A collective that cannot be completed: a rank failed, did not come, or came with another call.
class CollectiveError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

std::string_view name_of(CollectiveKind kind);

// Why somebody fails: what `make` returns, or, where there is no memory for it, "out of memory",
// which is short enough to need none.
template <class Make>
std::string failure_text(const Make& make) noexcept {
  try {
    return std::string(make());
  } catch (const std::bad_alloc&) {
    return "out of memory";
  }
}

// The place of `rank` among the members of a part. Precondition: they are what split() asks for.
int place_among(std::span<const int> members, int rank, int ranks);

// What the ranks exchange. Counts are elements of one rank's share where a tensor is divided:
// all_gather: input `elements`, output ranks * elements; reduce_scatter: the reverse; all_to_all:
// both ranks * elements; otherwise both `elements`.
struct Exchange {
  CollectiveKind kind = CollectiveKind::all_reduce;
  ReduceOperation operation = ReduceOperation::sum;
  DType dtype = DType::fp32;
  Elements elements;
  int root = 0;                      // of reduce and broadcast
  const std::byte* input = nullptr;  // broadcast: of the root
  std::byte* output = nullptr;       // reduce: of the root
};

// A collective under way. Input and output stay untouched until wait() returns; who drops a
// Pending without waiting waits in the destructor.
class Pending {
 public:
  Pending() = default;
  // `wait` returns when the collective is done on this rank, or throws CollectiveError.
  explicit Pending(std::function<void()> wait) : wait_(std::move(wait)) {}
  Pending(Pending&& other) noexcept : wait_(std::exchange(other.wait_, nullptr)) {}
  Pending& operator=(Pending&& other) noexcept {
    std::swap(wait_, other.wait_);
    return *this;
  }
  ~Pending();

  void wait();
  bool done() const { return wait_ == nullptr; }

 private:
  std::function<void()> wait_;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // Begins a collective; returns before it is done. In-place forms: output may be input
  // (all_reduce, reduce, broadcast); all_gather's input may stand at its place in the output,
  // reduce_scatter's output at its place in the input.
  virtual Pending start(const Exchange& exchange) = 0;
  // This rank ends for that reason: all waits of all ranks throw CollectiveError with it. Needs no
  // memory: a rank that has none left must not leave the others waiting.
  virtual void fail(std::string_view reason) noexcept = 0;

  // Why the group has failed, where it has: for who waits for something else than a collective.
  virtual std::optional<std::string> failure() const { return std::nullopt; }

  // A group of some of these ranks, which are its ranks 0, 1, ... in the order of `members`:
  // ascending ranks of this group, this one among them. All ranks call it, in the same order among
  // their collectives, each with the members of its own part; parts of one call have no rank in
  // common. Who calls collectives of several groups calls them in an order that all ranks could
  // have: as if each were one of everybody's. What fails one of the groups fails the others. This
  // group outlives the part.
  virtual std::unique_ptr<Communicator> split(std::span<const int> members) = 0;

  void run(const Exchange& exchange) { start(exchange).wait(); }

  // The usual calls, each done when it returns.
  void all_reduce(float* data, Elements elements, ReduceOperation operation = ReduceOperation::sum);
  void all_reduce(double* data,
                  Elements elements,
                  ReduceOperation operation = ReduceOperation::sum);
  void barrier();
};

}  // namespace zeroplan::runtime
