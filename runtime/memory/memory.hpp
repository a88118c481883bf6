// The embedded runtime's one allocator: every byte of a rank, on every place, with its category.
//
// Flow: allocate() gives a Buffer, which takes its bytes back when it dies; the account is what
// `run` and `verify` report beside the plan's prediction. Bytes are counted as taken: in multiples
// of 512, as PyTorch's allocator counts on a GPU, so that a prediction of either means the same.
// Capacities make running out of memory testable and let a CPU rank behave like a GPU.
//
// A Memory belongs to one rank and is used by that rank's thread alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "base/enum_names.hpp"
#include "base/units.hpp"
#include "model/memory_category.hpp"
#include "runtime/device/device.hpp"

namespace zeroplan::runtime {

// device: the rank's GPU; on CPU ranks the memory that stands for it. pinned and pageable: the
// host's, of offloaded state. file: space on a drive.
enum class Place { device, pinned, pageable, file };
inline constexpr std::size_t kPlaceCount = 4;
inline constexpr EnumNames<Place, kPlaceCount> kPlaceNames{
    {"device", "pinned host", "pageable host", "file"}};

// What one place held.
struct PlaceAccount {
  CategoryBytes now{};
  Bytes total;  // sum of now
  Bytes asked;  // the same allocations before rounding
  CategoryBytes peak_of_category{};
  Bytes peak;
  Phase peak_phase = Phase::load;
  CategoryBytes at_peak{};  // sums to peak
  std::array<Bytes, kPhaseCount> phase_peak{};
  std::array<CategoryBytes, kPhaseCount> at_phase_peak{};  // each sums to phase_peak
};

struct MemoryAccount {
  std::array<PlaceAccount, kPlaceCount> places{};
  std::int64_t allocations = 0;

  const PlaceAccount& of(Place place) const { return places[static_cast<std::size_t>(place)]; }
};

class OutOfMemory : public std::runtime_error {
 public:
  OutOfMemory(const std::string& message, Bytes asked, MemoryCategory category, Place place)
      : std::runtime_error(message), asked_(asked), category_(category), place_(place) {}
  Bytes asked() const { return asked_; }
  MemoryCategory category() const { return category_; }
  Place place() const { return place_; }

 private:
  Bytes asked_;
  MemoryCategory category_;
  Place place_;
};

class Memory;

// Owns one allocation; movable. An empty one holds nothing.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer taken(std::move(other));
    swap(taken);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { reset(); }

  void reset() noexcept;
  explicit operator bool() const { return memory_ != nullptr; }
  std::byte* data() const { return data_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  Bytes asked() const { return asked_; }
  Bytes taken() const { return taken_; }
  MemoryCategory category() const { return category_; }
  Place place() const { return place_; }

 private:
  friend class Memory;
  void swap(Buffer& other) noexcept;

  Memory* memory_ = nullptr;
  std::byte* data_ = nullptr;
  Bytes asked_;
  Bytes taken_;
  MemoryCategory category_ = MemoryCategory::temporaries;
  Place place_ = Place::device;
};

struct MemoryLimits {
  // By Place; infinite: as much as the machine gives.
  std::array<Bytes, kPlaceCount> capacity = {
      Bytes::infinite(), Bytes::infinite(), Bytes::infinite(), Bytes::infinite()};
  Bytes predicted_peak;  // of the device, for the message when it runs out; zero: unknown
  int rank = 0;
};

class Memory {
 public:
  // device: whose memory it is, and must outlive the Memory; none: the host's, for every place.
  explicit Memory(const MemoryLimits& limits = {}, Device* device = nullptr)
      : limits_(limits), device_(device) {}
  // Buffers hold its address. Every Buffer must die first.
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();

  // Aligned to 512 bytes, contents undefined. `what` says who asks, for messages. Zero bytes give
  // a Buffer without data that counts nothing. On Place::file it is an account of what a swap file
  // (runtime/swap) holds, without data. Throws OutOfMemory.
  Buffer allocate(Bytes bytes, MemoryCategory category, Place place, std::string_view what);
  Buffer allocate_zeroed(Bytes bytes, MemoryCategory category, Place place, std::string_view what);
  // Tells what a Buffer is from now on: a gradient's storage that becomes the engine's.
  void recategorise(Buffer& buffer, MemoryCategory category);

  // What is alive counts for the phase that begins.
  void begin(Phase phase);
  const MemoryAccount& account() const { return account_; }
  // Is told of what the device holds whenever that changes; may be empty.
  void observe(std::function<void(const CategoryBytes&)> observer) {
    observer_ = std::move(observer);
  }

 private:
  friend class Buffer;
  void tell(Place place) const;
  std::byte* take(Bytes bytes, Place place);
  void release(Buffer& buffer) noexcept;
  void note(Place place);
  [[noreturn]] void out_of_memory(Bytes bytes,
                                  MemoryCategory category,
                                  Place place,
                                  std::string_view what,
                                  bool by_machine) const;

  MemoryLimits limits_;
  Device* device_ = nullptr;
  MemoryAccount account_;
  std::function<void(const CategoryBytes&)> observer_;
  Phase phase_ = Phase::load;
  std::int64_t alive_ = 0;
};

// What an allocation of `bytes` takes.
constexpr Bytes taken_bytes(Bytes bytes) {
  constexpr std::int64_t kGranularity = 512;
  return Bytes::of(round_up(bytes.count(), kGranularity));
}

}  // namespace zeroplan::runtime
