// FNV-1a of 64 bits (Fowler, Noll and Vo; the constants are theirs): numbers that are the same in
// every process and on every machine.
#pragma once

#include <cstdint>
#include <string_view>

namespace zeroplan::runtime {

class Fnv1a {
 public:
  // As one step, whatever it holds: a byte as the definition has it, or a word.
  void add(std::uint64_t word) { value_ = (value_ ^ word) * 0x100000001b3U; }
  void add_text(std::string_view text) {
    for (const char c : text) add(static_cast<unsigned char>(c));
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

}  // namespace zeroplan::runtime
