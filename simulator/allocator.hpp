// A replica of PyTorch's CUDA caching allocator (the `native` backend) for one GPU: which block a
// tensor gets, what that makes allocated and reserved, when cached memory is given back, and where
// the allocator runs out of memory.
//
// It runs inside the event loop: every call is made at the moment the host makes it and reads, from
// the stream clocks, which work the GPU has finished by then. It holds no clock and starts nothing.
// A value type: a copy is an independent allocator in the same state. Deterministic: addresses are
// invented, and only their order has an influence: of equal blocks the lowest is taken. Each new
// segment lies below all former ones (but for place_next_segment), as Linux maps them for the
// driver: torch.cuda.memory_snapshot() of an RTX 3090 with CUDA 11.8 has a segment of 20 MiB and,
// made later, one of 1 GiB that ends where the former begins.
//
// Cost: tens of nanoseconds a call, no heap allocation once the arena has grown to its size.
// Units: Bytes. Errors: ZP_CHECK for misuse (a stream outside 0..63, freeing what is not
// allocated); running out of memory is an outcome. Left out: CUDA graphs' private pools, other
// allocator backends. What cudaMalloc and cudaFree cost is the event loop's to count.
// Source: c10/cuda/CUDACachingAllocator.cpp, DeviceCachingAllocator; symbols stand with each rule.
// Checked by tests/simulator/allocator_*_test.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/fingerprint.hpp"
#include "simulator/allocator_options.hpp"
#include "simulator/allocator_stats.hpp"
#include "simulator/free_list.hpp"
#include "simulator/stream_clock.hpp"

namespace zeroplan::simulator {

// A handle of an allocated block, from allocate() until free(). Handles are reused.
using BlockId = std::int32_t;
inline constexpr BlockId kNoBlock = -1;

struct AllocationRequest {
  Bytes size;             // of the tensor; 0 allocates nothing and gives kNoBlock
  StreamId stream = 0;    // current when the tensor is made
  std::uint64_t tag = 0;  // the caller's name of the tensor: in snapshots and canonical states
};

enum class AllocationOutcome : std::uint8_t {
  allocated,
  // The device is full, and blocks wait for events: PyTorch makes the host wait for all of them
  // before it gives cached memory back. Let the host wait until events_complete(), then call
  // continue_allocation(); nothing else in between.
  must_synchronize,
  out_of_memory,
};

struct Allocation {
  BlockId block = kNoBlock;
  AllocationOutcome outcome = AllocationOutcome::allocated;
};

enum class BlockState : std::uint8_t { allocated, awaiting_events, free };

struct BlockSnapshot {
  std::int64_t address = 0;
  Bytes size;
  Bytes requested;  // zero unless allocated or awaiting events
  BlockState state = BlockState::free;
  std::uint64_t tag = 0;
};

// What torch.cuda.memory_snapshot() shows of a segment; of an expandable one, each contiguous
// mapped range is a segment.
struct SegmentSnapshot {
  std::int64_t address = 0;
  Bytes total_size;
  StreamId stream = 0;
  bool is_large = false;
  bool is_expandable = false;
  std::vector<BlockSnapshot> blocks;  // by address
};

// The entries of PyTorch's memory history (TraceEntry::Action).
enum class AllocatorAction : std::uint8_t {
  alloc,
  free_requested,
  free_completed,
  segment_alloc,
  segment_free,
  segment_map,
  segment_unmap,
  oom,  // address: free memory of the device
};

struct AllocatorEvent {
  AllocatorAction action = AllocatorAction::alloc;
  StreamId stream = 0;
  std::int64_t address = 0;
  Bytes size;  // as requested for alloc and free
  std::uint64_t tag = 0;
};

// A block's part in a canonical state: the same for two tensors that the future treats alike.
using CanonicalLabel = std::function<std::uint64_t(BlockId block)>;

class CachingAllocator {
 public:
  explicit CachingAllocator(const AllocatorOptions& options = {});

  // A block for a tensor. Source: malloc.
  Allocation allocate(const AllocationRequest& request, StreamClocks clocks);
  // Goes on where allocate() answered must_synchronize. All events must be complete.
  Allocation continue_allocation(StreamClocks clocks);

