#include "library/questions.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "foreign/from_file.hpp"
#include "foreign/processes.hpp"
#include "model/hardware/cluster.hpp"
#include "model/plan/cluster_parts.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "simulator/simulate.hpp"
#include "tuner/remedies.hpp"

namespace zeroplan::library {
namespace {

// The `file` of problems of a field and of an option.
constexpr const char* kFields = "scenario";
constexpr const char* kOptions = "options";

// --- fields

// The fields of kScenarioKeys, by type.
struct TextField {
  ScenarioKey key;
  std::optional<std::string> v1::Scenario::*field;
};
struct NumberField {
  ScenarioKey key;
  std::optional<std::int64_t> v1::Scenario::*field;
};
struct SwitchField {
  ScenarioKey key;
  std::optional<bool> v1::Scenario::*field;
};

using Said1 = v1::Scenario;
constexpr std::array kTexts = {
    TextField{ScenarioKey::id, &Said1::id},
    TextField{ScenarioKey::model, &Said1::model},
    TextField{ScenarioKey::cluster, &Said1::cluster},
    TextField{ScenarioKey::profile, &Said1::profile},
    TextField{ScenarioKey::ds_config, &Said1::ds_config},
    TextField{ScenarioKey::method, &Said1::method},
    TextField{ScenarioKey::precision, &Said1::precision},
    TextField{ScenarioKey::weights_dtype, &Said1::weights_dtype},
    TextField{ScenarioKey::load_device, &Said1::load_device},
    TextField{ScenarioKey::loading, &Said1::loading},
    TextField{ScenarioKey::optimizer, &Said1::optimizer},
    TextField{ScenarioKey::attention, &Said1::attention},
    TextField{ScenarioKey::linear_attention, &Said1::linear_attention},
    TextField{ScenarioKey::activation_checkpointing, &Said1::activation_checkpointing},
    TextField{ScenarioKey::activation_offload, &Said1::activation_offload},
    TextField{ScenarioKey::engine, &Said1::engine},
    TextField{ScenarioKey::frontend, &Said1::frontend},
    TextField{ScenarioKey::implementation, &Said1::implementation},
    TextField{ScenarioKey::optimizer_implementation, &Said1::optimizer_implementation},
    TextField{ScenarioKey::dataset, &Said1::dataset},
    TextField{ScenarioKey::lengths, &Said1::lengths},
    TextField{ScenarioKey::image_size, &Said1::image_size},
    TextField{ScenarioKey::freeze, &Said1::freeze},
    TextField{ScenarioKey::trainer, &Said1::trainer},
    TextField{ScenarioKey::teacher, &Said1::teacher},
    TextField{ScenarioKey::models, &Said1::models},
    TextField{ScenarioKey::evaluation, &Said1::evaluation},
    TextField{ScenarioKey::save_steps, &Said1::save_steps},
    TextField{ScenarioKey::eval_steps, &Said1::eval_steps},
    TextField{ScenarioKey::logging_steps, &Said1::logging_steps},
    TextField{ScenarioKey::deepspeed_version, &Said1::deepspeed_version},
    TextField{ScenarioKey::torch_version, &Said1::torch_version},
    TextField{ScenarioKey::transformers_version, &Said1::transformers_version},
    TextField{ScenarioKey::trl_version, &Said1::trl_version},
    TextField{ScenarioKey::accelerate_version, &Said1::accelerate_version}};
constexpr std::array kNumbers = {
    NumberField{ScenarioKey::sequence_length, &Said1::sequence_length},
    NumberField{ScenarioKey::micro_batch_size, &Said1::micro_batch_size},
    NumberField{ScenarioKey::gradient_accumulation_steps, &Said1::gradient_accumulation_steps},
    NumberField{ScenarioKey::global_batch_size, &Said1::global_batch_size},
    NumberField{ScenarioKey::fsdp_version, &Said1::fsdp_version},
    NumberField{ScenarioKey::omp_num_threads, &Said1::omp_num_threads},
    NumberField{ScenarioKey::dataloader_num_workers, &Said1::dataloader_num_workers},
    NumberField{ScenarioKey::mtbf, &Said1::mtbf},
    NumberField{ScenarioKey::pipeline_parallel, &Said1::pipeline_parallel},
    NumberField{ScenarioKey::tensor_parallel, &Said1::tensor_parallel},
    NumberField{ScenarioKey::sequence_parallel, &Said1::sequence_parallel},
    NumberField{ScenarioKey::images, &Said1::images}};
constexpr std::array kSwitches = {
    SwitchField{ScenarioKey::checkpoint_reentrant, &Said1::checkpoint_reentrant},
    SwitchField{ScenarioKey::fused_loss, &Said1::fused_loss},
    SwitchField{ScenarioKey::tiled_mlp, &Said1::tiled_mlp},
    SwitchField{ScenarioKey::compile, &Said1::compile},
    SwitchField{ScenarioKey::use_cache, &Said1::use_cache},
    SwitchField{ScenarioKey::outputs_held, &Said1::outputs_held},
    SwitchField{ScenarioKey::outputs_kept, &Said1::outputs_kept},
    SwitchField{ScenarioKey::gradients_held, &Said1::gradients_held},
    SwitchField{ScenarioKey::sync_each_batch, &Said1::sync_each_batch},
    SwitchField{ScenarioKey::expandable_segments, &Said1::expandable_segments}};

constexpr bool has_a_field(ScenarioKey key) {
  const auto is_its = [key](const auto& row) { return row.key == key; };
  return std::any_of(kTexts.begin(), kTexts.end(), is_its) ||
         std::any_of(kNumbers.begin(), kNumbers.end(), is_its) ||
         std::any_of(kSwitches.begin(), kSwitches.end(), is_its);
}
constexpr bool all_have_a_field() {
  for (std::size_t i = 0; i < kScenarioKeyCount; ++i) {
    if (!has_a_field(static_cast<ScenarioKey>(i))) return false;
  }
  return true;
}
static_assert(all_have_a_field(), "a key of the scenario that the library's users cannot say");

// "/workload/precision" of `document`, with the objects on the way.
Json& place_in(Json& document, std::string_view pointer) {
  Json* value = &document;
  while (!pointer.empty()) {
    const std::size_t end = std::min(pointer.find('/', 1), pointer.size());
    value = &(*value)[pointer.substr(1, end - 1)];
    pointer.remove_prefix(end);
  }
  return *value;
}

bool is_document(const std::string& text) { return text.starts_with('{'); }

Json text_of(const std::string& text, const ScenarioKeyInfo& key) {
  if (key.type == ScenarioType::objects) return parse_flag(key, text, std::string(key.pointer));
  if (key.type != ScenarioType::text_or_object || !is_document(text)) return Json(text);
  JsonDocument document = parse_json(text, kFields + (" " + std::string(key.pointer)));
  std::vector<Diagnostic> problems = duplicate_key_problems(document);
  if (!problems.empty()) throw InputError(std::move(problems));
  return std::move(document.root);
}

// The fields as the document that says the same.
Json fields_of(const v1::Scenario& said) {
  Json document = Json::object();
  for (const TextField& row : kTexts) {
    const auto& value = said.*row.field;
    const ScenarioKeyInfo& key = info(row.key);
    if (value) place_in(document, key.pointer) = text_of(*value, key);
  }
  for (const NumberField& row : kNumbers) {
    if (said.*row.field) place_in(document, info(row.key).pointer) = Json(*(said.*row.field));
  }
  for (const SwitchField& row : kSwitches) {
    if (said.*row.field) place_in(document, info(row.key).pointer) = Json(*(said.*row.field));
  }
  return document;
}

std::vector<ClusterPart> parts_of(const v1::Scenario& said) {
  std::vector<ClusterPart> parts;
  const auto add = [&](std::string_view section, std::string_view key, const Json& value) {
    ClusterPart& part = parts.emplace_back();
    part.section = section;
    part.key = key;
    part.value = value;
  };
  if (said.node_host_memory_bytes) add("", "host_memory_bytes", *said.node_host_memory_bytes);
  if (said.node_cpu_cores) add("", "cpu_cores", *said.node_cpu_cores);
  if (said.node_network_bytes_per_second) {
    add("inter_node", "bandwidth", *said.node_network_bytes_per_second);
  }
  return parts;
}

// --- a training that is set up elsewhere

// As the command line reads it beside its flags.
foreign::Meaning meaning_of(const v1::Scenario& said, const Scenario& fields, bool searches) {
  std::map<ScenarioKey, std::string> beside;
  for (const ScenarioKeyInfo& key : kScenarioKeys) {
    const ExplicitValue* value = fields.find(key.key);
    if (value == nullptr) continue;
    beside[key.key] = value->value.is_string() ? value->value.as_string() : value->value.dump();
  }
  foreign::Meaning meaning = foreign::read_from(*said.from, std::move(beside));
  if (!searches && !said.engine && !said.ds_config && !said.document) {
    foreign::assume_engine(meaning);
  }
  return meaning;
}

// How many GPUs it starts, and the host memory that its job may have.
void take_processes(const foreign::Processes& started,
                    const v1::Scenario& said,
                    Scenario& fields,
                    std::vector<ClusterPart>& parts) {
  const ExplicitValue* cluster = fields.find(ScenarioKey::cluster);
  if (const auto whole = foreign::cluster_with(started, cluster)) {
    fields.set(ScenarioKey::cluster, *whole, Origin(cluster->origin));
  }
  if (started.host_memory == 0 || said.node_host_memory_bytes) return;
  ClusterPart& memory = parts.emplace_back();
  memory.key = "host_memory_bytes";
  memory.value = started.host_memory;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// --- options

[[noreturn]] void refuse(const char* option, Phrase expected, Phrase got) {
  throw InputError({kOptions, option, std::move(expected), std::move(got), ""});
}

double in_range(const char* option, double value, double min, double max) {
  if (value >= min && value <= max) return value;  // NaN is not
  const Phrase got = std::isfinite(value) ? Json(value).dump() : std::to_string(value);
  refuse(option, "a number from " + Json(min).dump() + " to " + Json(max).dump(), got);
}

double confidence_in_range(double value) { return in_range("confidence", value, 0.01, 0.9999); }

template <typename Enum, std::size_t N>
std::optional<Enum> choice(const char* option,
                           const std::optional<std::string>& said,
                           const EnumNames<Enum, N>& names) {
  if (!said) return std::nullopt;
  if (const auto found = find(names, std::string_view(*said))) return found;
  std::string allowed;
  for (const std::string_view one : names.names) {
    allowed += (allowed.empty() ? "" : ", ") + std::string(one);
  }
  refuse(option, "one of " + allowed, in_quotes(*said));
}

Bytes bytes_of(const char* option, std::int64_t count) {
  if (count < 0) refuse(option, "a number of bytes", std::to_string(count));
  return Bytes::of(count);
}

// How much of each GPU stays free.
Bytes reserve_of(const v1::TuneOptions& said, const Scenario& scenario) {
  Bytes reserve = bytes_of("reserve_bytes", said.reserve_bytes);
  if (reserve == Bytes::zero() && !said.max_gpu_memory_bytes) return reserve;
  const Bytes capacity = prepare(scenario).cluster->gpu.memory.value;
  if (const auto most = said.max_gpu_memory_bytes) {
    reserve = std::max(reserve, capacity - bytes_of("max_gpu_memory_bytes", *most));
  }
  if (reserve < capacity) return reserve;
  const bool limited = said.max_gpu_memory_bytes.has_value();
  refuse(limited ? "max_gpu_memory_bytes" : "reserve_bytes",
         "something left of the GPU's " + std::to_string(capacity.count()) + " bytes",
         std::to_string(limited ? *said.max_gpu_memory_bytes : said.reserve_bytes));
}

tuner::Objective objective_of(v1::Objective said) {
  switch (said) {
    case v1::Objective::throughput:
      return tuner::Objective::throughput;
    case v1::Objective::memory:
      return tuner::Objective::memory;
    case v1::Objective::gpus:
      return tuner::Objective::gpus;
    case v1::Objective::cost:
      return tuner::Objective::cost;
  }
  refuse("objective", "one of the enumeration", std::to_string(static_cast<int>(said)));
}

// "--micro-batch-size" and "CLUSTER", as the command line calls them, as the names of options:
// "micro_batch_size", "cluster".
std::string option_name(std::string_view flag) {
  flag.remove_prefix(std::min(flag.find_first_not_of('-'), flag.size()));
  std::string name(flag);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char letter) {
    return letter == '-' ? '_' : static_cast<char>(std::tolower(letter));
  });
  return name;
}

v1::Problem as_asked(const Diagnostic& said) {
  v1::Problem problem{said.file, said.pointer, said.expected, said.got, said.hint};
  if (said.file != "command line") return problem;
  problem.pointer = option_name(said.pointer);
  problem.file = kOptions;
  for (const ScenarioKeyInfo& key : kScenarioKeys) {
    if (key.flag != said.pointer && key.pointer.substr(1) != problem.pointer) continue;
    problem.file = kFields;
    problem.pointer = key.pointer;
    break;
  }
  return problem;
}

}  // namespace

