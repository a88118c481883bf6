#include "simulator/trace.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "model/json.hpp"

namespace zeroplan {
namespace {

constexpr double kMicro = 1e6;
constexpr int kProcess = 1;
constexpr int kPhaseTrack = 1000;  // above the streams in Perfetto's order of sort indices

std::string quoted(const std::string& text) { return Json(text).dump(); }

void append_name(int track, const std::string& name, int order, std::string& out) {
  out += fmt::format(
      "{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":{}}}}},\n"
      "{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_sort_index\",\"args\":{{"
      "\"sort_index\":{}}}}},\n",
      kProcess,
      track,
      quoted(name),
      kProcess,
      track,
      order);
}

}  // namespace

void TraceRecorder::task_ran(
    StreamId stream, TaskIndex task, std::int32_t label, Seconds begin, Seconds end) {
  spans_.push_back({stream, task, label, begin.seconds(), end.seconds()});
}

void TraceRecorder::memory_changed(Seconds time, const CategoryBytes& held, Bytes reserved) {
  memory_.push_back({time.seconds(), held, reserved});
}

void TraceRecorder::phase_began(Phase phase, Seconds time) {
  phases_.push_back({phase, time.seconds()});
}

double TraceRecorder::origin() const {
  double first = INFINITY;
  for (const Span& span : spans_) first = std::min(first, span.begin);
  for (const Memory& memory : memory_) first = std::min(first, memory.time);
  return std::isfinite(first) ? first : 0.0;
}

std::string TraceRecorder::chrome_trace(const Program& program, const std::string& title) const {
  const double zero = origin();
  const auto micro = [zero](double time) { return (time - zero) * kMicro; };
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  out += fmt::format(
      "{{\"ph\":\"M\",\"pid\":{},\"name\":\"process_name\",\"args\":{{\"name\":{}}}}},\n",
      kProcess,
      quoted(title));
  append_name(kPhaseTrack, "phase", -1, out);
  for (std::size_t stream = 0; stream < program.streams.size(); ++stream) {
    append_name(static_cast<int>(stream), program.streams[stream], static_cast<int>(stream), out);
  }
  double end = 0.0;
  for (const Span& span : spans_) {
    const Task& task = program.tasks[static_cast<std::size_t>(span.task)];
    end = std::max(end, span.end);
    out += fmt::format(
        "{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},\"cat\":\"{}\",\"name\":"
        "{}",
        kProcess,
        span.stream,
        micro(span.begin),
        (span.end - span.begin) * kMicro,
        name(kTaskKindNames, task.kind),
        quoted(task.name));
    if (span.label >= 0) {
      out += fmt::format(",\"args\":{{\"for\":{}}}",
                         quoted(program.labels[static_cast<std::size_t>(span.label)]));
    }
    out += "},\n";
  }
  for (std::size_t i = 0; i < phases_.size(); ++i) {
    const double until = i + 1 < phases_.size() ? phases_[i + 1].time : end;
    out += fmt::format(
        "{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},\"name\":\"{}\"}},\n",
        kProcess,
        kPhaseTrack,
        micro(phases_[i].time),
        std::max(0.0, until - phases_[i].time) * kMicro,
        name(kPhaseNames, phases_[i].phase));
  }
  Bytes peak;
  for (const Memory& memory : memory_) peak = std::max(peak, sum(memory.held));
  constexpr double kMoved = 1e-3;
  Bytes shown = Bytes::of(-1);
  for (const Memory& memory : memory_) {
    const Bytes held = sum(memory.held);
    const double moved = std::abs(static_cast<double>((held - shown).count()));
    if (held != peak && moved < kMoved * static_cast<double>(peak.count())) continue;
    shown = held;
    out +=
        fmt::format("{{\"ph\":\"C\",\"pid\":{},\"ts\":{:.3f},\"name\":\"memory, MiB\",\"args\":{{",
                    kProcess,
                    micro(memory.time));
    for (std::size_t category = 0; category < kMemoryCategoryCount; ++category) {
      const auto which = static_cast<MemoryCategory>(category);
      if (which == MemoryCategory::cuda_context || which == MemoryCategory::fragmentation) continue;
      out += fmt::format("\"{}\":{:.3f},",
                         name(which),
                         static_cast<double>(memory.held[category].count()) / (1 << 20));
    }
    out += fmt::format("\"not allocated\":{:.3f}}}}},\n",
                       static_cast<double>((memory.reserved - held).count()) / (1 << 20));
  }
  // Lists of JSON take no comma behind their last element.
  out.erase(out.find_last_of(','), 1);
  return out + "]}\n";
}

}  // namespace zeroplan
