#include "cli/search_options.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.hpp"
#include "cli/table.hpp"

namespace zeroplan::cli {
namespace {

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

tuner::Objective objective_of(const Arguments& arguments) {
  const auto said = arguments.text("objective");
  if (!said) return tuner::Objective::throughput;
  if (const auto known = find(tuner::kObjectiveNames, std::string_view(*said))) return *known;
  throw InputError({kCommandLine,
                    "--objective",
                    "throughput, memory, gpus or cost",
                    in_quotes(*said),
                    did_you_mean(*said, tuner::kObjectiveNames.names)});
}

// --max-gpu-memory is the GPU's memory less what is reserved.
void take_gpu_limits(const Arguments& arguments, Bytes capacity, PredictOptions& predict) {
  predict.reserve = bytes(arguments, "reserve").value_or(Bytes::zero());
  const auto most = bytes(arguments, "max-gpu-memory");
  if (most) predict.reserve = std::max(predict.reserve, capacity - *most);
  if (predict.reserve < capacity) return;
  throw InputError({kCommandLine,
                    most ? "--max-gpu-memory" : "--reserve",
                    phrase("something left of the GPU's {} bytes", capacity.count()),
                    arguments.text(most ? "max-gpu-memory" : "reserve").value_or(""),
                    ""});
}

// A batch size that flags say twice, and differently, is a mistake; a file's may be replaced.
void check_said_once(const Scenario& scenario, const tuner::SearchWords& words) {
  struct Same {
    ScenarioKey key;
    std::string_view name, short_name, key_of_file;
  };
  constexpr std::array kSame = {Same{ScenarioKey::micro_batch_size,
                                     "micro_batch_size",
                                     "mbs",
                                     "train_micro_batch_size_per_gpu"},
                                Same{ScenarioKey::gradient_accumulation_steps,
                                     "gradient_accumulation_steps",
                                     "gas",
                                     "gradient_accumulation_steps"}};
  const auto check = [&](const std::string& flag, const std::vector<std::string>& said) {
    for (const std::string& word : said) {
      const std::size_t begin = word.starts_with('/') ? 1 : 0;
      const std::string name = word.substr(begin, word.find('=') - begin);
      for (const Same& same : kSame) {
        const ExplicitValue* there = scenario.find(same.key);
        const bool meant = name == same.name || name == same.short_name || name == same.key_of_file;
        if (!meant || there == nullptr || there->origin.file != kCommandLine) continue;
        const std::string value = there->value.dump();
        if (word.substr(begin) == name + "=" + value) continue;
        throw InputError(Diagnostic{
            kCommandLine, flag, there->origin.pointer + " " + value, word, "say it once"});
      }
    }
  };
  check("--fix", words.fix);
  check("--search", words.search);
}

}  // namespace

tuner::TuneOptions tune_options_of(const Arguments& arguments,
                                   const Scenario& scenario,
                                   const tuner::SearchCounts& counts) {
  tuner::TuneOptions options = tuner::usual_tune_options(counts, arguments.real("gap", 0.0, 0.5));
  options.words.fix = texts(arguments, "fix");
  options.words.search = texts(arguments, "search");
  check_said_once(scenario, options.words);
  options.objective = objective_of(arguments);
  tuner::SearchOptions& search = options.search;
  PredictOptions& predict = search.limits.predict;
  predict.confidence = arguments.real("confidence", 0.01, 0.9999).value_or(predict.confidence);
  if (arguments.has("reserve") || arguments.has("max-gpu-memory")) {
    take_gpu_limits(arguments, prepare(scenario).cluster->gpu.memory.value, predict);
  }
  search.limits.host_memory = bytes(arguments, "max-host-memory").value_or(Bytes::infinite());
  search.limits.tokens_per_second = arguments.real("min-throughput", 0.0, 1e9).value_or(0.0);
  search.jobs =
      static_cast<int>(std::min<std::int64_t>(256, arguments.integer("jobs", 1).value_or(0)));
  search.seconds = arguments.real("time-limit", 0.001, 1e9).value_or(search.seconds);
  return options;
}

void show_progress(const tuner::SearchProgress& search,
                   Progress& progress,
                   const Translation& words) {
  const double done = static_cast<double>(search.evaluated + search.pruned) /
                      static_cast<double>(std::max<std::int64_t>(1, search.points));
  const std::string text = words.text(phrase("{} simulated, {:.1f} % of {} points left",
                                             search.evaluated,
                                             100.0 * (1.0 - done),
                                             search.points));
  std::string best;
  if (search.best) {
    best = words.text(phrase("; best so far {:.0f} tokens/s per GPU, {} of GPU memory",
                             search.best->tokens_per_second,
                             gib_text(search.best->gpu_memory)));
  }
  progress.show(done, text, best);
}

int nothing_found(bool all_known, const Streams& streams, const Translation& words) {
  if (all_known) return kAnswerIsNo;
  streams.log << words.text(
      "error: the search ended before it found what fits and before it had looked at everything: "
      "whether something fits is not known\n"
      "hint: a smaller space (--fix), more time, or no --time-limit\n");
  return kInternalError;
}

}  // namespace zeroplan::cli
