#include "evidence/replay_reduce.hpp"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/described.hpp"
#include "base/diagnostic.hpp"
#include "evidence/event_text.hpp"
#include "evidence/recorded_engine.hpp"
#include "evidence/replay_buffers.hpp"
#include "evidence/replay_init.hpp"
#include "model/engine/gradient_buckets.hpp"
#include "model/engine/optimizer_step.hpp"
#include "model/releases.hpp"

namespace zeroplan::evidence {

namespace {

// One recorded event that counts, and where it stands.
struct Expected {
  int event = 0;
  std::string text;
};

std::string_view event_kind(const Json& event) { return event.items()[0].as_string(); }

bool one_of(std::string_view kind, std::initializer_list<std::string_view> kinds) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

struct RecordedPhase {
  std::string_view name;
  int micro_step = 0;
};

RecordedPhase read_phase(const Json& event, const std::string& pointer) {
  if (event.items().size() < 3 || !event.items()[1].is_string()) {
    throw InputError(
        Diagnostic{"recording", pointer, "[\"phase\", name, micro-step]", described(event), ""});
  }
  return {.name = event.items()[1].as_string(),
          .micro_step = static_cast<int>(recorded_integer(event.items()[2], pointer))};
}

// The events of a step that this replay predicts (replay_reduce.hpp).
std::vector<Expected> expected_events(const RecordedEngine& engine, std::size_t step) {
  std::vector<Expected> expected;
  const bool zero3 = engine.config.stage == 3;
  std::string_view phase;
  bool reducing = false;
  for (std::size_t e = 0; e < engine.steps[step].size(); ++e) {
    const Json& event = *engine.steps[step][e];
    const std::string_view kind = event_kind(event);
    bool counts = true;
    if (kind == "phase") {
      phase = read_phase(event, "/steps/" + std::to_string(step)).name;
      reducing = false;
    } else if (zero3) {
      if (one_of(kind, {"F", "X", "L", "trace", "fetch", "prefetch", "W", "R", "inval"})) {
        reducing = false;
        counts = false;
      } else if (one_of(kind, {"si", "sw"})) {
        counts = false;  // weights from NVMe (replay_fetch)
      } else if (kind == "bc") {
        counts = false;  // ranks compare the trace
      } else if (kind == "ss" && e + 1 < engine.steps[step].size() &&
                 event_kind(*engine.steps[step][e + 1]) == "R") {
        counts = false;  // a secondary partition is made before its parameter is released
      } else if (phase == "fwd") {
        counts = false;
      } else if (phase == "bwd") {
        if (one_of(kind, {"g", "flush"})) reducing = true;
        counts = reducing;
      }
    }
    if (counts) expected.push_back({static_cast<int>(e), event_text(event)});
  }
  return expected;
}

// Predicts the steps one after the other; some state of the engine outlives a step.
class StepReplay {
 public:
  explicit StepReplay(const RecordedEngine& engine)
      : engine_(engine), reducer_(engine.config, engine.parameters) {}

  // The events of a step; `skipped`: whether it overflowed, as recorded.
  std::vector<std::string> predict(std::size_t step, bool skipped);

 private:
  void add(std::string text) {
    if (engine_.short_form) {
      for (std::string_view left_out :
           {"[\"ws\"", "[\"ss\"", "[\"ds\"", "[\"er\"", "[\"es\"", "[\"cat\"", "[\"pg\""}) {
        if (text.rfind(left_out, 0) == 0) return;
      }
    }
    if (!text.empty()) texts_.push_back(std::move(text));
  }
  void take_actions();
  bool records_optimizer() const {
    // The recorder sees bucket copies and optimizer calls of the ZeRO wrappers only.
    return has_zero_wrapper(engine_.config);
  }

