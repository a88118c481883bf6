#include "simulator/trace.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "model/chrome_trace.hpp"

namespace zeroplan::simulator {

void TraceRecorder::task_ran(
    StreamId stream, TaskIndex task, std::int32_t label, Seconds begin, Seconds end) {
  timeline_.spans.push_back({stream, task, label, begin.seconds(), end.seconds()});
}

void TraceRecorder::memory_changed(Seconds time, const CategoryBytes& held, Bytes reserved) {
  timeline_.memory.push_back({time.seconds(), held, reserved});
}

void TraceRecorder::phase_began(Phase phase, Seconds time) {
  timeline_.phases.push_back({phase, time.seconds()});
}

namespace {

double first_event(const Timeline& timeline) {
  double first = INFINITY;
  for (const Timeline::Span& span : timeline.spans) first = std::min(first, span.begin);
  for (const Timeline::Memory& memory : timeline.memory) first = std::min(first, memory.time);
  return first;
}

void add_memory(const Timeline& timeline, ChromeTrace& trace) {
  Bytes peak;
  for (const Timeline::Memory& memory : timeline.memory) peak = std::max(peak, sum(memory.held));
  constexpr double kMoved = 1e-3;
  Bytes shown = Bytes::of(-1);
  for (const Timeline::Memory& memory : timeline.memory) {
    const Bytes held = sum(memory.held);
    const double moved = std::abs(static_cast<double>((held - shown).count()));
    if (held != peak && moved < kMoved * static_cast<double>(peak.count())) continue;
    shown = held;
    trace.memory(Seconds::of(memory.time), memory.held, memory.reserved - held);
  }
}

void add_rank(const TracedRank& rank, ChromeTrace& trace) {
  const Program& program = *rank.program;
  for (std::size_t stream = 0; stream < program.streams.size(); ++stream) {
    trace.track(static_cast<int>(stream), program.streams[stream]);
  }
  double end = 0.0;
  for (const Timeline::Span& span : rank.timeline->spans) {
    const Task& task = program.tasks[static_cast<std::size_t>(span.task)];
    end = std::max(end, span.end);
    trace.span(span.stream,
               name(kTaskKindNames, task.kind),
               task.name,
               span.label >= 0 ? program.labels[static_cast<std::size_t>(span.label)] : "",
               Seconds::of(span.begin),
               Seconds::of(span.end));
  }
  const std::vector<Timeline::PhaseStart>& phases = rank.timeline->phases;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const double until = i + 1 < phases.size() ? phases[i + 1].time : end;
    trace.phase(
        name(kPhaseNames, phases[i].phase), Seconds::of(phases[i].time), Seconds::of(until));
  }
  if (rank.has_memory) add_memory(*rank.timeline, trace);
}

}  // namespace

std::string chrome_trace(std::span<const TracedRank> ranks) {
  ZP_CHECK(!ranks.empty(), "a trace without ranks");
  double origin = INFINITY;
  for (const TracedRank& rank : ranks) origin = std::min(origin, first_event(*rank.timeline));
  ChromeTrace trace(ranks.front().title, Seconds::of(std::isfinite(origin) ? origin : 0.0));
  for (const TracedRank& rank : ranks) {
    if (&rank != &ranks.front()) trace.next_process(rank.title);
    add_rank(rank, trace);
  }
  return trace.finish();
}

}  // namespace zeroplan::simulator
