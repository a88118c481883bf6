#include "runtime/train/fingerprint.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "base/check.hpp"
#include "base/diagnostic.hpp"
#include "runtime/data/disk_file.hpp"

namespace zeroplan::runtime {
namespace {

constexpr std::int64_t kPiece = 16 << 20;  // bytes that are summed of a large file, three times
constexpr std::size_t kLongestKey = 160;

bool is_key(std::string_view key) {
  return !key.empty() && key.size() <= kLongestKey &&
         std::all_of(
             key.begin(), key.end(), [](char c) { return c > ' ' && c < 0x7f && c != '='; });
}

[[noreturn]] void unreadable(const std::string& path) {
  throw InputError(Diagnostic{.file = path,
                              .pointer = "",
                              .expected = "a readable file",
                              .got = errno != 0 ? std::strerror(errno) : "an error",
                              .hint = ""});
}

std::uint32_t sum_of(std::ifstream& file,
                     std::int64_t from,
                     std::int64_t bytes,
                     std::uint32_t sum) {
  std::array<char, 1 << 16> chunk;
  file.seekg(from);
  while (bytes > 0 && file) {
    file.read(chunk.data(), std::min<std::int64_t>(bytes, chunk.size()));
    const std::int64_t got = file.gcount();
    sum = crc32(std::as_bytes(std::span(chunk.data(), static_cast<std::size_t>(got))), sum);
    bytes -= got;
  }
  return sum;
}

}  // namespace

void Fingerprint::add(std::string key, std::string_view value) {
  ZP_CHECK(is_key(key) && find(key) == nullptr, "a fingerprint has each key once");
  std::string shown = printable(value);
  if (shown.size() > kLongestValue) {
    const std::uint32_t sum = crc32(std::as_bytes(std::span(shown)));
    const std::string rest = fmt::format("... (CRC-32 {:08x})", sum);
    shown = printable(std::string_view(shown).substr(0, kLongestValue / 2)) + rest;
  }
  entries_.emplace_back(std::move(key), std::move(shown));
}

void Fingerprint::add(std::string key, std::int64_t value) {
  add(std::move(key), std::string_view(std::to_string(value)));
}

void Fingerprint::add(std::string key, double value) {
  add(std::move(key), std::string_view(fmt::format("{}", value)));
}

void Fingerprint::add(std::string key, bool value) {
  add(std::move(key), std::string_view(value ? "true" : "false"));
}

const std::string* Fingerprint::find(std::string_view key) const {
  for (const Entry& entry : entries_) {
    if (entry.first == key) return &entry.second;
  }
  return nullptr;
}

Fingerprint Fingerprint::part(std::initializer_list<std::string_view> prefixes) const {
  Fingerprint some;
  for (const Entry& entry : entries_) {
    const auto begins = [&](std::string_view prefix) { return entry.first.starts_with(prefix); };
    if (std::any_of(prefixes.begin(), prefixes.end(), begins)) some.entries_.push_back(entry);
  }
  return some;
}

std::string Fingerprint::text() const {
  std::string text;
  for (const auto& [key, value] : entries_) text += key + "=" + value + "\n";
  return text;
}

std::optional<Fingerprint> Fingerprint::parse(std::string_view text) {
  Fingerprint result;
  if (text.size() > kLongestText) return std::nullopt;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view line = text.substr(0, end);
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view key = line.substr(0, equals);
    const std::string_view value = line.substr(equals + 1);
    const bool good = is_key(key) && result.find(key) == nullptr && value.size() <= kLongestValue &&
                      printable(value) == value;
    if (!good) return std::nullopt;
    result.entries_.emplace_back(key, value);
    text.remove_prefix(end + 1);
  }
  return result;
}

std::vector<FingerprintDifference> differences(const Fingerprint& first,
                                               const Fingerprint& second) {
  constexpr const char* kNothing = "nothing";
  std::vector<FingerprintDifference> result;
  for (const auto& [key, value] : first.entries()) {
    const std::string* other = second.find(key);
    if (other == nullptr || *other != value) {
      result.push_back({key, value, other != nullptr ? *other : kNothing});
    }
  }
  for (const auto& [key, value] : second.entries()) {
    if (first.find(key) == nullptr) result.push_back({key, kNothing, value});
  }
  return result;
}

std::string file_fingerprint(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::int64_t bytes = file ? static_cast<std::int64_t>(file.tellg()) : -1;
  if (bytes < 0) unreadable(path);
  const bool whole = bytes <= 3 * kPiece;
  std::uint32_t sum = sum_of(file, 0, whole ? bytes : kPiece, 0);
  if (!whole) {
    sum = sum_of(file, (bytes - kPiece) / 2, kPiece, sum);
    sum = sum_of(file, bytes - kPiece, kPiece, sum);
  }
  if (file.bad() || file.fail()) unreadable(path);
  return fmt::format("{} bytes, CRC-32 {:08x}{}",
                     bytes,
                     sum,
                     whole ? "" : " of the first, middle and last 16 MiB");
}

}  // namespace zeroplan::runtime