  // The tensor is used on another stream as well; its block will be free when that stream has done
  // what was queued on it at the free. Source: recordStream.
  void record_stream(BlockId block, StreamId stream);

  // The tensor dies; its clocks' `queued` is what its uses on other streams wait for.
  // Source: free.
  void free(BlockId block, StreamClocks clocks);

  // torch.cuda.empty_cache(): all events, then all cached segments nobody uses. False where events
  // are incomplete: nothing has happened, let the host wait and call again. Source: emptyCache.
  bool empty_cache(StreamClocks clocks);

  // Whether no freed block waits for work that is not complete.
  bool events_complete(StreamClocks clocks) const;
  // The ticket of a stream that the newest event on it waits for; 0 where none waits.
  std::int64_t awaited(StreamId stream) const;

  // torch.cuda.memory._set_allocator_settings: existing expandable segments stay, and are not used
  // while it is off.
  void set_expandable_segments(bool on) { options_.expandable_segments = on; }
  // Where the device puts the next segment, where that is known: of a recording.
  void place_next_segment(std::int64_t address) { placed_ = address; }
  // What the process can have of the device changes, as when NCCL allocates its buffers.
  void set_available(Bytes available) { options_.available = available; }

  const AllocatorOptions& options() const { return options_; }
  const MemoryStats& stats() const { return stats_; }
  void reset_peaks() { stats_.reset_peaks(); }
  void repeat(const MemoryStats& from, const MemoryStats& to, std::int64_t times) {
    stats_.repeat(from, to, times);
  }
  void reset_accumulated() { stats_.reset_accumulated(); }
  // Of the last allocation that ran out of memory.
  const OutOfMemory& out_of_memory() const { return out_of_memory_; }

  Bytes size(BlockId block) const;  // what allocated_bytes counts for it
  std::int64_t address(BlockId block) const;
  std::uint64_t tag(BlockId block) const;

  // Segments by address. Source: snapshot.
  std::vector<SegmentSnapshot> snapshot() const;

  // From now on every event is appended to `events`, which must outlive its use; null stops it.
  void record_events(std::vector<AllocatorEvent>* events) { events_out_ = events; }

  // The state as words: two allocators with equal words (and equal options) behave alike under the
  // same calls, whatever their addresses, handles and history were. Live tensors appear by their
  // label (null: their tag), waiting events by how far their ticket lies behind the newest work of
  // their stream.
  std::vector<std::uint64_t> canonical_state(StreamClocks clocks,
                                             const CanonicalLabel& label = nullptr) const;
  Fingerprint fingerprint(StreamClocks clocks, const CanonicalLabel& label = nullptr) const;

  // Throws std::logic_error where the structure contradicts itself; for tests.
  void check_invariants() const;

 private:
  static constexpr std::int32_t kNone = -1;
  static constexpr std::int64_t kLastAddress = std::int64_t{0x7f} << 40;
  enum class State : std::uint8_t { unused, allocated, awaiting_events, free, unmapped };

  struct Block {
    std::int64_t address = 0;
    std::int64_t shift = 0;  // from its address to its place among free blocks of its size
    std::int64_t size = 0;
    std::int64_t requested = 0;
    std::uint64_t stream_uses = 0;  // a bit a stream
    std::uint64_t tag = 0;
    std::int64_t gc_base = 0;   // look-ups of the pool when it became free
    std::int32_t prev = kNone;  // neighbours within the segment, by address
    std::int32_t next = kNone;
    std::int32_t reservation = kNone;  // of an expandable segment
    std::int16_t stream = 0;
    std::uint8_t events = 0;  // outstanding
    bool is_small = false;
    State state = State::unused;
  };

  // The address space of an expandable segment. Source: ExpandableSegment.
  struct Reservation {
    std::int64_t base = 0;
    std::int64_t size = 0;
    std::int64_t page = 0;
  };

  struct Event {
    std::int64_t ticket = 0;
    BlockId block = kNoBlock;
  };

