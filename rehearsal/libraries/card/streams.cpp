#include "rehearsal/libraries/card/streams.hpp"

#include <algorithm>

namespace zeroplan::card {
namespace {

std::uint64_t at(const Positions& positions, std::size_t stream) {
  return stream < positions.size() ? positions[stream] : 0;
}

// Element by element the later of the two.
void raise(Positions& positions, const Positions& to) {
  if (positions.size() < to.size()) positions.resize(to.size());
  for (std::size_t i = 0; i < to.size(); ++i) positions[i] = std::max(positions[i], to[i]);
}

}  // namespace

Streams::Streams(Ending ending) : ending_(ending), streams_(1) {}

std::size_t Streams::create(int priority) {
  const std::lock_guard guard(mutex_);
  streams_.push_back({priority, {}});
  return streams_.size() - 1;
}

int Streams::priority(std::size_t stream) const {
  const std::lock_guard guard(mutex_);
  return streams_.at(stream).priority;
}

void Streams::enqueue(std::size_t stream) {
  if (ending_ == Ending::done) return;  // nothing will be asked of it
  const std::lock_guard guard(mutex_);
  Positions& after = streams_.at(stream).after;
  if (after.size() <= stream) after.resize(stream + 1);
  ++after[stream];
}

void Streams::record(Event& event, std::size_t stream) {
  const std::lock_guard guard(mutex_);
  event.after = streams_.at(stream).after;
  event.recorded = std::chrono::steady_clock::now();
}

void Streams::wait(std::size_t stream, const Event& event) {
  const std::lock_guard guard(mutex_);
  raise(streams_.at(stream).after, event.after);
}

bool Streams::has_ended_locked(const Positions& after) const {
  if (ending_ == Ending::done) return true;
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (after[i] > at(ended_, i)) return false;
  }
  return true;
}

bool Streams::has_ended(const Event& event) const {
  const std::lock_guard guard(mutex_);
  return has_ended_locked(event.after);
}

bool Streams::has_ended(std::size_t stream) const {
  const std::lock_guard guard(mutex_);
  return has_ended_locked(streams_.at(stream).after);
}

void Streams::end(const Positions& after) { raise(ended_, after); }

void Streams::synchronize(const Event& event) {
  const std::lock_guard guard(mutex_);
  end(event.after);
}

void Streams::synchronize(std::size_t stream) {
  const std::lock_guard guard(mutex_);
  end(streams_.at(stream).after);
}

void Streams::synchronize() {
  const std::lock_guard guard(mutex_);
  for (const Stream& stream : streams_) end(stream.after);
}

float milliseconds_between(const Event& first, const Event& second) {
  constexpr float kLeast = 0.001F;
  const std::chrono::duration<float, std::milli> between = second.recorded - first.recorded;
  return std::max(between.count(), kLeast);
}

Streams& streams() {
  static Streams* const made = new Streams(settings().ending);
  return *made;
}

}  // namespace zeroplan::card
