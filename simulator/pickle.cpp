#include "simulator/pickle.hpp"

#include <limits>

namespace zeroplan::simulator {

void PickleWriter::little_endian(std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    out_ += static_cast<char>(static_cast<unsigned char>(value & 0xff));
    value >>= 8;
  }
}

void PickleWriter::text(std::string_view value) {
  out_ += 'X';
  little_endian(value.size(), 4);
  out_ += value;
}

void PickleWriter::integer(std::int64_t value) {
  if (value >= std::numeric_limits<std::int32_t>::min() &&
      value <= std::numeric_limits<std::int32_t>::max()) {
    out_ += 'J';
    little_endian(static_cast<std::uint64_t>(value), 4);
    return;
  }
  out_ += "\x8a\x08";
  little_endian(static_cast<std::uint64_t>(value), 8);
}

}  // namespace zeroplan::simulator
