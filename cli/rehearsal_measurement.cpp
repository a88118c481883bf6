// A rehearsal as a line of measurements, which `validate` and `calibrate` read.
#include "cli/rehearsal_document.hpp"

namespace zeroplan::cli {

std::string measurement_line(const Rehearsed& rehearsed, const Prediction& prediction) {
  Json line = Json::object();
  line["id"] = "rank " + std::to_string(rehearsed.request.rank) + " of " + rehearsed.cluster;
  line["source"] = "rehearsal";
  line["tier"] = "A";
  line["rank"] = rehearsed.rank();
  line["scenario"] = prediction.scenario.document;
  Json measured = Json::object();
  const Outcome outcome = rehearsed.outcome();
  const rehearsal::ProcessRecord* process = rehearsed.process();
  if (outcome == Outcome::ran && process != nullptr) {
    measured["peak_allocated_bytes"] = rehearsal::peak_allocated(*process).count();
    measured["peak_reserved_bytes"] = rehearsed.most_reserved().count();
    const std::optional<Bytes> held = rehearsal::static_allocated(*process);
    if (held) measured["static_allocated_bytes"] = held->count();
    measured["fits"] = true;
  } else if (outcome == Outcome::out_of_memory) {
    measured["fits"] = false;
  }
  line["measured"] = measured;
  const Bytes range = rehearsed.most_reserved() - rehearsed.least_reserved();
  if (range > Bytes::zero()) {
    // Half the range over the larger end, which is the one that is given.
    line["uncertainty"] =
        Json::object({{"peak_reserved_bytes", range / rehearsed.most_reserved() / 2.0}});
  }
  std::string notes = "PyTorch itself on an emulated GPU of " +
                      std::to_string(rehearsed.request.gpu.gpu.memory.value.count()) +
                      " bytes, of which " + std::to_string(rehearsed.request.gpu.context.count()) +
                      " are context and NCCL; rank " + std::to_string(rehearsed.request.rank) +
                      " of " + std::to_string(rehearsed.request.ranks);
  if (rehearsed.runs.size() > 1) {
    notes += "; reserved " + std::to_string(rehearsed.least_reserved().count()) + " to " +
             std::to_string(rehearsed.most_reserved().count()) + " bytes over when work ends";
  }
  line["notes"] = notes;
  return line.dump() + "\n";
}

}  // namespace zeroplan::cli