Asked asked_of(const v1::Scenario& said, bool searches) {
  Asked asked;
  Scenario fields = parse_scenario(fields_of(said), kFields);
  std::vector<ClusterPart> parts = parts_of(said);
  Scenario base;
  if (said.document) base = parse_scenario(parse_json(*said.document, said.document_name));
  if (said.from) {
    const foreign::Meaning meaning = meaning_of(said, fields, searches);
    asked.read = lines_of(foreign::describe(meaning).english());
    base = overlay(base, meaning.scenario);
    take_processes(meaning.processes, said, fields, parts);
  }
  asked.scenario = overlay(base, fields);
  if (const ExplicitValue* cluster = asked.scenario.find(ScenarioKey::cluster);
      cluster && !parts.empty()) {
    const Origin origin = cluster->origin;
    asked.scenario.set(
        ScenarioKey::cluster, with_cluster_parts(cluster->value, origin, parts), origin);
  }
  return asked;
}

PredictOptions options_of(const v1::FitOptions& said) {
  PredictOptions options;
  options.confidence = confidence_in_range(said.confidence);
  return options;
}

simulator::SimulateOptions options_of(const v1::SimulateOptions& said) {
  simulator::SimulateOptions options;
  options.predict.confidence = confidence_in_range(said.confidence);
  options.rank = said.rank;
  if (said.rank && *said.rank < 0) refuse("rank", "a rank from 0 on", std::to_string(*said.rank));
  return options;
}

