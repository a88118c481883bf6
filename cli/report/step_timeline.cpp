#include "cli/report/step_timeline.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace zeroplan::cli {
namespace {

Json phases_json(const simulator::Timeline& timeline, const Window& window) {
  Json list = Json::array();
  const std::vector<simulator::Timeline::PhaseStart>& phases = timeline.phases;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const double begin = std::max(phases[i].time, window.begin);
    const double end = i + 1 < phases.size() ? phases[i + 1].time : window.end;
    if (end <= begin) continue;
    list.push_back(Json::object({{"name", name(kPhaseNames, phases[i].phase)},
                                 {"begin", begin - window.begin},
                                 {"end", end - window.begin}}));
  }
  return list;
}

// What is held and what the allocator keeps besides, by category.
CategoryBytes with_rest(const simulator::Timeline::Memory& memory, Bytes outside) {
  CategoryBytes held = memory.held;
  at(held, MemoryCategory::fragmentation) = memory.reserved - sum(memory.held);
  at(held, MemoryCategory::cuda_context) = outside;
  return held;
}

Json sample_json(const simulator::Timeline::Memory& memory, double time, Bytes outside) {
  Json row = Json::array({Json(time)});
  for (const Bytes part : with_rest(memory, outside)) row.push_back(Json(part.count()));
  return row;
}

// Allocated bytes decide: what is reserved hardly moves.
struct Moment {
  const simulator::Timeline::Memory* lowest = nullptr;
  const simulator::Timeline::Memory* highest = nullptr;
};

void note(const simulator::Timeline::Memory& memory, Moment& moment) {
  const Bytes held = sum(memory.held);
  if (moment.lowest == nullptr || held < sum(moment.lowest->held)) moment.lowest = &memory;
  if (moment.highest == nullptr || held > sum(moment.highest->held)) moment.highest = &memory;
}

struct Bar {
  std::int32_t label = -1;
  simulator::TaskKind kind = simulator::TaskKind::kernel;
  double begin = 0.0;
  double end = 0.0;
  std::map<std::string, double> seconds;  // by task
  std::int64_t tasks = 0;
};

Json bar_json(const Bar& bar, int stream, const simulator::Program& program, double origin) {
  const auto longest =
      std::max_element(bar.seconds.begin(), bar.seconds.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      });
  return Json::object(
      {{"stream", stream},
       {"kind", name(simulator::kTaskKindNames, bar.kind)},
       {"task", longest->first},
       {"tasks", bar.tasks},
       {"for", bar.label < 0 ? Json() : Json(program.labels[static_cast<std::size_t>(bar.label)])},
       {"begin", bar.begin - origin},
       {"end", bar.end - origin}});
}

}  // namespace

Window last_micro_step(const simulator::Timeline& timeline) {
  Window window;
  bool known = false;
  for (const simulator::Timeline::Span& span : timeline.spans) {
    window.begin = known ? std::min(window.begin, span.begin) : span.begin;
    window.end = std::max(window.end, span.end);
    known = true;
  }
  std::size_t forwards = 0;
  double last = window.begin;
  for (const simulator::Timeline::PhaseStart& phase : timeline.phases) {
    if (phase.phase != Phase::forward) continue;
    ++forwards;
    last = phase.time;
  }
  if (forwards > 1) window.begin = last;
  return window;
}

Json memory_timeline(const simulator::SimulatedStep& step) {
  const Window window = last_micro_step(step.timeline);
  const double length = std::max(window.end - window.begin, 1e-12);
  std::vector<Moment> moments(kMoments);
  const simulator::Timeline::Memory* before = nullptr;  // what is held when the window opens
  Bytes peak;
  for (const simulator::Timeline::Memory& memory : step.timeline.memory) {
    peak = std::max(peak, sum(with_rest(memory, step.outside)));
    if (memory.time < window.begin) {
      before = &memory;
      continue;
    }
    const double place = (memory.time - window.begin) / length;
    const auto at = static_cast<std::size_t>(std::clamp(place, 0.0, 1.0) * kMoments);
    note(memory, moments[std::min<std::size_t>(at, kMoments - 1)]);
  }
  Json samples = Json::array();
  if (before != nullptr) samples.push_back(sample_json(*before, 0.0, step.outside));
  for (const Moment& moment : moments) {
    if (moment.lowest == nullptr) continue;
    std::vector<const simulator::Timeline::Memory*> both = {moment.lowest, moment.highest};
    if (both[0]->time > both[1]->time) std::swap(both[0], both[1]);
    if (both[0] == both[1]) both.pop_back();
    for (const simulator::Timeline::Memory* memory : both) {
      const double time = std::max(0.0, memory->time - window.begin);
      samples.push_back(sample_json(*memory, time, step.outside));
    }
  }
  Json categories = Json::array();
  for (const std::string_view category : kMemoryCategoryNames) categories.push_back(Json(category));
  return Json::object({{"seconds", length},
                       {"peak_bytes", peak.count()},
                       {"categories", categories},
                       {"samples", samples},
                       {"phases", phases_json(step.timeline, window)}});
}

Json stream_timeline(const simulator::SimulatedStep& step) {
  const Window window = last_micro_step(step.timeline);
  const double resolution = (window.end - window.begin) / kMoments;
  const simulator::Program& program = step.program;
  std::vector<std::vector<Bar>> streams(program.streams.size());
  for (const simulator::Timeline::Span& span : step.timeline.spans) {
    if (span.end <= window.begin || span.end <= span.begin) continue;
    const simulator::Task& task = program.tasks[static_cast<std::size_t>(span.task)];
    std::vector<Bar>& bars = streams[static_cast<std::size_t>(span.stream)];
    const double begin = std::max(span.begin, window.begin);
    const bool goes_on = !bars.empty() && bars.back().label == span.label &&
                         bars.back().kind == task.kind && begin - bars.back().end < resolution;
    if (!goes_on) bars.push_back({span.label, task.kind, begin, span.end, {}, 0});
    bars.back().end = std::max(bars.back().end, span.end);
    bars.back().seconds[task.name] += span.end - begin;
    ++bars.back().tasks;
  }
  Json names = Json::array();
  Json list = Json::array();
  int shown = 0;
  for (std::size_t stream = 0; stream < streams.size(); ++stream) {
    if (streams[stream].empty()) continue;
    names.push_back(Json(program.streams[stream]));
    for (const Bar& bar : streams[stream]) {
      list.push_back(bar_json(bar, shown, program, window.begin));
    }
    ++shown;
  }
  return Json::object({{"seconds", window.end - window.begin},
                       {"streams", names},
                       {"bars", list},
                       {"phases", phases_json(step.timeline, window)}});
}

}  // namespace zeroplan::cli
