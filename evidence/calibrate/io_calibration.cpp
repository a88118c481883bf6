// The documents of `zeroplan calibrate`: the profile it writes and the report of --json.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "evidence/calibrate/calibrate.hpp"

namespace zeroplan::evidence {
namespace {

Json errors_json(const RelativeErrors& errors) {
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

std::string provenance_of(const CoefficientFit& fit, const FittedDeviation& deviation) {
  std::string of = "the residuals";
  if (deviation.id == Coefficient::reserved_gap_share) {
    of = "what was reserved beside the predicted peak, between and within sources";
  } else if (fit.errors.front().has_left_out) {
    of = "rows whose source was left out";
  }
  return fmt::format("fitted: robust spread of {}, {} rows", of, deviation.rows);
}

Json range_json(const Calibration& calibration) {
  Json range = Json::object();
  for (const SeenRange& seen : calibration.range) {
    range[seen.what] = Json::array({seen.low, seen.high});
  }
  Json gpus = Json::array();
  for (const std::string& gpu : calibration.gpus) gpus.push_back(gpu);
  range["cards"] = gpus;
  return range;
}

Json fitted_json(const CoefficientFit& fit) {
  Json rows = Json::array();
  for (const FittedValue& value : fit.fitted) {
    rows.push_back(Json::object(
        {{"name", info(value.id).name},
         {"gpu", value.gpu.empty() ? Json() : Json(value.gpu)},
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

Json sources_json(const CoefficientFit& fit) {
  Json rows = Json::array();
  for (const OriginErrors& errors : fit.errors) {
    rows.push_back(
        Json::object({{"source", errors.origin.empty() ? Json("*") : Json(errors.origin)},
                      {"rows", errors.rows},
                      {"before", errors_json(errors.before)},
                      {"after", errors_json(errors.after)},
                      {"left_out", errors.has_left_out ? errors_json(errors.left_out) : Json()}}));
  }
  return rows;
}

Json name_json(Coefficient id, const std::string& gpu) {
  return Json::object({{"name", info(id).name}, {"gpu", gpu.empty() ? Json() : Json(gpu)}});
}

Json undetermined_json(const CoefficientFit& fit) {
  Json undetermined = Json::array();
  for (const UndeterminedValue& value : fit.undetermined) {
    Json row = name_json(value.id, value.gpu);
    row["determined"] = value.determined;
    row["rows"] = value.rows;
    undetermined.push_back(row);
  }
  return undetermined;
}

Json entangled_json(const CoefficientFit& fit) {
  Json entangled = Json::array();
  for (const Entanglement& pair : fit.entangled) {
    const auto name_of = [&](std::size_t i) {
      return name_json(fit.fitted[i].id, fit.fitted[i].gpu);
    };
    entangled.push_back(Json::object({{"first", name_of(pair.first)},
                                      {"second", name_of(pair.second)},
                                      {"correlation", pair.correlation}}));
  }
  return entangled;
}

// `measured`: the key of what was measured, with its unit.
Json rows_json(const CoefficientFit& fit, const char* measured) {
  Json rows = Json::array();
  for (const FittedRow& row : fit.rows) {
    rows.push_back(Json::object(
        {{"id", row.id},
         {"source", row.source},
         {"metric", row.what},
         {measured, row.measured},
         {"before", row.before / row.measured - 1.0},
         {"after", row.after / row.measured - 1.0},
         {"left_out", row.left_out > 0.0 ? Json(row.left_out / row.measured - 1.0) : Json()},
         {"weight", row.weight}}));
  }
  return rows;
}

Json fit_json(const CoefficientFit& fit, const char* measured) {
  Json deviations = Json::array();
  for (const FittedDeviation& deviation : fit.deviations) {
    deviations.push_back(Json::object({{"name", info(deviation.id).name},
                                       {"value", deviation.value},
                                       {"relative_sd", deviation.relative_sd},
                                       {"rows", deviation.rows}}));
  }
  return Json::object({{"coefficients", fitted_json(fit)},
                       {"undetermined", undetermined_json(fit)},
                       {"entangled", entangled_json(fit)},
                       {"deviations", deviations},
                       {"sources", sources_json(fit)},
                       {"rank", fit.rank},
                       {"condition", fit.condition},
                       {"residual_sd", fit.residual_sd},
                       {"iterations", fit.iterations},
                       {"converged", fit.converged},
                       {"rows", rows_json(fit, measured)}});
}

void add_values(const CoefficientFit& fit, Json& values) {
  for (const FittedValue& value : fit.fitted) {
    values.push_back(value_json(info(value.id).name,
                                value.value,
                                info(value.id).unit,
                                value.relative_sd,
                                provenance_of(value),
                                value.gpu));
  }
  for (const FittedDeviation& deviation : fit.deviations) {
    const CoefficientInfo& row = info(deviation.id);
    values.push_back(value_json(row.name,
                                std::clamp(deviation.value, row.low, row.high),
                                row.unit,
                                deviation.relative_sd,
                                provenance_of(fit, deviation)));
  }
}

// "24 times and 8 peaks of memory".
std::string rows_text(const Calibration& calibration) {
  const std::size_t times = calibration.times.rows.size();
  const std::size_t peaks = calibration.memory.rows.size();
  std::string text = times > 0 ? fmt::format("{} times", times) : "";
  if (peaks > 0) text += fmt::format("{}{} peaks of memory", times > 0 ? " and " : "", peaks);
  return text;
}

}  // namespace

Json profile_document(const Calibration& calibration, const CalibrateOptions& options) {
  Json values = Json::array();
  add_values(calibration.times, values);
  add_values(calibration.memory, values);
  return Json::object(
      {{"schema", "zeroplan.profile/1"},
       {"name", options.name},
       {"date", options.date},
       {"provenance",
        fmt::format(
            "zeroplan calibrate, {} of {} sources", rows_text(calibration), calibration.sources)},
       {"values", values},
       {"range", range_json(calibration)},
       {"sources", sources_json(calibration.times)},
       {"memory_sources", sources_json(calibration.memory)}});
}

// Times stand at the top, as they did when nothing else was fitted; memory beside them.
Json to_json(const Calibration& calibration) {
  Json skipped = Json::array();
  for (const UnusedMeasurement& unused : calibration.unused) {
    skipped.push_back(Json::object(
        {{"file", unused.file}, {"id", unused.id}, {"reason", unused.reason.english()}}));
  }
  Json document = fit_json(calibration.times, "measured_seconds");
  document["schema"] = "zeroplan.calibration/1";
  document["memory"] =
      calibration.memory.rows.empty() ? Json() : fit_json(calibration.memory, "measured_bytes");
  document["range"] = range_json(calibration);
  document["skipped"] = skipped;
  return document;
}

}  // namespace zeroplan::evidence
