// zeroplan calibrate: coefficients fitted to measurements, as a profile.
#include <algorithm>
#include <ostream>

#include "base/parallel_for.hpp"
#include "cli/calibrate_text.hpp"
#include "cli/commands.hpp"
#include "cli/today.hpp"
#include "cli/write_file.hpp"
#include "evidence/calibrate/calibrate.hpp"

namespace zeroplan {

int run_calibrate(const Arguments& arguments, Streams streams) {
  CalibrateOptions options;
  const std::int64_t cores = machine_threads();
  options.jobs = arguments.integer("jobs", 1).value_or(cores);
  options.tiers = arguments.text("tiers").value_or("");
  options.name = arguments.text("name").value_or(options.name);
  options.date = today();
  const std::int64_t worst = arguments.integer("worst", 0).value_or(10);
  // Before what takes minutes.
  if (const auto path = arguments.text("output")) require_writable(*path);
  std::vector<MeasurementFile> files;
  bool any_bad = false;
  for (const std::string& path : arguments.positionals) {
    files.push_back(read_measurements(path));
    any_bad = any_bad || !files.back().bad_lines.empty();
    for (const Diagnostic& problem : files.back().bad_lines) {
      streams.log << to_string(problem).english() << "\n";
    }
    for (const Diagnostic& key : files.back().ignored) {
      streams.log << "ignored: " << to_string(key).english().substr(std::string("error: ").size())
                  << "\n";
    }
  }
  const Calibration calibration = calibrate(files, options);
  if (const auto path = arguments.text("output")) {
    write_file(*path, profile_document(calibration, options).dump(2) + "\n");
    streams.log << "wrote " << *path << "\n";
  }
  if (arguments.json) {
    streams.out << to_json(calibration).dump(2) << "\n";
  } else {
    streams.out << calibrate_text(calibration, static_cast<std::size_t>(worst));
  }
  return any_bad ? kSomeBadLines : kDone;
}

}  // namespace zeroplan
