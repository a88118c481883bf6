// Files whose bytes are known again: what is written is counted and summed, so that a later run can
// tell whether a file still is what was written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/output_file.hpp"

namespace zeroplan::runtime {

// CRC-32 as zlib and gzip have it (polynomial 0xedb88320, reflected), continued from `before`.
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0);

struct FileFacts {
  std::int64_t bytes = 0;
  std::uint32_t crc32 = 0;
  bool operator==(const FileFacts&) const = default;
};

// A new file, under a name that is free. Throws WriteError, here and in write() and finish().
class DiskFile {
 public:
  explicit DiskFile(const std::string& path) : file_(OutputFile::create(path)) {}

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span<const char>(text))); }
  // On the disk (fsync) when it returns.
  void finish() { file_.finish(); }
  const FileFacts& facts() const { return facts_; }

 private:
  OutputFile file_;
  FileFacts facts_;
};

// Reads the whole file; throws InputError where it cannot be read.
FileFacts facts_of(const std::string& path);

}  // namespace zeroplan::runtime
