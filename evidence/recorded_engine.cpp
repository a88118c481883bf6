#include "evidence/recorded_engine.hpp"

#include <string_view>
#include <utility>

#include "base/described.hpp"
#include "base/diagnostic.hpp"
#include "model/knobs/ds_config.hpp"
#include "model/plan/engine_from_ds_config.hpp"
#include "model/software.hpp"

namespace zeroplan::evidence {

namespace {

[[noreturn]] void fail(const std::string& pointer, const std::string& expected, const Json* got) {
  throw InputError(
      Diagnostic{"recording", pointer, expected, got != nullptr ? described(*got) : "nothing", ""});
}

// ---- values that may be missing ----

const Json* find(const Json* object, std::string_view key) {
  return object != nullptr && object->is_object() ? object->find(key) : nullptr;
}

std::string text(const Json* object, std::string_view key) {
  const Json* value = find(object, key);
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

// ---- version: "deepspeed 0.16.4, torch ..."; a source tree without a version says 0.0.0 ----

// What 0.0.0 stands for: the release that was recorded from source.
constexpr Version kRecordedFromSource{.major = 0, .minor = 19, .patch = 6};

// ---- configuration ----

// Larger numbers are no recording, and their products would not fit.
constexpr std::int64_t kMostRanks = 1'000'000;
constexpr std::int64_t kMostElements = 1'000'000'000'000;
constexpr int kMostMicroSteps = 1'000'000;

// The file that DeepSpeed was given, read as every other one. What is wrong in it is reported at
// its place in the recording.
DsConfig recorded_ds_config(const Json& recording) {
  JsonDocument document;
  document.file = "recording";
  document.root = recorded_member(recording, "", "ds_config");
  try {
    return parse_ds_config(document);
  } catch (const InputError& error) {
    std::vector<Diagnostic> problems = error.diagnostics();
    for (Diagnostic& problem : problems) problem.pointer = "/ds_config" + problem.pointer;
    throw InputError(std::move(problems));
  }
}

DType model_dtype(const DsConfig& file) {
  if (file.boolean(Knob::bf16_enabled).value_or(false)) return DType::bf16;
  if (file.boolean(Knob::fp16_enabled).value_or(false)) return DType::fp16;
  return DType::fp32;
}

// ---- parameters and their optimizer groups ----

// More than two groups: the recording tells which parameters go together; their order in a group is
// the model's.
void groups_from_lists(const Json& lists,
                       bool sub_groups,
                       std::vector<EngineParameter>& parameters) {
  int group = -1;
  std::int64_t last = -1;
  for (const Json& list : lists.items()) {
    std::int64_t first = -1;
    for (const Json& item : list.items()) {
      if (item.is_integer()) {
        first = item.as_integer();
        break;
      }
    }
    // Sub-groups of one group ascend; a smaller parameter starts the next group.
    if (!sub_groups || first < last || group < 0) ++group;
    for (const Json& item : list.items()) {
      if (!item.is_integer()) continue;
      last = item.as_integer();
      if (last >= 0 && last < static_cast<std::int64_t>(parameters.size())) {
        parameters[static_cast<std::size_t>(last)].group = group;
      }
    }
  }
}

std::vector<EngineParameter> read_parameters(const Json& recording) {
  const Json& model = recorded_member(recording, "", "model");
  std::int64_t groups = 1;
  if (const Json* count = find(recording.find("workload"), "param_groups")) {
    groups = recorded_integer(*count, "/workload/param_groups");
  }
  std::vector<EngineParameter> parameters;
  for (const Json& item : recorded_member(model, "/model", "params").items()) {
    if (item.items().size() < 3) fail("/model/params", "[name, numel, shape]", &item);
    EngineParameter parameter;
    parameter.numel = Elements::of(recorded_integer(item.items()[1], "/model/params"));
    if (parameter.numel < Elements::zero() || parameter.numel > Elements::of(kMostElements)) {
      fail("/model/params", "0 to 10^12 elements", &item.items()[1]);
    }
    // The recorder's two groups: matrices with weight decay, vectors without.
    if (groups == 2) parameter.group = item.items()[2].items().size() > 1 ? 0 : 1;
    parameters.push_back(parameter);
  }
  if (const Json* modules = model.find("modules")) {
    std::vector<int> users(parameters.size());
    for (const Json& module : modules->items()) {
      if (module.items().size() < 3) continue;
      for (const Json& item : module.items()[2].items()) {
        const std::int64_t index = recorded_integer(item, "/model/modules");
        if (index >= 0 && index < static_cast<std::int64_t>(parameters.size())) {
          ++users[static_cast<std::size_t>(index)];
        }
      }
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (users[i] > 1) parameters[i].tensors_built = users[i];
    }
  }
  if (const Json* frozen = model.find("frozen")) {
    for (const Json& item : frozen->items()) {
      const std::int64_t index = recorded_integer(item, "/model/frozen");
      if (index < 0 || index >= static_cast<std::int64_t>(parameters.size())) {
        fail("/model/frozen", "an index into /model/params", &item);
      }
      parameters[static_cast<std::size_t>(index)].trainable = false;
    }
  }
  if (groups > 2) {
    const Json* init = recording.find("init");
    const Json* lists = find(init, "groups");
    const bool sub_groups = lists == nullptr;
    if (sub_groups) lists = find(init, "sub_groups");
    if (lists != nullptr) groups_from_lists(*lists, sub_groups, parameters);
  }
  return parameters;
}

// ---- events ----

void read_steps(const Json& recording, RecordedEngine& engine) {
  const Json& steps = recorded_member(recording, "", "steps");
  for (const Json& step : steps.items()) {
    const std::string pointer = "/steps/" + std::to_string(engine.steps.size());
    if (step.is_object()) {
      const std::int64_t same =
          recorded_integer(recorded_member(step, pointer, "same_as"), pointer + "/same_as");
      if (same < 0 || same >= static_cast<std::int64_t>(engine.steps.size())) {
        fail(pointer + "/same_as", "an earlier step", &step);
      }
      engine.steps.push_back(engine.steps[static_cast<std::size_t>(same)]);
      engine.agreement.push_back(step.find("without") == nullptr);
      continue;
    }
    std::vector<const Json*> events;
    for (const Json& event : step.items()) {
      if (event.items().empty() || !event.items()[0].is_string()) {
        fail(pointer + "/" + std::to_string(events.size()), "an event", &event);
      }
      events.push_back(&event);
    }
    engine.steps.push_back(std::move(events));
    engine.agreement.push_back(true);
  }
}

// Parameters whose gradient is in no event although others' are: nothing reaches them.
void read_used(RecordedEngine& engine) {
  std::vector<bool> ready(engine.parameters.size());
  bool any = false;
  for (const auto& step : engine.steps) {
    for (const Json* event : step) {
      if (event->items()[0].as_string() != "g" || event->items().size() < 2) continue;
      const std::int64_t index = recorded_integer(event->items()[1], "/steps");
      if (index < 0 || index >= static_cast<std::int64_t>(ready.size())) continue;
      ready[static_cast<std::size_t>(index)] = true;
      any = true;
    }
  }
  for (std::size_t i = 0; any && i < ready.size(); ++i) engine.parameters[i].used = ready[i];
}

}  // namespace

Version recorded_release(const std::string& software) {
  constexpr std::string_view kPrefix = "deepspeed ";
  if (software.rfind(kPrefix, 0) != 0) return kRecordedFromSource;
  const std::size_t end = software.find(',');
  const auto version =
      parse_version(std::string_view(software).substr(kPrefix.size(), end - kPrefix.size()));
  if (!version || *version == Version{}) return kRecordedFromSource;
  return *version;
}

const Json& recorded_member(const Json& object, const std::string& pointer, std::string_view key) {
  const Json* found = object.is_object() ? object.find(key) : nullptr;
  if (found == nullptr) fail(pointer + "/" + std::string(key), "a member of a recording", nullptr);
  return *found;
}

std::int64_t recorded_integer(const Json& value, const std::string& pointer) {
  if (!value.is_integer()) fail(pointer, "an integer", &value);
  return value.as_integer();
}

EngineConfig read_recorded_config(const Json& recording) {
  const DsConfig file = recorded_ds_config(recording);
  const std::int64_t ranks =
      recorded_integer(recorded_member(recording, "", "world_size"), "/world_size");
  const std::int64_t rank = recorded_integer(recorded_member(recording, "", "rank"), "/rank");
  if (ranks < 1 || ranks > kMostRanks) {
    fail("/world_size", "1 to 1000000 ranks", recording.find("world_size"));
  }
  if (rank < 0 || rank >= ranks) fail("/rank", "a rank below world_size", recording.find("rank"));
  const std::int64_t micro_steps = file.integer(Knob::gradient_accumulation_steps).value_or(1);
  if (micro_steps < 1 || micro_steps > kMostMicroSteps) {
    fail("/ds_config/gradient_accumulation_steps",
         "1 to 1000000 micro-steps",
         recording.find("ds_config")->find("gradient_accumulation_steps"));
  }
  EngineConfig config =
      engine_from_ds_config(file,
                            {.release = recorded_release(text(&recording, "software")),
                             .switched = {},
                             .data_parallel_ranks = static_cast<int>(ranks),
                             .model_dtype = model_dtype(file)});
  config.rank = static_cast<int>(rank);
  config.ranks_per_node = config.data_parallel_ranks;
  config.gradient_accumulation_steps = static_cast<int>(micro_steps);
  config.stage3.zero_init = find(recording.find("init"), "zero_init_events") != nullptr;
  if (config.data_parallel_ranks % config.stage3.hpz_partition_size != 0) {
    fail(
        "/ds_config/zero_optimization/zero_hpz_partition_size", "a divisor of world_size", nullptr);
  }
  drop_what_is_ignored(config);
  return config;
}

RecordedEngine read_recorded_engine(const Json& recording) {
  if (!recording.is_object()) fail("", "an object", &recording);
  RecordedEngine engine;
  engine.id = text(&recording, "id");
  engine.wrapper = text(&recording, "wrapper");
  const std::string software = text(&recording, "software");
  engine.config = read_recorded_config(recording);
  engine.parameters = read_parameters(recording);
  // The recorder hands DeepSpeed a torch optimizer; FP16_Optimizer exists only around a fused one.
  engine.config.optimizer =
      engine.wrapper == "FP16_Optimizer" ? OptimizerKind::fused_adam : OptimizerKind::torch_adam;
  engine.stopped = recording.find("stopped") != nullptr;
  engine.short_form = !engine.stopped && recording.find("after_bwd0") == nullptr;
  engine.finished_events = software.find("event query True") != std::string::npos;
  if (const Json* steps = find(recording.find("workload"), "overflow")) {
    for (const Json& step : steps->items()) {
      engine.overflow.push_back(recorded_integer(step, "/workload/overflow"));
    }
  }
  read_steps(recording, engine);
  read_used(engine);
  return engine;
}

}  // namespace zeroplan::evidence
