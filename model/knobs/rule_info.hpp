// A row of the table of rules: what lint checks, what it costs to ignore it, what to do instead.
//
// Every text a rule can say stands in its row, with {0}, {1}, ... for what differs from file to
// file, so that texts can be listed (docs/lint.md) and translated by code.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.hpp"
#include "model/knobs/finding.hpp"

namespace zeroplan {

// What must be known besides the file before a rule can be judged, as bits.
struct Needs {
  std::uint8_t bits = 0;
  constexpr bool contains(Needs other) const { return (bits & other.bits) == other.bits; }
  friend constexpr Needs operator|(Needs a, Needs b) {
    return {static_cast<std::uint8_t>(a.bits | b.bits)};
  }
};
inline constexpr Needs kNeedsNothing{0};
inline constexpr Needs kNeedsRanks{1 << 0};     // the number of GPUs and the degrees
inline constexpr Needs kNeedsCluster{1 << 1};   // which GPUs
inline constexpr Needs kNeedsModel{1 << 2};     // which model
inline constexpr Needs kNeedsWorkload{1 << 3};  // what the training script was told
inline constexpr Needs kNeedsPlan{1 << 4};      // a prediction: model and cluster, and both planned
inline constexpr Needs kNeedsTask{1 << 5};      // training, evaluation or prediction
inline constexpr Needs kNeedsLauncher{1 << 6};  // what starts the processes
inline constexpr Needs kNeedsRelease{1 << 7};   // the release of DeepSpeed, said

// `start`: DeepSpeed refuses the file, or does not do what it says; every command reports it.
// `advice`: it runs, at a cost; only lint says so.
enum class RuleUse { start, advice };

// A short list that lives inside a constexpr row.
template <typename T, std::size_t Capacity>
class ShortList {
 public:
  constexpr ShortList() = default;
  constexpr ShortList(std::initializer_list<T> items) {
    ZP_CHECK(items.size() <= Capacity, "a row of the table of rules has too many entries");
    for (const T& item : items) items_[size_++] = item;
  }
  constexpr const T* begin() const { return items_.data(); }
  constexpr const T* end() const { return items_.data() + size_; }
  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }

 private:
  std::array<T, Capacity> items_{};
  std::size_t size_ = 0;
};

struct RuleText {
  std::string_view message;
  std::string_view fix{};
};

struct RuleInfo {
  std::string_view code;
  Severity severity = Severity::warning;  // of its findings, where the run does not make it milder
  RuleUse use = RuleUse::start;
  Needs needs = kNeedsNothing;
  std::string_view summary;  // what should hold
  std::string_view cost;     // what the user pays when it does not
  ShortList<RuleText, 8> texts{};
  std::string_view source;  // file under deepspeed/ and symbol, or the issue that met it
};

// `format` with {0}, {1}, ... replaced; other braces stay.
Phrase filled(std::string_view format, const std::vector<Phrase>& arguments);

// What `info` says at `pointer` with the text of that number.
Finding finding_of(const RuleInfo& info,
                   std::string_view pointer,
                   std::vector<Phrase> arguments,
                   int text,
                   Severity severity);

}  // namespace zeroplan