  // First in, first out; keeps its storage.
  struct EventQueue {
    std::vector<Event> events;
    std::size_t head = 0;
    bool empty() const { return head == events.size(); }
    void push(Event event);
    void pop();
  };

  // A request on its way. Source: AllocParams.
  struct Search {
    std::int64_t requested = 0;
    std::int64_t rounded = 0;
    std::int64_t segment = 0;
    std::uint64_t tag = 0;
    StreamId stream = 0;
    bool is_small = false;
  };

  // allocator.cpp
  BlockId take_cached_block(const Search& search);
  Allocation grow(const Search& search, StreamClocks clocks);
  Allocation grow_arena(Search search);
  Allocation flush_and_retry(const Search& search);
  Allocation finish(const Search& search, BlockId block);
  bool should_split(const Block& block, std::int64_t rounded) const;
  void insert_events(BlockId id, StreamClocks clocks);
  void process_events(StreamClocks clocks);
  void complete_event(BlockId block);
  void make_free(BlockId id);
  std::int64_t merge(BlockId into, BlockId neighbour);

  // allocator_device.cpp
  BlockId allocate_from_device(const Search& search);
  BlockId allocate_expandable(const Search& search);
  BlockId find_expandable(const Search& search);
  bool map(BlockId id, std::int64_t size);
  void unmap(BlockId id);
  void collect_garbage();
  bool release_oversize(const Search& search);
  void release_cached();
  void release_pool(bool is_small);
  void release_segment(BlockId id);

  // allocator_blocks.cpp
  BlockId new_block();
  void drop_block(BlockId id);
  void link_after(BlockId after, BlockId id);
  void link_between(BlockId before, BlockId id, BlockId after);
  void insert_free(BlockId id);
  void erase_free(const Block& block);
  void insert_unmapped(BlockId id);
  void erase_unmapped(BlockId id);
  std::int32_t new_reservation(const Reservation& reservation);
  void drop_reservation(BlockId id);
  bool is_whole_segment(BlockId id) const;
  void grow_to_stream(StreamId stream);
  void use_stream(StreamId stream) {
    if (static_cast<std::size_t>(stream) >= event_queues_.size()) grow_to_stream(stream);
  }
  static std::size_t list_of(StreamId stream, bool is_small) {
    return 2 * static_cast<std::size_t>(stream) + (is_small ? 1 : 0);
  }
  static std::size_t list_of(const Block& block) { return list_of(block.stream, block.is_small); }
  std::array<PoolStats*, 2> stats_of(bool is_small);
  void record(AllocatorAction action, const Block& block, std::int64_t size) {
    if (events_out_ != nullptr) record_now(action, block, size);
  }
  void record_now(AllocatorAction action, const Block& block, std::int64_t size);
  const Block& live(BlockId id) const;
  void place(Block& block, std::int64_t size);
  static std::int64_t place_in_order(const Block& block) { return block.address + block.shift; }
  std::vector<BlockId> segment_heads() const;  // in the order in which equal blocks are taken
  void check_block(BlockId id, bool follows_same_state) const;

  AllocatorOptions options_;
  std::int64_t max_split_ = 0;
  std::int64_t reserved_ = 0;
  std::int64_t lowest_address_ = kLastAddress;
  std::optional<std::int64_t> placed_;  // of the next segment
  std::int64_t segment_bytes_ = 0;      // of all segments so far, with oldest_segment_first

  std::vector<Block> blocks_;
  BlockId unused_ = kNoBlock;                   // list of unused blocks, through `next`
  std::vector<FreeList> free_lists_;            // two a stream
  std::vector<std::vector<BlockId>> unmapped_;  // two a stream, by address
  std::vector<Reservation> reservations_;
  std::vector<EventQueue> event_queues_;  // a stream
  std::uint64_t streams_with_events_ = 0;
  std::array<std::int64_t, 2>
      look_ups_{};  // of the large and the small pool; for garbage collection

  bool has_search_ = false;
  Search search_;  // of the allocation that waits for events
  MemoryStats stats_;
  OutOfMemory out_of_memory_;
  std::vector<AllocatorEvent>* events_out_ = nullptr;
};

}  // namespace zeroplan::simulator
