// zeroplan simulate: one configuration in detail, or a file of scenarios.
#include <algorithm>
#include <condition_variable>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/diagnostic.hpp"
#include "base/parallel_for.hpp"
#include "base/too_large.hpp"
#include "cli/arguments.hpp"
#include "cli/checkpoint_text.hpp"
#include "cli/commands.hpp"
#include "cli/compare_versions.hpp"
#include "cli/errors.hpp"
#include "cli/interrupt.hpp"
#include "cli/line_reader.hpp"
#include "cli/progress_bar.hpp"
#include "cli/simulate_text.hpp"
#include "cli/unknown_model.hpp"
#include "cli/write_file.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/io_checkpoint.hpp"
#include "model/predict/io_step_result.hpp"
#include "simulator/recording.hpp"
#include "simulator/simulate.hpp"
#include "tuner/io_fit_answer.hpp"
#include "tuner/remedies.hpp"

namespace zeroplan::cli {
namespace {

constexpr std::size_t kLongestLine = std::size_t{16} << 20;
constexpr std::int64_t kMostThreads = 256;

// The most answers that wait for an earlier line's: enough that a line that takes a thousand times
// as long as the others stops nobody.
constexpr std::int64_t kAnswersAThread = 1024;
constexpr std::size_t kMostHeldBytes = std::size_t{256} << 20;

// One line of the batch: its result, or its error under the same id.
struct Answer {
  std::string output;
  Phrase error;  // empty where there is none
  bool fits = true;
  std::size_t bytes() const { return output.size() + error.english().size(); }
};

struct BatchQuestion {
  std::string file;
  const Arguments& arguments;
  const simulator::SimulateOptions& options;
  CheckpointOptions checkpoint;
  std::ostream& log;
  Translation words;
};

int number_of(const InputLine& line) {
  return static_cast<int>(std::min<std::int64_t>(line.number, std::numeric_limits<int>::max()));
}

Json scenario_document_of(const InputLine& line, const std::string& file) {
  if (line.too_long) throw InputError({file, "", "lines of at most 16 MiB", "a longer one", ""});
  JsonOptions options;
  options.first_line = number_of(line);
  const JsonDocument document = parse_json(line.text, file, options);
  std::vector<Diagnostic> problems = duplicate_key_problems(document);
  if (!problems.empty()) throw InputError(std::move(problems));
  return document.root;
}

Answer bad_line(const Json& id,
                const InputLine& line,
                const InputError& error,
                const BatchQuestion& all) {
  Json body = error_json(error);
  body["line"] = line.number;
  Phrase text;
  for (Diagnostic diagnostic : error.diagnostics()) {
    const bool named = diagnostic.file != all.file || diagnostic.pointer.starts_with("line ");
    if (!named) {
      const std::string number = "line " + std::to_string(line.number);
      diagnostic.pointer = number + (diagnostic.pointer.empty() ? "" : ": " + diagnostic.pointer);
    }
    text += to_string(diagnostic);
    text += "\n";
  }
  return {Json::object({{"id", id}, {"error", body}}).dump() + "\n", text, false};
}

StepResult result_of(const Plan& plan,
                     const simulator::SimulateOptions& options,
                     const Arguments& arguments) {
  if (!arguments.has("estimate")) return simulator::simulate(plan, options);
  StepResult result = predict(plan, options.predict);
  result.warnings.emplace_back("estimated by formulas, not simulated");
  return result;
}

Answer answer_to(const InputLine& line, const BatchQuestion& all) {
  Json id;
  try {
    const Json document = scenario_document_of(line, all.file);
    if (const Json* found = document.find("id")) id = *found;
    const Scenario scenario = with_known_model(
        with_flags(parse_scenario(document, all.file), all.arguments), all.log, all.words);
    const Plan plan = resolve(scenario);
    const StepResult result = result_of(plan, all.options, all.arguments);
    return {step_document(plan, result, all.checkpoint).dump() + "\n", "", result.fits};
  } catch (const InputError& error) {
    return bad_line(id, line, error, all);
  } catch (const SizeOverflow&) {
    return bad_line(id, line, too_large(), all);
  } catch (const std::bad_alloc&) {
    const InputError too_much(
        Diagnostic{all.file, "", "a scenario that the memory is enough for", "out of memory", ""});
    return bad_line(id, line, too_much, all);
  } catch (const std::exception& error) {
    // A defect that one scenario meets must not take the answers of the others with it.
    return bad_line(id, line, defect(error, all.file), all);
  }
}

class Batch {
 public:
  Batch(const std::string& path, BatchQuestion question, std::int64_t jobs, Streams streams)
      : question_(std::move(question)),
        streams_(streams),
        threads_(std::min(jobs, kMostThreads)),
        lines_(path, kLongestLine, InterruptGuard::wake()) {}

