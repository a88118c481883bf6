// Histories that the replica itself has made are played again, as those of PyTorch are
// (docs/rehearsal.md has what recordings of real runs gave); and what is no such history is said.
#include "evidence/allocator_replay.hpp"

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "simulator/pickle.hpp"
#include "tests/catch.hpp"

namespace zeroplan {
namespace {

struct Run {
  std::vector<simulator::AllocatorEvent> history;
  std::vector<simulator::SegmentSnapshot> segments;
};

// Tensors of all sizes on four streams, freed in any order; now and then the cache is emptied.
Run random_run(unsigned seed, bool oldest_segment_first = false) {
  std::mt19937 random(seed);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(n));
  };
  Run run;
  simulator::AllocatorOptions options;
  options.oldest_segment_first = oldest_segment_first;
  simulator::CachingAllocator allocator(options);
  allocator.record_events(&run.history);
  std::vector<simulator::BlockId> live;
  for (int i = 0; i < 600; ++i) {
    if (below(100) == 0) allocator.empty_cache({});
    if (!live.empty() && below(5) < 2) {
      const auto victim = live.begin() + below(std::ssize(live));
      allocator.free(*victim, {});
      live.erase(victim);
      continue;
    }
    const Bytes size = Bytes::of(std::int64_t{1} << below(28)) + Bytes::of(below(100'000));
    live.push_back(
        allocator.allocate({.size = size, .stream = static_cast<simulator::StreamId>(below(4))}, {})
            .block);
  }
  allocator.record_events(nullptr);
  run.segments = allocator.snapshot();
  return run;
}

const char* name_of(simulator::AllocatorAction action) {
  switch (action) {
    case simulator::AllocatorAction::alloc:
      return "alloc";
    case simulator::AllocatorAction::free_requested:
      return "free_requested";
    case simulator::AllocatorAction::free_completed:
      return "free_completed";
    case simulator::AllocatorAction::segment_alloc:
      return "segment_alloc";
    case simulator::AllocatorAction::segment_free:
      return "segment_free";
    case simulator::AllocatorAction::segment_map:
      return "segment_map";
    case simulator::AllocatorAction::segment_unmap:
      return "segment_unmap";
    case simulator::AllocatorAction::oom:
      return "oom";
  }
  return "";
}

std::string pickle_of(const Run& run) {
  simulator::PickleWriter out;
  out.begin_dict();
  out.text("segments");
  out.begin_list();
  for (const simulator::SegmentSnapshot& segment : run.segments) {
    out.begin_dict();
    out.entry("device", 0);
    out.entry("address", segment.address);
    out.entry("total_size", segment.total_size.count());
    out.text("blocks");
    out.begin_list();
    for (const simulator::BlockSnapshot& block : segment.blocks) {
      out.begin_dict();
      out.entry("size", block.size.count());
      out.entry("state",
                block.state == simulator::BlockState::free ? "inactive" : "active_allocated");
      out.end_dict();
    }
    out.end_list();
    out.end_dict();
  }
  out.end_list();
  out.text("device_traces");
  out.begin_list();
  out.begin_list();
  for (const simulator::AllocatorEvent& event : run.history) {
    out.begin_dict();
    out.entry("action", name_of(event.action));
    out.entry("addr", event.address);
    out.entry("size", event.size.count());
    out.entry("stream", event.stream);
    out.end_dict();
  }
  out.end_list();
  out.end_list();
  out.end_dict();
  return out.finish();
}

evidence::AllocatorReplay replay_of(const Run& run) {
  const std::vector<evidence::AllocatorReplay> replays =
      evidence::replay_allocator(pickle_of(run), "x.pickle");
  REQUIRE(replays.size() == 1);
  return replays.front();
}

std::string refusal_of(const Run& run) {
  try {
    evidence::replay_allocator(pickle_of(run), "x.pickle");
  } catch (const InputError& error) {
    return error.diagnostics().front().got;
  }
  return "";
}

std::size_t position_of(const Run& run, simulator::AllocatorAction action, std::size_t from = 0) {
  while (run.history.at(from).action != action) ++from;
  return from;
}

}  // namespace

TEST_CASE("a history of the allocator is played again to the byte") {
  const bool oldest_segment_first = GENERATE(false, true);
  const Run run = random_run(GENERATE(range(1U, 20U)), oldest_segment_first);
  const evidence::AllocatorReplay replay = replay_of(run);
  CHECK(replay.difference == "");
  if (oldest_segment_first) CHECK(replay.oldest_segment_first);
  CHECK(replay.allocations > 300);
  Bytes reserved;
  for (const simulator::SegmentSnapshot& segment : run.segments) reserved += segment.total_size;
  CHECK(replay.reserved == reserved);
  CHECK(replay.peak_reserved >= reserved);
  CHECK(replay.segments >= std::ssize(run.segments));
}

TEST_CASE("a replay finds out which of equal blocks that torch takes") {
  const bool oldest_segment_first = GENERATE(false, true);
  simulator::AllocatorOptions options;
  options.oldest_segment_first = oldest_segment_first;
  simulator::CachingAllocator allocator(options);
  Run run;
  allocator.record_events(&run.history);
  std::vector<simulator::BlockId> blocks;
  for (int i = 0; i < 2; ++i)
    blocks.push_back(allocator.allocate({.size = Bytes::mib(30)}, {}).block);
  for (const simulator::BlockId block : blocks) allocator.free(block, {});
  allocator.allocate({.size = Bytes::mib(30)}, {});
  allocator.record_events(nullptr);
  run.segments = allocator.snapshot();
  const evidence::AllocatorReplay replay = replay_of(run);
  CHECK(replay.difference == "");
  CHECK(replay.oldest_segment_first == oldest_segment_first);
}

TEST_CASE("the first thing that an allocator of another kind has done differently is named") {
  const Run run = random_run(7);
  Run other = run;
  // The block is not the one that fits best.
  const std::size_t alloc = position_of(other, simulator::AllocatorAction::alloc, 100);
  other.history[alloc].address += 512;
  CHECK(replay_of(other).difference.find("event " + std::to_string(alloc) + " (") == 0);
  // The device was asked for more than the allocator asks for.
  other = run;
  const std::size_t taken = position_of(other, simulator::AllocatorAction::segment_alloc);
  other.history[taken].size += Bytes::mib(2);
  other.segments.front().total_size += Bytes::mib(2);
  CHECK(replay_of(other).difference.find("bytes reserved") != std::string::npos);
  // A block is as large as two.
  other = run;
  for (simulator::SegmentSnapshot& segment : other.segments) {
    if (segment.blocks.size() < 2) continue;
    segment.blocks[1].size += segment.blocks[0].size;
    segment.blocks.erase(segment.blocks.begin());
    break;
  }
  CHECK(replay_of(other).difference.find("the end: expected the segment at") == 0);
  // A tensor dies twice.
  other = run;
  const std::size_t freed = position_of(other, simulator::AllocatorAction::free_completed);
  other.history.insert(other.history.begin() + static_cast<std::ptrdiff_t>(freed),
                       other.history[freed]);
  CHECK(replay_of(other).difference.find("a free of what is allocated") != std::string::npos);
  // Two segments at one address.
  other = run;
  const std::size_t second =
      position_of(other, simulator::AllocatorAction::segment_alloc, taken + 1);
  other.history[second].address = other.history[taken].address;
  CHECK(replay_of(other).difference.find("memory that is not taken") != std::string::npos);
}

TEST_CASE("a history that is not whole is refused") {
  Run late = random_run(3);
  late.history.erase(
      late.history.begin(),
      late.history.begin() + static_cast<std::ptrdiff_t>(
                                 position_of(late, simulator::AllocatorAction::segment_alloc) + 1));
  CHECK(refusal_of(late).find("a history of device 0 that does not explain") == 0);
  Run expanded = random_run(3);
  expanded.history.front().action = simulator::AllocatorAction::segment_map;
  CHECK(refusal_of(expanded) == "segments that expand");
  CHECK(refusal_of({{}, random_run(3).segments}) == "none");
}

}  // namespace zeroplan
