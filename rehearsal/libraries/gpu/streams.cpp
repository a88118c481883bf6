#include "rehearsal/libraries/gpu/streams.hpp"

#include <algorithm>

namespace zeroplan::gpu {

std::size_t Streams::create(int priority) {
  const std::lock_guard<std::mutex> guard(mutex_);
  streams_.push_back({priority, 0});
  return streams_.size() - 1;
}

int Streams::priority(std::size_t stream) const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return streams_.at(stream).priority;
}

void Streams::enqueue(std::size_t stream) {
  const std::lock_guard<std::mutex> guard(mutex_);
  streams_.at(stream).last = ++enqueued_;
}

void Streams::record(Event& event) {
  const std::lock_guard<std::mutex> guard(mutex_);
  event.after = ++enqueued_;
  event.recorded = std::chrono::steady_clock::now();
}

bool Streams::has_ended_at(std::uint64_t number) const {
  return ending_ == Ending::done || number <= ended_;
}

bool Streams::has_ended(const Event& event) const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return has_ended_at(event.after);
}

bool Streams::has_ended(std::size_t stream) const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return has_ended_at(streams_.at(stream).last);
}

void Streams::synchronize(const Event& event) {
  const std::lock_guard<std::mutex> guard(mutex_);
  ended_ = std::max(ended_, event.after);
}

void Streams::synchronize(std::size_t) { synchronize(); }

void Streams::synchronize() {
  const std::lock_guard<std::mutex> guard(mutex_);
  ended_ = enqueued_;
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

}  // namespace zeroplan::gpu
