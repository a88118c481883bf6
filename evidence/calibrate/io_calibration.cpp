// The documents of `zeroplan calibrate`: the profile it writes and the report of --json.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "evidence/calibrate/calibrate.hpp"

namespace zeroplan {
namespace {

Json errors_json(const TimeErrors& errors) {
  return Json::object({{"median_abs_error", errors.median},
                       {"p95_abs_error", errors.p95},
                       {"median_error", errors.bias}});
}

std::string provenance_of(const FittedValue& value) {
  return fmt::format("fitted to {} rows by zeroplan calibrate{}; before {:.6g}",
                     value.rows,
                     value.at_bound ? ", at its bound" : "",
                     value.prior);
}

Json range_json(const Calibration& calibration) {
  Json range = Json::object();
  for (const SeenRange& seen : calibration.range) {
    range[seen.what] = Json::array({seen.low, seen.high});
  }
  Json cards = Json::array();
  for (const std::string& card : calibration.cards) cards.push_back(card);
  range["cards"] = cards;
  return range;
}

Json fitted_json(const Calibration& calibration) {
  Json rows = Json::array();
  for (const FittedValue& value : calibration.fitted) {
    rows.push_back(Json::object(
        {{"name", info(value.id).name},
         {"gpu", value.card.empty() ? Json() : Json(value.card)},
         {"unit", info(value.id).unit},
         {"value", value.value},
         {"standard_error", value.value * value.relative_sd},
         {"relative_sd", value.relative_sd},
         {"prior",
          Json::object({{"value", value.prior}, {"relative_sd", value.prior_relative_sd}})},
         {"determined", value.determined},
         {"at_bound", value.at_bound},
         {"rows", value.rows}}));
  }
  return rows;
}

Json sources_json(const Calibration& calibration) {
  Json rows = Json::array();
  for (const OriginErrors& errors : calibration.errors) {
    rows.push_back(
        Json::object({{"source", errors.origin.empty() ? Json("*") : Json(errors.origin)},
                      {"rows", errors.rows},
                      {"before", errors_json(errors.before)},
                      {"after", errors_json(errors.after)},
                      {"left_out", errors.has_left_out ? errors_json(errors.left_out) : Json()}}));
  }
  return rows;
}

}  // namespace

Json profile_document(const Calibration& calibration, const CalibrateOptions& options) {
  Json values = Json::array();
  for (const FittedValue& value : calibration.fitted) {
    values.push_back(value_json(info(value.id).name,
                                value.value,
                                info(value.id).unit,
                                value.relative_sd,
                                provenance_of(value),
                                value.card));
  }
  if (calibration.model_sd > 0.0) {
    const CoefficientInfo& row = info(Coefficient::step_time_model_sd);
    values.push_back(value_json(row.name,
                                std::clamp(calibration.model_sd, row.low, row.high),
                                row.unit,
                                0.0,
                                calibration.errors.front().has_left_out
                                    ? "fitted: robust spread of rows whose source was left out"
                                    : "fitted: robust spread of the residuals"));
  }
  return Json::object({{"schema", "zeroplan.profile/1"},
                       {"name", options.name},
                       {"date", options.date},
                       {"provenance",
                        fmt::format("zeroplan calibrate, {} rows of {} sources",
                                    calibration.rows.size(),
                                    calibration.errors.size() - 1)},
                       {"values", values},
                       {"range", range_json(calibration)},
                       {"sources", sources_json(calibration)}});
}

Json to_json(const Calibration& calibration) {
  Json undetermined = Json::array();
  for (const UndeterminedValue& value : calibration.undetermined) {
    undetermined.push_back(Json::object({{"name", info(value.id).name},
                                         {"gpu", value.card.empty() ? Json() : Json(value.card)},
                                         {"determined", value.determined},
                                         {"rows", value.rows}}));
  }
  Json entangled = Json::array();
  for (const Entanglement& pair : calibration.entangled) {
    const auto name_of = [&](std::size_t i) {
      const FittedValue& value = calibration.fitted[i];
      return Json::object(
          {{"name", info(value.id).name}, {"gpu", value.card.empty() ? Json() : Json(value.card)}});
    };
    entangled.push_back(Json::object({{"first", name_of(pair.first)},
                                      {"second", name_of(pair.second)},
                                      {"correlation", pair.correlation}}));
  }
  Json rows = Json::array();
  for (const FittedRow& row : calibration.rows) {
    rows.push_back(Json::object(
        {{"id", row.id},
         {"source", row.source},
         {"metric", row.what},
         {"measured_seconds", row.measured},
         {"before", row.before / row.measured - 1.0},
         {"after", row.after / row.measured - 1.0},
         {"left_out", row.left_out > 0.0 ? Json(row.left_out / row.measured - 1.0) : Json()},
         {"weight", row.weight}}));
  }
  Json skipped = Json::array();
  for (const UnusedMeasurement& unused : calibration.unused) {
    skipped.push_back(
        Json::object({{"file", unused.file}, {"id", unused.id}, {"reason", unused.reason}}));
  }
  return Json::object({{"schema", "zeroplan.calibration/1"},
                       {"coefficients", fitted_json(calibration)},
                       {"undetermined", undetermined},
                       {"entangled", entangled},
                       {"sources", sources_json(calibration)},
                       {"range", range_json(calibration)},
                       {"rank", calibration.rank},
                       {"condition", calibration.condition},
                       {"residual_sd", calibration.residual_sd},
                       {"iterations", calibration.iterations},
                       {"converged", calibration.converged},
                       {"rows", rows},
                       {"skipped", skipped}});
}

}  // namespace zeroplan