tuner::TuneOptions options_of(const v1::TuneOptions& said, const Scenario& scenario) {
  constexpr double kMost = 1e9;
  std::optional<double> gap = said.gap;
  if (gap) gap = in_range("gap", *gap, 0.0, 0.5);
  tuner::TuneOptions options = tuner::usual_tune_options(tuner::kTuneCounts, gap);
  options.words = {said.fix, said.search};
  options.objective = objective_of(said.objective);
  tuner::SearchOptions& search = options.search;
  search.limits.predict.confidence = confidence_in_range(said.confidence);
  search.limits.predict.reserve = reserve_of(said, scenario);
  if (const auto most = said.max_host_memory_bytes) {
    search.limits.host_memory = bytes_of("max_host_memory_bytes", *most);
  }
  search.limits.tokens_per_second =
      in_range("min_tokens_per_second_per_gpu", said.min_tokens_per_second_per_gpu, 0.0, kMost);
  if (said.price_per_gpu_hour) in_range("price_per_gpu_hour", *said.price_per_gpu_hour, 0.0, kMost);
  constexpr int kMostThreads = 256;
  if (said.jobs < 0) refuse("jobs", "a number of threads, or 0", std::to_string(said.jobs));
  search.jobs = std::min(said.jobs, kMostThreads);
  if (std::isnan(said.time_limit_seconds) || said.time_limit_seconds <= 0.0) {
    refuse("time_limit_seconds", "seconds above 0", std::to_string(said.time_limit_seconds));
  }
  search.seconds = said.time_limit_seconds;
  search.interrupted = said.stop;
  if (said.on_progress) {
    search.on_progress = [&said](const tuner::SearchProgress& progress) {
      said.on_progress({progress.points, progress.evaluated, progress.pruned});
    };
  }
  return options;
}

LintRequest request_of(const v1::LintOptions& said, const Scenario& scenario) {
  LintRequest request{.result_of = [](const Plan& plan) { return simulator::simulate(plan); },
                      .add_change = tuner::add_cheapest_change};
  request.scenario = scenario;
  request.gpus = said.gpus;
  if (said.gpus && (*said.gpus < 1 || *said.gpus > kMostGpus)) {
    refuse("gpus",
           "a whole number from 1 to " + std::to_string(kMostGpus),
           std::to_string(*said.gpus));
  }
  request.launcher = choice("launcher", said.launcher, kLauncherNames);
  request.task = choice("task", said.task, kRunTaskNames);
  return request;
}

v1::InputError as_asked(const InputError& error) {
  std::vector<v1::Problem> problems;
  for (const Diagnostic& one : error.diagnostics()) {
    problems.push_back(as_asked(one));
  }
  return v1::InputError(std::move(problems));
}

}  // namespace zeroplan::library
