#include "cli/compare_versions.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/diagnostic.hpp"
#include "base/phrase.hpp"
#include "cli/language/translation.hpp"
#include "cli/step_text.hpp"
#include "cli/table.hpp"
#include "model/hardware/cluster.hpp"
#include "model/release_table.hpp"
#include "tuner/compare_versions.hpp"
#include "tuner/fit.hpp"
#include "tuner/fit_question.hpp"
#include "tuner/fit_ranking.hpp"

namespace zeroplan::cli {
namespace {

// Smaller effects are counted, not listed.
constexpr Bytes kWorthALine = Bytes::mib(8);
constexpr double kWorthALineOfTime = 0.001;  // of the step

std::string signed_bytes(Bytes bytes) {
  const std::int64_t count = bytes.count();
  const Bytes size = Bytes::of(std::abs(count));
  const char* sign = count < 0 ? "-" : "+";
  return size < Bytes::gib(1) / 10 ? fmt::format("{}{:.0f} MiB", sign, size / Bytes::mib(1))
                                   : fmt::format("{}{:.2f} GiB", sign, size / Bytes::gib(1));
}

// "GPU memory +1.24 GiB, step -3.1 %"; empty where nothing is large enough for a line.
std::string effect_text(
    Bytes gpu, Bytes host, Seconds step, Seconds whole_step, const Translation& words) {
  std::vector<std::string> parts;
  const auto large = [](Bytes bytes) { return std::abs(bytes.count()) >= kWorthALine.count(); };
  if (large(gpu)) parts.push_back(words.text("GPU memory") + " " + signed_bytes(gpu));
  if (large(host)) parts.push_back(words.text("host memory") + " " + signed_bytes(host));
  const double share = whole_step > Seconds::zero() ? step / whole_step : 0.0;
  if (std::abs(share) >= kWorthALineOfTime) {
    parts.push_back(words.text("step time") + fmt::format(" {:+.1f} %", 100.0 * share));
  }
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

bool runs_deepspeed(const tuner::ComparedSet& set) { return runs_deepspeed(set.plan.workload); }

std::string question_text(const tuner::ComparedSet& last,
                          const std::string& strategy,
                          const Translation& words) {
  const Plan& plan = last.plan;
  const std::string name =
      plan.whole_model->name.empty() ? plan.whole_model->architecture : plan.whole_model->name;
  std::string text =
      words.text(phrase("{} ({} parameters) on {}, {} tokens, micro-batch {} x {}",
                        name,
                        short_count_text(count_parameters(*plan.whole_model).total.count()),
                        short_name(plan.cluster),
                        plan.workload.sequence_length,
                        plan.workload.micro_batch_size,
                        plan.workload.gradient_accumulation_steps));
  if (!strategy.empty()) {
    text += "\n" +
            words.text(phrase("what fit {} under {}:",
                              last.result.fits ? "recommends" : "comes nearest with",
                              label(last.releases, runs_deepspeed(last)))) +
            " " + words.text(strategy);
  }
  text += "\n" + words.text(generation_text(plan));
  return text + "\n";
}

std::string sets_table(const std::vector<tuner::ComparedSet>& compared, const Translation& words) {
  std::vector<std::vector<Phrase>> rows;
  for (const tuner::ComparedSet& set : compared) {
    const StepResult& result = set.result;
    rows.push_back({label(set.releases, runs_deepspeed(set)),
                    GibPair(result.gpu.peak_total, result.gpu.capacity, "").needed,
                    gib_number(result.host.peak),
                    seconds_text(result.step.total),
                    fixed_text(result.step.tokens_per_second_per_gpu, 0),
                    result.fits ? "yes" : "no"});
  }
  return table({{runs_deepspeed(compared.back()) ? "DeepSpeed / torch / transformers"
                                                 : "torch / transformers"},
                {"GPU GiB", Align::right},
                {"host GiB", Align::right},
                {"step time", Align::right},
                {"tokens/s per GPU", Align::right},
                {"fits"}},
               rows,
               words);
}

// The sentence names the release at which the difference begins or ends: that of the newer side,
// whichever of the two sets it is.
std::string difference_text(const tuner::ReleaseEffect& effect,
                            const tuner::ComparedSet& first,
                            const tuner::ComparedSet& second,
                            const Translation& words) {
  if (effect.changed) {
    return words.text(phrase("DeepSpeed: default of {} is {}, was {}",
                             pointer_of(effect.changed->knob),
                             effect.changed->newer,
                             effect.changed->older));
  }
  if (effect.recorded) {
    return words.text(phrase("transformers: {} as recorded in {}, not in {}",
                             second.plan.model->architecture,
                             to_string(effect.recorded->newer),
                             to_string(effect.recorded->older)));
  }
  const ReleaseRow& row = release_row(*effect.rule);
  const bool back = tuner::release_of(second.releases, row.package) <
                    tuner::release_of(first.releases, row.package);
  const std::string release = fmt::format(
      "{} {}", display_name(row.package), to_string(effect.begins != back ? row.since : row.until));
  const char* where =
      effect.begins ? (back ? ", before it:" : ":") : (back ? ", not before it:" : ", no longer:");
  // The releases are numbers; the sentence is a message of its own.
  return release + words.text(Phrase(where)) + " " + words.text(std::string(row.does));
}

std::string neighbours_text(const tuner::ComparedSet& older,
                            const tuner::ComparedSet& newer,
                            const Translation& words) {
  const StepResult& before = older.result;
  const StepResult& after = newer.result;
  const bool deepspeed = runs_deepspeed(newer);
  const std::string change = effect_text(after.gpu.peak_total - before.gpu.peak_total,
                                         after.host.peak - before.host.peak,
                                         after.step.total - before.step.total,
                                         before.step.total,
                                         words);
  std::string text = "\n" + label(older.releases, deepspeed) + "  ->  " +
                     label(newer.releases, deepspeed) + ": " +
                     (change.empty() ? words.text("the same") : change) + "\n";
  std::size_t small = 0;
  for (const tuner::ReleaseEffect& effect : newer.effects) {
    const std::string does = effect_text(effect.gpu_memory,
                                         effect.host_memory,
                                         effect.step_time,
                                         after.step.total - effect.step_time,
                                         words);
    if (does.empty()) {
      ++small;
      continue;
    }
    text += "  " + difference_text(effect, older, newer, words) + " (" + does + ")\n";
  }
  const std::size_t none = newer.differences - newer.effects.size();
  if (small > 0) {
    text += "  " + words.text(phrase("{} more below 8 MiB and 0.1 %", small)) + "\n";
  }
  const Phrase others = none == 1 ? phrase("{} known difference does nothing here", none)
                                  : phrase("{} known differences do nothing here", none);
  return text + "  " + words.text(others) + "\n";
}

// Those that not every set has: what does not go together, what a release gets wrong.
std::string warnings_text(const std::vector<tuner::ComparedSet>& compared,
                          const Translation& words) {
  std::string text;
  for (const tuner::ComparedSet& set : compared) {
    for (const Phrase& warning : set.plan.warnings) {
      const bool everywhere =
          std::all_of(compared.begin(), compared.end(), [&](const tuner::ComparedSet& other) {
            const auto& list = other.plan.warnings;
            return std::find(list.begin(), list.end(), warning) != list.end();
          });
      if (everywhere) continue;
      text += "  " + label(set.releases, runs_deepspeed(set)) + ": " + words.text(warning) + "\n";
    }
  }
  return text.empty() ? text : "\n" + words.text("Warnings:") + "\n" + text;
}

// The answer as text: what is asked about, a table with one row for each set, what changes between
// neighbouring sets in words, and warnings of single sets. `strategy`: what fit chose; empty for a
// configuration that was said.
std::string compare_versions_text(const tuner::ComparedVersions& answer,
                                  const std::string& strategy,
                                  const Translation& words) {
  const std::vector<tuner::ComparedSet>& compared = answer.sets;
  std::string text = question_text(compared.back(), strategy, words) + sets_table(compared, words);
  for (std::size_t i = 1; i < compared.size(); ++i) {
    text += neighbours_text(compared[i - 1], compared[i], words);
  }
  text += warnings_text(compared, words);
  if (!answer.missing.empty()) text += "\n" + words.text(answer.missing) + "\n";
  return text + "\n" +
         words.text(
             "Each line is one difference alone, taken back on the newer set; together they "
             "need not add up.") +
         "\n";
}

[[noreturn]] void no_sets(const std::string& text) {
  throw InputError(
      {kCommandLine,
       "--compare-versions",
       "two or more sets DEEPSPEED/TORCH/TRANSFORMERS with commas between them, or all",
       in_quotes(text),
       "--compare-versions 0.16.4/2.6/4.50,0.19.6/2.11/5.17"});
}

// "0.16.4/2.6/4.50,0.19.6/2.11/5.17" in the order given; nothing or "all": those of the table.
std::vector<tuner::ReleaseSet> sets_of(const Arguments& arguments) {
  const std::string text = arguments.text("compare-versions").value_or("all");
  if (text.empty() || text == "all") return tuner::usual_release_sets();
  std::vector<tuner::ReleaseSet> sets;
  for (const std::string& part : parts_of(text, ',')) {
    std::array<Version, 3> releases;
    const std::vector<std::string> said = parts_of(part, '/');
    if (said.size() != releases.size()) no_sets(text);
    for (std::size_t i = 0; i < said.size(); ++i) {
      const auto parsed = parse_version(said[i]);
      if (!parsed) no_sets(text);
      releases[i] = *parsed;
    }
    sets.push_back({releases[0], releases[1], releases[2]});
  }
  if (sets.size() < 2) no_sets(text);
  return sets;
}

// Each set has releases of its own: others that were said would contradict them.
void reject_beside(const Arguments& arguments, const Scenario& scenario) {
  for (const char* flag :
       {"batch", "clusters", "goal", "why", "output", "trace", "memory-snapshot", "rank"}) {
    if (!arguments.has(flag)) continue;
    throw InputError(
        {kCommandLine, "--" + std::string(flag), "no --compare-versions beside it", "both", ""});
  }
  for (const ScenarioKey key : {ScenarioKey::deepspeed_version,
                                ScenarioKey::torch_version,
                                ScenarioKey::transformers_version}) {
    const ExplicitValue* said = scenario.find(key);
    if (said == nullptr || said->origin.file != kCommandLine) continue;
    throw InputError({kCommandLine,
                      std::string(info(key).flag),
                      "no --compare-versions beside it",
                      "both",
                      "the sets name all three releases"});
  }
}

Json release_json(const tuner::ReleaseSet& set) {
  return Json::object({{"deepspeed", to_string(set.deepspeed)},
                       {"torch", to_string(set.torch)},
                       {"transformers", to_string(set.transformers)}});
}

Json effect_json(const tuner::ReleaseEffect& effect) {
  Json json = Json::object({});
  if (effect.rule) {
    const ReleaseRow& row = release_row(*effect.rule);
    json["package"] = display_name(row.package);
    json["release"] = to_string(effect.begins ? row.since : row.until);
    json["begins"] = effect.begins;
    json["does"] = row.does;
    json["source"] = row.source;
  } else if (effect.recorded) {
    json["package"] = display_name(Package::transformers);
    json["older_recording"] = to_string(effect.recorded->older);
    json["newer_recording"] = to_string(effect.recorded->newer);
  } else {
    json["package"] = display_name(Package::deepspeed);
    json["key"] = pointer_of(effect.changed->knob);
    json["older_default"] = parse_json(effect.changed->older, "default").root;
    json["newer_default"] = parse_json(effect.changed->newer, "default").root;
  }
  json["gpu_memory"] = effect.gpu_memory.count();
  json["host_memory"] = effect.host_memory.count();
  json["step_seconds"] = effect.step_time.value();
  return json;
}

Json set_json(const tuner::ComparedSet& set) {
  Json json = release_json(set.releases);
  const StepResult& result = set.result;
  json["fits"] = result.fits;
  json["fit_probability"] = result.fit_probability;
  json["gpu_memory"] = result.gpu.peak_total.count();
  json["gpu_allocated"] = result.gpu.peak_allocated.count();
  json["host_memory"] = result.host.peak.count();
  json["step_seconds"] = result.step.total.value();
  json["tokens_per_second_per_gpu"] = result.step.tokens_per_second_per_gpu;
  json["differences"] = static_cast<std::int64_t>(set.differences);
  Json effects = Json::array();
  for (const tuner::ReleaseEffect& effect : set.effects) effects.push_back(effect_json(effect));
  json["effects"] = effects;
  Json warnings = Json::array();
  for (const Phrase& warning : set.plan.warnings) warnings.push_back(warning.english());
  json["warnings"] = warnings;
  return json;
}

void print(const Arguments& arguments,
           const tuner::ComparedVersions& compared,
           const std::string& strategy,
           Streams streams) {
  if (!arguments.json) {
    streams.out << compare_versions_text(compared, strategy, Translation(arguments.language));
    return;
  }
  Json document = Json::object({{"schema", "zeroplan.versions/1"}});
  document["strategy"] = strategy.empty() ? Json() : Json(strategy);
  document["ds_config"] = emit(written_ds_config(compared.sets.back().plan));
  Json sets = Json::array();
  for (const tuner::ComparedSet& set : compared.sets) sets.push_back(set_json(set));
  document["sets"] = sets;
  if (!compared.missing.empty()) document["left_out"] = compared.missing.english();
  streams.out << document.dump(2) << "\n";
}

// The bar shows how far the search through the differences is.
tuner::ShareDone versions_shown(const Arguments& arguments, Progress& progress) {
  progress.show({},
                Translation(arguments.language).text("still simulating what each release changes"));
  return [&progress](double share) { progress.show(share); };
}

}  // namespace

int compare_fit(const Arguments& arguments,
                const Scenario& scenario,
                const PredictOptions& options,
                Streams streams,
                Progress& progress) {
  reject_beside(arguments, scenario);
  const std::vector<tuner::ReleaseSet> sets = sets_of(arguments);
  const Scenario newest = tuner::under(scenario, sets.back());
  const tuner::FitAnswer answer = tuner::fit(newest, options);
  const tuner::StrategyResult& chosen = answer.recommended ? answer.strategies[*answer.recommended]
                                                           : tuner::nearest_of(answer.strategies);
  const tuner::Question question =
      tuner::ask(answer.needs.any() ? tuner::with_packages(newest, answer.needs) : newest);
  const Workload& workload = chosen.plan.workload;
  const tuner::AskedStrategy asked = tuner::ask_strategy(
      question, chosen.strategy, {workload.micro_batch_size, workload.gradient_accumulation_steps});
  const tuner::ComparedVersions compared = tuner::compare_versions(
      asked.scenario, asked.prepared, sets, options, versions_shown(arguments, progress));
  progress.end();
  print(arguments, compared, describe(chosen.strategy), streams);
  return answer.recommended ? kDone : kAnswerIsNo;
}

int compare_simulate(const Arguments& arguments, const PredictOptions& options, Streams streams) {
  const Scenario scenario = scenario_of(arguments);
  reject_beside(arguments, scenario);
  Progress progress(streams.log, "");
  const tuner::ComparedVersions compared =
      tuner::compare_versions(scenario,
                              prepare(scenario),
                              sets_of(arguments),
                              options,
                              versions_shown(arguments, progress));
  progress.end();
  print(arguments, compared, "", streams);
  return arguments.has("require-fit") && !compared.sets.back().result.fits ? kAnswerIsNo : kDone;
}

}  // namespace zeroplan::cli
