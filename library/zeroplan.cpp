#include <utility>

#include "base/check.hpp"
#include "base/too_large.hpp"
#include "library/answers.hpp"
#include "library/inside.hpp"
#include "library/questions.hpp"
#include "simulator/simulate.hpp"
#include "tuner/fit.hpp"
#include "tuner/remedies.hpp"

namespace zeroplan::v1 {
namespace {

// `ask` with its errors as the library's users know them.
template <typename Ask>
auto asked(const Ask& ask) {
  try {
    return ask();
  } catch (const zeroplan::InputError& error) {
    throw library::as_asked(error);
  } catch (const SizeOverflow&) {
    throw library::as_asked(too_large());
  }
}

// As the command line prints them. Precondition: there is one.
std::string text_of(const std::vector<Problem>& problems) {
  std::vector<Diagnostic> list;
  for (const Problem& one : problems) {
    list.push_back({one.file, one.pointer, one.expected, one.got, one.hint});
  }
  return zeroplan::InputError(std::move(list)).what();
}

}  // namespace

std::string_view version() noexcept { return ZEROPLAN_VERSION; }

InputError::InputError(std::vector<Problem> problems)
    : problems_(std::move(problems)), text_(text_of(problems_)) {}

Scenario Scenario::from_json(std::string text, std::string name) {
  Scenario scenario;
  scenario.document = std::move(text);
  scenario.document_name = std::move(name);
  asked([&] { return library::scenario_of(scenario, true); });
  return scenario;
}

Scenario Scenario::from_file(const std::string& path) {
  return from_json(asked([&] { return read_text_file(path); }), path);
}

Resolved resolve(const Scenario& scenario) {
  return asked([&] {
    library::Asked question = library::asked_of(scenario, false);
    Resolved resolved = library::answer_of(zeroplan::resolve(question.scenario), question.scenario);
    resolved.read = std::move(question.read);
    return resolved;
  });
}

Simulation simulate(const Scenario& scenario, const SimulateOptions& options) {
  return asked([&] {
    const zeroplan::simulator::SimulateOptions asked_for = library::options_of(options);
    const zeroplan::Scenario question = library::scenario_of(scenario, false);
    const Plan plan = zeroplan::resolve(question);
    const StepResult result = zeroplan::simulator::simulate(plan, asked_for);
    tuner::Remedies remedies;
    if (!result.fits)
      remedies = tuner::find_remedies(tuner::Variations(question), result, asked_for.predict);
    return library::answer_of(plan, result, std::move(remedies));
  });
}

Fit fit(const Scenario& scenario, const FitOptions& options) {
  return asked([&] {
    const PredictOptions asked_for = library::options_of(options);
    const zeroplan::Scenario question = library::scenario_of(scenario, true);
    return library::answer_of(zeroplan::tuner::fit(question, asked_for), question);
  });
}

Tuning tune(const Scenario& scenario, const TuneOptions& options) {
  return asked([&] {
    const zeroplan::Scenario question = library::scenario_of(scenario, true);
    const zeroplan::tuner::TuneOptions asked_for = library::options_of(options, question);
    return library::answer_of(
        zeroplan::tuner::tune(question, asked_for), asked_for, options.price_per_gpu_hour);
  });
}

Lint lint(const Scenario& scenario, const LintOptions& options) {
  return asked([&] {
    const zeroplan::Scenario question = library::scenario_of(scenario, true);
    if (question.find(ScenarioKey::ds_config) == nullptr) {
      throw zeroplan::InputError({"scenario", "/ds_config", "a ds_config.json", "nothing", ""});
    }
    LintRequest request = library::request_of(options, question);
    const LintSubject subject = lint_subject_of(question);
    request.config = subject.config;
    return library::answer_of(zeroplan::lint(request), subject);
  });
}

}  // namespace zeroplan::v1
