#include "evidence/recorded_fetch.hpp"

#include <set>
#include <string_view>

#include "base/described.hpp"
#include "base/diagnostic.hpp"
#include "evidence/recorded_engine.hpp"

namespace zeroplan::evidence {
namespace {

[[noreturn]] void refuse(const std::string& pointer, const std::string& expected, const Json* got) {
  throw InputError(
      Diagnostic{"recording", pointer, expected, got != nullptr ? described(*got) : "nothing", ""});
}

std::int32_t index_below(const Json& value, std::size_t limit, const std::string& pointer) {
  const std::int64_t index = recorded_integer(value, pointer);
  if (index < 0 || index >= static_cast<std::int64_t>(limit)) {
    refuse(pointer, "an index below " + std::to_string(limit), &value);
  }
  return static_cast<std::int32_t>(index);
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
  const Json& source = recorded_member(recording, "", "model");
  FetchModel model;
  for (const Json& parameter : recorded_member(source, "/model", "params").items()) {
    if (parameter.items().size() < 2) refuse("/model/params", "[name, numel, shape]", &parameter);
    const std::int64_t numel = recorded_integer(parameter.items()[1], "/model/params");
    if (numel < 0) refuse("/model/params", "a number of elements", &parameter.items()[1]);
    model.parameters.push_back({.numel = Elements::of(numel)});
  }
  std::vector<std::string> names;
  for (const Json& module : recorded_member(source, "/model", "modules").items()) {
    if (module.items().size() < 3 || !module.items()[0].is_string()) {
      refuse("/model/modules", "[name, type, parameters]", &module);
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
  const Json& init = recorded_member(recording, "", "init");
  model.persistent.assign(model.parameters.size(), false);
  for (const Json& p : recorded_member(init, "/init", "persistent").items()) {
    const auto index = index_below(p, model.parameters.size(), "/init/persistent");
    model.persistent[static_cast<std::size_t>(index)] = true;
  }
}

// Which partitions are on NVMe; recordings of runs without a drive have no such list.
void read_on_drive(const Json& recording, FetchModel& model) {
  const Json* list = recorded_member(recording, "", "init").find("on_drive");
  if (list == nullptr) return;
  model.on_drive.assign(model.parameters.size(), false);
  for (const Json& p : list->items()) {
    const auto index = index_below(p, model.parameters.size(), "/init/on_drive");
    model.on_drive[static_cast<std::size_t>(index)] = true;
  }
}

// The integers that an event must have at these places, as indices below a limit.
void check_event(const Json& event, const FetchModel& model, const std::string& pointer) {
  if (event.items().empty() || !event.items()[0].is_string()) refuse(pointer, "an event", &event);
  const std::string& kind = event.items()[0].as_string();
  if (kind == "F" || kind == "X") {
    if (event.items().size() < 4) refuse(pointer, "[\"" + kind + "\", module, pass, …]", &event);
    index_below(event.items()[1], model.modules.size(), pointer);
  }
}

void read_steps(const Json& recording, RecordedFetch& result) {
  const auto& steps = recorded_member(recording, "", "steps").items();
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
      refuse(pointer, "a list of events or {\"same_as\": step}", &steps[s]);
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
  const Json& id = recorded_member(recording, "", "id");
  if (!id.is_string()) refuse("/id", "a name", &id);
  result.id = id.as_string();
  result.config = read_recorded_config(recording);
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

}  // namespace zeroplan::evidence
