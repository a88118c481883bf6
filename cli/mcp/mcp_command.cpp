#include <cerrno>
#include <span>
#include <sstream>
#include <string_view>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/diagnostic.hpp"
#include "base/output_file.hpp"
#include "cli/command_line.hpp"
#include "cli/commands.hpp"
#include "cli/interrupt.hpp"
#include "cli/line_reader.hpp"
#include "cli/mcp/server.hpp"

namespace zeroplan::cli {
namespace {

constexpr std::size_t kLongestMessage = std::size_t{64} << 20;

[[noreturn]] void failed(const char* what) {
  throw InputError({what, "", "a descriptor", phrase("error {}", errno), ""});
}

// One of this process's descriptors that is another's meanwhile.
class Replaced {
 public:
  Replaced(int number, int other) : number_(number), kept_(fcntl(number, F_DUPFD_CLOEXEC, 3)) {
    if (kept_ < 0 || dup2(other, number_) < 0) failed("standard streams");
  }
  ~Replaced() {
    dup2(kept_, number_);
    close(kept_);
  }
  Replaced(const Replaced&) = delete;
  Replaced& operator=(const Replaced&) = delete;

  int original() const { return kept_; }

 private:
  int number_;
  int kept_;
};

void write_text(int descriptor, std::string_view text, const char* where) {
  errno = write_all(descriptor, std::as_bytes(std::span(text)));
  if (errno != 0) failed(where);
}

// A file without a name that holds the text, read from its beginning.
int open_text(const std::string& text) {
  const int file = memfd_create("standard input", MFD_CLOEXEC);
  if (file < 0) failed("standard input");
  write_text(file, text, "standard input");
  lseek(file, 0, SEEK_SET);
  return file;
}

ToolAnswer run_call(const ToolCall& call) {
  const int input = open_text(call.standard_input);
  std::ostringstream out, log;
  ToolAnswer answer;
  {
    const Replaced standard_input(STDIN_FILENO, input);
    close(input);
    answer.code = run_and_report(call.words,
                                 DocumentSentences::english,
                                 Translation(language_of_words(call.words)),
                                 {out, log});
  }
  answer.text = std::move(out).str();
  answer.log = std::move(log).str();
  return answer;
}

}  // namespace

// The client's messages come from standard input and the answers go to standard output, a line
// each. What a call starts sees neither: its input is the call's text, its output goes to standard
// error.
int run_mcp(const Arguments&, Streams streams) {
  streams.out.flush();
  const InterruptGuard guard;
  const Replaced standard_output(STDOUT_FILENO, STDERR_FILENO);
  LineReader lines("-", kLongestMessage, InterruptGuard::wake());
  while (const std::optional<InputLine> line = lines.next()) {
    const auto answer = answer_message(line->too_long ? "" : line->text, run_call);
    if (answer) write_text(standard_output.original(), *answer + "\n", "standard output");
    if (const auto code = interrupted()) return *code;
  }
  return interrupted().value_or(kDone);
}

}  // namespace zeroplan::cli
