#include "runtime/data/disk_file.hpp"

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "base/diagnostic.hpp"

namespace zeroplan::runtime {
namespace {

// tables[k][b]: the remainder of byte b followed by k bytes of zero.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t remainder = b;
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder >> 1U) ^ ((remainder & 1U) != 0 ? 0xedb88320U : 0U);
    }
    tables[0][b] = remainder;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      const std::uint32_t before = tables[k - 1][b];
      tables[k][b] = (before >> 8U) ^ tables[0][before & 0xffU];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

// Eight bytes at a time: Kounavis, Berry 2005, "A systematic approach to building high performance,
// software-based, CRC generators".
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) {
  std::uint32_t crc = ~before;
  const auto byte = [&](std::size_t i) { return std::to_integer<std::uint32_t>(bytes[i]); };
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    const std::uint32_t low =
        crc ^ (byte(i) | byte(i + 1) << 8U | byte(i + 2) << 16U | byte(i + 3) << 24U);
    crc = kTables[7][low & 0xffU] ^ kTables[6][(low >> 8U) & 0xffU] ^
          kTables[5][(low >> 16U) & 0xffU] ^ kTables[4][low >> 24U] ^ kTables[3][byte(i + 4)] ^
          kTables[2][byte(i + 5)] ^ kTables[1][byte(i + 6)] ^ kTables[0][byte(i + 7)];
  }
  for (; i < bytes.size(); ++i) crc = (crc >> 8U) ^ kTables[0][(crc ^ byte(i)) & 0xffU];
  return ~crc;
}

void DiskFile::write(std::span<const std::byte> bytes) {
  facts_.crc32 = crc32(bytes, facts_.crc32);
  facts_.bytes += static_cast<std::int64_t>(bytes.size());
  file_.write(bytes);
}

FileFacts facts_of(const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    throw InputError(Diagnostic{
        .file = path, .pointer = "", .expected = "a readable file", .got = why, .hint = ""});
  };
  // Not opened otherwise: a pipe would wait for its writer.
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!error && !std::filesystem::is_regular_file(status)) refuse("no file but a folder or device");
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(std::generic_category().message(errno));
  FileFacts facts;
  std::vector<char> chunk(1 << 20);
  while (file) {
    file.read(chunk.data(), static_cast<std::streamsize>(chunk.size()));
    const auto got = static_cast<std::size_t>(file.gcount());
    facts.crc32 = crc32(std::as_bytes(std::span(chunk.data(), got)), facts.crc32);
    facts.bytes += file.gcount();
  }
  if (!file.eof()) refuse(std::generic_category().message(errno));
  return facts;
}

}  // namespace zeroplan::runtime
