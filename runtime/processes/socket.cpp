#include "runtime/processes/socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <system_error>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace zeroplan::runtime {
namespace {

[[noreturn]] void failed(const std::string& what, int error) {
  throw SocketError(fmt::format("{}: {}", what, std::generic_category().message(error)));
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve_host(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) throw SocketError(fmt::format("host {}: {}", host, gai_strerror(error)));
  return {found, freeaddrinfo};
}

Descriptor new_socket(int family) {
  Descriptor made(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return made;
}

void send_at_once(const Descriptor& socket) {
  const int yes = 1;
  setsockopt(socket.number(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

void wait_until(const Descriptor& socket, short events, Deadline deadline, const char* what) {
  pollfd poll_for{socket.number(), events, 0};
  const int ready = poll(&poll_for, 1, milliseconds_until(deadline));
  if (ready == 0) throw SocketError(fmt::format("{}: nothing in time", what));
  if (ready < 0 && errno != EINTR) failed(what, errno);
}

// Binds and listens; false where the port is taken.
bool listens(const Descriptor& socket, const sockaddr* address, socklen_t size) {
  const int yes = 1;
  setsockopt(socket.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const bool done =
      bind(socket.number(), address, size) == 0 && listen(socket.number(), SOMAXCONN) == 0;
  if (done) return true;
  if (errno != EADDRINUSE) failed("listening", errno);
  return false;
}

}  // namespace

void Descriptor::reset() {
  if (number_ >= 0) close(number_);
  number_ = -1;
}

Waker::Waker() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_) failed("eventfd", errno);
}

void Waker::wake() {
  const std::uint64_t one = 1;
  // A full counter wakes as well.
  [[maybe_unused]] const ssize_t written = write(event_.number(), &one, sizeof one);
}

void Waker::forget() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(event_.number(), &count, sizeof count);
}

int milliseconds_until(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  constexpr std::int64_t kDay = 86'400'000;
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, kDay));
}

Descriptor listen_on(int port, bool local) {
  const auto number = htons(static_cast<std::uint16_t>(port));
  if (!local) {
    // Both families on one socket, where the machine has IPv6.
    Descriptor both = new_socket(AF_INET6);
    if (both) {
      const int no = 0;
      setsockopt(both.number(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
      sockaddr_in6 any{};
      any.sin6_family = AF_INET6;
      any.sin6_addr = in6addr_any;
      any.sin6_port = number;
      const bool done = listens(both, reinterpret_cast<const sockaddr*>(&any), sizeof any);
      return done ? std::move(both) : Descriptor();
    }
  }
  Descriptor one = new_socket(AF_INET);
  if (!one) failed("socket", errno);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(local ? INADDR_LOOPBACK : INADDR_ANY);
  address.sin_port = number;
  const bool done = listens(one, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  return done ? std::move(one) : Descriptor();
}

int port_of(const Descriptor& listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(listener.number(), reinterpret_cast<sockaddr*>(&address), &size);
  const bool six = address.ss_family == AF_INET6;
  const auto port = six ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                        : reinterpret_cast<const sockaddr_in*>(&address)->sin_port;
  return ntohs(port);
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

Descriptor connect_to(const std::string& host, int port, Deadline deadline) {
  const Addresses addresses = resolve_host(host, port);
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    Descriptor attempt = new_socket(at->ai_family);
    if (!attempt) continue;
    if (connect(attempt.number(), at->ai_addr, at->ai_addrlen) != 0) {
      if (errno != EINPROGRESS) continue;
      pollfd poll_for{attempt.number(), POLLOUT, 0};
      if (poll(&poll_for, 1, milliseconds_until(deadline)) != 1) continue;
      int error = 0;
      socklen_t size = sizeof error;
      getsockopt(attempt.number(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) continue;
    }
    send_at_once(attempt);
    return attempt;
  }
  return {};
}

Descriptor accept_from(const Descriptor& listener, Deadline deadline) {
  pollfd poll_for{listener.number(), POLLIN, 0};
  if (poll(&poll_for, 1, milliseconds_until(deadline)) != 1) return {};
  Descriptor caller(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (caller) send_at_once(caller);
  return caller;
}

std::string address_of_peer(const Descriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  std::array<char, NI_MAXHOST> text{};
  const bool known =
      getpeername(socket.number(), generic, &size) == 0 &&
      getnameinfo(generic, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0;
  if (!known) throw SocketError("the address of a caller: unknown");
  std::string host = text.data();
  constexpr std::string_view kMapped = "::ffff:";  // an IPv4 caller of a socket for both
  return host.starts_with(kMapped) ? host.substr(kMapped.size()) : host;
}

std::size_t send_some(const Descriptor& socket, std::span<const std::byte> bytes) {
  const ssize_t sent = send(socket.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
  failed("sending", errno);
}

std::size_t receive_some(const Descriptor& socket, std::span<std::byte> bytes) {
  const ssize_t got = recv(socket.number(), bytes.data(), bytes.size(), 0);
  if (got > 0) return static_cast<std::size_t>(got);
  if (got == 0 && !bytes.empty()) throw SocketError("the other side closed the connection");
  if (got == 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
  failed("receiving", errno);
}

void send_all(const Descriptor& socket, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const std::size_t sent = send_some(socket, bytes);
    bytes = bytes.subspan(sent);
    if (sent == 0) wait_until(socket, POLLOUT, deadline, "sending");
  }
}

}  // namespace zeroplan::runtime
