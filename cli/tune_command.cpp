// zeroplan tune: the best configuration of a space, proven, and why not the others.
#include "cli/tune_command.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/progress_bar.hpp"
#include "cli/tune_text.hpp"
#include "cli/write_kit.hpp"
#include "model/diagnostic.hpp"
#include "model/predict/io_step_result.hpp"
#include "tuner/tune.hpp"

namespace zeroplan {
namespace {

constexpr int kInterrupted = 130;  // docs/contract.md section 3

// The values of an option that may be said several times.
std::vector<std::string> texts(const Arguments& arguments, const std::string& option) {
  std::vector<std::string> values;
  const auto said = arguments.text(option);
  if (!said) return values;
  std::size_t begin = 0;
  while (begin <= said->size()) {
    const std::size_t end = std::min(said->find('\n', begin), said->size());
    values.push_back(said->substr(begin, end - begin));
    begin = end + 1;
  }
  return values;
}

// A size such as 64G, 512GiB or 1T.
std::optional<Bytes> bytes(const Arguments& arguments, const std::string& option) {
  const auto said = arguments.text(option);
  if (!said) return std::nullopt;
  const std::string flag = "--" + option;
  ClusterFlagInfo size{};
  size.flag = flag;
  size.kind = ClusterFlagInfo::Kind::bytes;
  return Bytes::nearest(parse_cluster_flag(size, *said).as_number());
}

// Signal handlers reach nothing else.
std::atomic<bool>& interrupt_flag() {
  static std::atomic<bool> flag = false;
  return flag;
}

extern "C" void note_interrupt(int) { interrupt_flag().store(true); }

// Ctrl-C asks for the best so far; a second one ends the program as usual.
class InterruptGuard {
 public:
  InterruptGuard() {
    interrupt_flag().store(false);
    struct sigaction action {};
    action.sa_handler = note_interrupt;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(SIGINT, &action, &before_);
  }
  ~InterruptGuard() { sigaction(SIGINT, &before_, nullptr); }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction before_ {};
};

Objective objective_of(const Arguments& arguments) {
  const auto said = arguments.text("objective");
  if (!said) return Objective::throughput;
  if (const auto known = find(kObjectiveNames, std::string_view(*said))) return *known;
  throw InputError({kCommandLine,
                    "--objective",
                    "throughput, memory, gpus or cost",
                    in_quotes(*said),
                    did_you_mean(*said, kObjectiveNames.names)});
}

// --max-gpu-memory is the card's memory less what is reserved.
void take_gpu_limits(const Arguments& arguments, Bytes capacity, PredictOptions& predict) {
  predict.reserve = bytes(arguments, "reserve").value_or(Bytes::zero());
  const auto most = bytes(arguments, "max-gpu-memory");
  if (most) predict.reserve = std::max(predict.reserve, capacity - *most);
  if (predict.reserve < capacity) return;
  throw InputError({kCommandLine,
                    most ? "--max-gpu-memory" : "--reserve",
                    "something left of the GPU's " + std::to_string(capacity.count()) + " bytes",
                    arguments.text(most ? "max-gpu-memory" : "reserve").value_or(""),
                    ""});
}

TuneOptions options_of(const Arguments& arguments, const Scenario& scenario) {
  TuneOptions options;
  options.words.fix = texts(arguments, "fix");
  options.words.search = texts(arguments, "search");
  options.objective = objective_of(arguments);
  SearchOptions& search = options.search;
  PredictOptions& predict = search.limits.predict;
  predict.confidence = arguments.real("confidence", 0.01, 0.9999).value_or(predict.confidence);
  if (arguments.has("reserve") || arguments.has("max-gpu-memory")) {
    take_gpu_limits(arguments, prepare(scenario).cluster->gpu.memory.value, predict);
  }
  search.limits.host_memory = bytes(arguments, "max-host-memory").value_or(Bytes::infinite());
  search.limits.tokens_per_second = arguments.real("min-throughput", 0.0, 1e9).value_or(0.0);
  search.gap = arguments.real("gap", 0.0, 0.5).value_or(search.gap);
  search.jobs =
      static_cast<int>(std::min<std::int64_t>(256, arguments.integer("jobs", 1).value_or(0)));
  search.seconds = arguments.real("time-limit", 0.001, 1e9).value_or(search.seconds);
  return options;
}

Json configuration_json(const Plan& plan, const Scenario& scenario) {
  const Json document = scenario_document(plan, scenario);
  return Json::object({{"scenario", document},
                       {"ds_config", emit(written_ds_config(plan))},
                       {"workload", *document.find("workload")}});
}

Json pareto_json(const TuneAnswer& answer) {
  Json list = Json::array();
  for (const auto& [plan, item] : answer.pareto) {
    Json row = configuration_json(plan, answer.scenario);
    row.erase("scenario");
    row["tokens_per_second_per_gpu"] = item.tokens_per_second;
    row["step_seconds"] = item.step.seconds();
    row["gpu_bytes"] = item.gpu_memory.count();
    row["host_bytes"] = item.host_memory.count();
    list.push_back(row);
  }
  return list;
}

Json impacts_json(const TuneAnswer& answer) {
  Json list = Json::array();
  for (const KnobImpact& impact : answer.impacts) {
    Json unfit = Json::array();
    for (const std::string& value : impact.unfit) unfit.push_back(value);
    Json row = Json::object({{"key", impact.key}, {"value", impact.value}});
    row["other"] = impact.other.empty() ? Json() : Json(impact.other);
    row["speed_change"] = impact.other.empty() ? Json() : Json(impact.speed_change);
    row["does_not_fit_with"] = unfit;
    list.push_back(row);
  }
  return list;
}

Json answer_json(const TuneAnswer& answer,
                 const TuneOptions& options,
                 std::optional<double> price) {
  const SearchResult& search = answer.search;
  Json document = Json::object({{"schema", "zeroplan.tune/1"}, {"best", Json()}});
  if (answer.plan) {
    Json best = configuration_json(*answer.plan, answer.scenario);
    best["result"] = to_json(answer.result);
    document["best"] = best;
  }
  document["pareto"] = pareto_json(answer);
  document["points"] = search.points;
  document["evaluated"] = search.evaluated;
  document["pruned"] = search.pruned;
  document["seconds"] = search.seconds;
  document["optimal"] = search.optimal;
  document["gap"] = options.search.gap;
  document["objective"] = name(kObjectiveNames, options.objective);
  Json tally = Json::array();
  for (const auto& [reason, row] : search.tally) {
    tally.push_back(
        Json::object({{"reason", reason}, {"count", row.count}, {"sample", row.sample}}));
  }
  document["tally"] = tally;
  document["impacts"] = impacts_json(answer);
  if (answer.headroom) {
    document["largest_micro_batch"] = answer.headroom->largest_micro_batch;
    document["longest_sequence"] = answer.headroom->longest_sequence;
  }
  if (answer.fewest_gpus) document["fewest_gpus"] = *answer.fewest_gpus;
  if (answer.plan) {
    const double hours = 1e6 / answer.result.step.tokens_per_second_per_gpu / 3600.0;
    document["gpu_hours_per_million_tokens"] = hours;
    if (price) document["price_per_million_tokens"] = hours * *price;
  }
  if (answer.nearest) {
    Json nearest = configuration_json(answer.nearest->plan, answer.scenario);
    nearest["change"] = answer.nearest->change;
    nearest["result"] = to_json(answer.nearest->result);
    document["nearest"] = nearest;
  }
  Json remedies = Json::array();
  for (const Remedy& remedy : answer.remedies) {
    remedies.push_back(Json::object({{"change", remedy.change},
                                     {"strategy", describe(remedy.best.strategy)},
                                     {"ds_config", emit(written_ds_config(remedy.best.plan))},
                                     {"result", to_json(remedy.best.result)}}));
  }
  document["remedies"] = remedies;
  return document;
}

void write_answer(const TuneAnswer& answer,
                  const std::string& folder,
                  std::ostream& log,
                  const Translation& words) {
  if (!answer.plan) {
    log << words.text("nothing written to " + folder + ": nothing fits\n");
    return;
  }
  const Json scenario = scenario_document(*answer.plan, answer.scenario);
  write_kit(make_kit(*answer.plan, scenario, answer.result), folder, log, words);
}

}  // namespace

int run_tune(const Arguments& arguments, Streams streams) {
  const Translation words(arguments.language);
  const Scenario scenario = scenario_of(arguments);
  TuneOptions options = options_of(arguments, scenario);
  const auto price = arguments.real("price", 0.0, 1e9);
  TuneAnswer answer;
  {
    const InterruptGuard guard;
    ProgressBar bar(streams.log);
    options.search.interrupted = &interrupt_flag();
    options.search.on_progress = [&](const SearchProgress& progress) {
      const double done = static_cast<double>(progress.evaluated + progress.pruned) /
                          static_cast<double>(std::max<std::int64_t>(1, progress.points));
      bar.show(done,
               words.text(fmt::format("{} simulated, {:.1f} % of {} points left",
                                      progress.evaluated,
                                      100.0 * (1.0 - done),
                                      progress.points)));
    };
    answer = tune(scenario, options);
  }
  // Files first: where they cannot be written, standard output holds the error alone.
  if (const auto folder = arguments.text("output")) {
    write_answer(answer, *folder, streams.log, words);
  }
  if (arguments.json) {
    streams.out << answer_json(answer, options, price).dump(2) << "\n";
  } else {
    streams.out << tune_text(answer, options, price, words);
  }
  if (answer.search.interrupted) return kInterrupted;
  return answer.plan ? kDone : kAnswerIsNo;
}

}  // namespace zeroplan
