// Whether a release does something: how code asks the table of releases (releases.hpp), which it
// does instead of comparing version numbers.
//
// Small on purpose: what carries releases (EngineConfig, GraphOptions, a plan's Software) includes
// this header, and a new row of the table rebuilds only who asks for it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "model/software.hpp"

namespace zeroplan {

enum class ReleaseRule : std::uint8_t;  // releases.hpp lists them

enum class Package : std::uint8_t { deepspeed, torch, transformers, trl, accelerate };

// A set of rules that are taken as if the release were on their other side. Empty in every plan of
// a user; `fit --compare-versions` switches one rule at a time to see which of them matters.
class RuleSwitches {
 public:
  static constexpr std::size_t kMost = 256;

  void flip(ReleaseRule rule) { word(rule) ^= bit(rule); }
  bool contains(ReleaseRule rule) const {
    return (words_[static_cast<std::size_t>(rule) / kBits] & bit(rule)) != 0;
  }
  friend bool operator==(const RuleSwitches&, const RuleSwitches&) = default;

 private:
  static constexpr std::size_t kBits = 64;
  static std::uint64_t bit(ReleaseRule rule) {
    return std::uint64_t{1} << (static_cast<std::size_t>(rule) % kBits);
  }
  std::uint64_t& word(ReleaseRule rule) { return words_[static_cast<std::size_t>(rule) / kBits]; }

  std::array<std::uint64_t, kMost / kBits> words_{};
};

// Whether a release of the rule's own package does it.
bool acts(ReleaseRule rule, const Version& release);

// The same where rules may be switched. `package` is whose release it is: asking DeepSpeed's number
// about a rule of torch is a mistake of the code.
bool acts(ReleaseRule rule, Package package, const Version& release, const RuleSwitches& switched);

}  // namespace zeroplan
