// 128 bits that stand for a sequence of words: equal sequences have equal fingerprints, different
// ones by chance once in 2^128.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace zeroplan {

struct Fingerprint {
  std::uint64_t high = 0x9e3779b97f4a7c15ULL;
  std::uint64_t low = 0xd1b54a32d192ed03ULL;

  void add(std::uint64_t word) {
    high = mix(high ^ word);
    low = mix(std::rotl(low, 23) + word);
  }
  void add_text(std::string_view text) {
    for (const char c : text) add(static_cast<unsigned char>(c));
  }
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;

 private:
  // A bijection that spreads every bit (the finaliser of Stafford's "Mix13", as in SplitMix64).
  static constexpr std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }
};

}  // namespace zeroplan
