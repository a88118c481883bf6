#include "simulator/allocator_options.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "base/diagnostic.hpp"

namespace zeroplan::simulator {

namespace {

constexpr Version kRoundUpByInterval{2, 0};  // roundup_power2_divisions takes a list
constexpr Version kExpandableSegments{2, 1};
constexpr Version kSplitSizeMayBe20{2, 9};      // before: more than 20
constexpr Version kMaxNonSplitRounding{2, 6};   // before: the constant kLargeBuffer
constexpr Version kEitherCaseOfBooleans{2, 9};  // before: True and False alone

// The options of all releases that have no influence on sizes.
constexpr std::string_view kWithoutInfluence[] = {"release_lock_on_cudamalloc",
                                                  "release_lock_on_hipmalloc",
                                                  "pinned_use_cuda_host_register",
                                                  "pinned_use_hip_host_register",
                                                  "pinned_num_register_threads",
                                                  "pinned_use_background_threads",
                                                  "pinned_reserve_segment_size_mb",
                                                  "pinned_max_round_threshold_mb",
                                                  "pinned_max_cached_size_mb",
                                                  "graph_capture_record_stream_reuse"};

constexpr std::string_view kWithInfluence[] = {"max_split_size_mb",
                                               "max_non_split_rounding_mb",
                                               "garbage_collection_threshold",
                                               "roundup_power2_divisions",
                                               "roundup_bypass_threshold_mb",
                                               "expandable_segments",
                                               "large_segment_size_mb",
                                               "per_process_memory_fraction",
                                               "backend"};

std::size_t interval_of(std::int64_t mebibytes) {
  const int log2 = std::bit_width(static_cast<std::uint64_t>(mebibytes)) - 1;
  return static_cast<std::size_t>(std::clamp(log2, 0, static_cast<int>(kRoundUpIntervals) - 1));
}

bool is_power_of_two(std::int64_t n) {
  return n > 0 && std::has_single_bit(static_cast<std::uint64_t>(n));
}

class ConfParser {
 public:
  ConfParser(std::string_view text,
             std::string_view source,
             const Version& torch,
             AllocatorOptions options)
      : text_(text), source_(source), torch_(torch), options_(options) {
    split();
  }

  AllocatorOptions parse() {
    while (at_ < tokens_.size()) {
      const std::string key = tokens_[at_++];
      expect(":");
      option(key);
      if (at_ < tokens_.size()) expect(",");
    }
    return options_;
  }

 private:
  // Tokens are the four separators and what stands between them; blanks do not count.
  // Source: lexArgs.
  void split() {
    bool open = false;
    for (const char c : text_) {
      if (c == ' ') continue;
      const bool separates = c == ',' || c == ':' || c == '[' || c == ']';
      if (separates || !open) tokens_.emplace_back();
      tokens_.back() += c;
      open = !separates;
    }
  }

  [[noreturn]] void refuse(std::string pointer,
                           Phrase expected,
                           Phrase got,
                           Phrase hint = "") const {
    throw InputError(Diagnostic{std::string(source_),
                                std::move(pointer),
                                std::move(expected),
                                std::move(got),
                                std::move(hint)});
  }

  std::string token() const { return at_ < tokens_.size() ? in_quotes(tokens_[at_]) : "the end"; }

  void expect(std::string_view separator) {
    if (at_ >= tokens_.size() || tokens_[at_] != separator) {
      refuse("allocator settings", in_quotes(separator), token());
    }
    ++at_;
  }

  std::int64_t integer(const std::string& key, std::int64_t least) {
    std::int64_t value = 0;
    if (at_ < tokens_.size()) {
      const std::string& word = tokens_[at_];
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
      if (error == std::errc{} && end == word.data() + word.size() && value >= least) {
        ++at_;
        return value;
      }
    }
    refuse(key, phrase("an integer of at least {}", least), token());
  }

  Bytes mebibytes(const std::string& key, std::int64_t least) {
    return Bytes::mib(std::min<std::int64_t>(integer(key, least), std::int64_t{1} << 40));
  }

  bool boolean(const std::string& key) {
    const std::string word = at_ < tokens_.size() ? tokens_[at_] : "";
    const bool lower = torch_ >= kEitherCaseOfBooleans;
    const bool yes = word == "True" || (lower && word == "true");
    if (!yes && word != "False" && !(lower && word == "false")) {
      refuse(key, "True or False", token());
    }
    ++at_;
    return yes;
  }

  double fraction(const std::string& key) {
    double value = 0.0;
    if (at_ < tokens_.size()) {
      const std::string& word = tokens_[at_];
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
      if (error == std::errc{} && end == word.data() + word.size() && value > 0.0 && value < 1.0) {
        ++at_;
        return value;
      }
    }
    refuse(key, "a number between 0 and 1", token());
  }

  void since(const std::string& key, const Version& first) const {
    if (torch_ < first) {
      refuse(key,
             phrase("an option of torch {}", to_string(torch_)),
             phrase("one that torch has since {}", to_string(first)));
    }
  }

