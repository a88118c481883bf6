#include "evidence/recorded_fetch.hpp"

#include <set>
#include <string_view>

#include "evidence/recorded_engine.hpp"
#include "model/diagnostic.hpp"

namespace zeroplan {
namespace {

[[noreturn]] void fail(const std::string& pointer, const std::string& expected, const Json* got) {
  throw InputError(
      Diagnostic{"recording", pointer, expected, got != nullptr ? got->describe() : "nothing", ""});
}

const Json& member(const Json& object, const std::string& pointer, std::string_view key) {
  const Json* found = object.find(key);
  if (found == nullptr) fail(pointer + "/" + std::string(key), "a member of a recording", nullptr);
  return *found;
}

std::int64_t integer(const Json& value, const std::string& pointer) {
  if (!value.is_integer()) fail(pointer, "an integer", &value);
  return value.as_integer();
}

std::int32_t index_below(const Json& value, std::size_t limit, const std::string& pointer) {
  const std::int64_t index = integer(value, pointer);
  if (index < 0 || index >= static_cast<std::int64_t>(limit)) {
    fail(pointer, "an index below " + std::to_string(limit), &value);
  }
  return static_cast<std::int32_t>(index);
}

void read_number(const Json* zero, std::string_view key, Elements& into) {
  const Json* value = zero->find(key);
  if (value == nullptr || !value->is_number()) return;
  const double count = value->as_number();
  // Users write 1e30 for "no limit".
  into = count < 9e18 ? Elements::of(static_cast<std::int64_t>(count)) : Elements::infinite();
}

void read_flag(const Json* zero, std::string_view key, bool& into) {
  const Json* value = zero->find(key);
  if (value != nullptr && value->is_boolean()) into = value->as_boolean();
}

bool enabled(const Json& ds_config, std::string_view section) {
  const Json* found = ds_config.find(section);
  const Json* flag = found != nullptr ? found->find("enabled") : nullptr;
  return flag != nullptr && flag->is_boolean() && flag->as_boolean();
}

EngineConfig read_config(const Json& recording) {
  const Json& ds_config = member(recording, "", "ds_config");
  const Json& zero = member(ds_config, "/ds_config", "zero_optimization");
  EngineConfig config;
  config.stage = 3;
  config.overlap_comm = true;  // the default of stage 3
  config.data_parallel_ranks =
      static_cast<int>(integer(member(recording, "", "world_size"), "/world_size"));
  if (config.data_parallel_ranks < 1) {
    fail("/world_size", "a positive integer", recording.find("world_size"));
  }
  config.rank = static_cast<int>(integer(member(recording, "", "rank"), "/rank"));
  config.model_dtype = enabled(ds_config, "bf16")   ? DType::bf16
                       : enabled(ds_config, "fp16") ? DType::fp16
                                                    : DType::fp32;
  const Json* software = recording.find("software");
  if (software != nullptr && software->is_string()) {
    config.release = recorded_release(software->as_string());
  }
  read_flag(&zero, "overlap_comm", config.overlap_comm);
  Stage3Config& stage3 = config.stage3;
  read_number(&zero, "stage3_prefetch_bucket_size", stage3.prefetch_bucket);
  read_number(&zero, "stage3_param_persistence_threshold", stage3.parameter_persistence_threshold);
  read_number(&zero, "stage3_model_persistence_threshold", stage3.model_persistence_threshold);
  read_number(&zero, "stage3_max_live_parameters", stage3.max_live_parameters);
  read_number(&zero, "stage3_max_reuse_distance", stage3.max_reuse_distance);
  read_number(&zero, "stage3_module_granularity_threshold", stage3.module_granularity_threshold);
  read_flag(&zero, "stage3_use_all_reduce_for_fetch_params", stage3.use_all_reduce_for_fetch);
  read_flag(&zero, "stage3_allgather_sequential", stage3.allgather_sequential);
  const Json* hpz = zero.find("zero_hpz_partition_size");
  if (hpz != nullptr && hpz->is_integer() && hpz->as_integer() > 1) {
    if (config.data_parallel_ranks % hpz->as_integer() != 0) {
      fail("/ds_config/zero_optimization/zero_hpz_partition_size", "a divisor of world_size", hpz);
    }
    stage3.hpz_partition_size = static_cast<int>(hpz->as_integer());
  }
  const Json* offload = zero.find("offload_param");
  const Json* device = offload != nullptr ? offload->find("device") : nullptr;
  if (device != nullptr && device->is_string() && device->as_string() != "none") {
    OffloadParameterConfig& weights = config.offload_parameter;
    weights.device = device->as_string() == "nvme" ? OffloadDevice::nvme : OffloadDevice::cpu;
    const Json* buffers = offload->find("buffer_count");
    if (buffers != nullptr && buffers->is_integer()) {
      weights.buffer_count = static_cast<int>(buffers->as_integer());
    }
    read_number(offload, "max_in_cpu", weights.max_in_cpu);
  }
  read_number(&zero, "sub_group_size", stage3.sub_group_size);
  return config;
}

// The module's name up to its last dot is its parent's; the root comes first.
ModuleIndex parent_of(const std::vector<std::string>& names, const std::string& name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos) return 0;
  const std::string parent = name.substr(0, dot);
  for (std::size_t m = names.size(); m-- > 0;) {
    if (names[m] == parent) return static_cast<ModuleIndex>(m);
  }
  return 0;
}

FetchModel read_model(const Json& recording) {
  const Json& source = member(recording, "", "model");
  FetchModel model;
  for (const Json& parameter : member(source, "/model", "params").items()) {
    if (parameter.items().size() < 2) fail("/model/params", "[name, numel, shape]", &parameter);
    const std::int64_t numel = integer(parameter.items()[1], "/model/params");
    if (numel < 0) fail("/model/params", "a number of elements", &parameter.items()[1]);
    model.parameters.push_back({.numel = Elements::of(numel)});
  }
  std::vector<std::string> names;
  for (const Json& module : member(source, "/model", "modules").items()) {
    if (module.items().size() < 3 || !module.items()[0].is_string()) {
      fail("/model/modules", "[name, type, parameters]", &module);
    }
    FetchModule read;
    const std::string& name = module.items()[0].as_string();
    if (!names.empty()) read.parent = parent_of(names, name);
    names.push_back(name);
    for (const Json& p : module.items()[2].items()) {
      read.parameters.push_back(index_below(p, model.parameters.size(), "/model/modules"));
    }
    model.modules.push_back(std::move(read));
  }
  if (const Json* frozen = source.find("frozen")) {
    for (const Json& p : frozen->items()) {
      const auto index = index_below(p, model.parameters.size(), "/model/frozen");
      model.parameters[static_cast<std::size_t>(index)].trainable = false;
    }
  }
  if (const Json* leaves = source.find("leaf")) {
    for (const Json& m : leaves->items()) {
      const auto index = index_below(m, model.modules.size(), "/model/leaf");
      model.modules[static_cast<std::size_t>(index)].leaf = true;
    }
  }
  return model;
}

void read_persistent(const Json& recording, FetchModel& model) {
  const Json& init = member(recording, "", "init");
  model.persistent.assign(model.parameters.size(), false);
  for (const Json& p : member(init, "/init", "persistent").items()) {
    const auto index = index_below(p, model.parameters.size(), "/init/persistent");
    model.persistent[static_cast<std::size_t>(index)] = true;
  }
}

// Which partitions are on NVMe; recordings of runs without a drive have no such list.
void read_on_drive(const Json& recording, FetchModel& model) {
  const Json* list = member(recording, "", "init").find("on_drive");
  if (list == nullptr) return;
  model.on_drive.assign(model.parameters.size(), false);
  for (const Json& p : list->items()) {
    const auto index = index_below(p, model.parameters.size(), "/init/on_drive");
    model.on_drive[static_cast<std::size_t>(index)] = true;
  }
}

// The integers that an event must have at these places, as indices below a limit.
void check_event(const Json& event, const FetchModel& model, const std::string& pointer) {
  if (event.items().empty() || !event.items()[0].is_string()) fail(pointer, "an event", &event);
  const std::string& kind = event.items()[0].as_string();
  if (kind == "F" || kind == "X") {
    if (event.items().size() < 4) fail(pointer, "[\"" + kind + "\", module, pass, …]", &event);
    index_below(event.items()[1], model.modules.size(), pointer);
  }
}

void read_steps(const Json& recording, RecordedFetch& result) {
  const auto& steps = member(recording, "", "steps").items();
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const std::string pointer = "/steps/" + std::to_string(s);
    std::vector<const Json*> events;
    if (const Json* same = steps[s].find("same_as")) {
      const auto source = static_cast<std::size_t>(index_below(*same, s, pointer + "/same_as"));
      const bool without = steps[s].find("without") != nullptr;
      for (const Json* event : result.steps[source]) {
        const auto& items = event->items();
        const bool agreement = items[0].as_string() == "bc" && items.size() > 2 &&
                               items[2].is_string() && items[2].as_string() == "i64";
        if (!(without && agreement)) events.push_back(event);
      }
    } else if (steps[s].is_array()) {
      for (std::size_t e = 0; e < steps[s].items().size(); ++e) {
        const Json& event = steps[s].items()[e];
        check_event(event, result.model, pointer + "/" + std::to_string(e));
        events.push_back(&event);
      }
    } else {
      fail(pointer, "a list of events or {\"same_as\": step}", &steps[s]);
    }
    result.steps.push_back(std::move(events));
  }
}

}  // namespace

bool is_stage3_recording(const Json& recording) {
  const Json* wrapper = recording.find("wrapper");
  return wrapper != nullptr && wrapper->is_string() &&
         wrapper->as_string() == "DeepSpeedZeroOptimizer_Stage3";
}

RecordedFetch read_recorded_fetch(const Json& recording) {
  RecordedFetch result;
  const Json& id = member(recording, "", "id");
  if (!id.is_string()) fail("/id", "a name", &id);
  result.id = id.as_string();
  result.config = read_config(recording);
  result.model = read_model(recording);
  read_persistent(recording, result.model);
  read_on_drive(recording, result.model);
  const Json* software = recording.find("software");
  const std::string made_by =
      software != nullptr && software->is_string() ? software->as_string() : "";
  result.host_waits = made_by.find("event query True") == std::string::npos;
  // A rank above 0 of a fake group never receives rank 0's data: its comparison was left out.
  result.agreement = result.config.rank == 0 || made_by.find("fake") == std::string::npos;
  read_steps(recording, result);
  result.stream_events = false;
  for (const auto& step : result.steps) {
    for (const Json* event : step) {
      if (event->items()[0].as_string() == "W") result.stream_events = true;
    }
  }
  return result;
}

}  // namespace zeroplan
