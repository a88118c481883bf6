#include "model/engine/fetch_swap.hpp"

#include <algorithm>

namespace zeroplan {

SwappedWeights::SwappedWeights(const std::vector<bool>& on_drive, int buffers) : buffers_(buffers) {
  if (std::find(on_drive.begin(), on_drive.end(), true) == on_drive.end()) return;
  for (const bool swapped : on_drive) places_.push_back(swapped ? Place::drive : Place::memory);
}

bool SwappedWeights::is_away(ParameterIndex parameter) const {
  return any() && places_[static_cast<std::size_t>(parameter)] == Place::drive;
}

// PP:_ensure_availability_of_partitioned_params: where something is read, synchronously, which
// waits for the reads under way too; else where something is under way, for that.
void SwappedWeights::ensure(std::span<const ParameterIndex> parameters, FetchLog& log) {
  if (!any()) return;
  missing_.clear();
  bool under_way = false;
  for (const ParameterIndex p : parameters) {
    if (is_away(p)) missing_.push_back(p);
    under_way = under_way || places_[static_cast<std::size_t>(p)] == Place::reading;
  }
  if (missing_.empty() && !under_way) return;
  use_.short_of = use_.short_of || static_cast<int>(missing_.size()) > free_buffers();
  if (!missing_.empty()) read(missing_, /*ahead=*/false, log);
  log.events.push_back({.kind = FetchEventKind::swap_wait});
  for (const ParameterIndex p : reading_) places_[static_cast<std::size_t>(p)] = Place::buffer;
  reading_.clear();
}

void SwappedWeights::read_ahead(std::span<const ParameterIndex> parameters, FetchLog& log) {
  missing_.clear();
  for (const ParameterIndex p : parameters) {
    const bool known = std::find(missing_.begin(), missing_.end(), p) != missing_.end();
    use_.twice = use_.twice || known;
    if (!known) missing_.push_back(p);
  }
  if (!missing_.empty()) read(missing_, /*ahead=*/true, log);
}

void SwappedWeights::read(std::span<const ParameterIndex> parameters, bool ahead, FetchLog& log) {
  const auto first = static_cast<std::int32_t>(log.parameters.size());
  for (const ParameterIndex p : parameters) {
    places_[static_cast<std::size_t>(p)] = Place::reading;
    reading_.push_back(p);
    log.parameters.push_back(p);
  }
  log.events.push_back({.kind = FetchEventKind::swap_in,
                        .asynchronous = ahead,
                        .first = first,
                        .count = static_cast<std::int32_t>(parameters.size())});
  held_ += static_cast<int>(parameters.size());
  use_.most = std::max(use_.most, held_);
}

void SwappedWeights::release(ParameterIndex parameter) {
  if (!any()) return;
  Place& place = places_[static_cast<std::size_t>(parameter)];
  if (place != Place::buffer) return;
  place = Place::drive;
  --held_;
}

}  // namespace zeroplan
