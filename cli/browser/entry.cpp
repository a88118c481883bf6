// What the page calls (page/planner.js): a command line as a function, its answer as two texts.
#include <iostream>
#include <sstream>
#include <string>
#include <utility>

#include "cli/command_line.hpp"

namespace {

struct Texts {
  std::string out;
  std::string log;
};

// Of the last command; read before the next one.
Texts& texts() {
  static Texts texts;
  return texts;
}

// A stream of the program that writes into a text while this lives.
class Caught {
 public:
  Caught(std::ostream& stream, std::string& text)
      : stream_(stream), text_(text), before_(stream.rdbuf(buffer_.rdbuf())) {}
  ~Caught() {
    stream_.rdbuf(before_);  // and forgets a failed write
    text_ = std::move(buffer_).str();
  }
  Caught(const Caught&) = delete;
  Caught& operator=(const Caught&) = delete;

 private:
  std::ostream& stream_;
  std::string& text_;
  std::ostringstream buffer_;
  std::streambuf* before_;
};

}  // namespace

// Exported by cmake/Browser.cmake.
extern "C" {

// argv[0] is the program's name. Returns the exit code of docs/contract.md section 3.
int zeroplan_run(int argc, const char* const* argv) {
  const Caught out(std::cout, texts().out);
  const Caught log(std::cerr, texts().log);
  return zeroplan::cli::run_command_line(
      argc, argv, zeroplan::cli::DocumentSentences::of_the_reader);
}

const char* zeroplan_output() { return texts().out.c_str(); }
const char* zeroplan_messages() { return texts().log.c_str(); }
}
