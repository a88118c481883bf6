#include "tests/cuda_emulation/emulator.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <vector>

#include "tests/cuda_emulation/fiber.hpp"

namespace zeroplan::runtime::cuda::emulation {
namespace {

constexpr std::size_t kGuard = 64;
constexpr auto kGuardByte = std::byte{0x5a};
constexpr auto kPoison = std::byte{0xff};  // NaN in fp32, bf16 and fp16
constexpr std::size_t kAlignment = 128;

enum class State { ready, at_barrier, at_warp, done };

struct Copy {
  std::byte* to;
  const std::byte* from;
  std::size_t bytes, given;
  std::int64_t group;
  Place place;
};

struct Thread {
  Fiber fiber;
  State state = State::done;
  Place place;
  std::vector<Copy> copies;  // ordered, not arrived
  std::int64_t groups = 0;   // committed
};

struct Warp {
  int arrived = 0;
  Resolve resolve = nullptr;
  Place place;
  void* lanes[32] = {};
};

std::string text(const Place& place) {
  return std::string(place.file) + ":" + std::to_string(place.line);
}

// Shared memory of one block, as large as asked for, and guard bytes.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes)
      : bytes_(bytes),
        data_(static_cast<std::byte*>(
            ::operator new (bytes + kGuard, std::align_val_t{kAlignment}))) {
    std::fill_n(data_, bytes, kPoison);
    std::fill_n(data_ + bytes, kGuard, kGuardByte);
  }
  ~SharedMemory() { ::operator delete (data_, std::align_val_t{kAlignment}); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }
  bool holds(const std::byte* at, std::size_t bytes) const {
    return at >= data_ && at + bytes <= data_ + bytes_;
  }
  bool whole() const {
    return std::all_of(
        data_ + bytes_, data_ + bytes_ + kGuard, [](std::byte b) { return b == kGuardByte; });
  }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

class Machine {
 public:
  Schedule schedule;

  void run(const Grid& grid, const std::function<void()>& body) {
    if (running_) throw Fault("a launch inside a kernel");
    body_ = &body;
    const std::int64_t blocks = std::int64_t{grid.grid.x} * grid.grid.y * grid.grid.z;
    std::vector<std::int64_t> order(static_cast<std::size_t>(blocks));
    std::iota(order.begin(), order.end(), 0);
    arrange(order);
    gridDim = grid.grid;
    blockDim = grid.block;
    const std::size_t threads = std::size_t{grid.block.x} * grid.block.y * grid.block.z;
    while (threads_.size() < threads) threads_.push_back(std::make_unique<Thread>());
    for (const std::int64_t block : order) {
      blockIdx.x = static_cast<unsigned>(block % grid.grid.x);
      blockIdx.y = static_cast<unsigned>(block / grid.grid.x % grid.grid.y);
      blockIdx.z = static_cast<unsigned>(block / grid.grid.x / grid.grid.y);
      run_block(threads, grid.shared_bytes);
    }
  }

  std::byte* shared() const { return shared_->data(); }

  void copy(const Copy& copy) {
    const auto at = reinterpret_cast<std::uintptr_t>(copy.to);
    if (at % copy.bytes != 0 || reinterpret_cast<std::uintptr_t>(copy.from) % copy.bytes != 0) {
      throw Fault("cp.async: an address that is no multiple of its bytes at " + text(copy.place));
    }
    if (!shared_->holds(copy.to, copy.bytes)) {
      throw Fault("cp.async past the block's shared memory at " + text(copy.place));
    }
    std::fill_n(copy.to, copy.bytes, kPoison);
    Thread& mine = *threads_[current_];
    mine.copies.push_back(copy);
    mine.copies.back().group = mine.groups;
  }
  void commit() { ++threads_[current_]->groups; }
  void arrive(int pending) {
    Thread& mine = *threads_[current_];
    const auto under_way = [&](const Copy& copy) { return copy.group >= mine.groups - pending; };
    for (const Copy& copy : mine.copies) {
      if (under_way(copy)) continue;
      std::fill_n(
          std::copy_n(copy.from, copy.given, copy.to), copy.bytes - copy.given, std::byte{0});
    }
    std::erase_if(mine.copies, [&](const Copy& copy) { return !under_way(copy); });
  }

  void wait(State state, Place place) {
    Thread& mine = *threads_[current_];
    mine.state = state;
    mine.place = place;
    leave();
  }

  void at_warp(void* brought, Resolve resolve, Place place) {
    Warp& warp = warps_[current_ / 32];
    if (warp.arrived == 0) {
      warp.resolve = resolve;
      warp.place = place;
    } else if (warp.resolve != resolve || warp.place.line != place.line ||
               std::strcmp(warp.place.file, place.file) != 0) {
      fail_apart(warp.place, place);
    }
    warp.lanes[current_ % 32] = brought;
    if (++warp.arrived < 32) return wait(State::at_warp, place);
    resolve(warp.lanes);
    warp.arrived = 0;
    const std::size_t first = current_ / 32 * 32;
    for (std::size_t i = first; i < first + 32; ++i) threads_[i]->state = State::ready;
  }

 private:
  void arrange(std::vector<std::int64_t>& order) {
    if (schedule.order == Schedule::Order::reversed) std::reverse(order.begin(), order.end());
    if (schedule.order != Schedule::Order::shuffled) return;
    for (std::size_t i = order.size(); i > 1; --i) {  // Fisher and Yates, by splitmix64
      schedule.seed += 0x9e3779b97f4a7c15U;
      std::uint64_t z = schedule.seed;
      z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
      z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
      std::swap(order[i - 1], order[(z ^ (z >> 31U)) % i]);
    }
  }

