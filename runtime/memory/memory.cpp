#include "runtime/memory/memory.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "base/check.hpp"

namespace zeroplan::runtime {
namespace {

constexpr std::size_t kAlignment = 512;

std::string in_units(Bytes bytes) {
  constexpr std::int64_t kMebibyte = 1 << 20;
  if (bytes.count() < kMebibyte) return fmt::format("{} bytes", bytes.count());
  if (bytes.count() < 1024 * kMebibyte) {
    return fmt::format("{:.1f} MiB", static_cast<double>(bytes.count()) / kMebibyte);
  }
  return fmt::format("{:.2f} GiB", bytes.gib());
}

}  // namespace

void Buffer::swap(Buffer& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(data_, other.data_);
  std::swap(asked_, other.asked_);
  std::swap(taken_, other.taken_);
  std::swap(category_, other.category_);
  std::swap(place_, other.place_);
}

void Buffer::reset() noexcept {
  if (memory_ != nullptr) memory_->release(*this);
  memory_ = nullptr;
  data_ = nullptr;
  asked_ = taken_ = Bytes::zero();
}

Memory::~Memory() {
  // A destructor does not throw: a Buffer that outlives its Memory would write into freed memory.
  if (alive_ != 0) std::fprintf(stderr, "zeroplan: memory ends before its buffers\n");
}

// The device's and pinned memory come from the device, pageable memory from the host.
std::byte* Memory::take(Bytes bytes, Place place) {
  if (device_ != nullptr && place == Place::device) return device_->allocate(bytes);
  if (device_ != nullptr && place == Place::pinned) return device_->allocate_pinned(bytes);
  const auto size = static_cast<std::size_t>(bytes.count());
  return static_cast<std::byte*>(std::aligned_alloc(kAlignment, size));
}

Buffer Memory::allocate(Bytes bytes, MemoryCategory category, Place place, std::string_view what) {
  ZP_CHECK(bytes >= Bytes::zero() && !bytes.is_infinite(), "an allocation has a size");
  Buffer buffer;
  if (bytes == Bytes::zero()) return buffer;
  PlaceAccount& account = account_.places[static_cast<std::size_t>(place)];
  const Bytes taken = taken_bytes(bytes);
  if (account.total + taken > limits_.capacity[static_cast<std::size_t>(place)]) {
    out_of_memory(bytes, category, place, what, /*by_machine=*/false);
  }
  std::byte* data = place == Place::file ? nullptr : take(taken, place);
  if (data == nullptr && place != Place::file) {
    out_of_memory(bytes, category, place, what, /*by_machine=*/true);
  }
  buffer.memory_ = this;
  buffer.data_ = data;
  buffer.asked_ = bytes;
  buffer.taken_ = taken;
  buffer.category_ = category;
  buffer.place_ = place;
  at(account.now, category) += taken;
  account.total += taken;
  account.asked += bytes;
  ++alive_;
  ++account_.allocations;
  note(place);
  tell(place);
  return buffer;
}

Buffer Memory::allocate_zeroed(Bytes bytes,
                               MemoryCategory category,
                               Place place,
                               std::string_view what) {
  Buffer buffer = allocate(bytes, category, place, what);
  if (buffer.data() == nullptr) return buffer;
  if (device_ != nullptr) {
    device_->zero(buffer.data(), bytes);
  } else {
    std::memset(buffer.data(), 0, static_cast<std::size_t>(bytes.count()));
  }
  return buffer;
}

void Memory::recategorise(Buffer& buffer, MemoryCategory category) {
  if (!buffer || buffer.category_ == category) return;
  ZP_CHECK(buffer.memory_ == this, "the buffer is another rank's");
  PlaceAccount& account = account_.places[static_cast<std::size_t>(buffer.place_)];
  at(account.now, buffer.category_) -= buffer.taken_;
  at(account.now, category) += buffer.taken_;
  buffer.category_ = category;
  Bytes& peak = at(account.peak_of_category, category);
  peak = std::max(peak, at(account.now, category));
}

void Memory::release(Buffer& buffer) noexcept {
  PlaceAccount& account = account_.places[static_cast<std::size_t>(buffer.place_)];
  at(account.now, buffer.category_) -= buffer.taken_;
  account.total -= buffer.taken_;
  account.asked -= buffer.asked_;
  --alive_;
  if (device_ != nullptr && buffer.place_ == Place::device) {
    device_->release(buffer.data_, buffer.taken_);
  } else if (device_ != nullptr && buffer.place_ == Place::pinned) {
    device_->release_pinned(buffer.data_, buffer.taken_);
  } else {
    std::free(buffer.data_);
  }
  try {
    tell(buffer.place_);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "zeroplan: no memory to record what the buffers hold\n");
  }
}

void Memory::tell(Place place) const {
  if (observer_ && place == Place::device) observer_(account_.of(place).now);
}

void Memory::note(Place place) {
  PlaceAccount& account = account_.places[static_cast<std::size_t>(place)];
  for (std::size_t c = 0; c < kMemoryCategoryCount; ++c) {
    account.peak_of_category[c] = std::max(account.peak_of_category[c], account.now[c]);
  }
  if (account.total > account.peak) {
    account.peak = account.total;
    account.peak_phase = phase_;
    account.at_peak = account.now;
  }
  const auto phase = static_cast<std::size_t>(phase_);
  if (account.total > account.phase_peak[phase]) {
    account.phase_peak[phase] = account.total;
    account.at_phase_peak[phase] = account.now;
  }
}

void Memory::begin(Phase phase) {
  phase_ = phase;
  for (std::size_t place = 0; place < kPlaceCount; ++place) note(static_cast<Place>(place));
}

void Memory::out_of_memory(Bytes bytes,
                           MemoryCategory category,
                           Place place,
                           std::string_view what,
                           bool by_machine) const {
  const PlaceAccount& account = account_.of(place);
  const Bytes capacity = limits_.capacity[static_cast<std::size_t>(place)];
  std::string text = fmt::format("rank {}: out of {} memory in phase {}: {} asked for {} ({})",
                                 limits_.rank,
                                 name(kPlaceNames, place),
                                 name(kPhaseNames, phase_),
                                 what,
                                 in_units(bytes),
                                 name(category));
  text += by_machine
              ? fmt::format("; {} in use, and the machine gives no more", in_units(account.total))
              : fmt::format("; {} of {} in use", in_units(account.total), in_units(capacity));
  if (limits_.predicted_peak > Bytes::zero()) {
    text += fmt::format("; the plan predicted a peak of {}", in_units(limits_.predicted_peak));
  }
  throw OutOfMemory(text, bytes, category, place);
}

}  // namespace zeroplan::runtime
