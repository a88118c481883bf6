// zeroplan tune: the best configuration of a space, proven, and why not the others.
#include "cli/tune_command.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <ostream>
#include <string>

#include <fmt/format.h>

#include "base/phrase.hpp"
#include "base/phrase_list.hpp"
#include "cli/interrupt.hpp"
#include "cli/language/translation.hpp"
#include "cli/progress_bar.hpp"
#include "cli/remedies.hpp"
#include "cli/search_options.hpp"
#include "cli/simulate_text.hpp"
#include "cli/step_text.hpp"
#include "cli/table.hpp"
#include "cli/write_file.hpp"
#include "cli/write_plan.hpp"
#include "model/hardware/cluster.hpp"
#include "model/predict/verdict.hpp"
#include "tuner/io_tune_answer.hpp"
#include "tuner/tune.hpp"

namespace zeroplan::cli {
namespace {

double gpu_hours_per_million(const StepResult& result) {
  return 1e6 / result.step.tokens_per_second_per_gpu / 3600.0;
}

std::string grouped(std::int64_t count) { return count_text(count); }

Phrase strategy_text(const Plan& plan) {
  return phrase("{}, micro-batch {} x accumulation {}",
                describe(tuner::Strategy{plan.engine.stage,
                                         plan.engine.offload_optimizer.device,
                                         plan.engine.offload_parameter.device,
                                         plan.workload.activation_checkpointing}),
                plan.workload.micro_batch_size,
                plan.workload.gradient_accumulation_steps);
}

Phrase tune_question_line(const Plan& plan) {
  return phrase(
      "{} ({} parameters) on {}, {} tokens, {}",
      plan.whole_model->name.empty() ? plan.whole_model->architecture : plan.whole_model->name,
      short_count_text(count_parameters(*plan.whole_model).total.count()),
      short_name(plan.cluster),
      plan.workload.sequence_length,
      name(kPrecisionNames, plan.workload.precision));
}

// The words for what was chosen: fastest, smallest, simplest within the gap.
Phrase choice_text(const tuner::TuneAnswer& answer, const tuner::TuneOptions& options) {
  const bool memory = options.objective == tuner::Objective::memory;
  if (!answer.top) {
    return memory ? "smallest of what was simulated" : "fastest of what was simulated";
  }
  const double percent = options.search.gap * 100.0;
  if (answer.search.keeps_room) {
    return phrase("simplest within {:.3g} % of the fastest with room on the GPU", percent);
  }
  return memory ? phrase("simplest within {:.3g} % of the smallest", percent)
                : phrase("simplest within {:.3g} % of the fastest", percent);
}

Phrase knobs_text(const Json& chosen);

Phrase top_line(const tuner::FrontPoint& top, bool memory) {
  const tuner::Evaluated& item = top.seen;
  const Phrase knobs = knobs_text(top.chosen);
  Phrase what = strategy_text(top.plan);
  if (!knobs.empty()) what = phrase("{}, {}", what, knobs);
  if (item.at_limit && !memory) {
    return phrase("  fastest      {:.0f} tokens/s per GPU, at the GPU's limit ({}): {}\n",
                  item.tokens_per_second,
                  gib_text(item.gpu_memory),
                  what);
  }
  return memory
             ? phrase("  smallest     {}: {}\n", gib_text(item.gpu_memory), what)
             : phrase("  fastest      {:.0f} tokens/s per GPU: {}\n", item.tokens_per_second, what);
}

// "1.86 GPU-hours a million tokens", and what they cost.
Phrase cost_text(const StepResult& result, std::optional<double> price) {
  const double hours = gpu_hours_per_million(result);
  Phrase text = phrase("{:.3f} GPU-hours a million tokens", hours);
  if (price) text.append(phrase(", {:.3f} at {:g} a GPU-hour", hours * *price, *price));
  return text;
}

Phrase best_text(const tuner::TuneAnswer& answer,
                 const tuner::TuneOptions& options,
                 std::optional<double> price) {
  const Plan& plan = *answer.plan;
  const StepResult& result = answer.result;
  const GibPair gpu(result.gpu.peak_total, result.gpu.capacity);
  Phrase text = generation_text(plan);
  text += phrase(
      "{}{}: {}\n"
      "  speed        {} a step, {:.0f} tokens/s per GPU, {:.0f} % of the GPU's peak, bound by {}\n"
      "  GPU memory   {} of {} at the peak, which is in {}\n"
      "{}"
      "  probability  {} that it fits\n",
      choice_text(answer, options),
      condition_text(result),
      strategy_text(plan),
      seconds_text(result.step.total),
      result.step.tokens_per_second_per_gpu,
      result.step.mfu * 100.0,
      plain_name(name(kBoundNames, result.step.bound)),
      gpu.needed,
      gpu.there,
      name(kPhaseNames, result.gpu.peak_phase),
      host_memory_text(plan, result),
      probability_text(result));
  if (answer.top) text += top_line(*answer.top, options.objective == tuner::Objective::memory);
  text += job_lines(result.job) + at_limit_text(result);
  if (options.objective == tuner::Objective::cost || price) {
    text += phrase("  cost         {}\n", cost_text(result, price));
  }
  if (answer.needs.any()) {
    text += phrase("  needs        the package {} ({}); without it nothing fits\n",
                   names_of(answer.needs),
                   flags_of(answer.needs));
  }
  if (answer.faster_with) {
    text += phrase("  faster       with the package {} ({}): {:.0f} tokens/s per GPU\n",
                   names_of(answer.faster_with->packages),
                   flags_of(answer.faster_with->packages),
                   answer.faster_with->tokens_per_second);
  }
  if (answer.headroom) {
    text += headroom_text(*answer.headroom, plan);
  }
  if (answer.fewest_gpus) {
    text += phrase("  fewest GPUs  {} of this kind can do it with some point of the space\n",
                   *answer.fewest_gpus);
  }
  return text;
}

Phrase impact_line(const tuner::KnobImpact& impact) {
  Phrase text = phrase("  - {}", impact.key + " " + impact.value);
  const char* separator = ": ";
  if (!impact.other.empty()) {
    const double percent = impact.speed_change * 100.0;
    text += separator;
    text.append(phrase("with {} {:.1f} % ", impact.other, std::abs(percent)));
    text += percent < 0.0 ? "slower" : "faster";
    separator = "; ";
  }
  if (!impact.unfit.empty()) {
    text += separator;
    text.append(phrase("does not fit with {}", phrase_list(impact.unfit)));
  }
  return text + "\n";
}

Phrase impacts_text(const tuner::TuneAnswer& answer) {
  if (answer.impacts.empty()) return "";
  Phrase text = "\nWhat matters most:\n";
  for (const tuner::KnobImpact& impact : answer.impacts) text += impact_line(impact);
  return text;
}

// A line for each thing that there was no time for.
Phrase cut_off_text(const tuner::TuneAnswer& answer) {
  Phrase text;
  for (const tuner::Reason reason : answer.cut_off) {
    switch (reason) {
      case tuner::Reason::impacts:
        text += "no time to look for what matters most\n";
        break;
      case tuner::Reason::headroom:
        text += "no time to look for the headroom\n";
        break;
      case tuner::Reason::fewest_gpus:
        text += "no time to look for the fewest GPUs\n";
        break;
      case tuner::Reason::nearest:
        text += "no time to look for the nearest that fits\n";
        break;
    }
  }
  return text.empty() ? text : "\n" + text;
}

// How sure the answer is.
Phrase proof_text(const tuner::TuneAnswer& answer, const tuner::TuneOptions& options) {
  const tuner::SearchResult& search = answer.search;
  Phrase text = phrase("\n{} points: {} simulated, {} left out",
                       grouped(search.points),
                       grouped(search.evaluated),
                       grouped(search.pruned));
  if (search.unseen > 0) text.append(phrase(", {} not looked at", grouped(search.unseen)));
  const bool memory = options.objective == tuner::Objective::memory;
  if (search.interrupted || search.out_of_time) {
    text.append(search.interrupted ? "; interrupted" : "; cut by --time-limit");
    return text + (search.best ? ", so this is the best so far\n" : "\n");
  }
  if (search.stalled && !search.best) {
    return text.append(phrase(", {} not looked at\n", grouped(search.unseen)));
  }
  if (search.stalled && !search.optimal) {
    const double more = search.unseen_at_most;
    return text.append(
        memory ? phrase(": at most {:.1f} % smaller than the choice, by a bound\n",
                        more / (1.0 + more) * 100.0)
               : phrase(": at most {:.1f} % faster than the choice, by a bound\n", more * 100.0));
  }
  if (!search.optimal) return text + "\n";
  if (options.search.gap == 0.0) return text + " by bounds: the optimum of the space\n";
  text.append(
      phrase(" by bounds: none of them is more than {:.3g} % ", options.search.gap * 100.0));
  return text + (memory ? "smaller than the smallest" : "faster than the fastest") + "\n";
}

// A key of the sample as people say it.
Phrase sample_text(const Json& sample) {
  std::vector<Phrase> parts;
  for (const auto& [key, value] : sample.members()) {
    if (key.starts_with("/") || value.is_object() || value.is_null()) continue;
    if (value.is_string() && value.as_string() == "none") continue;
    std::string shown = value.is_string() ? value.as_string() : value.dump();
    if (key.find("bytes") != std::string::npos) {
      if (value.as_integer() == 0) continue;
      shown = gib_text(Bytes::of(value.as_integer()));
    } else if (key.starts_with("tokens")) {
      shown = fmt::format("{:.0f}", value.as_number());
    }
    parts.push_back(phrase("{} {}", plain_name(key), shown));
  }
  return phrase_list(parts);
}

Phrase tally_text(const tuner::TuneAnswer& answer) {
  std::vector<std::pair<Phrase, tuner::TallyRow>> rows(answer.search.tally.begin(),
                                                       answer.search.tally.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.second.count > b.second.count;
  });
  if (rows.empty()) return "";
  Phrase text = "\nWhy not the others, with one of each:\n";
  for (const auto& [reason, row] : rows) {
    text += phrase("  {:>13}  {}\n", grouped(row.count), reason);
    const Phrase sample = sample_text(row.sample);
    if (!sample.empty()) text += phrase("  {:>13}  {}\n", "", sample);
  }
  return text;
}

// Points that differ by less than this share in speed and memory are alike: the front shows the
// first.
constexpr double kAlike = 0.02;

bool alike(const tuner::Evaluated& a, const tuner::Evaluated& b) {
  const auto close = [](double x, double y) { return std::abs(x - y) <= kAlike * std::abs(x); };
  return close(a.tokens_per_second, b.tokens_per_second) &&
         close(static_cast<double>(a.gpu_memory.count()),
               static_cast<double>(b.gpu_memory.count())) &&
         close(static_cast<double>(a.host_memory.count()),
               static_cast<double>(b.host_memory.count()));
}

// 500000000 as 5e8, as people write sizes of buckets.
std::string short_number(const Json& value) {
  if (!value.is_integer() || value.as_integer() < 1'000'000) return value.dump();
  std::string digits = value.dump();
  const std::size_t last = digits.find_last_not_of('0');
  const std::size_t zeros = digits.size() - 1 - last;
  return zeros < 6 ? digits : digits.substr(0, last + 1) + "e" + std::to_string(zeros);
}

// Knobs that differ from DeepSpeed's default: what tells points of one strategy apart.
Phrase knobs_text(const Json& chosen) {
  std::vector<std::string> knobs;
  for (const auto& [key, value] : chosen.members()) {
    if (!key.starts_with("/")) continue;
    knobs.push_back(key.substr(key.rfind('/') + 1) + " " +
                    (value.is_string() ? value.as_string() : short_number(value)));
  }
  return phrase_list(knobs);
}

std::string pareto_text(const tuner::TuneAnswer& answer, const Translation& words) {
  constexpr std::size_t kShown = 8;
  std::vector<const tuner::FrontPoint*> shown;
  std::map<std::string, int> of_strategy;
  for (const tuner::FrontPoint& point : answer.pareto) {
    if (shown.size() == kShown) break;
    const bool seen = std::any_of(shown.begin(), shown.end(), [&](const tuner::FrontPoint* other) {
      return alike(other->seen, point.seen);
    });
    if (seen) continue;
    shown.push_back(&point);
    ++of_strategy[strategy_text(point.plan).english()];
  }
  if (shown.size() < 2) return "";
  std::vector<std::vector<Phrase>> rows;
  for (const tuner::FrontPoint* point : shown) {
    const tuner::Evaluated& item = point->seen;
    const Phrase strategy = strategy_text(point->plan);
    rows.push_back({strategy,
                    fixed_text(item.tokens_per_second, 0),
                    gib_number(item.gpu_memory),
                    gib_number(item.host_memory),
                    of_strategy[strategy.english()] > 1 ? knobs_text(point->chosen) : ""});
  }
  return words.text("\nLess memory for less speed (of what was simulated):\n") +
         table({{"configuration"},
                {"tokens/s/GPU", Align::right},
                {"GPU GiB", Align::right},
                {"host GiB", Align::right},
                {"with"}},
               rows,
               words);
}

Phrase nothing_text(const tuner::TuneAnswer& answer) {
  const tuner::SearchResult& search = answer.search;
  const bool unknown = search.interrupted || search.out_of_time || search.stalled;
  Phrase text = unknown ? "nothing found so far that fits\n" : "no: nothing in the space fits\n";
  if (answer.nearest) {
    const StepResult& result = answer.nearest->result;
    text += phrase("\nNearest that fits: {}:\n  {}, {} of GPU memory, {:.0f} tokens/s per GPU\n",
                   answer.nearest->change,
                   strategy_text(answer.nearest->plan),
                   gib_text(result.gpu.peak_total),
                   result.step.tokens_per_second_per_gpu);
  }
  if (answer.remedies.empty()) return text;
  text += "\nNearest scenarios that fit, cheapest change first:\n";
  text += remedy_lines(answer.remedies);
  return text;
}

// price: of a GPU-hour.
std::string tune_text(const tuner::TuneAnswer& answer,
                      const tuner::TuneOptions& options,
                      std::optional<double> price,
                      const Translation& words) {
  const Phrase why = cut_off_text(answer) + proof_text(answer, options) + tally_text(answer);
  if (!answer.plan) return words.text(nothing_text(answer) + why);
  const Phrase about = phrase("{}\n{}{}{}",
                              tune_question_line(*answer.plan),
                              best_text(answer, options, price),
                              list_text("Warnings", answer.result.warnings),
                              impacts_text(answer));
  return words.text(about) + pareto_text(answer, words) +
         words.text(why + list_text("Assumed", answer.result.assumptions)) + "\nds_config.json:\n" +
         emit(written_ds_config(*answer.plan)).dump(2) + "\n";
}

void write_answer(const tuner::TuneAnswer& answer,
                  const Arguments& arguments,
                  const Output& output,
                  std::ostream& log) {
  if (answer.plan) {
    return write_plan(*answer.plan, answer.scenario, answer.result, arguments, output, log);
  }
  const Translation words(arguments.language);
  const tuner::SearchResult& search = answer.search;
  const bool unknown = search.interrupted || search.out_of_time || search.stalled;
  const Phrase why = unknown ? "nothing found so far that fits" : "nothing fits";
  log << words.text(phrase("nothing written to {}: {}", output.path, why)) << "\n";
}

}  // namespace

