// zeroplan verify: the embedded runtime trains, and what it took stands beside the prediction of
// the same plan.
#include <cmath>
#include <optional>
#include <ostream>

#include "base/json.hpp"
#include "cli/commands.hpp"
#include "cli/embedded_run.hpp"
#include "cli/table.hpp"

namespace zeroplan::cli {
namespace {

using runtime::Place;
using runtime::PlaceAccount;

// (predicted - measured) / measured; nothing where both are 0, all of it where one is.
double error_of(double predicted, double measured) {
  if (predicted == measured) return 0.0;
  return measured == 0.0 ? 1.0 : (predicted - measured) / measured;
}

struct Row {
  std::string category;
  std::string phase;
  double predicted = 0.0;
  double measured = 0.0;
  double error() const { return error_of(predicted, measured); }
};

struct Comparison {
  std::vector<Row> memory;   // bytes
  std::vector<Row> seconds;  // of a step
  double memory_error = 0.0;
  double step_error = 0.0;
};

double count(Bytes bytes) { return static_cast<double>(bytes.count()); }

Comparison compare(const EmbeddedRun& run, const runtime::TrainingReport& report) {
  const StepResult& predicted = run.predicted;
  const runtime::RankReport& worst = worst_rank(report);
  const PlaceAccount& device = worst.memory.of(Place::device);
  Comparison result;
  for (std::size_t p = 0; p < kPhaseCount; ++p) {
    const std::string phase(kPhaseNames.names[p]);
    if (static_cast<Phase>(p) == Phase::save) continue;  // nothing was saved
    for (std::size_t c = 0; c < kMemoryCategoryCount; ++c) {
      const Row row{std::string(kMemoryCategoryNames[c]),
                    phase,
                    count(predicted.gpu.by_phase[p][c]),
                    count(device.at_phase_peak[p][c])};
      if (row.predicted != 0.0 || row.measured != 0.0) result.memory.push_back(row);
    }
    const Row total{
        "total", phase, count(sum(predicted.gpu.by_phase[p])), count(device.phase_peak[p])};
    if (total.predicted != 0.0 || total.measured != 0.0) result.memory.push_back(total);
  }
  // Of a node's ranks together, as the prediction is.
  const auto of_ranks = [&](Place place) {
    Bytes bytes;
    for (const runtime::RankReport& rank : report.ranks) bytes += rank.memory.of(place).peak;
    return bytes / run.plan.cluster.nodes;
  };
  const Row elsewhere[] = {
      {"pinned_host_memory", "peak", count(predicted.host.pinned), count(of_ranks(Place::pinned))},
      {"files_on_the_drive", "peak", count(predicted.nvme), count(of_ranks(Place::file))}};
  for (const Row& row : elsewhere) {
    if (row.predicted != 0.0 || row.measured != 0.0) result.memory.push_back(row);
  }
  const StepTime& time = predicted.step;
  const auto measured = [&](Phase phase) {
    return worst.steady[static_cast<std::size_t>(phase)].seconds();
  };
  result.seconds = {{"seconds", "forward", time.forward.seconds(), measured(Phase::forward)},
                    {"seconds", "backward", time.backward.seconds(), measured(Phase::backward)},
                    {"seconds", "step", time.optimizer.seconds(), measured(Phase::step)},
                    {"seconds", "total", time.total.seconds(), step_seconds(worst).seconds()}};
  result.memory_error = error_of(count(predicted.gpu.peak_allocated), count(device.peak));
  result.step_error = result.seconds.back().error();
  return result;
}

Json row_json(const Row& row) {
  return Json::object({{"category", row.category},
                       {"phase", row.phase},
                       {"predicted", row.predicted},
                       {"measured", row.measured},
                       {"error", row.error()}});
}

Json document_of(const Comparison& comparison, const runtime::TrainingReport& report) {
  Json losses = Json::array();
  for (const double loss : report.losses) losses.push_back(loss);
  Json rows = Json::array();
  for (const Row& row : comparison.memory) rows.push_back(row_json(row));
  for (const Row& row : comparison.seconds) rows.push_back(row_json(row));
  Json document = Json::object();
  document["schema"] = "zeroplan.verify/1";
  document["losses"] = std::move(losses);
  document["final_loss"] = report.losses.back();
  document["memory_error"] = comparison.memory_error;
  document["step_error"] = comparison.step_error;
  document["rows"] = std::move(rows);
  return document;
}

std::string mebibytes(double bytes) { return fixed_text(bytes / (1 << 20), 3); }

void print(const Comparison& comparison, const runtime::TrainingReport& report, std::ostream& out) {
  std::vector<std::vector<std::string>> rows;
  for (const Row& row : comparison.memory) {
    rows.push_back({row.phase,
                    plain_name(row.category),
                    mebibytes(row.predicted),
                    mebibytes(row.measured),
                    percent_text(row.error())});
  }
  out << table({{"phase"},
                {"MiB of"},
                {"predicted", Align::right},
                {"measured", Align::right},
                {"error", Align::right}},
               rows);
  rows.clear();
  for (const Row& row : comparison.seconds) {
    rows.push_back({row.phase,
                    seconds_text(Seconds::of(row.predicted)),
                    seconds_text(Seconds::of(row.measured)),
                    percent_text(row.error())});
  }
  out << "\n"
      << table({{"time of a step"},
                {"predicted", Align::right},
                {"measured", Align::right},
                {"error", Align::right}},
               rows);
  out << "\nloss " << fixed_text(report.losses.front(), 4) << " -> "
      << fixed_text(report.losses.back(), 4) << " in " << report.losses.size() << " steps; peak of "
      << "memory " << percent_text(comparison.memory_error) << ", time of a step "
      << percent_text(comparison.step_error) << " off\n";
}

// What the driver says of the GPU, beside the account: the allocator's segments, and how much less
// is free than when the rank began, which libraries and whoever shares the GPU add to.
void add_driver(const EmbeddedRun& run, const runtime::TrainingReport& report, Json& document) {
  document["device"] = run.on_gpus() ? run.gpus.found.front().name : "cpu";
  if (!run.on_gpus()) return;
  const runtime::RankReport& worst = worst_rank(report);
  document["peak_allocated_bytes"] = worst.memory.of(Place::device).peak.count();
  document["peak_reserved_bytes"] = worst.use.reserved.count();
  document["driver_bytes"] = worst.use.measured.count();
  document["attention"] = runtime::cuda::attention_computed_by();
  document["cuda_graphs"] = graphs_json(worst);
}

void print_driver(const EmbeddedRun& run,
                  const runtime::TrainingReport& report,
                  std::ostream& out) {
  if (!run.on_gpus()) return;
  const runtime::RankReport& worst = worst_rank(report);
  out << "on " << run.device_text() << ": " << mebibytes(count(worst.memory.of(Place::device).peak))
      << " MiB at the peak, " << mebibytes(count(worst.use.reserved))
      << " MiB in the allocator's segments, " << mebibytes(count(worst.use.measured))
      << " MiB more in use by the driver's count\n";
}

}  // namespace

int run_verify(const Arguments& arguments, Streams streams) {
  const double memory_tolerance = arguments.real("memory-tolerance", 0.0, 1e9).value_or(0.01);
  const double time_tolerance = arguments.real("time-tolerance", 0.0, 1e9).value_or(0.15);
  return run_command_body(arguments, streams, [&](Streams heard) -> int {
    const EmbeddedRun run = embedded_run(arguments);
    print_warnings(run, arguments, heard.log);
    const runtime::TrainingReport report = train_embedded(run, arguments, heard.log);
    // Few steps say nothing about time, and not all about memory.
    if (report.stopped) return stopped_early(arguments, report, heard);
    write_recordings(run, arguments, report, heard.log);
    const Comparison comparison = compare(run, report);
    if (arguments.json) {
      Json document = document_of(comparison, report);
      add_driver(run, report, document);
      document["warnings"] = warnings_json(run);
      heard.out << document.dump(2) << "\n";
    } else {
      print(comparison, report, heard.out);
      print_driver(run, report, heard.out);
    }
    // Time decides where a rank has a GPU of its own.
    const bool timed = run.on_gpus() && !run.shares_gpu();
    const bool good = std::abs(comparison.memory_error) <= memory_tolerance &&
                      (!timed || std::abs(comparison.step_error) <= time_tolerance);
    return good ? kDone : kAnswerIsNo;
  });
}

}  // namespace zeroplan::cli
