#include "model/software.hpp"

#include <array>
#include <cctype>

namespace zeroplan {
namespace {

struct Described {
  DeepSpeedVersion version;
  std::string_view name;
  Version first;    // the first release that gets this description
  Version behaves;  // the last release of the series that was read for it
};

constexpr std::array kDescribed = {
    Described{DeepSpeedVersion::v0_12, "0.12", {0, 12, 0}, {0, 12, 6}},
    Described{DeepSpeedVersion::v0_14, "0.14", {0, 14, 0}, {0, 14, 5}},
    Described{DeepSpeedVersion::v0_16, "0.16", {0, 16, 0}, {0, 16, 9}},
    Described{DeepSpeedVersion::v0_17, "0.17", {0, 17, 0}, {0, 17, 6}},
    Described{DeepSpeedVersion::v0_18, "0.18", {0, 18, 0}, {0, 18, 9}},
    Described{DeepSpeedVersion::v0_19, "0.19", {0, 19, 0}, {0, 19, 6}},
};

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Reads the number at the front of `text` and removes it; at most five digits.
std::optional<int> take_number(std::string_view& text) {
  constexpr std::size_t kMostDigits = 5;
  std::size_t digits = 0;
  int value = 0;
  while (digits < text.size() && is_digit(text[digits])) {
    if (digits == kMostDigits) return std::nullopt;
    value = value * 10 + (text[digits++] - '0');
  }
  if (digits == 0) return std::nullopt;
  text.remove_prefix(digits);
  return value;
}

}  // namespace

std::optional<Version> parse_version(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  if (!text.empty() && (text.front() == 'v' || text.front() == 'V')) text.remove_prefix(1);
  std::array<int, 3> parts{};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) {
      if (text.size() < 2 || text.front() != '.' || !is_digit(text[1])) break;
      text.remove_prefix(1);
    }
    const std::optional<int> number = take_number(text);
    if (!number) return std::nullopt;
    parts[i] = *number;
  }
  // A suffix such as "+cu124", "rc1" or ".dev0" does not change which release it is near.
  if (!text.empty() && std::string_view("+.-rab ").find(text.front()) == std::string_view::npos) {
    return std::nullopt;
  }
  return Version{parts[0], parts[1], parts[2]};
}

std::string to_string(const Version& version) {
  return std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
         std::to_string(version.patch);
}

std::string_view name(DeepSpeedVersion version) {
  return kDescribed[static_cast<std::size_t>(version)].name;
}

DeepSpeedChoice nearest_described(const Version& release) {
  const Described* nearest = &kDescribed.front();
  for (const Described& described : kDescribed) {
    if (described.first <= release) nearest = &described;
  }
  const bool same_series =
      release.major == nearest->first.major && release.minor == nearest->first.minor;
  if (same_series && release <= nearest->behaves) return {nearest->version, ""};
  return {nearest->version,
          "DeepSpeed " + to_string(release) + " is predicted as " + to_string(nearest->behaves)};
}

}  // namespace zeroplan
