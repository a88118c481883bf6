// io_uring: each thread has a ring with up to queue_depth requests in flight.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <liburing.h>

#include "base/parallel_for.hpp"
#include "runtime/swap/block_io.hpp"

namespace zeroplan::runtime {
namespace {

constexpr int kDeepest = 4096;  // requests of one ring
constexpr int kMostRings = 16;  // of a file: each is a descriptor and a thread

bool knows_reads_and_writes(io_uring& ring) {
  io_uring_probe* probe = io_uring_get_probe_ring(&ring);
  if (probe == nullptr) return false;
  const bool knows = io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                     io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
  io_uring_free_probe(probe);
  return knows;
}

constexpr auto kPause = std::chrono::milliseconds(1);
constexpr auto kPatience = std::chrono::seconds(30);  // with a drive that does not answer

// One thread's ring. Slots hold the blocks in flight. Once it stands it needs no memory.
class Ring {
 public:
  explicit Ring(unsigned depth) : slots_(depth) {
    const int error = io_uring_queue_init(depth, &ring_, 0);
    open_ = error == 0;
    if (open_ && !knows_reads_and_writes(ring_)) {
      io_uring_queue_exit(&ring_);
      open_ = false;
    }
    for (std::size_t i = 0; i < slots_.size(); ++i) free_.push_back(i);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() { close(); }

  // The kernel goes on with what is in flight after that: only when nothing is.
  void close() {
    if (open_) io_uring_queue_exit(&ring_);
    open_ = false;
  }

  bool open() const { return open_; }
  std::size_t room() const { return free_.size(); }
  std::size_t in_flight() const { return slots_.size() - free_.size(); }

  void add(SwapBlock block) {
    const std::size_t slot = free_.back();
    free_.pop_back();
    slots_[slot] = std::move(block);
    prepare(slot);
  }
  // Hands what was prepared to the kernel; the errno where that fails for good.
  int submit() {
    for (;;) {
      const int submitted = io_uring_submit(&ring_);
      if (submitted >= 0) return 0;
      if (submitted == -EINTR) continue;
      if (submitted != -EAGAIN && submitted != -EBUSY) return -submitted;
      // The kernel is short of something: what it has first.
      if (in_flight() > io_uring_sq_ready(&ring_)) return 0;
      std::this_thread::sleep_for(kPause);
    }
  }
  // Waits for one completion at least and takes all there are: done(block, failure or null).
  template <typename Done>
  int reap(Done&& done) {
    io_uring_cqe* entry = nullptr;
    int error = io_uring_wait_cqe(&ring_, &entry);
    while (error == -EINTR) error = io_uring_wait_cqe(&ring_, &entry);
    if (error < 0) return -error;
    while (entry != nullptr) {
      std::int64_t result = 0;
      const std::size_t slot = take_entry(entry, result);
      // Nobody cancels here: the kernel has no worker for what it cannot do at once (a limit of
      // processes). Then it is done here.
      if (result == -ECANCELED) result = call_system(slots_[slot]);
      IoFailure failure;
      const BlockState state = progress(slots_[slot], result, failure);
      if (state == BlockState::again) {
        prepare(slot);
      } else {
        done(slots_[slot], state == BlockState::failed ? &failure : nullptr);
        give_back(slot);
      }
      if (io_uring_peek_cqe(&ring_, &entry) != 0) entry = nullptr;
    }
    return 0;
  }
  // Everything in flight ends with that error, when the kernel is done with its memory.
  template <typename Done>
  void give_up(int error, Done&& done) {
    std::size_t running =
        in_flight() - std::min<std::size_t>(in_flight(), io_uring_sq_ready(&ring_));
    const auto patience = std::chrono::steady_clock::now() + kPatience;
    while (running > 0 && std::chrono::steady_clock::now() < patience) {
      io_uring_cqe* entry = nullptr;
      if (io_uring_peek_cqe(&ring_, &entry) != 0 || entry == nullptr) {
        std::this_thread::sleep_for(kPause);
        continue;
      }
      io_uring_cqe_seen(&ring_, entry);
      --running;
    }
    close();
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      const SwapBlock& block = slots_[slot];
      if (!block.transfer) continue;
      const IoFailure failure{.error = error, .offset = block.offset, .bytes = block.bytes};
      done(block, &failure);
      give_back(slot);
    }
  }