int run_tune(const Arguments& arguments, Streams streams) {
  const Translation words(arguments.language);
  const Scenario scenario = scenario_of(arguments);
  tuner::TuneOptions options = tune_options_of(arguments, scenario, tuner::kTuneCounts);
  const auto price = arguments.real("price", 0.0, 1e9);
  const std::optional<Output> output = output_of(arguments);
  if (output) require_output(arguments, *output);
  tuner::TuneAnswer answer;
  {
    std::optional<InterruptGuard> guard;  // before the search there is nothing to keep
    Progress progress(streams.log, words.text("still reading the question"));
    options.search.interrupted = &InterruptGuard::flag();
    options.search.on_progress = [&](const tuner::SearchProgress& search) {
      if (!guard) guard.emplace();
      show_progress(search, progress, words);
    };
    answer = tune(scenario, options);
  }
  // Files first: where they cannot be written, standard output holds the error alone.
  if (output) write_answer(answer, arguments, *output, streams.log);
  if (arguments.json) {
    streams.out << to_json(answer, options, price).dump(2) << "\n";
  } else {
    streams.out << tune_text(answer, options, price, words);
  }
  if (answer.interrupted) return interrupted().value_or(kInternalError);
  if (answer.plan) return kDone;
  return nothing_found(!answer.search.out_of_time && !answer.search.stalled, streams, words);
}

}  // namespace zeroplan::cli