  const RecordedEngine& engine_;
  GradientReducer reducer_;
  EngineActions actions_;
  std::vector<std::string> texts_;
  int outstanding_ = 0;
};

void StepReplay::take_actions() {
  for (const EngineAction& action : actions_.actions) {
    if (!records_optimizer() &&
        (action.kind == ActionKind::optimizer_step || action.kind == ActionKind::flatten)) {
      continue;
    }
    // Up to 0.18 the copy to the fp32 gradient is no function of its own that could be recorded.
    if (action.kind == ActionKind::gradient_to_master && engine_.config.stage == 3 &&
        !engine_.config.acts(ReleaseRule::names_master_copy)) {
      continue;
    }
    add(event_text(action, actions_, engine_.config.stage, engine_.finished_events, outstanding_));
  }
  actions_.clear();
}

std::vector<std::string> StepReplay::predict(std::size_t step, bool skipped) {
  texts_.clear();
  const std::string pointer = "/steps/" + std::to_string(step);
  RecordedPhase phase;
  const auto leave_phase = [&] {
    if (phase.name == "bwd") reducer_.end_backward(actions_);
    if (phase.name == "step" &&
        phase.micro_step == engine_.config.gradient_accumulation_steps - 1) {
      optimizer_step(engine_.config, engine_.parameters, skipped, actions_);
    }
    take_actions();
  };
  for (const Json* event : engine_.steps[step]) {
    const std::string_view kind = event_kind(*event);
    if (kind == "phase") {
      leave_phase();
      phase = read_phase(*event, pointer);
      if (phase.name == "bwd") reducer_.begin_backward(phase.micro_step);
      add(event_text(*event));
    } else if (kind == "g" && phase.name == "bwd") {
      const std::int64_t parameter =
          event->items().size() > 1 ? recorded_integer(event->items()[1], pointer) : -1;
      if (parameter < 0 || parameter >= static_cast<std::int64_t>(engine_.parameters.size()) ||
          !engine_.parameters[static_cast<std::size_t>(parameter)].trainable) {
        throw InputError(Diagnostic{
            "recording", pointer, "the index of a trainable parameter", described(*event), ""});
      }
      reducer_.gradient_ready(static_cast<int>(parameter), actions_);
      take_actions();
    }
  }
  leave_phase();
  return texts_;
}

// Did the recorded step end at its overflow check?
bool was_skipped(const RecordedEngine& engine, std::size_t step) {
  if (!checks_overflow(engine.config)) return false;
  if (engine.config.stage == 0) {
    // The recorder does not see the optimizer of stage 0; what it did to the loss tells.
    const auto& steps = engine.overflow;
    return std::find(steps.begin(), steps.end(), static_cast<std::int64_t>(step)) != steps.end();
  }
  return std::none_of(engine.steps[step].begin(), engine.steps[step].end(), [](const Json* event) {
    return event_kind(*event) == "opt";
  });
}

void compare_step(const RecordedEngine& engine,
                  std::size_t step,
                  const std::vector<std::string>& predicted,
                  std::vector<ReplayMismatch>& out) {
  const std::vector<Expected> expected = expected_events(engine, step);
  const std::size_t both = std::min(expected.size(), predicted.size());
  std::size_t i = 0;
  while (i < both && expected[i].text == predicted[i]) ++i;
  if (i == expected.size() && i == predicted.size()) return;
  ReplayMismatch mismatch;
  mismatch.id = engine.id;
  mismatch.step = static_cast<int>(step);
  mismatch.event =
      i < expected.size() ? expected[i].event : static_cast<int>(engine.steps[step].size());
  mismatch.expected = i < expected.size() ? expected[i].text : "nothing more";
  mismatch.got = i < predicted.size() ? predicted[i] : "nothing more";
  out.push_back(std::move(mismatch));
}

// The steps that were carried out to their end.
std::int64_t whole_steps(const RecordedEngine& engine) {
  return static_cast<std::int64_t>(engine.steps.size()) - (engine.stopped ? 1 : 0);
}

void compare_counters(const Json& recording,
                      const RecordedEngine& engine,
                      int skipped,
                      std::vector<ReplayMismatch>& out) {
  const auto compare = [&](std::string_view key, std::int64_t value) {
    const Json* recorded = recording.find(key);
    if (recorded == nullptr || !recorded->is_integer() || recorded->as_integer() == value) return;
    out.push_back({engine.id,
                   static_cast<int>(engine.steps.size()) - 1,
                   -1,
                   std::string(key) + " " + std::to_string(recorded->as_integer()),
                   std::string(key) + " " + std::to_string(value)});
  };
  compare("skipped_steps", skipped);
  compare("global_steps", whole_steps(engine));
}

}  // namespace

std::vector<ReplayMismatch> replay_reduce(const Json& recording) {
  const RecordedEngine engine = read_recorded_engine(recording);
  std::vector<ReplayMismatch> mismatches;
  replay_init(recording, engine, mismatches);
  StepReplay replay(engine);
  BufferReplay buffers(recording, engine);
  buffers.compare_initialised(mismatches);
  int skipped = 0;
  for (std::size_t step = 0; step < static_cast<std::size_t>(whole_steps(engine)); ++step) {
    const bool overflowed = was_skipped(engine, step);
    skipped += overflowed ? 1 : 0;
    compare_step(engine, step, replay.predict(step, overflowed), mismatches);
    buffers.compare_step(step, overflowed, mismatches);
  }
  compare_counters(recording, engine, skipped, mismatches);
  return mismatches;
}

}  // namespace zeroplan::evidence
