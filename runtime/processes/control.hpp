// Words on a control connection, one after the other.
#pragma once

#include <optional>

#include "runtime/processes/rank_messages.hpp"
#include "runtime/processes/socket.hpp"

namespace zeroplan::runtime {

// A peer that sends what is no message.
class BadMessage : public SocketError {
 public:
  using SocketError::SocketError;
};

// A connection that gives no more.
class SocketClosed : public SocketError {
 public:
  using SocketError::SocketError;
};

class WordReader {
 public:
  // The next word that has come whole, or nothing. Takes no byte behind it: what follows may be
  // somebody else's to read. Throws SocketClosed, BadMessage.
  std::optional<WordMessage> next(const Descriptor& socket, int ranks);

 private:
  MessageBytes arrived_;
};

}  // namespace zeroplan::runtime
