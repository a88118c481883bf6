// zeroplan.explain/1 (docs/contract.md section 5).
#include "cli/explain_text.hpp"
#include "model/predict/io_step_result.hpp"

namespace zeroplan::cli {
namespace {

Json texts(const std::vector<std::string_view>& words) {
  Json list = Json::array();
  for (const std::string_view word : words) list.push_back(Json(word));
  return list;
}

Json to_json(const tuner::TensorSort& sort) {
  return Json::object(
      {{"what", sort.what.english()}, {"name", sort.name}, {"knobs", texts(sort.knobs)}});
}

Json to_json(const tuner::PeakInventory& peak) {
  Json held = Json::array();
  for (const tuner::HeldSort& one : peak.held) {
    Json row = to_json(one.sort);
    row["category"] = name(one.category);
    row["place"] = one.place;
    row["tensors"] = one.count;
    row["bytes"] = one.bytes.count();
    held.push_back(row);
  }
  return Json::object({{"phase", name(kPhaseNames, peak.phase)},
                       {"allocated_bytes", peak.allocated.count()},
                       {"held", held}});
}

Json changes_json(const tuner::Variation& variation, const Plan& base) {
  Json list = Json::array();
  for (const tuner::Change& change : variation.changes) {
    list.push_back(Json::object(
        {{"key", tuner::spelling(change)},
         {"from", std::visit([&](auto key) { return tuner::value_of(base, key); }, change.key)},
         {"to", change.value}}));
  }
  const auto of_cluster = [&](const char* key, std::int64_t from, std::int64_t to) {
    list.push_back(Json::object({{"key", key}, {"from", from}, {"to", to}}));
  };
  if (variation.nodes) of_cluster("nodes", base.cluster.nodes, *variation.nodes);
  if (variation.host_memory) {
    of_cluster("host_memory_bytes",
               base.cluster.node.host_memory.value.count(),
               variation.host_memory->count());
  }
  return list;
}

Json move_json(const tuner::Sensitivity& all, const tuner::Move& move, const Plan& base) {
  return Json::object({{"change", describe(move.variation, base).english()},
                       {"changes", changes_json(move.variation, base)},
                       {"gpu_bytes", tuner::added_gpu_bytes(all, move)},
                       {"host_bytes", tuner::added_host_bytes(all, move)},
                       {"step_seconds", tuner::added_seconds(all, move)},
                       {"fits", move.result.fits}});
}

Json movers_json(const tuner::Sensitivity& all, tuner::Measure measure) {
  constexpr std::size_t kMost = 8;
  Json list = Json::array();
  for (const std::size_t i : tuner::largest_movers(all, measure, kMost)) {
    list.push_back(Json(static_cast<std::int64_t>(i)));
  }
  return list;
}

Json match_json(const tuner::SizeMatch& match) {
  Json row = to_json(match.sort);
  row["category"] = name(match.category);
  row["phase"] = name(kPhaseNames, match.phase);
  row["place"] = match.place;
  row["bytes"] = match.bytes.count();
  row["allocated_before_bytes"] = match.allocated_before.count();
  row["allocations"] = match.count;
  row["off"] = match.off;
  return row;
}

Json tried_json(const tuner::TriedRemedy& one, const Plan& base) {
  return Json::object({{"change", one.change.english()},
                       {"price", name(tuner::kRemedyPriceNames, one.price)},
                       {"changes", changes_json(one.variation, base)},
                       {"fits", one.fits()},
                       {"result", one.outcome ? to_json(one.outcome->result) : Json()}});
}

void add_run(const OomRun& run, Json& document) {
  Json matches = Json::array();
  for (const tuner::SizeMatch& match : run.matches) matches.push_back(match_json(match));
  document["matches"] = matches;
  document["result"] = to_json(run.result);
  document["refuted_by_bytes"] = run.refuted_by ? Json(run.refuted_by->count()) : Json();
  if (run.end) {
    document["simulated_end"] =
        Json::object({{"phase", name(kPhaseNames, run.end->end.phase)},
                      {"place", run.end->label},
                      {"category", name(run.end->end.category)},
                      {"requested_bytes", run.end->end.numbers.requested.count()}});
  }
  add_changes(run.changes, run.plan, document);
}

Json symptoms_json(const std::vector<evidence::LogSymptom>& symptoms) {
  Json list = Json::array();
  for (const evidence::LogSymptom& symptom : symptoms) {
    Json row = Json::object({{"code", symptom.code},
                             {"line", symptom.line},
                             {"times", symptom.times},
                             {"text", symptom.text.english()},
                             {"advice", symptom.advice.english()}});
    if (!symptom.check.empty()) row["check"] = symptom.check.english();
    list.push_back(std::move(row));
  }
  return list;
}

}  // namespace

void add_changes(const tuner::Remedies& changes, const Plan& base, Json& document) {
  Json tried = Json::array();
  for (const tuner::TriedRemedy& one : changes.tried) tried.push_back(tried_json(one, base));
  document["changes"] = tried;
  document["smallest_change"] =
      changes.that_fit.empty() ? Json() : Json(static_cast<std::int64_t>(changes.that_fit.front()));
}

Json explain_json(const ConfigExplanation& explanation) {
  const tuner::Sensitivity& all = explanation.sensitivity;
  Json moves = Json::array();
  for (const tuner::Move& move : all.moves) moves.push_back(move_json(all, move, explanation.plan));
  Json refused = Json::array();
  for (const tuner::RefusedMove& move : all.refused) {
    refused.push_back(
        Json::object({{"change", describe(move.variation, explanation.plan).english()},
                      {"changes", changes_json(move.variation, explanation.plan)},
                      {"reason", move.reason.english()}}));
  }
  return Json::object(
      {{"schema", "zeroplan.explain/1"},
       {"kind", "configuration"},
       {"file", explanation.file},
       {"result", to_json(all.base)},
       {"peak", explanation.peak ? to_json(*explanation.peak) : Json()},
       {"moves", moves},
       {"largest_movers",
        Json::object({{"gpu_memory", movers_json(all, tuner::Measure::gpu_memory)},
                      {"host_memory", movers_json(all, tuner::Measure::host_memory)},
                      {"step_time", movers_json(all, tuner::Measure::step_time)}})},
       {"refused", refused}});
}

Json explain_json(const SymptomExplanation& explanation) {
  const evidence::LogReading& log = explanation.log;
  Json document = Json::object({{"schema", "zeroplan.explain/1"},
                                {"kind", "symptoms"},
                                {"file", explanation.file},
                                {"symptoms", symptoms_json(log.failures)}});
  if (log.failures.empty()) {
    document["consequences"] = symptoms_json(log.consequences);
    document["unknown"] =
        log.unknown ? Json::object({{"line", log.unknown->line}, {"text", log.unknown->text}})
                    : Json();
  }
  return document;
}

Json explain_json(const OomExplanation& explanation) {
  Json events = Json::array();
  for (const evidence::OomEvent& event : explanation.events) events.push_back(to_json(event));
  Json causes = Json::array();
  for (const evidence::OomCause& cause : explanation.causes) {
    causes.push_back(Json::object({{"code", cause.code},
                                   {"text", cause.text.english()},
                                   {"advice", cause.advice.english()}}));
  }
  Json facts = Json::array();
  for (const tuner::SizeFact& fact : explanation.facts) {
    facts.push_back(Json::object({{"what", fact.what.english()},
                                  {"arithmetic", fact.arithmetic},
                                  {"bytes", fact.bytes.count()},
                                  {"off", fact.off}}));
  }
  Json document = Json::object(
      {{"schema", "zeroplan.explain/1"},
       {"kind", "out_of_memory"},
       {"file", explanation.file},
       {"events", events},
       {"explained", static_cast<std::int64_t>(explanation.explained)},
       {"causes", causes},
       {"places", symptoms_json(explanation.log.places)},
       {"symptoms", symptoms_json(explanation.log.failures)},
       {"same_size", facts},
       {"missing", explanation.missing.empty() ? Json() : Json(explanation.missing.english())}});
  if (explanation.run) add_run(*explanation.run, document);
  return document;
}

}  // namespace zeroplan::cli
