#include "model/predict/io_run_phases.hpp"

namespace zeroplan {
namespace {

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json seconds_or_null(const std::optional<Seconds>& seconds) {
  return seconds ? Json(seconds->seconds()) : Json();
}

Json phase_json(const RunPhase& phase) {
  Json parts = Json::array();
  for (const PhasePart& part : phase.parts) {
    parts.push_back(Json::object({{"name", part.name.english()}, {"bytes", part.bytes.count()}}));
  }
  return Json::object({{"phase", name(kRunPhaseKindNames, phase.kind)},
                       {"of", text_or_null(phase.of)},
                       {"peak_allocated_bytes", phase.allocated.count()},
                       {"host_bytes", phase.host.count()},
                       {"parts", parts}});
}

}  // namespace

void add_run_phases(const RunPhases& run, Json& document) {
  Json models = Json::array();
  for (const ModelShare& model : run.models) {
    models.push_back(Json::object({{"role", name(kModelRoleNames, model.role)},
                                   {"model", text_or_null(model.name)},
                                   {"placement", name(kPlacementNames, model.placement)},
                                   {"parameters", model.parameters.count()},
                                   {"gpu_bytes", model.gpu.count()},
                                   {"host_bytes", model.host.count()},
                                   {"forward_seconds", seconds_or_null(model.forward)}}));
  }
  document["models"] = models;
  Json phases = Json::array();
  for (const RunPhase& phase : run.phases) phases.push_back(phase_json(phase));
  document["phases"] = phases;
  document["peak_phase_of_run"] = static_cast<std::int64_t>(run.peak);
  Json choices = Json::array();
  for (const MemoryChoice& choice : run.choices) {
    choices.push_back(Json::object({{"what", choice.what.english()},
                                    {"frees_bytes", choice.freed.count()},
                                    {"costs_seconds", seconds_or_null(choice.costs)}}));
  }
  document["memory_choices"] = choices;
}

}  // namespace zeroplan
