// A port of this machine that nobody listens at, for a job whose rank 0 will.
//
// A port that the kernel chose is one that it may give anybody else until rank 0 listens, whoever
// only calls out among them (net.ipv4.ip_local_port_range begins at 32768). These are below that,
// and other tests begin elsewhere.
#pragma once

#include <atomic>
#include <stdexcept>

#include <unistd.h>

#include "runtime/processes/socket.hpp"

namespace zeroplan::test {

inline int free_port() {
  constexpr int kFirst = 10000;
  constexpr int kCount = 20000;
  constexpr int kApart = 97;  // ports between two processes that begin one after the other
  constexpr int kStep = 4;    // ranks may meet at the port behind it
  static std::atomic<int> next{static_cast<int>(getpid()) % kCount * kApart % kCount};
  for (int tried = 0; tried < kCount; ++tried) {
    const int port = kFirst + next.fetch_add(kStep) % kCount;
    if (runtime::listen_on(port, true)) return port;
  }
  throw std::runtime_error("no free port");
}

}  // namespace zeroplan::test
