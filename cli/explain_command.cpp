// zeroplan explain: what uses the memory of a configuration, or what an out-of-memory error says.
#include <algorithm>
#include <ostream>
#include <utility>

#include "base/described.hpp"
#include "base/diagnostic.hpp"
#include "cli/commands.hpp"
#include "cli/explain_text.hpp"
#include "model/families/hf_config.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/step/step_graph.hpp"
#include "simulator/lockstep.hpp"
#include "simulator/planned_ranks.hpp"
#include "simulator/rank_simulation.hpp"
#include "simulator/simulate.hpp"

namespace zeroplan::cli {
namespace {

constexpr std::int64_t kLargestLog = std::int64_t{256} << 20;

enum class FileKind { ds_config, scenario, text };

struct Input {
  std::string name;  // for messages
  std::string text;
  bool is_piped = false;
};

Input read_input(const std::string& file) {
  if (file != "-") return {file, read_text_file(file, kLargestLog)};
  return {"standard input", read_text_file("/dev/stdin", kLargestLog), true};
}

bool tells_of_failure(const std::string& text) {
  return !evidence::read_oom_text(text).empty() || !evidence::read_log(text).failures.empty();
}

// A JSON object with a key that only scenarios have is one; any other is a ds_config. What begins
// as an object or is called .json and is none is a log (the Trainer prints Python's dictionaries)
// where it tells of a failure, else broken, and the error says where.
FileKind kind_of(const std::string& text, const std::string& file) {
  const std::size_t first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  const bool object = first != std::string::npos && text[first] == '{';
  if (first == std::string::npos) {
    throw InputError({file,
                      "",
                      "a ds_config.json, a scenario, or a log of a run that failed",
                      "an empty text",
                      "the lines from the first \"Traceback\" on are enough"});
  }
  if (!object && !file.ends_with(".json")) return FileKind::text;
  try {
    const JsonDocument document = parse_json(text, file, {});
    if (!document.root.is_object()) {
      throw InputError({file, "", "an object", described(document.root), ""});
    }
    for (const std::string_view key : {"model", "cluster", "workload", "ds_config", "software"}) {
      if (document.root.find(key) != nullptr) return FileKind::scenario;
    }
    return FileKind::ds_config;
  } catch (const InputError&) {
    if (tells_of_failure(text)) return FileKind::text;
    throw;
  }
}

Scenario scenario_with_file(const Arguments& arguments, const Input& input, FileKind kind) {
  if (kind == FileKind::scenario) {
    if (arguments.scenario_file) {
      throw InputError({kCommandLine, "--scenario", "one scenario", "FILE and --scenario", ""});
    }
    return with_flags(parse_scenario(parse_json(input.text, input.name, {})), arguments);
  }
  Scenario scenario = scenario_of(arguments);
  if (arguments.flags.find(ScenarioKey::ds_config) != nullptr) {
    throw InputError({kCommandLine, "--ds-config", "one file", "FILE and --ds-config", ""});
  }
  const Json value =
      input.is_piped ? parse_json(input.text, input.name, {}).root : Json(input.name);
  scenario.set(ScenarioKey::ds_config, value, {input.name, ""});
  // What is wrong with the file, before what is missing beside it.
  read_ds_config_of(*scenario.find(ScenarioKey::ds_config));
  return scenario;
}

ConfigExplanation explain_config(const Arguments& arguments,
                                 const Input& input,
                                 FileKind kind,
                                 const PredictOptions& options) {
  const tuner::Variations variations(scenario_with_file(arguments, input, kind));
  ConfigExplanation explanation;
  explanation.file = input.name;
  explanation.plan = variations.base();
  explanation.sensitivity = sensitivity(variations, options);
  if (simulator::is_simulated(explanation.plan)) {
    const ModelGraph graph = step_graph(explanation.plan);
    const std::optional<int> shown = explanation.sensitivity.base.gpu.rank;
    const simulator::RankProgram rank =
        simulator::write_rank_program(explanation.plan, graph, shown);
    explanation.peak = tuner::PeakInventoryBuilder(explanation.plan, graph, rank).at_peak();
  }
  return explanation;
}

// --- an error's text

// The one to explain: the first that states sizes, else one that says what CUDA's error leaves
// open, else the first.
std::size_t explained_event(const std::vector<evidence::OomEvent>& events) {
  auto one = std::find_if(events.begin(), events.end(), [](const evidence::OomEvent& event) {
    return event.tried.has_value();
  });
  if (one == events.end()) {
    one = std::find_if(events.begin(), events.end(), [](const evidence::OomEvent& event) {
      return event.kind == evidence::OomKind::host_pinned;
    });
  }
  return one == events.end() ? 0 : static_cast<std::size_t>(one - events.begin());
}

std::optional<tuner::SizeQuestion> question_of(const evidence::OomEvent& event) {
  if (!event.tried) return std::nullopt;
  tuner::SizeQuestion question{event.tried->bytes, event.tried->rounding, std::nullopt};
  if (event.allocated) question.allocated = event.allocated->bytes;
  return question;
}

// What the message says about the GPU: memory that this process cannot have.
Bytes taken_from_gpu(const evidence::OomEvent& event) {
  Bytes taken = evidence::memory_of_others(event).value_or(Bytes::zero());
  if (event.limit && event.capacity && event.limit->bytes < event.capacity->bytes) {
    taken = std::max(taken, event.capacity->bytes - event.limit->bytes);
  }
  return taken;
}

std::optional<SimulatedEnd> end_on_gpu(const simulator::RankProgram& rank,
                                       const StepResult& result,
                                       Bytes taken) {
  const Bytes outside = at(result.gpu.breakdown_at_peak, MemoryCategory::cuda_context);
  if (result.gpu.capacity <= outside + taken) return std::nullopt;
  simulator::SimulationOptions options;
  options.available = result.gpu.capacity - outside - taken;
  const simulator::RankSimulation simulation = simulator::simulate_rank(rank, options);
  if (!simulation.out_of_memory) return std::nullopt;
  SimulatedEnd end{*simulation.out_of_memory, ""};
  if (end.end.label >= 0) {
    end.label = rank.program.labels[static_cast<std::size_t>(end.end.label)];
    if (end.label.ends_with('.')) end.label.pop_back();
  }
  return end;
}

Resource resource_of(const evidence::OomEvent& event) {
  return evidence::is_of_host(event.kind) ? Resource::host_memory : Resource::gpu_memory;
}

OomRun run_of(const Scenario& scenario, const evidence::OomEvent& event, PredictOptions options) {
  std::optional<Bytes> capacity;
  if (event.capacity && event.capacity->bytes > Bytes::zero()) capacity = event.capacity->bytes;
  const tuner::Variations variations(scenario, capacity);
  OomRun run;
  run.plan = variations.base();
  options.reserve = std::min(taken_from_gpu(event), run.plan.cluster.gpu.memory.value);
  run.result = simulator::simulate(run.plan, {.predict = options, .other_networks = false});
  if (simulator::is_simulated(run.plan)) {
    const ModelGraph graph = step_graph(run.plan);
    const simulator::RankProgram rank =
        simulator::write_rank_program(run.plan, graph, run.result.gpu.rank);
    if (const auto question = question_of(event)) {
      run.matches = tuner::PeakInventoryBuilder(run.plan, graph, rank).matches(*question);
    }
    run.end = end_on_gpu(rank, run.result, options.reserve);
  }
  if (resource_of(event) == Resource::host_memory) {
    run.host_ran_out = run.result.host_condition.has_value();
    if (run.result.fits && !run.host_ran_out) return run;
    const tuner::Variations usual(scenario, capacity, true);
    const StepResult result =
        simulator::simulate(usual.base(), {.predict = options, .other_networks = false});
    run.changes = tuner::find_remedies(usual, result, options, Resource::host_memory);
    return run;
  }
  if (run.result.fits) {
    // The log says that it does not: what helps must free at least the request that failed.
    const GpuMemory& gpu = run.result.gpu;
    const Bytes room = gpu.capacity - std::min(gpu.capacity, gpu.peak_total);
    run.refuted_by = room + (event.tried ? event.tried->bytes : Bytes::zero());
    options.reserve =
        std::min(options.reserve + *run.refuted_by, run.plan.cluster.gpu.memory.value);
  }
  run.changes = tuner::find_remedies(variations, run.result, options, Resource::gpu_memory);
  return run;
}

void add_facts(const Model& model, const evidence::OomEvent& event, OomExplanation& explanation) {
  const auto question = question_of(event);
  if (!question) return;
  tuner::RunSize size;
  if (explanation.run) {
    const Plan& plan = explanation.run->plan;
    size.ranks = plan.degrees.partition();
    size.tokens = plan.workload.micro_batch_size * plan.workload.sequence_length;
  }
  explanation.facts = tuner::size_facts(model, size, *question);
}

// Without the cluster, which names no tensor.
std::optional<Model> model_of(const Scenario& scenario) {
  const ExplicitValue* model = scenario.find(ScenarioKey::model);
  if (model == nullptr) return std::nullopt;
  return load_model(model->value, model->origin.file, model->origin.pointer);
}

evidence::LogReading reading_of(const Arguments& arguments, const Input& input) {
  const std::optional<Model> model = model_of(scenario_of(arguments));
  return evidence::read_log(input.text, model ? &*model : nullptr);
}

// The tokens of a micro-batch, where the lengths were said.
tuner::RunSize said_size(const Scenario& scenario) {
  tuner::RunSize size;
  const ExplicitValue* length = scenario.find(ScenarioKey::sequence_length);
  const ExplicitValue* batch = scenario.find(ScenarioKey::micro_batch_size);
  if (length == nullptr || !length->value.is_integer()) return size;
  const std::int64_t sequences =
      batch != nullptr && batch->value.is_integer() ? batch->value.as_integer() : 1;
  size.tokens = detail::checked_product(length->value.as_integer(), sequences);
  return size;
}

OomExplanation explain_error(const Arguments& arguments,
                             const Input& input,
                             std::vector<evidence::OomEvent> events,
                             const PredictOptions& options) {
  OomExplanation explanation;
  explanation.file = input.name;
  explanation.log = reading_of(arguments, input);
  explanation.events = std::move(events);
  explanation.explained = explained_event(explanation.events);
  const evidence::OomEvent& event = explanation.events[explanation.explained];
  explanation.causes = evidence::diagnose(event);
  const Scenario scenario = scenario_of(arguments);
  const bool has_model = scenario.find(ScenarioKey::model) != nullptr;
  const bool has_cluster = scenario.find(ScenarioKey::cluster) != nullptr;
  if (has_model && has_cluster) {
    explanation.run = run_of(scenario, event, options);
    add_facts(*explanation.run->plan.model, event, explanation);
    return explanation;
  }
  explanation.missing = has_model ? "--cluster" : has_cluster ? "--model" : "--model and --cluster";
  if (has_model) {
    // Counting needs no cluster; any will do.
    Scenario counted = scenario;
    counted.set(ScenarioKey::cluster, Json("1xA100-80G"), {"explain", ""});
    add_facts(*prepare(counted).model, event, explanation);
  } else if (const auto question = question_of(event)) {
    explanation.facts = tuner::vocabulary_facts(said_size(scenario), *question);
  }
  return explanation;
}

// Whether it tells the reason of a failure, or of what a failure it is the consequence.
bool knows(const evidence::LogReading& log) {
  const bool follows = std::any_of(
      log.consequences.begin(), log.consequences.end(), [](const evidence::LogSymptom& symptom) {
        return symptom.kind == evidence::FailureKind::follows;
      });
  return !log.failures.empty() || (follows && !log.unknown);
}

template <typename Explanation>
int print(const Explanation& explanation, const Arguments& arguments, Streams streams) {
  if (arguments.json) {
    streams.out << explain_json(explanation).dump(2) << "\n";
  } else {
    streams.out << explain_text(explanation, Translation(arguments.language));
  }
  return kDone;
}

}  // namespace

int run_explain(const Arguments& arguments, Streams streams) {
  PredictOptions options;
  options.confidence = arguments.real("confidence", 0.01, 0.9999).value_or(options.confidence);
  const Input input = read_input(arguments.positionals.front());
  const FileKind kind = kind_of(input.text, input.name);
  if (kind != FileKind::text) {
    return print(explain_config(arguments, input, kind, options), arguments, streams);
  }
  std::vector<evidence::OomEvent> events = evidence::read_oom_text(input.text);
  if (!events.empty()) {
    return print(explain_error(arguments, input, std::move(events), options), arguments, streams);
  }
  const SymptomExplanation explanation{input.name, reading_of(arguments, input)};
  print(explanation, arguments, streams);
  return knows(explanation.log) ? kDone : kAnswerIsNo;
}

}  // namespace zeroplan::cli
