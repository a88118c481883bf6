// Which bytes of a device are whose: a caching allocator over segments that the driver gives,
// because asking the driver for every tensor costs more than most kernels. Best fit, neighbours
// join, nothing goes back to the driver before the driver has nothing left to give.
//
// Work outlives the call that ordered it, so a block that is released may still be read. All work
// is behind the compute queue, or told of by touch(); a block carries fences of the other queues
// that touched it, and who gets it next waits for them: on the device, not on the host. Blocks
// without open fences are handed out first.
//
// cudaMallocAsync would do the same for one stream, but nothing of it can be tested without a GPU,
// and what it does between streams is not for us to say. This is tested on the CPU
// (tests/runtime/arena_test.cpp), and by the guarded device that finds unordered accesses.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "model/implementations/embedded_memory.hpp"
#include "runtime/device/device.hpp"

namespace zeroplan::runtime {

class Arena {
 public:
  // Where segments come from and how queues are ordered.
  class Backend {
   public:
    virtual ~Backend() = default;
    virtual std::byte* take_segment(Bytes bytes) = 0;  // null: no more
    virtual void return_segment(std::byte* data, Bytes bytes) noexcept = 0;
    virtual Fence record(Queue queue) = 0;
    virtual bool passed(const Fence& fence) = 0;
    virtual void wait(Queue queue, const Fence& fence) = 0;
    // Nothing is left to be done on any queue.
    virtual void drain() = 0;
  };

  // Both must outlive the arena. segment: the least that is asked of the backend at once.
  explicit Arena(Backend& backend, Bytes segment = Bytes::of(kEmbeddedSegment))
      : backend_(backend), segment_(segment) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  // Returns all segments. Precondition: drained.
  ~Arena();

  // Multiples of 512. For work that is ordered on `queue` from now on; null where the backend has
  // no more.
  std::byte* allocate(Bytes bytes, Queue queue);
  void release(std::byte* data) noexcept;
  // Work on that queue uses the block in which `data` points; elsewhere: nothing.
  void touch(const std::byte* data, Queue queue);
  bool holds(const std::byte* data) const;
  // The same calls get the same addresses from now on, however far the queues are: nobody asks
  // whether a fence is passed. Blocks that other queues used are taken last until drained().
  void repeat_addresses() { repeats_ = true; }
  // All queues have nothing left to do.
  void drained();
  Bytes reserved() const { return reserved_; }

 private:
  struct Block {
    Bytes size;
    std::byte* segment = nullptr;
    bool free = false;
    unsigned queues = 0;        // that touched it, as bits; compute is not among them
    std::vector<Fence> fences;  // of a free block: what may still use it
  };
  using Blocks = std::map<std::byte*, Block>;

  bool is_open(Block& block);
  Blocks::iterator find_free(Bytes bytes);
  bool grow(Bytes bytes);
  void return_unused_segments();
  void put_free(Blocks::iterator at);
  void take_from_free(Blocks::iterator at) { free_.erase({at->second.size, at->first}); }

  Backend& backend_;
  Bytes segment_;
  bool repeats_ = false;
  Blocks blocks_;
  std::set<std::pair<Bytes, std::byte*>> free_;
  std::map<std::byte*, Bytes> segments_;
  Bytes reserved_;
};

}  // namespace zeroplan::runtime
