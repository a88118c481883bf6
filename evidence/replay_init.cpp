#include "evidence/replay_init.hpp"

#include <map>
#include <string>

#include "evidence/event_text.hpp"
#include "model/engine/initialization.hpp"
#include "model/engine/partition.hpp"

namespace zeroplan::evidence {

namespace {

// Name of the wrapper's Python class; the plain optimizer has the user's.
std::string class_name(OptimizerWrapper wrapper) {
  switch (wrapper) {
    case OptimizerWrapper::plain:
      return "";
    case OptimizerWrapper::fp16_fused:
      return "FP16_Optimizer";
    case OptimizerWrapper::fp16_unfused:
      return "FP16_UnfusedOptimizer";
    case OptimizerWrapper::bf16_optimizer:
      return "BF16_Optimizer";
    case OptimizerWrapper::zero12:
      return "DeepSpeedZeroOptimizer";
    case OptimizerWrapper::zero3:
      return "DeepSpeedZeroOptimizer_Stage3";
    case OptimizerWrapper::mics:
      return "MiCS_Optimizer";
  }
  return "";
}

Json integers(const std::vector<int>& values) {
  Json list = Json::array();
  for (int value : values) list.push_back(value);
  return list;
}

class InitReplay {
 public:
  InitReplay(const RecordedEngine& engine, std::vector<ReplayMismatch>& out)
      : engine_(engine), out_(out) {}

  void differ(const std::string& what, const std::string& expected, const std::string& got) {
    out_.push_back({engine_.id, -1, -1, what + " " + expected, what + " " + got});
  }

  // Where the recording has the key.
  void compare(const Json& init, std::string_view key, const Json& predicted) {
    const Json* recorded = init.find(key);
    if (recorded == nullptr || *recorded == predicted) return;
    differ(std::string(key), event_text(*recorded), event_text(predicted));
  }

  void compare_flat(const Json& init);
  void compare_sub_groups(const Json& init);
  void compare_events(const Json& recorded, const std::string& key, const EngineActions& actions);

 private:
  const RecordedEngine& engine_;
  std::vector<ReplayMismatch>& out_;
};

void InitReplay::compare_flat(const Json& init) {
  const FlatPartition partition = flat_partition(engine_.config, engine_.parameters);
  Json groups = Json::array();
  Json flat = Json::array();
  Json padding = Json::array();
  for (std::size_t g = 0; g < partition.groups.size(); ++g) {
    groups.push_back(integers(partition.groups[g].parameters));
    flat.push_back(partition.groups[g].aligned.count());
    padding.push_back(
        partition_padding(partition, static_cast<int>(g), engine_.config.rank).count());
  }
  compare(init, "groups", groups);
  compare(init, "flat_numel", flat);
  compare(init, "padding", padding);
}

void InitReplay::compare_sub_groups(const Json& init) {
  Json groups = Json::array();
  Json numels = Json::array();
  for (const SubGroup& group : sub_groups(engine_.config, engine_.parameters)) {
    groups.push_back(integers(group.parameters));
    numels.push_back(group.numel.count());
  }
  compare(init, "sub_groups", groups);
  compare(init, "sub_group_numel", numels);
  compare(init, "persistent", integers(persistent_parameters(engine_.config, engine_.parameters)));
}

// {"bc:bf16": [count, elements], "bar": [count, 0], "ds": [count, 0]}
void InitReplay::compare_events(const Json& recorded,
                                const std::string& key,
                                const EngineActions& actions) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> predicted;
  for (const EngineAction& action : actions.actions) {
    int outstanding = 0;
    const std::string text = event_text(action, actions, engine_.config.stage, false, outstanding);
    std::string name = text.substr(2, text.find('"', 2) - 2);
    if (engine_.short_form && (name == "ds" || name == "ss")) continue;
    const bool sized = name != "ds" && name != "ss" && name != "bar" && name != "opt";
    if (sized) {
      name += ':';
      name += recorded_dtype(action.dtype);
    }
    auto& entry = predicted[name];
    ++entry.first;
    if (sized) entry.second += action.elements.count();
  }
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> found;
  for (const Json::Member& member : recorded.members()) {
    if (member.first.rfind("cat", 0) == 0) continue;  // printing of tensors
    const auto& pair = member.second.items();
    if (pair.size() != 2) continue;
    found[member.first] = {recorded_integer(pair[0], key), recorded_integer(pair[1], key)};
  }
  if (found == predicted) return;
  const auto describe = [](const auto& events) {
    std::string text;
    for (const auto& [name, entry] : events) {
      text += name;
      text += " x";
      text += std::to_string(entry.first);
      text += " (";
      text += std::to_string(entry.second);
      text += ") ";
    }
    return text;
  };
  differ(key, describe(found), describe(predicted));
}

}  // namespace

void replay_init(const Json& recording,
                 const RecordedEngine& engine,
                 std::vector<ReplayMismatch>& out) {
  InitReplay replay(engine, out);
  const OptimizerWrapper wrapper = optimizer_wrapper(engine.config);
  const std::string name = class_name(wrapper);
  if (!name.empty() && name != engine.wrapper) replay.differ("wrapper", engine.wrapper, name);
  const Json& init = recorded_member(recording, "", "init");
  if (wrapper == OptimizerWrapper::zero12) replay.compare_flat(init);
  if (engine.config.stage == 3) replay.compare_sub_groups(init);
  EngineActions actions;
  if (const Json* events = init.find("zero_init_events")) {
    build_module(engine.config, engine.parameters, actions);
    replay.compare_events(*events, "zero_init_events", actions);
    actions.clear();
  }
  initialize_engine(engine.config, engine.parameters, actions);
  replay.compare_events(recorded_member(init, "/init", "events"), "events", actions);
}

}  // namespace zeroplan::evidence
