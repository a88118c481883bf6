// What a run trains, as short texts by key: "seed" "7", "model.heads" "32". Ranks hold theirs
// against each other's before they train together (agreement.hpp); a checkpoint keeps that of its
// run, so that it goes on with the same model and data.
//
// Keys are lower-case words with dots; the part before the first dot says what they are about:
// model, data, optimizer, plan, ds_config, run. Values are what a message shows, at most
// kLongestValue bytes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zeroplan::runtime {

class Fingerprint {
 public:
  static constexpr std::size_t kLongestValue = 120;
  static constexpr std::size_t kLongestText = 1 << 18;  // of all lines
  using Entry = std::pair<std::string, std::string>;    // key, value

  // Behind what is there; each key once. A longer value becomes its beginning and a checksum, line
  // breaks and control characters are written out.
  void add(std::string key, std::string_view value);
  void add(std::string key, std::int64_t value);
  void add(std::string key, double value);  // shortest text that reads the same
  void add(std::string key, bool value);
  void add(std::string key, const char* value) { add(std::move(key), std::string_view(value)); }

  const std::vector<Entry>& entries() const { return entries_; }
  const std::string* find(std::string_view key) const;

  // Those whose keys begin with one of these: part({"model.", "data."}).
  Fingerprint part(std::initializer_list<std::string_view> prefixes) const;

  // Lines "key=value\n" and back; nothing where a text is not what text() gives.
  std::string text() const;
  static std::optional<Fingerprint> parse(std::string_view text);

  bool operator==(const Fingerprint&) const = default;

 private:
  std::vector<Entry> entries_;
};

struct FingerprintDifference {
  std::string key;
  std::string first, second;  // "nothing" where one of them lacks the key
};

// Where two differ: in the first one's order, then what the second one has besides.
std::vector<FingerprintDifference> differences(const Fingerprint& first, const Fingerprint& second);

// What a file holds, without reading all of a large one: "1048576 bytes, CRC-32 0a1b2c3d"; of more
// than 48 MiB the checksum is that of its first, middle and last 16 MiB, and the text says so.
// Throws InputError (`file`: the path) where it cannot be read.
std::string file_fingerprint(const std::string& path);

}  // namespace zeroplan::runtime
