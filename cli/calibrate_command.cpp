// zeroplan calibrate: coefficients fitted to measurements, as a profile.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/parallel_for.hpp"
#include "cli/commands.hpp"
#include "cli/table.hpp"
#include "cli/today.hpp"
#include "cli/write_file.hpp"
#include "evidence/calibrate/calibrate.hpp"

namespace zeroplan::cli {

namespace {

using Lines = std::vector<std::vector<std::string>>;

std::string number(double value) { return fmt::format("{:.4g}", value); }
std::string signed_percent(double ratio) { return fmt::format("{:+.1f} %", 100.0 * ratio); }
std::string gpu_text(const std::string& gpu) { return gpu.empty() ? "any" : gpu; }

std::string errors_text(const evidence::RelativeErrors& errors) {
  return fmt::format("{} / {}", percent_text(errors.median), percent_text(errors.p95));
}

std::string sources(const evidence::CoefficientFit& fit, const char* what) {
  Lines lines;
  for (const evidence::OriginErrors& errors : fit.errors) {
    lines.push_back({errors.origin.empty() ? "all" : errors.origin,
                     std::to_string(errors.rows),
                     errors_text(errors.before),
                     errors_text(errors.after),
                     errors.has_left_out ? errors_text(errors.left_out) : "-",
                     signed_percent(errors.before.bias),
                     signed_percent(errors.after.bias)});
  }
  return fmt::format("\nErrors of {}, median / 95 %:\n", what) +
         table({{"source"},
                {"rows", Align::right},
                {"before", Align::right},
                {"after", Align::right},
                {"left out", Align::right},
                {"bias before", Align::right},
                {"after", Align::right}},
               lines);
}

std::string coefficients(const evidence::CoefficientFit& fit) {
  if (fit.fitted.empty()) return "\nThe data determine no coefficient.\n";
  Lines lines;
  for (const evidence::FittedValue& value : fit.fitted) {
    lines.push_back({std::string(info(value.id).name),
                     gpu_text(value.gpu),
                     std::string(info(value.id).unit),
                     number(value.prior),
                     percent_text(value.prior_relative_sd),
                     number(value.value),
                     percent_text(value.relative_sd),
                     percent_text(value.determined),
                     std::to_string(value.rows),
                     value.at_bound ? "at its bound" : ""});
  }
  return "\nCoefficients, each with its standard error:\n" + table({{"coefficient"},
                                                                    {"card"},
                                                                    {"unit"},
                                                                    {"table", Align::right},
                                                                    {"+-", Align::right},
                                                                    {"fitted", Align::right},
                                                                    {"+-", Align::right},
                                                                    {"by data", Align::right},
                                                                    {"rows", Align::right},
                                                                    {""}},
                                                                   lines);
}

std::string entangled(const evidence::CoefficientFit& fit) {
  if (fit.entangled.empty()) return "";
  const auto name_of = [&](std::size_t i) {
    const evidence::FittedValue& value = fit.fitted[i];
    return std::string(info(value.id).name) + (value.gpu.empty() ? "" : " of " + value.gpu);
  };
  Lines lines;
  for (const evidence::Entanglement& pair : fit.entangled) {
    lines.push_back(
        {name_of(pair.first), name_of(pair.second), fmt::format("{:+.2f}", pair.correlation)});
  }
  return "\nHardly told apart by these data:\n" +
         table({{"coefficient"}, {"and"}, {"correlation", Align::right}}, lines);
}

std::string undetermined(const evidence::CoefficientFit& fit) {
  if (fit.undetermined.empty()) return "";
  std::string text = fmt::format(
      "\n{} coefficients take part and stay at their priors, because the data say less of them "
      "than the table:\n",
      fit.undetermined.size());
  std::map<std::string, std::string> by_name;
  for (const evidence::UndeterminedValue& value : fit.undetermined) {
    std::string& gpus = by_name[std::string(info(value.id).name)];
    gpus += (gpus.empty() ? "" : ", ") + gpu_text(value.gpu);
  }
  for (const auto& [name, gpus] : by_name) text += "  " + name + " (" + gpus + ")\n";
  return text;
}

using ValueText = std::string(double);
std::string time_text(double seconds) { return seconds_text(Seconds::of(seconds)); }
std::string size_text(double bytes) { return gib_text(Bytes::nearest(bytes)); }

std::string worst_rows(const evidence::CoefficientFit& fit, std::size_t count, ValueText* text_of) {
  std::vector<evidence::FittedRow> rows = fit.rows;
  const auto error = [](const evidence::FittedRow& row) { return row.after / row.measured - 1.0; };
  std::stable_sort(
      rows.begin(), rows.end(), [&](const evidence::FittedRow& a, const evidence::FittedRow& b) {
        return std::abs(error(a)) > std::abs(error(b));
      });
  rows.resize(std::min(rows.size(), count));
  if (rows.empty()) return "";
  Lines lines;
  for (const evidence::FittedRow& row : rows) {
    lines.push_back({signed_percent(error(row)),
                     signed_percent(row.before / row.measured - 1.0),
                     text_of(row.measured),
                     fmt::format("{:.2f}", row.weight),
                     row.id,
                     row.gpu,
                     row.origin});
  }
  return "\nLargest residuals (weight below 1: counted as outliers):\n" +
         table({{"after", Align::right},
                {"before", Align::right},
                {"measured", Align::right},
                {"weight", Align::right},
                {"id"},
                {"card"},
                {"source"}},
               lines);
}

std::string deviations(const evidence::CoefficientFit& fit) {
  if (fit.deviations.empty()) return "";
  std::string text = "\nDeviations of the model, by the rows that they decide:\n";
  for (const evidence::FittedDeviation& deviation : fit.deviations) {
    const CoefficientInfo& row = info(deviation.id);
    text +=
        fmt::format("  {} {}{} ({} rows)\n",
                    row.name,
                    number(std::clamp(deviation.value, row.low, row.high)),
                    deviation.relative_sd > 0.0 ? " +- " + percent_text(deviation.relative_sd) : "",
                    deviation.rows);
  }
  return text;
}

// `what`: "times".
std::string part_text(const evidence::CoefficientFit& fit,
                      const char* what,
                      ValueText* text_of,
                      std::size_t worst) {
  std::string text = fmt::format(
      "{} {} fitted with {} coefficients of rank {}; residuals {:.2f} of the spread expected "
      "beforehand{}\n",
      fit.rows.size(),
      what,
      fit.fitted.size(),
      fit.rank,
      fit.residual_sd,
      fit.converged ? "" : "; the fit did not settle");
  text += sources(fit, what) + coefficients(fit) + entangled(fit) + undetermined(fit);
  return text + deviations(fit) + worst_rows(fit, worst, text_of);
}

std::string skipped(const evidence::Calibration& calibration) {
  if (calibration.unused.empty()) return "";
  std::map<std::string, std::size_t> reasons;
  for (const evidence::UnusedMeasurement& unused : calibration.unused) ++reasons[unused.reason];
  Lines lines;
  for (const auto& [reason, count] : reasons) lines.push_back({std::to_string(count), reason});
  return "\nNot used:\n" + table({{"lines", Align::right}, {"reason"}}, lines);
}

std::string range(const evidence::Calibration& calibration) {
  std::string text = "\nRange of the data; plans outside it are warned of:\n";
  for (const SeenRange& seen : calibration.range) {
    text += fmt::format("  {} {:.4g} to {:.4g}\n", seen.what, seen.low, seen.high);
  }
  text += "  GPUs";
  for (const std::string& gpu : calibration.gpus) text += " " + gpu;
  return text + "\n";
}

std::string calibrate_text(const evidence::Calibration& calibration, std::size_t worst) {
  std::string text;
  if (!calibration.times.rows.empty())
    text = part_text(calibration.times, "times", time_text, worst);
  if (!calibration.memory.rows.empty()) {
    text += text.empty() ? "" : "\n";
    text += part_text(calibration.memory, "peaks of memory", size_text, worst);
  }
  return text + range(calibration) + skipped(calibration);
}

}  // namespace

int run_calibrate(const Arguments& arguments, Streams streams) {
  evidence::CalibrateOptions options;
  const std::int64_t cores = machine_threads();
  options.jobs = arguments.integer("jobs", 1).value_or(cores);
  options.tiers = arguments.text("tiers").value_or("");
  options.name = arguments.text("name").value_or(options.name);
  options.date = today();
  const std::int64_t worst = arguments.integer("worst", 0).value_or(10);
  // Before what takes minutes.
  if (const auto path = arguments.text("output")) require_writable(*path);
  std::vector<evidence::MeasurementFile> files;
  bool any_bad = false;
  for (const std::string& path : arguments.positionals) {
    files.push_back(evidence::read_measurements(path));
    any_bad = any_bad || !files.back().bad_lines.empty();
    for (const Diagnostic& problem : files.back().bad_lines) {
      streams.log << to_string(problem).english() << "\n";
    }
    for (const Diagnostic& key : files.back().ignored) {
      streams.log << "ignored: " << to_string(key).english().substr(std::string("error: ").size())
                  << "\n";
    }
  }
  const evidence::Calibration calibration = evidence::calibrate(files, options);
  if (const auto path = arguments.text("output")) {
    write_file(*path, evidence::profile_document(calibration, options).dump(2) + "\n");
    streams.log << "wrote " << *path << "\n";
  }
  if (arguments.json) {
    streams.out << to_json(calibration).dump(2) << "\n";
  } else {
    streams.out << calibrate_text(calibration, static_cast<std::size_t>(worst));
  }
  return any_bad ? kSomeBadLines : kDone;
}

}  // namespace zeroplan::cli
