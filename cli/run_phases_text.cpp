#include "cli/run_phases_text.hpp"

#include "cli/table.hpp"

namespace zeroplan {

Phrase run_phases_text(const RunPhases& run) {
  Phrase text;
  for (const ModelShare& model : run.models) {
    const std::string seconds = model.forward ? seconds_text(*model.forward) : "-";
    text += phrase("{}: {} on each GPU, {} on each host; a forward pass {}\n",
                   name(kModelRoleNames, model.role),
                   gib_text(model.gpu),
                   gib_text(model.host),
                   seconds);
  }
  for (std::size_t i = 0; i < run.phases.size(); ++i) {
    const RunPhase& phase = run.phases[i];
    const Phrase kind = plain_name(name(kRunPhaseKindNames, phase.kind));
    const Phrase what = phase.of.empty() ? kind : phrase("{} ({})", kind, phase.of);
    text += phrase("phase {}: {} allocated{}\n",
                   what,
                   gib_text(phase.allocated),
                   i == run.peak && run.phases.size() > 1 ? ", the most" : "");
    for (const PhasePart& part : phase.parts) {
      text += phrase("  {}: {}\n", part.name, gib_text(part.bytes));
    }
    if (phase.host > Bytes::zero()) {
      text += phrase("  logits of all samples in every process: {} of each host\n",
                     gib_text(phase.host));
    }
  }
  if (!run.choices.empty()) text += "less memory on each GPU:\n";
  for (const MemoryChoice& choice : run.choices) {
    const Phrase cost =
        choice.costs ? phrase("{} more a step", seconds_text(*choice.costs)) : "time not known";
    text += phrase("  {}: {} less, {}\n", choice.what, gib_text(choice.freed), cost);
  }
  return text;
}

}  // namespace zeroplan
