#include "cli/which_gpu.hpp"

#include <algorithm>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/described.hpp"
#include "base/diagnostic.hpp"
#include "base/enum_names.hpp"
#include "base/phrase.hpp"
#include "cli/cost_options.hpp"
#include "cli/language/translation.hpp"
#include "cli/step_text.hpp"
#include "cli/table.hpp"
#include "model/hardware/cluster.hpp"
#include "model/predict/io_step_result.hpp"
#include "model/predict/verdict.hpp"
#include "tuner/headroom.hpp"
#include "tuner/reach.hpp"
#include "tuner/which_gpu.hpp"

namespace zeroplan::cli {
namespace {

// `title` as wide as the others, with what sets it apart.
Phrase choice_line(const char* title,
                   const tuner::ClusterChoice& choice,
                   const std::string& currency) {
  Phrase line = Phrase("  ") + title;
  line.append(phrase("{}: {}, {}",
                     short_name(choice.cluster),
                     describe(choice.best.strategy),
                     hours_text(choice.cost.hours)));
  if (choice.cost.cost) line.append(phrase(", {}", money_text(choice.cost.cost, currency)));
  line.append(condition_text(choice.best.result));
  if (choice.needs.any()) {
    line.append(
        phrase(", with the package {} ({})", names_of(choice.needs), flags_of(choice.needs)));
  }
  return line + "\n";
}

std::string precision_of(const tuner::StrategyResult& row) {
  return std::string(name(kPrecisionNames, row.plan.workload.precision));
}

// "428 GiB (usual: 251.5 GiB)"; empty where the usual is enough.
Phrase host_text(const StepResult& result) {
  if (!result.host_condition) return "";
  return phrase("{} GiB (usual: {:.1f} GiB)",
                result.host_condition->enough.count() >> 30,
                result.host.capacity.gib());
}

std::string choices_table(const tuner::WhichAnswer& answer,
                          const tuner::WhichQuestion& question,
                          const Translation& words) {
  const bool unusual = std::any_of(
      answer.choices.begin(), answer.choices.end(), [](const tuner::ClusterChoice& choice) {
        return choice.best.result.host_condition.has_value();
      });
  std::vector<std::vector<Phrase>> rows;
  for (const tuner::ClusterChoice& choice : answer.choices) {
    const StepResult& result = choice.best.result;
    const GibPair gpu(result.gpu.peak_total, result.gpu.capacity, "");
    rows.push_back({short_name(choice.cluster),
                    describe(choice.best.strategy),
                    precision_of(choice.best),
                    gpu.needed + " / " + gpu.there,
                    fixed_text(choice.tokens_per_second, 0),
                    hours_text(choice.cost.hours),
                    money_text(choice.cost.cost, question.cost.prices.currency)});
    if (unusual) rows.back().push_back(host_text(result));
  }
  std::vector<Column> columns = {{"cluster"},
                                 {"strategy"},
                                 {"precision"},
                                 {"GPU GiB", Align::right},
                                 {"tokens/s", Align::right},
                                 {"time", Align::right},
                                 {"total cost", Align::right}};
  if (unusual) columns.push_back({"host memory to have"});
  return table(columns, rows, words);
}

std::string listed(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + text;
  return all;
}

// The clusters that do not fit, each with what it lacks where they are few or none fits, else by
// their names alone.
std::string refusals_text(const tuner::WhichAnswer& answer, const Translation& words) {
  if (answer.refusals.empty()) return "";
  constexpr std::size_t kFew = 4;
  const bool named = !answer.choices.empty();
  if (named && answer.refusals.size() > kFew) {
    std::vector<std::string> texts;
    for (const tuner::ClusterRefusal& refusal : answer.refusals) texts.push_back(refusal.text);
    return words.text("Too small:") + " " + listed(texts) + "\n";
  }
  std::string text = named ? words.text("Too small:") + "\n" : "";
  for (const tuner::ClusterRefusal& refusal : answer.refusals) {
    text += "  " + refusal.text + ": " + words.text(refusal.why) + "\n";
  }
  return text;
}

Phrase model_line(const tuner::StrategyResult& best) {
  const Plan& plan = best.plan;
  return phrase(
      "{} ({} parameters), {} tokens",
      plan.whole_model->name.empty() ? plan.whole_model->architecture : plan.whole_model->name,
      short_count_text(count_parameters(*plan.whole_model).total.count()),
      plan.workload.sequence_length);
}

std::string which_gpu_text(const tuner::WhichAnswer& answer,
                           const tuner::WhichQuestion& question,
                           const Translation& words) {
  if (answer.choices.empty()) {
    return words.text("no: it trains on none of these clusters\n") + refusals_text(answer, words);
  }
  const std::string& currency = question.cost.prices.currency;
  const tuner::StrategyResult& first = answer.choices.front().best;
  const tuner::TrainingCost& size = answer.choices.front().cost;
  const Phrase trained =
      size.assumed ? phrase("{} (assumed: --tokens)", size_text(size)) : size_text(size);
  std::string text = words.text(phrase("{}; {}:\n", model_line(first), trained));
  text += words.text(choice_line("smallest    ", answer.choices[*answer.smallest], currency));
  if (answer.cheapest) {
    text += words.text(choice_line("cheapest    ", answer.choices[*answer.cheapest], currency));
  }
  text += words.text(choice_line("fastest     ", answer.choices[*answer.fastest], currency));
  text += words.text(generation_text(first.plan));
  text += "\n" + choices_table(answer, question, words) + "\n";
  if (!answer.not_asked.empty()) {
    text += words.text("Could be none of these if 1.5 times as fast as estimated:") + " " +
            listed(answer.not_asked) + "\n";
  }
  text += refusals_text(answer, words);
  if (question.cost.price_per_gpu_hour) {
    text += words.text(phrase("Price: {:g} a GPU-hour\n", *question.cost.price_per_gpu_hour));
  } else if (!question.cost.prices.source.empty()) {
    text += words.text("Prices (say yours with --prices FILE or --price N):") + " " +
            question.cost.prices.source + "\n";
  }
  return text + words.text("The files for one of them:") + " " +
         fmt::format("zeroplan fit MODEL {} -o plan\n",
                     answer.choices[answer.cheapest.value_or(*answer.smallest)].asked.text);
}

// "30720 tokens: ZeRO-3, 22.1 GiB of 23.5 GiB GPU memory, 812 tokens/s per GPU".
static Phrase reach_line(const tuner::SequenceReach& reach) {
  const StepResult& result = reach.row.result;
  const GibPair gpu(result.gpu.peak_total, result.gpu.capacity);
  const Phrase line = phrase("{} tokens: {}, {} of {} GPU memory, {:.0f} tokens/s per GPU",
                             reach.tokens,
                             describe(reach.row.strategy),
                             gpu.needed,
                             gpu.there,
                             result.step.tokens_per_second_per_gpu);
  const std::int64_t positions = reach.row.plan.model->shape.max_positions;
  if (positions > 0 && reach.tokens > positions) {
    return phrase("{}, more than the model's {} positions", line, positions);
  }
  return line;
}

// The answers of --goal.
Phrase lengths_text(const tuner::LongestSequences& lengths) {
  const std::optional<tuner::LongestSequence>& answer = lengths.answer();
  if (!answer) {
    return phrase(
        "no: no strategy trains sequences of even {} tokens; fit --seq {} says what they lack and "
        "what would change it\n",
        tuner::kSequenceQuantum,
        tuner::kSequenceQuantum);
  }
  const tuner::SequenceReach& best = answer->best;
  const StepResult& result = best.row.result;
  Phrase text = model_line(best.row) + phrase(", {}\n", precision_of(best.row));
  text +=
      lengths.plain
          ? phrase("longest sequences that train{}: {}\n", condition_text(result), reach_line(best))
          : phrase("longest sequences that train with the package {} ({}){}: {}\n",
                   names_of(lengths.packages),
                   flags_of(lengths.packages),
                   condition_text(result),
                   reach_line(best));
  if (!lengths.plain) {
    text += phrase("  without it not even {} tokens\n", tuner::kSequenceQuantum);
  }
  if (answer->longer) text += phrase("  longer       {}\n", reach_line(*answer->longer));
  if (lengths.plain && lengths.with_packages) {
    text += phrase("  with the package {} ({}): {}\n",
                   names_of(lengths.packages),
                   flags_of(lengths.packages),
                   reach_line(lengths.with_packages->best));
  }
  if (lengths.shared) {
    std::string flags = fmt::format("--sequence-parallel {}", lengths.ranks);
    if (lengths.packages.any()) flags += " " + flags_of(lengths.packages);
    text += phrase(
        "  shared by {} GPUs ({}): {}\n", lengths.ranks, flags, reach_line(lengths.shared->best));
  }
  if (lengths.has_condition) {
    const std::string usual = gib_text(result.host.capacity);
    text += lengths.usual_host ? phrase("  with the usual {} of host memory: {}\n",
                                        usual,
                                        reach_line(lengths.usual_host->best))
                               : phrase("  with the usual {} of host memory: not even {} tokens\n",
                                        usual,
                                        tuner::kSequenceQuantum);
  }
  return text + generation_text(best.row.plan);
}

// A goal is sought instead of the best strategy.
struct Goal {
  std::string_view name;                // --goal
  std::string_view key;                 // --solve
  std::optional<tuner::Sought> sought;  // nothing: the longest sequences
  std::string_view found, none;
};
constexpr std::array kGoals = {
    Goal{"longest-sequence", "seq", std::nullopt, "", ""},
    Goal{"largest-model",
         "model",
         tuner::Sought::model,
         "largest model of LLaMA's shape that trains",
         "no: not even a model of 100 M parameters fits on this cluster\n"},
    Goal{"largest-micro-batch",
         "mbs",
         tuner::Sought::micro_batch,
         "largest micro-batch that trains",
         "no: not even one sequence a GPU fits; fit without --solve says what is lacking\n"},
    Goal{"largest-rank",
         "rank",
         tuner::Sought::rank,
         "largest rank of adapters that trains",
         "no: not even rank 8 fits; fit without --solve says what is lacking\n"},
    Goal{
        "most-completions",
        "completions",
        tuner::Sought::completions,
        "most completions of a prompt that train",
        "no: not even two completions of a prompt fit; fit without --solve says what is lacking\n"},
    Goal{"fewest-gpus",
         "gpus",
         tuner::Sought::gpus,
         "fewest GPUs that train it",
         "no: it trains on no number of these GPUs up to 1024 nodes\n"},
};

Phrase reach_text(const Goal& goal, const std::optional<tuner::Reach>& reach) {
  if (!reach) return Phrase(goal.none);
  const tuner::StrategyResult& best = reach->best;
  const StepResult& result = best.result;
  const GibPair gpu(result.gpu.peak_total, result.gpu.capacity);
  const GibPair host(result.host.peak, result.host.capacity);
  Phrase text =
      model_line(best) + phrase(", {}\n", precision_of(best)) +
      phrase("{}: {}{}\n",
             Phrase(goal.found),
             reach->value,
             reach->is_last ? phrase(" or more") : Phrase()) +
      phrase("  {}, {} of {} GPU memory, {:.0f} tokens/s per GPU\n",
             describe(best.strategy),
             gpu.needed,
             gpu.there,
             result.step.tokens_per_second_per_gpu) +
      phrase("  host memory needs {} per node, taken to have {}\n", host.needed, host.there);
  if (reach->lacking) text += phrase("  {} so: {}\n", reach->beyond, lack_text(*reach->lacking));
  return text + generation_text(best.plan);
}

// Null: the best strategy.
const Goal* goal_of(const Arguments& arguments) {
  for (const auto& [flag, word] :
       {std::pair("goal", &Goal::name), std::pair("solve", &Goal::key)}) {
    const auto said = arguments.text(flag);
    if (!said || (*said == "best" && word == &Goal::name)) continue;
    std::vector<std::string_view> words;
    for (const Goal& goal : kGoals) {
      if (goal.*word == *said) return &goal;
      words.push_back(goal.*word);
    }
    throw InputError({kCommandLine,
                      fmt::format("--{}", flag),
                      phrase("one of {}", fmt::format("{}", fmt::join(words, ", "))),
                      in_quotes(*said),
                      did_you_mean(*said, words)});
  }
  return nullptr;
}

std::vector<std::string> split_clusters(const std::string& text) {
  std::vector<std::string> clusters = parts_of(text, ',');
  std::erase(clusters, "");
  return clusters;
}

tuner::WhichQuestion question_of(const Arguments& arguments, const Scenario& scenario) {
  tuner::WhichQuestion question;
  question.scenario = scenario;
  question.cost = cost_question_of(arguments);
  const auto said = arguments.text("clusters");
  question.ask_all = said.has_value() && *said != "all";
  for (const std::string& text :
       question.ask_all ? split_clusters(*said) : tuner::offered_clusters(question.cost.prices)) {
    const Origin origin = {kCommandLine, "--clusters"};
    question.clusters.push_back({text, with_cluster_parts(Json(text), origin, arguments)});
  }
  if (question.clusters.empty()) {
    throw InputError({kCommandLine,
                      "--clusters",
                      "clusters with commas between them, or all",
                      in_quotes(said.value_or("")),
                      "--clusters 1x8xA100-80G,2x8xRTX-4090"});
  }
  return question;
}

Json choice_json(const tuner::ClusterChoice& choice, const Scenario& scenario) {
  const Json document = scenario_document(choice.best.plan, scenario);
  Json json = Json::object({{"cluster", choice.asked.text},
                            {"gpus", choice.cluster.total_gpus()},
                            {"strategy", describe(choice.best.strategy).english()},
                            {"tokens_per_second", choice.tokens_per_second},
                            {"hours", choice.cost.hours}});
  json["price_per_hour"] = choice.cost.price_per_hour ? Json(*choice.cost.price_per_hour) : Json();
  json["cost"] = choice.cost.cost ? Json(*choice.cost.cost) : Json();
  json["needs_packages"] = choice.needs.any() ? Json(names_of(choice.needs)) : Json();
  json["workload"] = *document.find("workload");
  json["result"] = to_json(choice.best.result);
  return json;
}

Json which_json(const tuner::WhichAnswer& answer, const tuner::WhichQuestion& question) {
  Json document =
      Json::object({{"schema", "zeroplan.which_gpu/1"}, {"fits", !answer.choices.empty()}});
  const tuner::TrainingCost size =
      answer.choices.empty() ? tuner::TrainingCost() : answer.choices[0].cost;
  document["tokens"] = size.tokens > 0.0 ? Json(size.tokens) : Json();
  document["tokens_assumed"] = size.assumed;
  document["currency"] = question.cost.prices.currency;
  const auto index = [](const std::optional<std::size_t>& at) { return at ? Json(*at) : Json(); };
  document["smallest"] = index(answer.smallest);
  document["cheapest"] = index(answer.cheapest);
  document["fastest"] = index(answer.fastest);
  Json clusters = Json::array(), refusals = Json::array(), not_asked = Json::array();
  for (const tuner::ClusterChoice& choice : answer.choices) {
    clusters.push_back(choice_json(choice, question.scenario));
  }
  for (const tuner::ClusterRefusal& refusal : answer.refusals) {
    refusals.push_back(Json::object({{"cluster", refusal.text}, {"why", refusal.why.english()}}));
  }
  for (const std::string& text : answer.not_asked) not_asked.push_back(text);
  document["clusters"] = clusters;
  document["refused"] = refusals;
  document["not_asked"] = not_asked;
  return document;
}

int answer_clusters(const Arguments& arguments,
                    const Scenario& scenario,
                    const PredictOptions& options,
                    Streams streams,
                    Progress& progress) {
  tuner::WhichQuestion question = question_of(arguments, scenario);
  progress.show({}, Translation(arguments.language).text("still asking each cluster"));
  question.on_progress = [&progress](double share) { progress.show(share); };
  const tuner::WhichAnswer answer = tuner::which_gpu(question, options);
  progress.end();
  if (arguments.json) {
    streams.out << which_json(answer, question).dump(2) << "\n";
  } else {
    streams.out << which_gpu_text(answer, question, Translation(arguments.language));
  }
  return answer.choices.empty() ? kAnswerIsNo : kDone;
}

// --- how far one cluster reaches

void add_strategy(const tuner::StrategyResult& row, Json& document) {
  document["strategy"] = describe(row.strategy).english();
  document["ds_config"] = emit(written_ds_config(row.plan));
  document["result"] = to_json(row.result);
}

Json reach_json(const Goal& goal, bool fits, const Json& value) {
  return Json::object({{"schema", "zeroplan.reach/1"},
                       {"fits", fits},
                       {"goal", std::string(goal.name)},
                       {"value", value}});
}

Json sequence_json(const tuner::SequenceReach& reach) {
  Json document = Json::object({{"value", reach.tokens}});
  add_strategy(reach.row, document);
  return document;
}

Json lengths_json(const Goal& goal, const tuner::LongestSequences& lengths) {
  const std::optional<tuner::LongestSequence>& answer = lengths.answer();
  Json document = reach_json(goal, answer.has_value(), answer ? Json(answer->best.tokens) : Json());
  if (!answer) return document;
  add_strategy(answer->best.row, document);
  document["needs_packages"] = lengths.plain ? Json() : Json(names_of(lengths.packages));
  if (answer->longer) document["longer"] = sequence_json(*answer->longer);
  if (lengths.plain && lengths.with_packages) {
    document["with_packages"] = sequence_json(lengths.with_packages->best);
    document["with_packages"]["packages"] = names_of(lengths.packages);
  }
  if (lengths.shared) {
    document["shared"] = sequence_json(lengths.shared->best);
    document["shared"]["sequence_parallel"] = lengths.ranks;
    document["shared"]["packages"] =
        lengths.packages.any() ? Json(names_of(lengths.packages)) : Json();
  }
  if (lengths.has_condition) {
    document["usual_host"] = lengths.usual_host ? sequence_json(lengths.usual_host->best) : Json();
  }
  return document;
}

int answer_reach(const Arguments& arguments,
                 const Goal& goal,
                 const Scenario& scenario,
                 const PredictOptions& options,
                 Streams streams,
                 Progress& progress) {
  const Translation words(arguments.language);
  progress.show({}, words.text("still looking how far it reaches"));
  const auto print = [&](const Json& document, const Phrase& text, bool fits) {
    progress.end();
    streams.out << (arguments.json ? document.dump(2) + "\n" : words.text(text));
    return fits ? kDone : kAnswerIsNo;
  };
  if (!goal.sought) {
    const tuner::LongestSequences lengths = tuner::longest_sequence(scenario, options);
    return print(lengths_json(goal, lengths), lengths_text(lengths), lengths.answer().has_value());
  }
  const auto reach = tuner::reach(scenario, *goal.sought, options);
  // A size is a text ("13.2B"), everything else a number.
  const bool is_text = goal.sought == tuner::Sought::model;
  Json document = reach_json(goal,
                             reach.has_value(),
                             !reach    ? Json()
                             : is_text ? Json(reach->value)
                                       : Json(std::int64_t{std::stoll(reach->value)}));
  if (reach) add_strategy(reach->best, document);
  return print(document, reach_text(goal, reach), reach.has_value());
}

// With --goal largest-model the one word is the cluster.
Scenario without_model(const Scenario& scenario, const Arguments& arguments) {
  const ExplicitValue* model = scenario.find(ScenarioKey::model);
  if (model == nullptr) return scenario;
  if (scenario.find(ScenarioKey::cluster) != nullptr) {
    throw InputError({kCommandLine,
                      "--goal",
                      "a cluster alone with largest-model",
                      phrase("the model {}", described(model->value)),
                      "zeroplan fit 8xA100-80G --goal largest-model"});
  }
  Scenario changed = scenario;
  const Origin origin = {kCommandLine, "CLUSTER"};
  changed.set(ScenarioKey::cluster, with_cluster_parts(model->value, origin, arguments), origin);
  changed.unset(ScenarioKey::model);
  return changed;
}

}  // namespace

std::optional<int> answer_which_gpu(const Arguments& arguments,
                                    const PredictOptions& options,
                                    Streams streams,
                                    Progress& progress) {
  const Goal* goal = goal_of(arguments);
  Scenario scenario = scenario_of(arguments);
  if (goal != nullptr && goal->sought == tuner::Sought::model)
    scenario = cli::without_model(scenario, arguments);
  const bool has_cluster = scenario.find(ScenarioKey::cluster) != nullptr;
  if (goal != nullptr && arguments.has("output")) {
    throw InputError({cli::kCommandLine,
                      "--output",
                      phrase("no --goal and no --solve beside it"),
                      std::string(goal->name),
                      "ask without -o first, then fit with the value that it says"});
  }
  if (goal != nullptr) {
    return cli::answer_reach(arguments, *goal, scenario, options, streams, progress);
  }
  if (has_cluster && arguments.has("clusters")) {
    throw InputError({cli::kCommandLine, "--clusters", "no CLUSTER beside it", "both", ""});
  }
  if (has_cluster || scenario.find(ScenarioKey::model) == nullptr) return std::nullopt;
  if (arguments.has("output")) {
    throw InputError({cli::kCommandLine,
                      "--output",
                      "one cluster to write the files for",
                      "none or several",
                      "ask without -o first, then: zeroplan fit MODEL CLUSTER -o plan"});
  }
  return cli::answer_clusters(arguments, scenario, options, streams, progress);
}

}  // namespace zeroplan::cli
