// README.md's table of rehearsals: real programs on emulated GPUs (docs/rehearsal.md), by strategy,
// is what the simulation of the same scenarios gives today. UPDATE_GOLDEN=1 writes it.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "evidence/scenario_prediction.hpp"
#include "model/parallel_for.hpp"
#include "tests/catch.hpp"
#include "tests/evidence/document_table.hpp"
#include "tests/evidence/rehearsed_run.hpp"
#include "tests/support/data.hpp"

namespace zeroplan {
namespace {

namespace fs = std::filesystem;

struct Deviation {
  std::string group;
  double allocated = 0.0, reserved = 0.0;  // with their signs
};

// What people call their run: how it is divided, but for what is a kind of its own.
std::string group_of(const std::string& file, const Plan& plan) {
  if (file == "trl") return "DPO, KTO and GRPO (TRL)";
  if (file == "lengths") return "lengths that vary";
  if (plan.workload.method != Method::full) return "LoRA and QLoRA";
  return strategy_of(plan);
}

// Where the range of events leaves two ends, from the nearer one; 0 between them.
double from_nearer_end(const Measurement& run, Bytes predicted) {
  const auto most = static_cast<double>(run.measured.bytes(Metric::peak_reserved_bytes).count());
  const double half = run.uncertainty.of(Metric::peak_reserved_bytes).value_or(0.0);
  const double least = most * (1.0 - 2.0 * half);
  const auto said = static_cast<double>(predicted.count());
  if (said > most) return said / most - 1.0;
  return std::min(0.0, said / least - 1.0);
}

struct Line {
  std::string file;
  Measurement run;
};

std::vector<Line> rehearsed_lines() {
  std::vector<fs::path> files = {testing::data_path("rehearsal") + "/dev.jsonl"};
  for (const auto& entry :
       fs::directory_iterator(ZEROPLAN_SOURCE_DIR "/tests/reference/rehearsal/matrix")) {
    files.push_back(entry.path());
  }
  std::vector<Line> lines;
  for (const fs::path& file : files) {
    for (Measurement& run : read_measurements(file.string()).measurements) {
      const bool ran = !run.measured.has(Metric::fits) || run.measured.fits();
      if (ran) lines.push_back({file.stem().string(), std::move(run)});
    }
  }
  return lines;
}

std::vector<Deviation> deviations() {
  const std::vector<Line> lines = rehearsed_lines();
  std::vector<Deviation> found(lines.size());
  parallel_for(lines.size(), 2, [&](std::size_t i) {
    const Measurement& run = lines[i].run;
    const Plan plan = resolve(run.scenario);
    SimulateOptions options;
    options.rank = run.rank;
    const GpuMemory gpu = simulate(plan, options).gpu;
    const auto allocated =
        static_cast<double>(run.measured.bytes(Metric::peak_allocated_bytes).count());
    found[i] = {group_of(lines[i].file, plan),
                static_cast<double>(gpu.peak_allocated.count()) / allocated - 1.0,
                from_nearer_end(run, gpu.peak_reserved)};
  });
  return found;
}

std::string row(const std::string& name, const std::vector<const Deviation*>& runs) {
  const auto sizes = [&](double Deviation::*what) {
    std::vector<double> values;
    for (const Deviation* run : runs) values.push_back(std::abs(run->*what));
    std::sort(values.begin(), values.end());
    return values;
  };
  double sum = 0.0;
  for (const Deviation* run : runs) sum += run->reserved;
  const std::vector<double> allocated = sizes(&Deviation::allocated);
  const std::vector<double> reserved = sizes(&Deviation::reserved);
  using testing::percent;
  return "| " + name + " | " + std::to_string(runs.size()) + " | " +
         percent(quantile(allocated, 0.5)) + " | " + percent(quantile(allocated, 0.95)) + " | " +
         percent(quantile(reserved, 0.5)) + " | " + percent(quantile(reserved, 0.95)) + " | " +
         percent(sum / static_cast<double>(runs.size())) + " |\n";
}

std::string table(const std::vector<Deviation>& all) {
  std::map<std::string, std::vector<const Deviation*>> groups;
  std::vector<const Deviation*> every;
  for (const Deviation& run : all) {
    groups[run.group].push_back(&run);
    every.push_back(&run);
  }
  std::string text =
      "| strategy | runs | allocated, median | 95 % | reserved, median | 95 % | mean |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const auto& [name, runs] : groups) text += row(name, runs);
  return text + row("all", every);
}

TEST_CASE("README.md has today's errors of rehearsals by strategy") {
  if (kUnderThreadSanitizer) {
    WARN("SKIPPED: a thousand simulations take half an hour under ThreadSanitizer");
    return;
  }
  testing::check_table(ZEROPLAN_SOURCE_DIR "/README.md", "rehearsed", table(deviations()));
}

}  // namespace
}  // namespace zeroplan
