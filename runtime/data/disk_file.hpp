// Files that are written to be kept: every error names the file and the system's reason, what is
// finished is on the disk, and a checksum tells later whether it still is what was written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace zeroplan::runtime {

// "cannot write PATH: No space left on device".
class WriteError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// CRC-32 as zlib and gzip have it (polynomial 0xedb88320, reflected), continued from `before`.
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0);

struct FileFacts {
  std::int64_t bytes = 0;
  std::uint32_t crc32 = 0;
  bool operator==(const FileFacts&) const = default;
};

// A new file, or an old one emptied. Throws WriteError, here and in write() and finish().
class DiskFile {
 public:
  explicit DiskFile(const std::string& path);
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;
  ~DiskFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // On the disk (fsync) when it returns.
  void finish();
  const FileFacts& facts() const { return facts_; }

 private:
  std::string path_;
  int descriptor_ = -1;
  FileFacts facts_;
};

// Reads the whole file; throws InputError where it cannot be read.
FileFacts facts_of(const std::string& path);

// Flushes a folder to the disk: the names in it.
void sync_folder(const std::string& path);

// What `to` was goes, `from` takes its name. At every moment `to` is a whole folder where the file
// system can exchange names (renameat2), and else one of `to` and `to`.old is.
void replace_folder(const std::string& from, const std::string& to);

}  // namespace zeroplan::runtime