  void run() {
    Threads workers;
    workers.start(static_cast<std::size_t>(threads_ - 1), [this](std::size_t) { work(); });
    work();
    workers.join();
    if (failure_) std::rethrow_exception(failure_);
  }

  bool any_bad() const { return any_bad_; }
  bool all_fit() const { return all_fit_; }

 private:
  struct Taken {
    std::int64_t order = 0;  // among the lines that are not blank
    InputLine line;
  };

  void work() {
    try {
      while (const std::optional<Taken> taken = take()) {
        Answer answer = answer_to(taken->line, question_);
        const std::lock_guard lock(answers_mutex_);
        held_bytes_ += answer.bytes();
        ready_.emplace(taken->order, std::move(answer));
        write_ready();
        freed_.notify_all();
      }
    } catch (...) {
      const std::lock_guard lock(answers_mutex_);
      if (!failure_) failure_ = std::current_exception();
      over_ = true;
      freed_.notify_all();
    }
  }

  // The next line, for the thread that calls; waits while too many answers are held. One thread
  // reads, the others wait for it.
  std::optional<Taken> take() {
    const std::lock_guard reading(lines_mutex_);
    {
      std::unique_lock lock(answers_mutex_);
      freed_.wait(lock, [&] {
        return over_ ||
               (taken_ - written_ < kAnswersAThread * threads_ && held_bytes_ < kMostHeldBytes);
      });
      if (over_) return std::nullopt;
    }
    std::optional<InputLine> line;
    if (!InterruptGuard::flag().load()) line = lines_.next();
    const std::lock_guard lock(answers_mutex_);
    over_ = over_ || !line;
    if (!line) return std::nullopt;
    return Taken{taken_++, std::move(*line)};
  }

  // Every answer is one write, whole or not there. Precondition: answers_mutex_ is held.
  void write_ready() {
    for (auto first = ready_.begin(); first != ready_.end() && first->first == written_;
         first = ready_.erase(first)) {
      const Answer& answer = first->second;
      streams_.out.write(answer.output.data(), static_cast<std::streamsize>(answer.output.size()));
      streams_.out.flush();
      if (!answer.error.empty()) streams_.log << question_.words.text(answer.error) << std::flush;
      any_bad_ = any_bad_ || !answer.error.empty();
      all_fit_ = all_fit_ && answer.fits;
      held_bytes_ -= answer.bytes();
      ++written_;
    }
    // A full disk: nobody gets what else would be computed. command_line.cpp says so.
    over_ = over_ || !streams_.out;
  }

  BatchQuestion question_;
  Streams streams_;
  std::int64_t threads_ = 1;
  InterruptGuard guard_;

  std::mutex lines_mutex_;  // taken before the other
  LineReader lines_;

