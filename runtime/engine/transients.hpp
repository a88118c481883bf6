// Device memory of the flush or the optimizer's group at hand: flat copies and casts.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/memory/memory.hpp"

namespace zeroplan::runtime {

class Transients {
 public:
  // `memory` must outlive it.
  explicit Transients(Memory& memory) : memory_(memory) {}

  // Until clear(), or one of the others names it.
  std::byte* make(Bytes bytes, MemoryCategory category) {
    made_.push_back(memory_.allocate(bytes, category, Place::device, "a bucket's copy"));
    return made_.back().data();
  }
  void clear() { made_.clear(); }
  void keep_last() { made_.erase(made_.begin(), made_.end() - 1); }
  // `count` of those before the last.
  void drop_before_last(int count) { made_.erase(made_.end() - 1 - count, made_.end() - 1); }

 private:
  Memory& memory_;
  std::vector<Buffer> made_;
};

}  // namespace zeroplan::runtime
