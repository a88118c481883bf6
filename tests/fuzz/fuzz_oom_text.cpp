// Texts of out-of-memory errors: nothing is an error; Windows' line ends and colours change
// nothing.
#include "evidence/log_text.hpp"
#include "evidence/oom_text.hpp"
#include "tests/fuzz/fuzz_support.hpp"

namespace fuzz = zeroplan::fuzz;

namespace {

std::string as_json(std::string_view log) {
  std::string text;
  for (const zeroplan::evidence::OomEvent& event : zeroplan::evidence::read_oom_text(log)) {
    text += to_json(event).dump() + "\n";
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view log = fuzz::text_of(data, size);
  const std::string_view lines = log;
  int line_count = 1;
  for (const char c : lines) line_count += c == '\n' ? 1 : 0;
  int last_line = 0;
  for (const zeroplan::evidence::OomEvent& event : zeroplan::evidence::read_oom_text(log)) {
    fuzz::require(event.line >= last_line, "events out of order");
    fuzz::require(event.line >= 1 && event.line <= line_count, "an event in no line");
    fuzz::require(event.times >= 1, "an event told no time");
    last_line = event.line;
    if (const auto reserved = total_reserved(event)) {
      fuzz::require(reserved->bytes >= zeroplan::Bytes::zero(), "negative memory");
    }
  }
  const std::string plain = zeroplan::evidence::without_escapes(std::string(log));
  fuzz::require(as_json(plain) == as_json(log), "escape sequences change the reading");
  std::string windows;
  for (const char c : plain) windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
  fuzz::require(as_json(windows) == as_json(plain), "line ends change the reading");
  return 0;
}
