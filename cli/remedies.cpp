#include "cli/remedies.hpp"

#include "cli/table.hpp"
#include "model/predict/verdict.hpp"

namespace zeroplan {

Phrase list_text(const char* title, const std::vector<Phrase>& lines) {
  if (lines.empty()) return "";
  Phrase text = "\n";
  text += title;
  text += ":\n";
  for (const Phrase& line : lines) text += phrase("  - {}\n", line);
  return text;
}

Phrase remedy_lines(const std::vector<Remedy>& remedies) {
  Phrase text;
  for (const Remedy& remedy : remedies) {
    text += phrase("  - {}:\n    then {}, {} per GPU, {:.0f} tokens/s per GPU{}\n",
                   remedy.change,
                   describe(remedy.best.strategy),
                   gib_text(remedy.best.result.gpu.peak_total),
                   remedy.best.result.step.tokens_per_second_per_gpu,
                   condition_text(remedy.best.result));
  }
  return text;
}

}  // namespace zeroplan
