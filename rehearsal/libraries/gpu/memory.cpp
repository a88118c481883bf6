#include "rehearsal/libraries/gpu/memory.hpp"

#include <algorithm>

#include <sys/mman.h>

#include "rehearsal/libraries/gpu/settings.hpp"

namespace zeroplan::gpu {
namespace {

constexpr std::size_t kPage = std::size_t{2} << 20;
constexpr std::size_t kSmall = std::size_t{1} << 20;
constexpr std::size_t kUnit = 512;

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::uintptr_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

}  // namespace

std::size_t taken_by(std::size_t bytes) { return round_up(bytes, bytes >= kSmall ? kPage : kUnit); }

void* map_address_space(std::size_t bytes) {
  const std::size_t length = round_up(bytes, kPage);
  // A page more, to find an aligned start in; what is over is given back.
  void* const made = mmap(nullptr,
                          length + kPage,
                          PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                          -1,
                          0);
  if (made == MAP_FAILED) return nullptr;
  const std::uintptr_t begin = number(made);
  const std::uintptr_t start = round_up(begin, kPage);
  if (start > begin) munmap(made, start - begin);
  const std::size_t behind = begin + kPage - start;
  char* const address = static_cast<char*>(made) + (start - begin);
  if (behind > 0) munmap(address + length, behind);
  // A small tensor must not cost 2 MiB of this machine.
  madvise(address, length, MADV_NOHUGEPAGE);
  return address;
}

void unmap_address_space(void* address, std::size_t bytes) {
  munmap(address, round_up(bytes, kPage));
}

Memory::Memory(std::size_t total, std::size_t context, int devices)
    : total_(total), context_(context), gpus_(static_cast<std::size_t>(std::max(devices, 1))) {}

Memory::~Memory() {
  for (const auto& [address, range] : ranges_) {
    if (range.ours) unmap_address_space(reinterpret_cast<void*>(address), range.bytes);
  }
}

bool Memory::take_locked(int device, std::size_t bytes) {
  GpuUse& gpu = gpus_.at(static_cast<std::size_t>(device));
  if (context_ + gpu.used + bytes > total_) {
    ++gpu.refused;
    return false;
  }
  ++gpu.allocations;
  gpu.used += bytes;
  gpu.peak = std::max(gpu.peak, gpu.used);
  return true;
}

void* Memory::keep(const Range& range) {
  void* const address = map_address_space(range.bytes);
  if (address != nullptr) ranges_[number(address)] = range;
  return address;
}

void* Memory::allocate(int device, std::size_t bytes) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (!take_locked(device, taken_by(bytes))) return nullptr;
  void* const address = keep({bytes, device, true, true});
  if (address == nullptr) gpus_[static_cast<std::size_t>(device)].used -= taken_by(bytes);
  return address;
}

bool Memory::forget(void* address, bool of_gpu) {
  const auto found = ranges_.find(number(address));
  if (found == ranges_.end() || (found->second.device >= 0) != of_gpu) return false;
  const Range range = found->second;
  ranges_.erase(found);
  if (range.counted) {
    GpuUse& gpu = gpus_[static_cast<std::size_t>(range.device)];
    gpu.used -= taken_by(range.bytes);
    ++gpu.frees;
  }
  if (range.ours) unmap_address_space(address, range.bytes);
  if (!of_gpu) pinned_.used -= range.bytes;
  return true;
}

bool Memory::free(void* address) {
  const std::lock_guard<std::mutex> guard(mutex_);
  return forget(address, true);
}

bool Memory::take(int device, std::size_t bytes) {
  const std::lock_guard<std::mutex> guard(mutex_);
  return take_locked(device, bytes);
}

void Memory::give_back(int device, std::size_t bytes) {
  const std::lock_guard<std::mutex> guard(mutex_);
  GpuUse& gpu = gpus_.at(static_cast<std::size_t>(device));
  gpu.used -= bytes;
  ++gpu.frees;
}

void* Memory::reserve_addresses(int device, std::size_t bytes) {
  const std::lock_guard<std::mutex> guard(mutex_);
  return keep({bytes, device, false, true});
}

bool Memory::release_addresses(void* address) {
  const std::lock_guard<std::mutex> guard(mutex_);
  return forget(address, true);
}

void Memory::count_pinned(std::size_t bytes) {
  pinned_.used += bytes;
  pinned_.peak = std::max(pinned_.peak, pinned_.used);
}

void* Memory::allocate_pinned(std::size_t bytes) {
  const std::lock_guard<std::mutex> guard(mutex_);
  void* const address = keep({bytes, -1, false, true});
  if (address != nullptr) count_pinned(bytes);
  return address;
}

bool Memory::free_pinned(void* address) {
  const std::lock_guard<std::mutex> guard(mutex_);
  return forget(address, false);
}

void Memory::pin(void* address, std::size_t bytes) {
  const std::lock_guard<std::mutex> guard(mutex_);
  ranges_[number(address)] = {bytes, -1, false, false};
  count_pinned(bytes);
}

bool Memory::unpin(void* address) { return free_pinned(address); }

void Memory::lock(std::size_t bytes) {
  const std::lock_guard<std::mutex> guard(mutex_);
  count_pinned(bytes);
}

void Memory::unlock(std::size_t bytes) {
  const std::lock_guard<std::mutex> guard(mutex_);
  pinned_.used -= std::min(bytes, pinned_.used);
}

Where Memory::where(const void* address) const {
  const std::lock_guard<std::mutex> guard(mutex_);
  auto found = ranges_.upper_bound(number(address));
  if (found == ranges_.begin()) return {};
  --found;
  if (number(address) >= found->first + found->second.bytes) return {};
  const int device = found->second.device;
  return {device >= 0 ? Place::gpu : Place::pinned, device};
}

std::size_t Memory::free_bytes(int device) const {
  const std::lock_guard<std::mutex> guard(mutex_);
  const std::size_t gone = context_ + gpus_.at(static_cast<std::size_t>(device)).used;
  return gone < total_ ? total_ - gone : 0;
}

GpuUse Memory::use(int device) const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return gpus_.at(static_cast<std::size_t>(device));
}

PinnedUse Memory::pinned() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  return pinned_;
}

Memory& memory() {
  // Never destroyed: threads of torch outlive static objects.
  static Memory* const made = new Memory(settings().memory, settings().context, settings().gpus);
  return *made;
}

}  // namespace zeroplan::gpu
