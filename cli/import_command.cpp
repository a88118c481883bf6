// zeroplan import: users' logs, traces and result folders as measurements.
#include <filesystem>
#include <ostream>

#include <fmt/format.h>

#include "base/diagnostic.hpp"
#include "cli/commands.hpp"
#include "cli/write_file.hpp"
#include "evidence/importers/import.hpp"
#include "evidence/importers/run_summary.hpp"

namespace zeroplan::cli {
namespace {

// One run and where it came from.
struct Run {
  std::string id;
  evidence::RunFindings findings;
};

struct Imported {
  std::vector<evidence::ImportedFile> files;
  std::vector<Diagnostic> problems;  // files that were not recognised, lines that cannot be read
  std::vector<evidence::Measurement> measurements;
};

// Paths of documents become the documents, so that the measurements stand alone.
Scenario inlined(Scenario scenario) {
  for (const ScenarioKey key : {ScenarioKey::model, ScenarioKey::ds_config, ScenarioKey::cluster}) {
    const ExplicitValue* said = scenario.find(key);
    if (said == nullptr || !said->value.is_string()) continue;
    const std::string& text = said->value.as_string();
    std::error_code error;
    if (!std::filesystem::is_regular_file(text, error)) continue;  // a name; hostfile:PATH
    scenario.set(key, read_json_file(text).root, said->origin);
  }
  return scenario;
}

std::vector<Run> runs_of(const Imported& imported, bool together) {
  std::vector<Run> runs;
  for (const evidence::ImportedFile& file : imported.files) {
    for (const evidence::ImportedRun& run : file.runs) {
      if (together && !runs.empty()) {
        runs.front().findings.merge(run.findings);
      } else {
        runs.push_back({run.id, run.findings});
      }
    }
  }
  return runs;
}

// Nothing measured although lines were understood: what they did say is the answer.
Diagnostic nothing_measured(const evidence::RunFindings& findings) {
  std::string said;
  for (const std::string& note : findings.notes()) said += (said.empty() ? "" : "; ") + note;
  return {findings.file(),
          "",
          "lines that measure a step, memory or a collective",
          said.empty() ? "lines that say what was run, and none that measures it" : said,
          ""};
}

Imported import_all(const Arguments& arguments) {
  Imported imported;
  const Scenario given = inlined(scenario_of(arguments));
  for (const std::string& path : arguments.positionals) {
    try {
      imported.files.push_back(evidence::import_file(path, given));
    } catch (const InputError& error) {
      imported.problems.insert(
          imported.problems.end(), error.diagnostics().begin(), error.diagnostics().end());
    }
  }
  const std::string source = arguments.text("source").value_or("import");
  const std::vector<Run> runs = runs_of(imported, arguments.has("together"));
  for (const Run& run : runs) {
    const std::vector<Diagnostic>& bad = run.findings.bad_lines();
    imported.problems.insert(imported.problems.end(), bad.begin(), bad.end());
    const ExplicitValue* id = given.find(ScenarioKey::id);
    std::string name = run.id;
    if (id != nullptr) name = id->value.as_string() + (runs.size() > 1 ? "/" + run.id : "");
    if (auto measurement = measurement_of(run.findings, name, source)) {
      imported.measurements.push_back(std::move(*measurement));
    } else {
      imported.problems.push_back(nothing_measured(run.findings));
    }
  }
  return imported;
}

std::string summary_text(const evidence::ImportedFile& file) {
  std::string text = file.file + ":\n";
  for (const evidence::FormatCount& format : file.formats) {
    text += fmt::format("  {:<36} {:>7} {}\n", format.what, format.count, format.unit);
  }
  if (file.lines > 0)
    text += fmt::format("  {:<36} {:>7} of {} lines\n", "skipped", file.skipped, file.lines);
  return text;
}

Json summary_json(const evidence::ImportedFile& file) {
  Json formats = Json::array();
  for (const evidence::FormatCount& format : file.formats) {
    formats.push_back(
        Json::object({{"format", format.format}, {"count", format.count}, {"unit", format.unit}}));
  }
  return Json::object({{"file", file.file},
                       {"formats", std::move(formats)},
                       {"lines", file.lines},
                       {"skipped", file.skipped},
                       {"runs", file.runs.size()}});
}

Json document_of(const Imported& imported) {
  Json files = Json::array();
  for (const evidence::ImportedFile& file : imported.files) files.push_back(summary_json(file));
  Json lines = Json::array();
  for (const evidence::Measurement& measurement : imported.measurements)
    lines.push_back(to_json(measurement));
  Json problems = Json::array();
  for (const Diagnostic& problem : imported.problems) {
    problems.push_back(Json::object({{"file", problem.file},
                                     {"pointer", problem.pointer},
                                     {"expected", problem.expected.english()},
                                     {"got", problem.got.english()}}));
  }
  return Json::object({{"schema", "zeroplan.import/1"},
                       {"files", std::move(files)},
                       {"measurements", std::move(lines)},
                       {"problems", std::move(problems)}});
}

}  // namespace

int run_import(const Arguments& arguments, Streams streams) {
  const Imported imported = import_all(arguments);
  if (imported.measurements.empty()) throw InputError(imported.problems);
  for (const evidence::ImportedFile& file : imported.files) streams.log << summary_text(file);
  for (const Diagnostic& problem : imported.problems)
    streams.log << to_string(problem).english() << "\n";
  std::string lines;
  for (const evidence::Measurement& measurement : imported.measurements) {
    lines += to_json(measurement).dump() + "\n";
  }
  auto output = arguments.text("output");
  if (output == "-") output.reset();  // standard output, as without it
  if (output) {
    write_file(*output, lines);
    streams.log << fmt::format("{} measurement{} in {}\n",
                               imported.measurements.size(),
                               imported.measurements.size() == 1 ? "" : "s",
                               *output);
  }
  if (arguments.json) {
    streams.out << document_of(imported).dump(2) << "\n";
  } else if (!output) {
    streams.out << lines;
  }
  return imported.problems.empty() ? kDone : kSomeBadLines;
}

}  // namespace zeroplan::cli
