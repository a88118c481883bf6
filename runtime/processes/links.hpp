// How bytes get from one process to another, as an interface: TCP (tcp_links.hpp), MPI
// (mpi_links.hpp). What the bytes mean is process_communicator.cpp's.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/processes/socket.hpp"

namespace zeroplan::runtime {

// What goes to one other rank and comes from it, at the same time; either may be empty.
struct Transfer {
  int peer = 0;
  std::span<const std::byte> send;
  std::span<std::byte> receive;
};

// A transfer that was not done in time.
class TransferTimeout : public std::runtime_error {
 public:
  explicit TransferTimeout(std::vector<int> missing)
      : std::runtime_error("a transfer took too long"), missing_(std::move(missing)) {}
  const std::vector<int>& missing() const { return missing_; }  // ranks

 private:
  std::vector<int> missing_;
};

// begin(), transfer() and end() belong to one thread.
class Links {
 public:
  virtual ~Links() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  virtual void begin() {}
  // Returns when all has gone and come; at most one Transfer a peer, and the spans are used up.
  // Throws TransferTimeout, or CollectiveError with failure() once the group has failed.
  virtual void transfer(std::span<Transfer> transfers, Deadline deadline) = 0;
  // Nothing follows. After a failure the others are told first.
  virtual void end() {}

  // From any thread: the group has failed for that reason, here and soon on every rank. The first
  // reason stays. Needs no memory.
  virtual void fail(std::string_view reason) noexcept = 0;
  virtual std::optional<std::string> failure() const = 0;
};

}  // namespace zeroplan::runtime