  void run_block(std::size_t threads, std::size_t shared_bytes) {
    const SharedMemory memory(shared_bytes);
    shared_ = &memory;
    warps_.assign((threads + 31) / 32, {});
    fault_.clear();
    running_ = true;
    for (std::size_t i = 0; i < threads; ++i) {
      threads_[i]->state = State::ready;
      threads_[i]->copies.clear();
      threads_[i]->groups = 0;
      threads_[i]->fiber.start([](void* machine) { static_cast<Machine*>(machine)->thread_main(); },
                               this);
    }
    std::vector<std::int64_t> order(threads);
    std::iota(order.begin(), order.end(), 0);
    if (schedule.order != Schedule::Order::shuffled) arrange(order);
    while (turn(order) && fault_.empty()) {
    }
    running_ = false;
    shared_ = nullptr;
    if (fault_.empty() && !memory.whole()) fault_ = "a block wrote past its shared memory";
    if (!fault_.empty()) throw Fault(fault_);
  }

  // Lets every thread that can go on do so; false when all have returned.
  bool turn(std::vector<std::int64_t>& order) {
    bool moved = false;
    if (schedule.order == Schedule::Order::shuffled) {
      arrange(order);
      moved = step(order.begin(), order.end());
    } else {
      for (auto warp = order.begin(); warp != order.end(); warp += 32) {
        while (step(warp, warp + 32)) moved = true;
      }
    }
    return moved || release_barrier(order.size());
  }

  using Turn = std::vector<std::int64_t>::const_iterator;
  bool step(Turn begin, Turn end) {
    bool moved = false;
    for (Turn i = begin; i != end && fault_.empty(); ++i) {
      if (threads_[static_cast<std::size_t>(*i)]->state != State::ready) continue;
      moved = true;
      enter(static_cast<std::size_t>(*i));
    }
    return moved;
  }

  bool release_barrier(std::size_t threads) {
    std::size_t done = 0;
    const Thread* waiting = nullptr;
    for (std::size_t i = 0; i < threads; ++i) {
      const Thread& thread = *threads_[i];
      if (thread.state == State::done) {
        ++done;
        continue;
      }
      if (thread.state == State::at_warp) {
        fault_ = "lanes wait for others of their warp at " + text(thread.place);
        return true;
      }
      if (waiting != nullptr && waiting->place.line != thread.place.line) {
        fault_ = "threads wait at different barriers: " + text(waiting->place) + " and " +
                 text(thread.place);
        return true;
      }
      waiting = &thread;
    }
    if (waiting == nullptr) return false;
    if (done != 0) {
      fault_ = "threads returned while others wait at " + text(waiting->place);
      return true;
    }
    for (std::size_t i = 0; i < threads; ++i) threads_[i]->state = State::ready;
    return true;
  }

  void enter(std::size_t thread) {
    current_ = thread;
    const auto at = static_cast<unsigned>(thread);
    threadIdx.x = at % blockDim.x;
    threadIdx.y = at / blockDim.x % blockDim.y;
    threadIdx.z = at / blockDim.x / blockDim.y;
    threads_[thread]->fiber.enter();
  }
  void leave() { threads_[current_]->fiber.leave(false); }

  // Nothing of this thread is destroyed, so nothing may be held here.
  [[noreturn]] void fail_apart(const Place& a, const Place& b) {
    fault_ = "lanes of one warp at different operations: " + text(a) + " and " + text(b);
    for (;;) leave();  // never entered again
  }

  [[noreturn]] void thread_main() {
    try {
      (*body_)();
      const std::vector<Copy>& left = threads_[current_]->copies;
      if (!left.empty()) {
        throw Fault("a thread returned before its copy arrived: " + text(left.front().place));
      }
    } catch (const std::exception& error) {
      fault_ = error.what();
    }
    threads_[current_]->state = State::done;
    for (;;) threads_[current_]->fiber.leave(true);
  }

  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Warp> warps_;
  const std::function<void()>* body_ = nullptr;
  const SharedMemory* shared_ = nullptr;
  std::size_t current_ = 0;
  bool running_ = false;
  std::string fault_;
};

Machine& machine() {
  static Machine instance;
  return instance;
}

}  // namespace

void set_schedule(Schedule schedule) { machine().schedule = schedule; }

void run_grid(const Grid& grid, const std::function<void()>& thread) {
  // Ranks as threads share the emulated GPU: one launch after the other.
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const std::uint64_t threads = std::uint64_t{grid.block.x} * grid.block.y * grid.block.z;
  if (threads == 0 || threads > 1024) throw Fault("a block has 1 to 1024 threads");
  if (threads % 32 != 0) throw Fault("a block that is not whole warps");
  if (grid.grid.x == 0 || grid.grid.y == 0 || grid.grid.z == 0) throw Fault("an empty grid");
  if (grid.grid.x > 0x7fffffffU || grid.grid.y > 65535 || grid.grid.z > 65535) {
    throw Fault("a grid is at most 2^31 - 1 x 65535 x 65535");
  }
  if (grid.shared_bytes > kSharedLimit) throw Fault("more shared memory than a block may have");
  machine().run(grid, thread);
}

std::byte* shared_memory() { return machine().shared(); }
void block_barrier(Place place) { machine().wait(State::at_barrier, place); }
void warp_operation(void* brought, Resolve resolve, Place place) {
  machine().at_warp(brought, resolve, place);
}
void copy_async(void* to, const void* from, std::size_t bytes, std::size_t given, Place place) {
  machine().copy(
      {static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, given, 0, place});
}
void commit_copies() { machine().commit(); }
void wait_copies(int pending) { machine().arrive(pending); }

}  // namespace zeroplan::runtime::cuda::emulation
