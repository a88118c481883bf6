// TCP sockets that close themselves, with deadlines and errors that say what failed.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace zeroplan::runtime {

using Deadline = std::chrono::steady_clock::time_point;

// A socket that gives no more: closed by the other side, refused, too late.
class SocketError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { reset(); }

  void reset();
  int number() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_ = -1;
};

// Wakes a poll() of another thread.
class Waker {
 public:
  Waker();
  int number() const { return event_.number(); }
  void wake();
  void forget();

 private:
  Descriptor event_;
};

// Listens on `port` (0: any free one): on this machine alone where `local`, else on every address.
// Gives an empty Descriptor where the port is taken; throws SocketError for anything else.
Descriptor listen_on(int port, bool local);
int port_of(const Descriptor& listener);

// Whether a name or address stays within a machine: "localhost", "127.0.1.1", "::1".
bool is_loopback(const std::string& host);

// One attempt at a connection; an empty Descriptor where nobody listens there (yet).
Descriptor connect_to(const std::string& host, int port, Deadline deadline);

// A caller of `listener`; an empty Descriptor when the deadline comes first.
Descriptor accept_from(const Descriptor& listener, Deadline deadline);
// The other side's address, without its port.
std::string address_of_peer(const Descriptor& socket);

// All bytes before the deadline, or SocketError.
void send_all(const Descriptor& socket, std::span<const std::byte> bytes, Deadline deadline);

// What there is room for, and what has come: 0 where it would have to wait. Throws SocketError.
std::size_t send_some(const Descriptor& socket, std::span<const std::byte> bytes);
std::size_t receive_some(const Descriptor& socket, std::span<std::byte> bytes);

// For poll(): milliseconds until the deadline, at least 0, at most a day.
int milliseconds_until(Deadline deadline);

}  // namespace zeroplan::runtime
