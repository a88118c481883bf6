#include "rehearsal/libraries/gpu/collectives.hpp"

#include <cstdint>
#include <cstring>

#include "rehearsal/libraries/gpu/memory.hpp"
#include "rehearsal/libraries/gpu/record.hpp"

namespace zeroplan::gpu {
namespace {

template <typename Number>
void multiply(void* first, std::size_t count, int factor) {
  for (std::size_t i = 0; i < count; ++i) {
    Number value;
    char* const at = static_cast<char*>(first) + i * sizeof value;
    std::memcpy(&value, at, sizeof value);
    value *= static_cast<Number>(factor);
    std::memcpy(at, &value, sizeof value);
  }
}

}  // namespace

void begin_collective(void*) {}

void end_collective(const CollectiveCall& call, void* stream) {
  enqueue(Work::collective,
          stream,
          "%s %zu %d %d",
          call.name,
          call.bytes,
          call.ranks,
          call.joins ? 1 : 0);
}

bool carries(std::size_t bytes) { return bytes <= kMostCopied; }

void carry(void* to, const void* from, std::size_t bytes, void*) { copy_values(to, from, bytes); }

void multiply_whole_numbers(void* at, std::size_t count, std::size_t width, int factor, void*) {
  if (at == nullptr || !carries(count * width)) return;
  if (width == sizeof(std::int32_t)) multiply<std::int32_t>(at, count, factor);
  if (width == sizeof(std::int64_t)) multiply<std::int64_t>(at, count, factor);
}

void* allocate_on_gpu(std::size_t bytes) { return memory().allocate(current_device(), bytes); }
void free_on_gpu(void* address) { memory().free(address); }

}  // namespace zeroplan::gpu
