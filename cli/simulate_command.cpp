// zeroplan simulate: one configuration in detail, or a file of scenarios.
#include <algorithm>
#include <atomic>
#include <exception>
#include <ostream>
#include <sstream>
#include <thread>

#include "cli/commands.hpp"
#include "cli/errors.hpp"
#include "cli/simulate_text.hpp"
#include "cli/write_file.hpp"
#include "model/check.hpp"
#include "model/diagnostic.hpp"
#include "model/predict/io_step_result.hpp"
#include "simulator/recording.hpp"
#include "simulator/simulate.hpp"

namespace zeroplan {
namespace {

constexpr std::int64_t kLargestBatchFile = std::int64_t{1} << 30;
constexpr std::size_t kLongestLine = std::size_t{16} << 20;

struct Line {
  int number = 0;
  std::string text;
};

std::vector<Line> lines_of(const std::string& file) {
  std::istringstream stream(read_text_file(file, kLargestBatchFile));
  std::vector<Line> lines;
  int number = 0;
  for (std::string text; std::getline(stream, text);) {
    ++number;
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    lines.push_back({number, std::move(text)});
  }
  return lines;
}

// One line of the batch: its result, or its error under the same id.
struct LineResult {
  std::string output;
  std::string error;  // as text; empty where there is none
  bool fits = true;
};

struct Batch {
  std::string file;
  const Arguments& arguments;
  const SimulateOptions& options;
};

Json scenario_document_of(const Line& line, const std::string& file) {
  if (line.text.size() > kLongestLine) {
    throw InputError({file, "", "lines of at most 16 MiB", "a longer one", ""});
  }
  JsonOptions options;
  options.first_line = line.number;
  const JsonDocument document = parse_json(line.text, file, options);
  std::vector<Diagnostic> problems = duplicate_key_problems(document);
  if (!problems.empty()) throw InputError(std::move(problems));
  return document.root;
}

LineResult bad_line(const Json& id, const Line& line, const InputError& error, const Batch& batch) {
  Json body = error_json(error);
  body["line"] = line.number;
  std::string text;
  for (Diagnostic diagnostic : error.diagnostics()) {
    const bool named = diagnostic.file != batch.file || diagnostic.pointer.starts_with("line ");
    if (!named) {
      const std::string number = "line " + std::to_string(line.number);
      diagnostic.pointer = number + (diagnostic.pointer.empty() ? "" : ": " + diagnostic.pointer);
    }
    text += to_string(diagnostic) + "\n";
  }
  return {Json::object({{"id", id}, {"error", body}}).dump(), text, false};
}

LineResult run_line(const Line& line, const Batch& batch) {
  Json id;
  try {
    const Json document = scenario_document_of(line, batch.file);
    if (const Json* found = document.find("id")) id = *found;
    const Scenario scenario = with_flags(parse_scenario(document, batch.file), batch.arguments);
    const StepResult result = simulate(resolve(scenario), batch.options);
    return {to_json(result).dump(), "", result.fits};
  } catch (const InputError& error) {
    return bad_line(id, line, error, batch);
  } catch (const SizeOverflow&) {
    return bad_line(id, line, too_large(), batch);
  } catch (const std::exception& error) {
    // A defect that one scenario meets must not take the answers of the others with it.
    return bad_line(id, line, defect(error, batch.file), batch);
  }
}

// Threads take the next line each until none is left; results stay in the order of the lines.
std::vector<LineResult> run_lines(const std::vector<Line>& lines,
                                  const Batch& batch,
                                  std::int64_t jobs) {
  std::vector<LineResult> results(lines.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < lines.size(); i = next++)
      results[i] = run_line(lines[i], batch);
  };
  constexpr std::int64_t kMostThreads = 256;
  const std::int64_t threads =
      std::min({jobs, kMostThreads, static_cast<std::int64_t>(lines.size())});
  std::vector<std::thread> workers;
  for (std::int64_t i = 1; i < threads; ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  return results;
}

int run_batch(const std::string& file,
              const Arguments& arguments,
              const SimulateOptions& options,
              Streams streams) {
  if (arguments.scenario_file) {
    throw InputError({kCommandLine,
                      "--scenario",
                      "either --batch or --scenario",
                      "both",
                      "put it in the lines"});
  }
  const std::int64_t jobs = arguments.integer("jobs", 1).value_or(1);
  const Batch batch{file, arguments, options};
  const Translation words(arguments.language);
  bool any_bad = false;
  bool all_fit = true;
  for (const LineResult& line : run_lines(lines_of(file), batch, jobs)) {
    streams.out << line.output << "\n";
    streams.log << words.text(line.error);
    any_bad = any_bad || !line.error.empty();
    all_fit = all_fit && line.fits;
  }
  if (any_bad) return kSomeBadLines;
  return arguments.has("require-fit") && !all_fit ? kAnswerIsNo : kDone;
}

void reject_beside_batch(const Arguments& arguments) {
  for (const char* flag : {"trace", "memory-snapshot"}) {
    if (!arguments.has(flag)) continue;
    throw InputError({kCommandLine, "--" + std::string(flag), "no --batch beside it", "both", ""});
  }
}

// The files that were asked for. Before the answer: where they cannot be written, standard output
// holds the error alone.
void write_recordings(const Arguments& arguments,
                      const Plan& plan,
                      const StepResult& result,
                      Streams streams) {
  const auto trace = arguments.text("trace");
  const auto snapshot = arguments.text("memory-snapshot");
  if (!trace && !snapshot) return;
  if (!is_simulated(plan)) {
    throw InputError({kCommandLine,
                      trace ? "--trace" : "--memory-snapshot",
                      "a DeepSpeed or FSDP engine whose drives are known",
                      "a plan that is predicted by closed forms",
                      ""});
  }
  const Recording recording = record_run(plan, result);
  const auto write = [&](const std::string& path, const std::string& text) {
    write_file(path, text);
    streams.log << "wrote " << path << "\n";
  };
  if (trace) write(*trace, recording.trace);
  if (snapshot) write(*snapshot, recording.memory_snapshot);
}

}  // namespace

int run_simulate(const Arguments& arguments, Streams streams) {
  SimulateOptions options;
  double& confidence = options.predict.confidence;
  confidence = arguments.real("confidence", 0.01, 0.9999).value_or(confidence);
  if (const auto file = arguments.text("batch")) {
    reject_beside_batch(arguments);
    return run_batch(*file, arguments, options, streams);
  }
  if (arguments.has("jobs")) {
    throw InputError({kCommandLine, "--jobs", "--batch beside it", "no batch", ""});
  }
  const Plan plan = resolve(scenario_of(arguments));
  const StepResult result = simulate(plan, options);
  write_recordings(arguments, plan, result, streams);
  if (arguments.json) {
    streams.out << to_json(result).dump(2) << "\n";
  } else {
    streams.out << simulate_text(plan, result, Translation(arguments.language));
  }
  return arguments.has("require-fit") && !result.fits ? kAnswerIsNo : kDone;
}

}  // namespace zeroplan
