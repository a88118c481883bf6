// A named pipe whose writer is the test.
#pragma once

#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/catch.hpp"

namespace zeroplan::test {

class Pipe {
 public:
  // Opened for both directions, so that nobody waits for the other side to come.
  explicit Pipe(std::string path) : path_(std::move(path)) {
    if (mkfifo(path_.c_str(), 0600) != 0) throw std::runtime_error("no named pipe");
    writer_ = open(path_.c_str(), O_RDWR | O_CLOEXEC);
  }
  ~Pipe() { end(); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  const std::string& path() const { return path_; }
  void send(const std::string& text) const {
    REQUIRE(write(writer_, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  void end() {
    if (writer_ >= 0) close(writer_);
    writer_ = -1;
  }

 private:
  std::string path_;
  int writer_ = -1;
};

}  // namespace zeroplan::test
