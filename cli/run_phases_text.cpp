#include "cli/run_phases_text.hpp"

#include <fmt/format.h>

#include "cli/table.hpp"

namespace zeroplan {

std::string run_phases_text(const RunPhases& run) {
  std::string text;
  for (const ModelShare& model : run.models) {
    const std::string seconds = model.forward ? seconds_text(*model.forward) : "-";
    text += fmt::format("{}: {} on each GPU, {} on each host; a forward pass {}\n",
                        name(kModelRoleNames, model.role),
                        gib_text(model.gpu),
                        gib_text(model.host),
                        seconds);
  }
  for (std::size_t i = 0; i < run.phases.size(); ++i) {
    const RunPhase& phase = run.phases[i];
    const std::string what = plain_name(name(kRunPhaseKindNames, phase.kind)) +
                             (phase.of.empty() ? "" : " (" + phase.of + ")");
    text += fmt::format("phase {}: {} allocated{}\n",
                        what,
                        gib_text(phase.allocated),
                        i == run.peak && run.phases.size() > 1 ? ", the most" : "");
    for (const PhasePart& part : phase.parts) {
      text += fmt::format("  {}: {}\n", part.name, gib_text(part.bytes));
    }
    if (phase.host > Bytes::zero()) {
      text += fmt::format("  logits of all samples in every process: {} of each host\n",
                          gib_text(phase.host));
    }
  }
  if (!run.choices.empty()) text += "less memory on each GPU:\n";
  for (const MemoryChoice& choice : run.choices) {
    const std::string cost =
        choice.costs ? seconds_text(*choice.costs) + " more a step" : "time not known";
    text += fmt::format("  {}: {} less, {}\n", choice.what, gib_text(choice.freed), cost);
  }
  return text;
}

}  // namespace zeroplan
