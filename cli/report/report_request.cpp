#include "cli/report/report_request.hpp"

#include <iterator>
#include <optional>
#include <sstream>

#include <fmt/ranges.h>

#include "base/diagnostic.hpp"
#include "cli/cost_options.hpp"
#include "cli/flags.hpp"
#include "cli/interrupt.hpp"
#include "cli/progress_bar.hpp"
#include "cli/search_options.hpp"
#include "cli/step_text.hpp"
#include "cli/table.hpp"
#include "cli/write_file.hpp"
#include "model/predict/verdict.hpp"

namespace zeroplan::cli {
namespace {

// What a search would read, where there is none.
void refuse_search_flags(const Arguments& arguments) {
  for (const char* option :
       {"objective", "fix", "search", "max-host-memory", "min-throughput", "jobs"}) {
    if (!arguments.has(option)) continue;
    throw InputError({kCommandLine,
                      "--" + std::string(option),
                      "no flag of a search beside --no-search or --quick",
                      "--" + std::string(option),
                      "leave one of the two out"});
  }
}

// "--cluster 8xH100-80G; --method lora": each with its flags over the question.
std::vector<ComparedQuestion> compared_of(const Arguments& arguments, const Scenario& scenario) {
  std::vector<ComparedQuestion> questions;
  std::istringstream all(arguments.text("compare-with").value_or(""));
  for (std::string flags; std::getline(all, flags, ';');) {
    std::istringstream one(flags);
    const std::vector<std::string> words{std::istream_iterator<std::string>(one), {}};
    if (words.empty()) continue;
    const Arguments said = parse_words(*command_named("scenario"), words);
    questions.push_back({fmt::format("{}", fmt::join(words, " ")), with_flags(scenario, said)});
  }
  return questions;
}

}  // namespace

ReportData report_data_of(const Arguments& arguments, Streams streams, const ReportParts& parts) {
  const Scenario scenario = scenario_of(arguments);
  ReportOptions options;
  options.tune = tune_options_of(arguments, scenario, tuner::kReportCounts);
  const tuner::Objective objective = options.tune.objective;
  if (objective != tuner::Objective::throughput && objective != tuner::Objective::memory) {
    throw InputError({kCommandLine,
                      "--objective",
                      "throughput or memory",
                      in_quotes(std::string(name(tuner::kObjectiveNames, objective))),
                      "zeroplan tune looks for it; report --cluster with what it finds"});
  }
  options.cost = cost_question_of(arguments);
  options.compared = compared_of(arguments, scenario);
  options.parts = parts;
  options.quick = arguments.has("quick");
  if (options.quick || arguments.has("brief")) {
    options.parts.step = options.parts.moves = options.parts.answers = false;
  }
  if (arguments.has("no-search") || options.quick) {
    refuse_search_flags(arguments);
    options.parts.search = false;
  }
  const Translation words(arguments.language);
  std::optional<InterruptGuard> guard;  // before the search there is nothing to keep
  Progress progress(streams.log, words.text("still reading the question"));
  options.on_phase = [&](const Phrase& phase) { progress.show({}, words.text(phase)); };
  options.tune.search.interrupted = &InterruptGuard::flag();
  options.tune.search.on_progress = [&](const tuner::SearchProgress& search) {
    if (!guard) guard.emplace();
    show_progress(search, progress, words);
  };
  return gather_report(scenario, options);
}

Phrase report_text(const Json& document, const ReportData& data) {
  const Json& question = *document.find("question");
  const Json& search = *document.find("search");
  Phrase text = phrase("{} ({} parameters) on {}, {} tokens, {}\n",
                       question.find("model")->as_string(),
                       short_count_text(question.find("parameters")->as_integer()),
                       question.find("cluster")->as_string(),
                       question.find("sequence_length")->as_integer(),
                       question.find("precision")->as_string());
  if (!data.chosen) {
    text += search.find("proven_empty")->as_boolean() ? "no: nothing in the space fits\n"
                                                      : "nothing found so far that fits\n";
  } else {
    const Json& chosen = *document.find("chosen");
    const StepResult& result = data.chosen->row.result;
    const GibPair gpu(result.gpu.peak_total, result.gpu.capacity);
    text += phrase("{}{}\n  {:.0f} tokens/s per GPU, {} of {} GPU memory\n  {}\n",
                   chosen.find("name")->as_string(),
                   condition_text(result),
                   result.step.tokens_per_second_per_gpu,
                   gpu.needed,
                   gpu.there,
                   chosen.find("launch")->as_string());
    text += generation_text(data.chosen->row.plan);
  }
  const Json* moved = document.find("sensitivity_complete");
  const bool searched = search.find("complete")->as_boolean();
  const char* cut = search.find("interrupted")->as_boolean() ? "interrupted\n"
                    : !searched                     ? "the searches were cut by --time-limit\n"
                    : moved && !moved->as_boolean() ? "the sensitivity was cut by --time-limit\n"
                                                    : "";
  return text + cut;
}

std::string output_file(const Arguments& arguments, const std::string& example) {
  if (const auto said = arguments.text("output"); said && !said->empty()) {
    require_writable(*said);
    return *said;
  }
  throw InputError({kCommandLine, "--output", "a file to write", "nothing", "-o " + example});
}

int exit_code_of(const Json& document, const Streams& streams, const Translation& words) {
  if (const auto code = interrupted()) return *code;
  if (!document.find("chosen")->is_null()) return kDone;
  return nothing_found(document.find("search")->find("proven_empty")->as_boolean(), streams, words);
}

}  // namespace zeroplan::cli