  void option(const std::string& key) {
    // Source: parseMaxSplitSize, > kLargeBuffer until the configuration moved to c10/core.
    const std::int64_t least = torch_ < kSplitSizeMayBe20 ? 21 : 20;
    if (key == "max_split_size_mb") {
      options_.max_split_size = mebibytes(key, least);
    } else if (key == "max_non_split_rounding_mb") {
      since(key, kMaxNonSplitRounding);
      options_.max_non_split_rounding = mebibytes(key, least);
    } else if (key == "large_segment_size_mb") {
      options_.large_segment_size = mebibytes(key, 20);
    } else if (key == "garbage_collection_threshold") {
      options_.garbage_collection_threshold = fraction(key);
    } else if (key == "per_process_memory_fraction") {
      options_.allowed = fraction_of(options_.device_total, fraction(key));
    } else if (key == "expandable_segments") {
      since(key, kExpandableSegments);
      options_.expandable_segments = boolean(key);
    } else if (key == "roundup_bypass_threshold_mb") {
      if (torch_ >= kRoundUpByInterval) refuse(key, "an option of torch 2", "one of torch 1.13");
      options_.roundup_bypass_threshold = mebibytes(key, 1);
    } else if (key == "roundup_power2_divisions") {
      divisions(key);
    } else if (key == "backend") {
      if (token() != "\"native\"") {
        refuse(key, "native", token(), "other allocators are not described");
      }
      ++at_;
    } else {
      without_influence(key);
    }
  }

  void without_influence(const std::string& key) {
    if (std::find(std::begin(kWithoutInfluence), std::end(kWithoutInfluence), key) ==
        std::end(kWithoutInfluence)) {
      refuse(key, "an allocator option", in_quotes(key), did_you_mean(key, kWithInfluence));
    }
    if (at_ >= tokens_.size()) refuse(key, "a value", "the end");
    ++at_;
  }

  std::int64_t divisor(const std::string& key, bool zero_allowed) {
    const Phrase got = token();
    const std::int64_t value = integer(key, 0);
    if (!is_power_of_two(value) && !(zero_allowed && value == 0)) {
      refuse(key, "a power of two", got);
    }
    return value;
  }

  // "4" for all sizes, or "[256:1,512:2,>:4]": sizes in MiB, each the start of an interval of its
  // own; the first also stands for everything below it, ">" for everything from the last on.
  // Source: parseRoundUpPower2Divisions.
  void divisions(const std::string& key) {
    auto& all = options_.roundup_power2_divisions;
    if (at_ >= tokens_.size() || tokens_[at_] != "[") {
      all.fill(divisor(key, false));
      return;
    }
    since(key, kRoundUpByInterval);
    ++at_;
    bool first = true;
    std::size_t last = 0;
    while (at_ < tokens_.size() && tokens_[at_] != "]") {
      const bool rest = tokens_[at_] == ">";
      if (rest) ++at_;
      const std::size_t interval = rest ? last : interval_of(divisor(key, false));
      expect(":");
      const std::int64_t value = divisor(key, true);
      if (rest) {
        std::fill(all.begin() + static_cast<std::ptrdiff_t>(last), all.end(), value);
      } else {
        if (first) {
          std::fill(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(interval), value);
        }
        first = false;
        all[interval] = value;
        last = interval;
      }
      if (at_ < tokens_.size() && tokens_[at_] != "]") expect(",");
    }
    expect("]");
  }

  std::string_view text_;
  std::string_view source_;
  Version torch_;
  AllocatorOptions options_;
  std::vector<std::string> tokens_;
  std::size_t at_ = 0;
};

}  // namespace

AllocatorOptions parse_alloc_conf(std::string_view text,
                                  std::string_view source,
                                  const Version& torch,
                                  const AllocatorOptions& base) {
  return ConfParser(text, source, torch, base).parse();
}

Bytes fraction_of(Bytes total, double fraction) {
  if (total.is_infinite()) return total;
  return Bytes::of(static_cast<std::int64_t>(fraction * static_cast<double>(total.count())));
}

Bytes round_size(Bytes request, const AllocatorOptions& options) {
  const std::int64_t quantum = kMinBlockSize.count();
  const std::int64_t n = request.count();
  if (n < quantum) return kMinBlockSize;
  const int log2 = std::bit_width(static_cast<std::uint64_t>(n)) - 1;
  const std::int64_t divisions = options.roundup_power2_divisions[interval_of(n >> 20)];
  if (divisions <= 1 || ceil_div(n, quantum) <= divisions ||
      request > options.roundup_bypass_threshold) {
    return Bytes::of(round_up(n, quantum));
  }
  const std::int64_t power = std::int64_t{1} << log2;
  // n > 512 * divisions, so a step is at least one quantum; a power of two is a step itself.
  return Bytes::of(round_up(n, power / divisions));
}

Bytes segment_size(Bytes rounded, const AllocatorOptions& options) {
  const Bytes steps = Bytes::of(round_up(rounded.count(), kRoundLarge.count()));
  if (options.is_arena()) return std::max(options.arena_segment, steps);
  if (rounded <= kSmallSize) return kSmallBuffer;
  if (rounded < kMinLargeAlloc) return options.large_segment_size;
  return steps;
}

}  // namespace zeroplan::simulator
