#include "evidence/json_lines.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace zeroplan::evidence {

std::string pointer_in_line(int line, const std::string& pointer) {
  if (pointer.starts_with("line ")) return pointer;  // a syntax error names its line itself
  std::string text = "line ";
  text += std::to_string(line);
  if (!pointer.empty()) {
    text += ": ";
    text += pointer;
  }
  return text;
}

std::vector<Diagnostic> read_json_lines(
    std::string_view text,
    const std::string& file,
    const std::function<void(const JsonDocument&, int)>& reader) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<Diagnostic> problems;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      JsonOptions options;
      options.first_line = number;
      options.max_values = kMostRecordedValues;
      reader(parse_json(line, file, options), number);
    } catch (const InputError& error) {
      for (Diagnostic problem : error.diagnostics()) {
        problem.file = file;
        problem.pointer = pointer_in_line(number, problem.pointer);
        problems.push_back(std::move(problem));
      }
    } catch (const SizeOverflow&) {
      problems.push_back({file,
                          pointer_in_line(number, ""),
                          "sizes whose products fit 64 bits",
                          "larger ones",
                          ""});
    }
  }
  return problems;
}

}  // namespace zeroplan::evidence
