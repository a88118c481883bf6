// The nine categories of memory of docs/contract.md section 4, and the phases of a run. They tag
// every byte: of the closed forms, of the simulator's allocations, and of the embedded runtime's.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "base/enum_names.hpp"
#include "base/units.hpp"

namespace zeroplan {

enum class MemoryCategory {
  parameters,             // 16-bit (or fp32) weights, gathered and persistent ones included
  gradients,              // owned and not yet reduced gradients
  optimizer_states,       // fp32 master weights, moments
  activations,            // saved for backward, and what flows between operations
  logits,                 // logits, their upcast and their gradients
  communication_buffers,  // reduce buckets, gather buffers
  temporaries,            // workspaces, fp32 gradient copies of the step
  cuda_context,           // context, NCCL and libraries outside torch
  fragmentation,          // reserved by the allocator and not allocated
};

inline constexpr std::size_t kMemoryCategoryCount = 9;

inline constexpr std::array<std::string_view, kMemoryCategoryCount> kMemoryCategoryNames = {
    "parameters",
    "gradients",
    "optimizer_states",
    "activations",
    "logits",
    "communication_buffers",
    "temporaries",
    "cuda_context",
    "fragmentation"};

constexpr std::string_view name(MemoryCategory category) {
  return kMemoryCategoryNames[static_cast<std::size_t>(category)];
}

// Where in a run a peak stands.
enum class Phase { load, init, forward, backward, step, save };
inline constexpr std::size_t kPhaseCount = 6;
inline constexpr EnumNames<Phase, kPhaseCount> kPhaseNames{
    {"load", "init", "forward", "backward", "step", "save"}};

using CategoryBytes = std::array<Bytes, kMemoryCategoryCount>;

constexpr Bytes& at(CategoryBytes& bytes, MemoryCategory category) {
  return bytes[static_cast<std::size_t>(category)];
}
constexpr Bytes at(const CategoryBytes& bytes, MemoryCategory category) {
  return bytes[static_cast<std::size_t>(category)];
}
inline Bytes sum(const CategoryBytes& bytes) {
  Bytes total;
  for (const Bytes part : bytes) total += part;
  return total;
}

}  // namespace zeroplan
