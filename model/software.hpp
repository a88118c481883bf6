// Versions of the software that runs the model: DeepSpeed (six supported behaviours), torch and
// transformers.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

#include "base/phrase.hpp"

namespace zeroplan {

struct Version {
  int major = 0;
  int minor = 0;
  int patch = 0;
  friend constexpr auto operator<=>(const Version&, const Version&) = default;
};

// "0.19.6", "2.6", "v0.16.4", "2.6.0+cu124", "4.50.0.dev0": the first one to three numbers;
// anything else is no version.
std::optional<Version> parse_version(std::string_view text);
std::string to_string(const Version& version);

// The newest release of DeepSpeed whose parser has judged the configuration files of the tests
// (tests/reference/judge_ds_config.py).
inline constexpr Version kNewestJudgedDeepSpeed{0, 19, 8};

// The DeepSpeed behaviours that are described: each stands for itself and the releases up to the
// next one. v0_19 is 0.19.6, the newest that was read.
enum class DeepSpeedVersion { v0_12, v0_14, v0_16, v0_17, v0_18, v0_19 };

inline constexpr DeepSpeedVersion kNewestDeepSpeed = DeepSpeedVersion::v0_19;

std::string_view name(DeepSpeedVersion version);  // "0.16"

struct DeepSpeedChoice {
  DeepSpeedVersion version = kNewestDeepSpeed;
  Phrase note;  // one sentence where the release itself is not described, else empty
};

// The behaviour for a release: the nearest described one that is not newer (0.15.2 -> 0.14), and
// for what is older than all of them the oldest.
DeepSpeedChoice nearest_described(const Version& release);

}  // namespace zeroplan