  std::mutex answers_mutex_;
  std::condition_variable freed_;
  std::map<std::int64_t, Answer> ready_;  // by their order
  std::int64_t taken_ = 0;
  std::int64_t written_ = 0;
  std::size_t held_bytes_ = 0;
  bool over_ = false;  // no line is taken any more
  bool any_bad_ = false;
  bool all_fit_ = true;
  std::exception_ptr failure_;
};

// The lines of `file` ("-": standard input) on --jobs threads. Each answer is written when it and
// those of the lines before it are there, as one piece and at once, so that whoever holds a pipe
// open gets it before the next line, and what was done stays when the program is killed. Lines are
// read as threads become free, and few answers wait for an earlier one: the memory does not depend
// on the number of lines. A signal ends it after the lines that were begun. The exit code of the
// command.
int run_batch(const std::string& file,
              const Arguments& arguments,
              const simulator::SimulateOptions& options,
              Streams streams) {
  if (arguments.scenario_file) {
    throw InputError({kCommandLine,
                      "--scenario",
                      "either --batch or --scenario",
                      "both",
                      "put it in the lines"});
  }
  const std::int64_t jobs = arguments.integer("jobs", 1).value_or(1);
  const std::string shown = file == "-" ? "standard input" : file;
  const BatchQuestion question{shown,
                               arguments,
                               options,
                               checkpoint_options_of(arguments),
                               streams.log,
                               Translation(arguments.language)};
  Batch batch(file, question, jobs, streams);
  batch.run();
  if (const auto code = interrupted()) return *code;
  if (batch.any_bad()) return kSomeBadLines;
  return arguments.has("require-fit") && !batch.all_fit() ? kAnswerIsNo : kDone;
}

constexpr std::int64_t kMostClusterRanks =
    1 << 24;  // what a cluster can have is checked with the plan

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
  if (!simulator::is_simulated(plan)) {
    throw InputError({kCommandLine,
                      trace ? "--trace" : "--memory-snapshot",
                      "a DeepSpeed or FSDP engine whose drives are known",
                      "a plan that is predicted by analytic estimates",
                      ""});
  }
  const simulator::Recording recording = simulator::record_run(plan, result);
  const auto write = [&](const std::string& path, const std::string& text) {
    write_file(path, text);
    streams.log << "wrote " << path << "\n";
  };
  if (trace) write(*trace, recording.trace);
  if (snapshot) write(*snapshot, recording.memory_snapshot);
}

}  // namespace

int run_simulate(const Arguments& arguments, Streams streams) {
  simulator::SimulateOptions options;
  double& confidence = options.predict.confidence;
  confidence = arguments.real("confidence", 0.01, 0.9999).value_or(confidence);
  if (const auto rank = arguments.integer("rank", 0, kMostClusterRanks)) {
    options.rank = static_cast<int>(*rank);
  }
  if (arguments.has("compare-versions")) {
    return compare_simulate(arguments, options.predict, streams);
  }
  if (const auto file = arguments.text("batch")) {
    reject_beside_batch(arguments);
    return run_batch(*file, arguments, options, streams);
  }
  if (arguments.has("jobs")) {
    throw InputError({kCommandLine, "--jobs", "--batch beside it", "no batch", ""});
  }
  const CheckpointOptions checkpoint = checkpoint_options_of(arguments);
  options.predict.checkpoint_bandwidth = checkpoint.bandwidth;
  const Scenario scenario = scenario_of(arguments);
  const Plan plan = resolve(scenario);
  StepResult result = result_of(plan, options, arguments);
  write_recordings(arguments, plan, result, streams);
  tuner::Remedies remedies;
  if (!result.fits) {
    const Progress progress(
        streams.log,
        Translation(arguments.language).text("still simulating what would make it fit"));
    remedies = tuner::find_remedies(tuner::Variations(scenario), result, options.predict);
  }
  if (arguments.json) {
    streams.out << tuner::simulated_document(plan, result, checkpoint, std::move(remedies)).dump(2)
                << "\n";
  } else {
    const Translation words(arguments.language);
    streams.out << simulate_text(
        plan, result, remedies, predict_checkpoint(plan, checkpoint), words);
  }
  return arguments.has("require-fit") && !result.fits ? kAnswerIsNo : kDone;
}

}  // namespace zeroplan::cli
