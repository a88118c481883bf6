#include "runtime/engine/parameter_swapper.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace zeroplan::runtime {

ParameterSwapper::ParameterSwapper(SwapFile& file,
                                   Device& device,
                                   Timeline* timeline,
                                   const Pool& pool)
    : file_(file),
      device_(device),
      timeline_(timeline),
      pool_(pool),
      writing_(file, timeline, /*write=*/true) {
  for (int buffer = pool_.buffers; buffer-- > 0;) free_.push_back(buffer);
}

// Whole pages where there is room for them: past the page cache to the end.
Bytes ParameterSwapper::whole(Bytes bytes, Bytes room) const {
  return std::min(Bytes::of(round_up(bytes.count(), kSwapPage)), room);
}

void ParameterSwapper::add(std::int32_t parameter, Bytes bytes) {
  ZP_CHECK(bytes <= pool_.buffer, "a partition fits into a buffer");
  places_[parameter] = {file_.reserve(bytes), bytes};
}

std::byte* ParameterSwapper::borrow(std::int32_t parameter) {
  ZP_CHECK(!free_.empty(), "a buffer is free before the first use");
  device_.zero(data(free_.back()), whole(places_.at(parameter).bytes, pool_.buffer));
  return data(free_.back());
}

void ParameterSwapper::write_now(std::int32_t parameter) {
  device_.synchronize();
  const Place& place = places_.at(parameter);
  SwapBatch batch(file_, timeline_, /*write=*/true);
  batch.write(place.offset, data(free_.back()), whole(place.bytes, pool_.buffer));
  batch.wait();
}

// --- reads

void ParameterSwapper::want(std::span<const std::int32_t> parameters) {
  wanted_.insert(wanted_.end(), parameters.begin(), parameters.end());
  read_what_fits();
}

void ParameterSwapper::read_what_fits() {
  // Buffers that the device may still read are waited for only where nothing else is there.
  if (free_.empty() && reading_.empty() && !dropped_.empty()) reclaim();
  while (!wanted_.empty() && !free_.empty()) {
    const std::int32_t parameter = wanted_.front();
    wanted_.pop_front();
    read(parameter);
  }
}

void ParameterSwapper::reclaim() {
  device_.synchronize();
  free_.insert(free_.end(), dropped_.begin(), dropped_.end());
  dropped_.clear();
}

// Precondition: a buffer is free.
void ParameterSwapper::read(std::int32_t parameter) {
  Read read{parameter, free_.back(), SwapBatch(file_, timeline_, /*write=*/false)};
  free_.pop_back();
  const Place& place = places_.at(parameter);
  read.batch.read(place.offset, data(read.buffer), whole(place.bytes, pool_.buffer));
  reading_.push_back(std::move(read));
}

std::vector<ParameterSwapper::Read>::iterator ParameterSwapper::find(std::int32_t parameter) {
  return std::find_if(reading_.begin(), reading_.end(), [&](const Read& read) {
    return read.parameter == parameter;
  });
}

const std::byte* ParameterSwapper::bring(std::int32_t parameter) {
  if (find(parameter) == reading_.end()) {
    // It waits for a buffer, or nobody said that it is wanted: it goes first.
    const auto waiting = std::find(wanted_.begin(), wanted_.end(), parameter);
    if (waiting != wanted_.end()) wanted_.erase(waiting);
    if (free_.empty() && !dropped_.empty()) reclaim();
    if (free_.empty()) give_up_last();
    read(parameter);
  }
  const auto found = find(parameter);
  found->batch.wait();
  return data(found->buffer);
}

// What was read ahead last is read again when its turn comes.
void ParameterSwapper::give_up_last() {
  ZP_CHECK(!reading_.empty(), "a pool has a buffer");
  Read& last = reading_.back();
  last.batch.wait();
  wanted_.push_front(last.parameter);
  free_.push_back(last.buffer);
  reading_.pop_back();
}

void ParameterSwapper::drop(std::int32_t parameter) {
  const auto found = find(parameter);
  ZP_CHECK(found != reading_.end(), "what is dropped was brought");
  dropped_.push_back(found->buffer);
  reading_.erase(found);
  read_what_fits();
}

void ParameterSwapper::forget() {
  wanted_.clear();
  for (Read& read : reading_) {
    read.batch.wait();
    free_.push_back(read.buffer);
  }
  reading_.clear();
}

// --- writes

std::byte* ParameterSwapper::stage(std::int32_t parameter) {
  const Bytes bytes = places_.at(parameter).bytes;
  const auto taken = [](Bytes of) { return Bytes::of(round_up(of.count(), kSwapSector)); };
  if (staged_bytes_ + bytes > pool_.staging_bytes) {
    write();
    finish();
  }
  ZP_CHECK(bytes <= pool_.staging_bytes, "a partition fits into the staging buffer");
  staged_.push_back(parameter);
  staged_data_.push_back(pool_.staging + staged_bytes_.count());
  staged_bytes_ = std::min(staged_bytes_ + taken(bytes), pool_.staging_bytes);
  return staged_data_.back();
}

void ParameterSwapper::write() {
  if (staged_.empty()) return;
  device_.synchronize();
  for (std::size_t i = 0; i < staged_.size(); ++i) {
    const Place& place = places_.at(staged_[i]);
    writing_.write(place.offset, staged_data_[i], place.bytes);
  }
  staged_.clear();
  staged_data_.clear();
}

void ParameterSwapper::finish() {
  writing_.wait();
  if (staged_.empty()) staged_bytes_ = Bytes::zero();
}

}  // namespace zeroplan::runtime
