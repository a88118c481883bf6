#include "runtime/processes/control.hpp"

namespace zeroplan::runtime {

std::optional<WordMessage> WordReader::next(const Descriptor& socket, int ranks) {
  for (;;) {
    Read<WordMessage> read = read_word(arrived_, ranks);
    if (read.reading == Reading::whole) {
      arrived_.clear();
      return std::move(read.message);
    }
    if (read.reading != Reading::more) throw BadMessage("sends what nobody understands");
    const std::size_t before = arrived_.size();
    arrived_.resize(read.size);
    std::size_t got = 0;
    try {
      got = receive_some(socket, std::span(arrived_).subspan(before));
    } catch (const SocketError& error) {
      arrived_.resize(before);
      throw SocketClosed(error.what());
    }
    arrived_.resize(before + got);
    if (got == 0) return std::nullopt;
  }
}

}  // namespace zeroplan::runtime
