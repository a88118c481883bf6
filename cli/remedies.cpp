#include "cli/remedies.hpp"

#include <fmt/format.h>

#include "cli/table.hpp"

namespace zeroplan {

std::string list_text(const std::string& title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string text = "\n" + title + ":\n";
  for (const std::string& line : lines) text += "  - " + line + "\n";
  return text;
}

std::string remedy_lines(const std::vector<Remedy>& remedies) {
  std::string text;
  for (const Remedy& remedy : remedies) {
    text += fmt::format("  - {}:\n    then {}, {} per GPU, {:.0f} tokens/s per GPU\n",
                        remedy.change,
                        describe(remedy.best.strategy),
                        gib_text(remedy.best.result.gpu.peak_total),
                        remedy.best.result.step.tokens_per_second_per_gpu);
  }
  return text;
}

}  // namespace zeroplan
