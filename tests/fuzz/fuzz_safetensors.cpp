// Headers of safetensors files: whatever is read lies in the file and is as large as its shape
// says. The text alone is read as well, with the length in front of it that a mutation would break.
#include <sstream>

#include "runtime/data/safetensors.hpp"
#include "tests/fuzz/fuzz_support.hpp"

namespace fuzz = zeroplan::fuzz;

namespace {

using zeroplan::runtime::SafetensorsHeader;

void check(const std::string& start, std::int64_t file_size) {
  fuzz::reads([&] {
    std::istringstream file(start);
    const SafetensorsHeader header =
        zeroplan::runtime::read_safetensors_header(file, file_size, "model.safetensors");
    fuzz::require(header.data_begin >= 8 && header.data_begin <= file_size,
                  "a header that ends outside the file");
    for (const auto& [name, info] : header.tensors) {
      fuzz::require(info.begin >= 0 && info.begin <= info.end,
                    "a tensor that ends before it begins");
      fuzz::require(info.end <= file_size - header.data_begin, "a tensor outside the file");
      std::int64_t bytes = zeroplan::width(info.dtype);
      for (const std::int64_t size : info.shape) bytes *= size;
      fuzz::require(info.end - info.begin == bytes, "a tensor of another size than its shape's");
    }
  });
}

std::string with_length(std::string_view text) {
  std::string start(8, '\0');
  for (std::size_t i = 0; i < 8; ++i)
    start[i] = static_cast<char>((text.size() >> (8 * i)) & 0xffU);
  return start.append(text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::int64_t kDataBytes = 1 << 20;
  const std::string_view text = fuzz::text_of(data, size);
  check(std::string(text), static_cast<std::int64_t>(size));
  check(with_length(text), 8 + static_cast<std::int64_t>(size) + kDataBytes);
  return 0;
}
