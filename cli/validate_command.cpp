// zeroplan validate: predictions validated against measurements.
#include <algorithm>
#include <ostream>

#include "cli/commands.hpp"
#include "cli/language/translation.hpp"
#include "cli/report/validation_plot.hpp"
#include "cli/today.hpp"
#include "cli/validate_text.hpp"
#include "cli/write_file.hpp"
#include "evidence/validate.hpp"
#include "model/cost/profile.hpp"

namespace zeroplan::cli {

namespace {

// Read once, so that what is wrong with it is said once. Returns its document.
Json take_profile(const std::string& path, std::vector<evidence::MeasurementFile>& files) {
  const Origin origin = {kCommandLine, "--profile"};
  const Profile profile = parse_profile(Json(path), origin.file, origin.pointer);
  for (evidence::MeasurementFile& file : files) {
    for (evidence::Measurement& measurement : file.measurements) {
      if (measurement.scenario.find(ScenarioKey::profile) != nullptr) continue;
      measurement.scenario.set(ScenarioKey::profile, profile.document, origin);
    }
  }
  return profile.document;
}

}  // namespace

int run_validate(const Arguments& arguments, Streams streams) {
  evidence::ValidateOptions options;
  options.confidence = arguments.real("confidence", 0.01, 0.9999).value_or(options.confidence);
  options.jobs = arguments.integer("jobs", 1).value_or(1);
  options.tiers = arguments.text("tiers").value_or("");
  const std::int64_t worst = arguments.integer("worst", 0).value_or(10);
  const Translation words(arguments.language);
  // What is missing is said before anything is predicted.
  const auto plot = arguments.text("plot");
  if (plot) require_validation_plot(*plot);
  const auto output = arguments.text("output");
  if (output) require_writable(*output);
  std::vector<evidence::MeasurementFile> files;
  for (const std::string& path : arguments.positionals)
    files.push_back(evidence::read_measurements(path));
  Json profile;
  if (const auto path = arguments.text("profile")) profile = take_profile(*path, files);
  for (const evidence::MeasurementFile& file : files) {
    for (const Diagnostic& problem : file.bad_lines) {
      streams.log << words.text(to_string(problem)) << "\n";
    }
    for (const Diagnostic& key : file.ignored) {
      streams.log << "ignored: " << to_string(key).english().substr(std::string("error: ").size())
                  << "\n";
    }
  }
  const evidence::ValidationReport report = evidence::validate(files, options);
  const auto say = [&](const std::string& path, bool written) {
    streams.log << words.text(written ? phrase("wrote {}", path)
                                      : phrase("nothing written to {}: nothing to show", path))
                << "\n";
  };
  if (plot) {
    const Json points = validation_document(report, static_cast<std::size_t>(worst));
    say(*plot, write_validation_plot(points, *plot));
  }
  if (output) {
    const bool compared = std::any_of(report.rows.begin(), report.rows.end(), [](const auto& row) {
      return row.error.has_value();
    });
    if (compared) {
      write_file(*output, evidence::validated_profile(profile, report, today()).dump(2) + "\n");
    }
    say(*output, compared);
  }
  if (arguments.json) {
    streams.out << to_json(report, options).dump(2) << "\n";
  } else {
    streams.out << validate_text(report, options, static_cast<std::size_t>(worst));
  }
  return report.bad_lines.empty() ? kDone : kSomeBadLines;
}

}  // namespace zeroplan::cli
