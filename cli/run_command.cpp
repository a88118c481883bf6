// zeroplan run: the embedded runtime trains.
#include <ostream>

#include "base/json.hpp"
#include "cli/commands.hpp"
#include "cli/embedded_run.hpp"
#include "cli/table.hpp"

namespace zeroplan::cli {
namespace {

using runtime::Place;
using runtime::PlaceAccount;
using runtime::RankReport;
using runtime::TrainingReport;

Json bytes_json(const CategoryBytes& bytes) {
  Json object = Json::object();
  for (std::size_t i = 0; i < kMemoryCategoryCount; ++i) {
    object[std::string(kMemoryCategoryNames[i])] = bytes[i].count();
  }
  return object;
}

Json report_json(const EmbeddedRun& run, const TrainingReport& report) {
  const RankReport& worst = worst_rank(report);
  const PlaceAccount& device = worst.memory.of(Place::device);
  Json losses = Json::array();
  for (const double loss : report.losses) losses.push_back(loss);
  Json norms = Json::array();
  for (const double norm : report.gradient_norms) norms.push_back(norm);
  Json phases = Json::object();
  Json seconds = Json::object();
  for (std::size_t i = 0; i < kPhaseCount; ++i) {
    const std::string phase(kPhaseNames.names[i]);
    phases[phase] = bytes_json(device.at_phase_peak[i]);
    seconds[phase] = worst.steady[i].seconds();
  }
  Json document = Json::object();
  document["schema"] = "zeroplan.run/1";
  document["losses"] = std::move(losses);
  document["final_loss"] = report.losses.back();
  document["gradient_norms"] = std::move(norms);
  document["interrupted"] = report.stopped;
  document["peak_allocated_bytes"] = device.peak.count();
  document["peak_phase"] = std::string(name(kPhaseNames, device.peak_phase));
  document["breakdown_at_peak"] = bytes_json(device.at_peak);
  document["by_phase"] = std::move(phases);
  document["static_allocated_bytes"] = worst.between_steps.count();
  document["pinned_bytes"] = worst.memory.of(Place::pinned).peak.count();
  document["host_bytes"] = worst.memory.of(Place::pageable).peak.count();
  document["drive_bytes"] = worst.memory.of(Place::file).peak.count();
  document["step_seconds"] = step_seconds(worst).seconds();
  document["median_step_seconds"] = worst.median_step.seconds();
  document["steady_steps"] = worst.steady_steps;
  document["seconds"] = std::move(seconds);
  document["device"] = run.on_gpus() ? run.gpus.found.front().name : "cpu";
  if (run.on_gpus()) {
    document["peak_reserved_bytes"] = worst.use.reserved.count();
    document["driver_bytes"] = worst.use.measured.count();
    document["attention"] = runtime::cuda::attention_computed_by();
    document["cuda_graphs"] = graphs_json(worst);
  }
  if (worst.device_busy > Seconds()) {
    document["device_busy_seconds"] = worst.device_busy.seconds();
  }
  document["warnings"] = warnings_json(run);
  return document;
}

void print(const EmbeddedRun& run, const TrainingReport& report, std::ostream& out) {
  const RankReport& worst = worst_rank(report);
  const PlaceAccount& device = worst.memory.of(Place::device);
  out << "loss " << fixed_text(report.losses.front(), 4) << " -> "
      << fixed_text(report.losses.back(), 4) << " in " << report.losses.size() << " steps of "
      << seconds_text(step_seconds(worst)) << " on " << run.device_text() << "\n";
  out << "peak " << gib_text(device.peak) << " in " << name(kPhaseNames, device.peak_phase) << "; "
      << gib_text(worst.between_steps) << " between steps\n\n";
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < kMemoryCategoryCount; ++i) {
    if (device.at_peak[i] == Bytes::zero()) continue;
    rows.push_back({plain_name(kMemoryCategoryNames[i]), gib_number(device.at_peak[i])});
  }
  out << table({{"at the peak"}, {"GiB", Align::right}}, rows);
}

}  // namespace

int run_run(const Arguments& arguments, Streams streams) {
  return run_command_body(arguments, streams, [&](Streams heard) -> int {
    const EmbeddedRun run = embedded_run(arguments);
    print_warnings(run, arguments, heard.log);
    const TrainingReport report = train_embedded(run, arguments, heard.log);
    if (!report.stopped) write_recordings(run, arguments, report, heard.log);
    if (arguments.json) {
      heard.out << report_json(run, report).dump(2) << "\n";
    } else {
      print(run, report, heard.out);
    }
    return report.stopped ? stopped_early(arguments, report, heard) : kDone;
  });
}

}  // namespace zeroplan::cli