 private:
  // There is room: free_ had all slots.
  void give_back(std::size_t slot) {
    slots_[slot].transfer.reset();
    free_.push_back(slot);
  }

  // The slot of a completion, and what the call gave.
  std::size_t take_entry(io_uring_cqe* entry, std::int64_t& result) {
    const auto* const block = static_cast<const SwapBlock*>(io_uring_cqe_get_data(entry));
    result = entry->res;
    io_uring_cqe_seen(&ring_, entry);
    return static_cast<std::size_t>(block - slots_.data());
  }

  void prepare(std::size_t slot) {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);  // as many entries as slots: never null
    SwapBlock& block = slots_[slot];
    const auto offset = static_cast<__u64>(block.offset);
    const auto size = static_cast<unsigned>(block.bytes);
    if (block.transfer->write) {
      io_uring_prep_write(entry, block.descriptor, block.data, size, offset);
    } else {
      io_uring_prep_read(entry, block.descriptor, block.data, size, offset);
    }
    io_uring_sqe_set_data(entry, &block);
  }

  io_uring ring_{};
  bool open_ = false;
  std::vector<SwapBlock> slots_;  // without a transfer where they are free
  std::vector<std::size_t> free_;
};

class UringIo : public BlockIo {
 public:
  UringIo(BlockQueue& queue, const IoOptions& options) : queue_(queue), options_(options) {
    const int depth = std::clamp(options.queue_depth, 1, kDeepest);
    for (int i = 0; i < std::min(options.threads, kMostRings); ++i) {
      rings_.push_back(std::make_unique<Ring>(static_cast<unsigned>(depth)));
      if (rings_.back()->open()) continue;
      rings_.pop_back();
      break;
    }
    if (rings_.empty()) return;
    const std::size_t started =
        threads_.start(rings_.size(), [this](std::size_t i) { work(*rings_[i]); });
    if (started == 0) no_thread();
    rings_.resize(started);
  }

  bool open() const { return !rings_.empty(); }

 private:
  void work(Ring& ring) {
    const auto done = [this](const SwapBlock& block, const IoFailure* failure) {
      queue_.finish(block, failure != nullptr ? std::optional<IoFailure>(*failure) : std::nullopt);
    };
    for (;;) {
      const bool idle = ring.in_flight() == 0;
      int error = 0;
      while (ring.room() > 0 && (idle || options_.overlap_events)) {
        std::optional<SwapBlock> block = queue_.take(ring.in_flight() == 0);
        if (!block) break;
        ring.add(std::move(*block));
        if (options_.single_submit && error == 0) error = ring.submit();
      }
      if (ring.in_flight() == 0) return;      // closed
      if (error == 0) error = ring.submit();  // what goes on, too
      if (error == 0) error = ring.reap(done);
      if (error != 0) {
        ring.give_up(error, done);
        return refuse(error);
      }
    }
  }
  // The ring is broken: what comes fails.
  void refuse(int error) {
    while (const std::optional<SwapBlock> block = queue_.take(true)) {
      queue_.finish(*block,
                    IoFailure{.error = error, .offset = block->offset, .bytes = block->bytes});
    }
  }

  BlockQueue& queue_;
  IoOptions options_;
  std::vector<std::unique_ptr<Ring>> rings_;
  Threads threads_;
};

}  // namespace

std::unique_ptr<BlockIo> uring_io(BlockQueue& queue, const IoOptions& options) {
  auto io = std::make_unique<UringIo>(queue, options);
  if (!io->open()) return nullptr;
  return io;
}

}  // namespace zeroplan::runtime
