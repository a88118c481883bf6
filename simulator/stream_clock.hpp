// How far every CUDA stream has come, as the allocators need to know it.
//
// A stream runs its work in order. Each piece of work queued on it gets a ticket, an integer that
// never falls along the stream: a sequence number, or a time where times are known ahead. An event
// recorded on the stream stands for the ticket of the last work queued; it is complete when the
// stream has completed that ticket. The event loop keeps one clock a stream and passes all of them
// to each call, so that the allocators hold no time of their own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace zeroplan::simulator {

// Streams are numbered from 0, the default stream, densely.
using StreamId = std::int32_t;
inline constexpr StreamId kMaxStreams = 64;

struct StreamClock {
  std::int64_t queued = 0;     // ticket of the last work queued
  std::int64_t completed = 0;  // every ticket up to this one is complete
  std::int64_t awaited = 0;    // up to here counts as complete: the host waited for later work
};

// By stream. A stream past the end has never had work: its events are complete when recorded.
using StreamClocks = std::span<const StreamClock>;

constexpr std::int64_t queued(StreamClocks clocks, StreamId stream) {
  const auto i = static_cast<std::size_t>(stream);
  return i < clocks.size() ? clocks[i].queued : 0;
}

constexpr bool is_complete(StreamClocks clocks, StreamId stream, std::int64_t ticket) {
  const auto i = static_cast<std::size_t>(stream);
  return i < clocks.size() ? std::max(clocks[i].completed, clocks[i].awaited) >= ticket
                           : ticket <= 0;
}

}  // namespace zeroplan::simulator
