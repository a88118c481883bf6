#include "cli/which_gpu.hpp"

#include <algorithm>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/described.hpp"
#include "base/diagnostic.hpp"
#include "base/enum_names.hpp"
#include "cli/cost_options.hpp"
#include "cli/language/translation.hpp"
#include "cli/which_gpu_text.hpp"
#include "model/hardware/cluster.hpp"
#include "model/predict/io_step_result.hpp"
#include "tuner/reach.hpp"
#include "tuner/which_gpu.hpp"

namespace zeroplan {
namespace {

enum class Goal { best, longest_sequence, largest_model };
constexpr EnumNames<Goal, 3> kGoalNames{{"best", "longest-sequence", "largest-model"}};

Goal goal_of(const Arguments& arguments) {
  const auto said = arguments.text("goal");
  if (!said) return Goal::best;
  if (const auto goal = find(kGoalNames, std::string_view(*said))) return *goal;
  throw InputError({kCommandLine,
                    "--goal",
                    "best, longest-sequence or largest-model",
                    in_quotes(*said),
                    did_you_mean(*said, kGoalNames.names)});
}

std::vector<std::string> split_clusters(const std::string& text) {
  std::vector<std::string> clusters = parts_of(text, ',');
  std::erase(clusters, "");
  return clusters;
}

WhichQuestion question_of(const Arguments& arguments, const Scenario& scenario) {
  WhichQuestion question;
  question.scenario = scenario;
  question.cost = cost_question_of(arguments);
  const auto said = arguments.text("clusters");
  question.ask_all = said.has_value() && *said != "all";
  for (const std::string& text :
       question.ask_all ? split_clusters(*said) : offered_clusters(question.cost.prices)) {
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

Json choice_json(const ClusterChoice& choice, const Scenario& scenario) {
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

Json which_json(const WhichAnswer& answer, const WhichQuestion& question) {
  Json document =
      Json::object({{"schema", "zeroplan.which_gpu/1"}, {"fits", !answer.choices.empty()}});
  const TrainingCost size = answer.choices.empty() ? TrainingCost() : answer.choices[0].cost;
  document["tokens"] = size.tokens > 0.0 ? Json(size.tokens) : Json();
  document["tokens_assumed"] = size.assumed;
  document["currency"] = question.cost.prices.currency;
  const auto index = [](const std::optional<std::size_t>& at) { return at ? Json(*at) : Json(); };
  document["smallest"] = index(answer.smallest);
  document["cheapest"] = index(answer.cheapest);
  document["fastest"] = index(answer.fastest);
  Json clusters = Json::array(), refusals = Json::array(), not_asked = Json::array();
  for (const ClusterChoice& choice : answer.choices) {
    clusters.push_back(choice_json(choice, question.scenario));
  }
  for (const ClusterRefusal& refusal : answer.refusals) {
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
                    Streams streams) {
  const WhichQuestion question = question_of(arguments, scenario);
  const WhichAnswer answer = which_gpu(question, options);
  if (arguments.json) {
    streams.out << which_json(answer, question).dump(2) << "\n";
  } else {
    streams.out << which_gpu_text(answer, question, Translation(arguments.language));
  }
  return answer.choices.empty() ? kAnswerIsNo : kDone;
}

// --- how far one cluster reaches

void add_strategy(const StrategyResult& row, Json& document) {
  document["strategy"] = describe(row.strategy).english();
  document["ds_config"] = emit(written_ds_config(row.plan));
  document["result"] = to_json(row.result);
}

Json reach_json(Goal goal, bool fits, const Json& value) {
  return Json::object({{"schema", "zeroplan.reach/1"},
                       {"fits", fits},
                       {"goal", name(kGoalNames, goal)},
                       {"value", value}});
}

Json sequence_json(const SequenceReach& reach) {
  Json document = Json::object({{"value", reach.tokens}});
  add_strategy(reach.row, document);
  return document;
}

Json lengths_json(const LongestSequences& lengths) {
  const std::optional<LongestSequence>& answer = lengths.answer();
  Json document = reach_json(
      Goal::longest_sequence, answer.has_value(), answer ? Json(answer->best.tokens) : Json());
  if (!answer) return document;
  add_strategy(answer->best.row, document);
  document["needs_packages"] = lengths.plain ? Json() : Json(names_of(lengths.packages));
  if (answer->longer) document["longer"] = sequence_json(*answer->longer);
  if (lengths.plain && lengths.with_packages) {
    document["with_packages"] = sequence_json(lengths.with_packages->best);
    document["with_packages"]["packages"] = names_of(lengths.packages);
  }
  if (lengths.has_condition) {
    document["usual_host"] = lengths.usual_host ? sequence_json(lengths.usual_host->best) : Json();
  }
  return document;
}

int answer_reach(const Arguments& arguments,
                 Goal goal,
                 const Scenario& scenario,
                 const PredictOptions& options,
                 Streams streams) {
  const Translation words(arguments.language);
  const auto print = [&](const Json& document, const Phrase& text, bool fits) {
    streams.out << (arguments.json ? document.dump(2) + "\n" : words.text(text));
    return fits ? kDone : kAnswerIsNo;
  };
  if (goal == Goal::longest_sequence) {
    const LongestSequences lengths = longest_sequence(scenario, options);
    return print(lengths_json(lengths), lengths_text(lengths), lengths.answer().has_value());
  }
  const auto largest = largest_model(scenario, options);
  Json document = reach_json(goal, largest.has_value(), largest ? Json(largest->size) : Json());
  if (largest) add_strategy(largest->best, document);
  return print(document, largest_text(largest), largest.has_value());
}

// With --goal largest-model the one word is the cluster.
Scenario without_model(const Scenario& scenario) {
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
  changed.set(ScenarioKey::cluster, model->value, {kCommandLine, "CLUSTER"});
  changed.unset(ScenarioKey::model);
  return changed;
}

}  // namespace

std::optional<int> answer_which_gpu(const Arguments& arguments,
                                    const PredictOptions& options,
                                    Streams streams) {
  const Goal goal = goal_of(arguments);
  Scenario scenario = scenario_of(arguments);
  if (goal == Goal::largest_model) scenario = without_model(scenario);
  const bool has_cluster = scenario.find(ScenarioKey::cluster) != nullptr;
  if (goal != Goal::best) return answer_reach(arguments, goal, scenario, options, streams);
  if (has_cluster && arguments.has("clusters")) {
    throw InputError({kCommandLine, "--clusters", "no CLUSTER beside it", "both", ""});
  }
  if (has_cluster || scenario.find(ScenarioKey::model) == nullptr) return std::nullopt;
  if (arguments.has("output")) {
    throw InputError({kCommandLine,
                      "--output",
                      "one cluster to write the files for",
                      "none or several",
                      "ask without -o first, then: zeroplan fit MODEL CLUSTER -o plan"});
  }
  return answer_clusters(arguments, scenario, options, streams);
}

}  // namespace zeroplan
