// cli/terminal_text: what commands print, where it leaves the program.
#include "cli/terminal_text.hpp"

#include <sstream>
#include <streambuf>

#include "tests/catch.hpp"

using namespace zeroplan;

TEST_CASE("control characters are escaped on their way to the terminal, line ends and tabs stay") {
  std::ostringstream out;
  {
    const cli::TerminalText safe(out);
    out << "model \x1b]0;owned\x07 of " << 7 << " lines\n\tnext\r\n" << '\x1b' << "\u202eabc";
  }
  CHECK(out.str() == "model \\x1b]0;owned\\x07 of 7 lines\n\tnext\\x0d\n\\x1b\\u202eabc");
}

TEST_CASE("a character that is written byte by byte comes out whole, half a one escaped") {
  std::ostringstream out;
  {
    const cli::TerminalText safe(out);
    for (const char byte : std::string("模型\xe2\x80\xae€")) out << byte << std::flush;
    out << "\xe6\xa8";
  }
  CHECK(out.str() == "模型\\u202e€\\xe6\\xa8");
}

TEST_CASE("the stream writes by itself again, and remembers that it failed") {
  std::ostringstream out;
  { const cli::TerminalText safe(out); }
  out << "\x1b";
  CHECK(out.str() == "\x1b");
  {
    const cli::TerminalText safe(out);
    out.setstate(std::ios::badbit);
  }
  CHECK(out.bad());
}

TEST_CASE("a stream that cannot be written to fails as it did") {
  struct Full : std::streambuf {
  } full;
  std::ostream out(&full);
  const cli::TerminalText safe(out);
  out << "text";
  CHECK(out.fail());
}
