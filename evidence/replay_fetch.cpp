#include "evidence/replay_fetch.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "evidence/fetch_reader.hpp"
#include "model/engine/fetch_coordinator.hpp"
#include "model/releases.hpp"

namespace zeroplan::evidence {
namespace {

// Writes what the coordinator logged in the recorder's words.
class LogWriter {
 public:
  explicit LogWriter(const RecordedFetch& recorded) : recorded_(recorded) {}

  Lines lines(const FetchLog& log) {
    FetchTokens tokens;
    for (const FetchEvent& event : log.events) {
      if (event.kind == FetchEventKind::release_all) dropping_ = true;
      write(event, log, tokens);
    }
    dropping_ = false;
    return tokens.lines();
  }

 private:
  std::string stream(FetchStream stream) const {
    return stream == FetchStream::gather && recorded_.config.overlap_comm ? "A" : "C";
  }
  static std::string pass(const FetchEvent& event) {
    return event.pass == FetchPass::forward ? "f" : "b";
  }
  static std::string number(Elements elements) { return std::to_string(elements.count()); }

  static std::string mode(TraceMode mode) {
    switch (mode) {
      case TraceMode::invalid:
        return "INVALID";
      case TraceMode::recording:
        return "RECORD";
      case TraceMode::complete:
        return "COMPLETE";
    }
    return "";
  }

  std::string collective(const FetchEvent& event) const {
    const bool reduce = event.op == FetchCollective::all_reduce;
    std::string text = reduce ? "ar " : "ag ";
    text += number(event.elements) + " " + std::string(name(event.dtype)) + " ";
    text += std::to_string(event.group) + (event.asynchronous ? " 1 " : " 0 ");
    text += stream(event.stream) + " ";
    return text + (reduce ? "SUM" : event.in_place ? "1" : "0");
  }

  void write(const FetchEvent& event, const FetchLog& log, FetchTokens& tokens) {
    const std::string subject = std::to_string(event.subject);
    switch (event.kind) {
      case FetchEventKind::micro_step:
        return tokens.line("trace " + mode(event.mode));
      case FetchEventKind::agreement:
        if (recorded_.agreement) {
          tokens.line("bc " + number(event.elements) + " i64 " + std::to_string(event.group) +
                      " 0 C 0");
        }
        return;
      case FetchEventKind::invalidated:
        return tokens.line("inval");
      case FetchEventKind::enter:
        return tokens.line("F " + subject + " " + pass(event) + " " + std::to_string(event.step) +
                           " " + number(event.elements));
      case FetchEventKind::exit:
        return tokens.line("X " + subject + " " + pass(event) + " " + number(event.elements));
      case FetchEventKind::fetch:
      case FetchEventKind::prefetch:
        return tokens.line((event.kind == FetchEventKind::fetch ? "fetch " : "prefetch ") +
                           list_of(log.parameters_of(event)) + " " + pass(event));
      case FetchEventKind::swap_in:
        return tokens.line("si " + list_of(log.parameters_of(event)) +
                           (event.asynchronous ? " 1" : " 0"));
      case FetchEventKind::swap_wait:
        return tokens.line("sw ");
      case FetchEventKind::collective:
        return tokens.unordered("gathers", collective(event));
      case FetchEventKind::release:
        return tokens.unordered("R", subject);
      case FetchEventKind::leftovers:
        return tokens.line("L ");
      case FetchEventKind::release_all:
        return tokens.line("gap ");
      case FetchEventKind::load:
      case FetchEventKind::bucket_done:
        return;  // memory only
      default:
        if (recorded_.stream_events) write_stream_event(event, tokens);
    }
  }

  void write_stream_event(const FetchEvent& event, FetchTokens& tokens) {
    switch (event.kind) {
      case FetchEventKind::throttle:
        throttled_ = true;
        if (!recorded_.host_waits) outstanding_ = 0;
        if (outstanding_ > 2) {
          --outstanding_;
          tokens.wait_pattern('h');
        }
        return;
      case FetchEventKind::wait:
        if (dropping_) return tokens.unordered("R", "W " + std::to_string(event.subject));
        // A reset waits without taking the gather out of the registry, where the recorder listens.
        if (!std::exchange(throttled_, false)) return;
        in_wait_ = true;
        return tokens.waited_for(std::to_string(event.subject));
      case FetchEventKind::copy: {
        const std::string text = "cat " + std::to_string(event.count) + " " +
                                 number(event.elements) + " " + std::string(name(event.dtype));
        return in_wait_ ? tokens.done_by_wait(text) : tokens.unordered("R", text);
      }
      case FetchEventKind::record:
        ++outstanding_;
        in_wait_ = false;
        return tokens.wait_pattern('e');
      case FetchEventKind::compute_waits:
        return tokens.line("ws C A");
      case FetchEventKind::host_waits_stream:
        if (in_wait_) return tokens.done_by_wait("ss " + stream(event.stream));
        if (secondary_) {
          secondary_ = false;
          return tokens.unordered("R", "sync");
        }
        return tokens.line("ss " + stream(event.stream));
      case FetchEventKind::secondary:
        secondary_ = true;
        return;
      case FetchEventKind::device_synchronize:
        return tokens.line("ds ");
      default:
        return;
    }
  }

  const RecordedFetch& recorded_;
  int outstanding_ = 0;
  bool throttled_ = false;
  bool in_wait_ = false;
  bool dropping_ = false;
  bool secondary_ = false;
};

class Replay {
 public:
  explicit Replay(const RecordedFetch& recorded)
      : recorded_(recorded), coordinator_(recorded.model, recorded.config), writer_(recorded) {}

  std::vector<ReplayMismatch> run() {
    check_persistent();
    check_on_drive();
    for (std::size_t step = 0; step < recorded_.steps.size(); ++step) replay_step(step);
    return std::move(mismatches_);
  }

 private:
  // The parameters that stay gathered follow from the thresholds.
  void check_persistent() {
    FetchModel model = recorded_.model;
    mark_persistent(model, recorded_.config);
    check_flags("persistent", recorded_.model.persistent, model.persistent);
  }

  // Those on NVMe follow from their sizes and what host memory keeps.
  void check_on_drive() {
    const FetchModel& model = recorded_.model;
    if (model.on_drive.empty()) return;
    check_flags("on drive", model.on_drive, weights_on_drive(recorded_.config, model.parameters));
  }

  void check_flags(const std::string& what,
                   const std::vector<bool>& recorded,
                   const std::vector<bool>& policy) {
    if (recorded == policy) return;
    const auto text = [&](const std::vector<bool>& flags) {
      std::vector<ParameterIndex> list;
      for (std::size_t p = 0; p < flags.size(); ++p) {
        if (flags[p]) list.push_back(static_cast<ParameterIndex>(p));
      }
      return what + " " + list_of(list);
    };
    mismatches_.push_back({recorded_.id, 0, 0, text(recorded), text(policy)});
  }

  void replay_step(std::size_t step) {
    const auto& events = recorded_.steps[step];
    RecordedReader reader(recorded_, events);
    step_ = static_cast<int>(step);
    differs_ = false;
    backward_open_ = false;
    std::size_t last_optimizer = events.size();
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (kind_of(*events[i]) == "opt") last_optimizer = i;
    }
    while (!reader.at_end()) {
      const std::size_t at = reader.position;
      if (at == last_optimizer) {
        ++reader.position;
        log_.clear();
        coordinator_.end_optimizer_step(log_);
        compare(at, reader.after_optimizer());
      } else {
        replay_event(reader, at);
      }
      if (reader.stopped()) return;
    }
    if (backward_open_) close_backward(events.size(), {});
  }

  void replay_event(RecordedReader& reader, std::size_t at) {
    const Json& event = reader.current();
    const std::string& kind = kind_of(event);
    log_.clear();
    if (kind == "phase") {
      ++reader.position;
      begin_phase(reader, at, item(event, 1));
    } else if (kind == "inval") {
      Lines lines = reader.invalidation();
      enter(reader, at, std::move(lines));
    } else if (kind == "F") {
      enter(reader, at, {});
    } else if (kind == "X") {
      coordinator_.exit(module_of(event), pass_of(event), log_);
      compare(at, reader.releases());
    } else if (backward_open_ && resets_after_backward() &&
               (kind == "trace" || (kind == "bc" && item(event, 2) == "i64"))) {
      close_backward(at, reader.micro_step());
    } else if (kind == "L") {
      close_backward(at, reader.releases());
    } else if (kind == "gap") {
      coordinator_.begin_optimizer_step(log_);
      compare(at, reader.releases());
    } else {
      ++reader.position;  // an event of another policy
    }
  }

  void enter(RecordedReader& reader, std::size_t at, Lines recorded) {
    if (reader.at_end()) return compare(at, recorded);
    const Json& event = reader.current();
    coordinator_.enter(module_of(event), pass_of(event), log_);
    const Lines entry = reader.entry();
    recorded.insert(recorded.end(), entry.begin(), entry.end());
    compare(at, recorded);
  }

  void begin_phase(RecordedReader& reader, std::size_t at, const std::string& phase) {
    if (phase != "bwd" && backward_open_) close_backward(at, {});
    log_.clear();
    if (phase == "fwd") {
      coordinator_.begin_micro_step(log_);
      compare(at, resets_after_backward() ? Lines{} : reader.micro_step());
    } else if (phase == "bwd") {
      coordinator_.begin_backward(log_);
      backward_open_ = true;
    }
  }

  void close_backward(std::size_t at, const Lines& recorded) {
    log_.clear();
    coordinator_.end_backward(log_);
    backward_open_ = false;
    compare(at, recorded);
  }

  // Up to 0.14 the trace and the counters are reset at the end of a backward.
  bool resets_after_backward() const {
    return !recorded_.config.acts(ReleaseRule::resets_trace_in_forward);
  }

  // Reports the first difference of a step.
  void compare(std::size_t at, const Lines& recorded) {
    Lines got = writer_.lines(log_);
    stop_short(recorded, got);
    if (recorded == got || differs_) return;
    differs_ = true;
    std::size_t i = 0;
    while (i < recorded.size() && i < got.size() && recorded[i] == got[i]) ++i;
    const auto text = [i](const Lines& lines) { return i < lines.size() ? lines[i] : "nothing"; };
    mismatches_.push_back({recorded_.id, step_, static_cast<int>(at), text(recorded), text(got)});
  }

  // Where the pool of buffers behind NVMe does not do, DeepSpeed stops; the coordinator goes on,
  // and says so.
  void stop_short(const Lines& recorded, Lines& got) const {
    const SwapPoolUse& pool = coordinator_.swap_pool();
    if (!pool.short_of && !pool.twice) return;
    const std::string stop = pool.short_of ? "short" : "twice";
    const std::size_t at = recorded.empty() ? 0 : recorded.size() - 1;
    const bool reads = at < got.size() && got[at].rfind("si ", 0) == 0;
    if (!reads) return got.push_back(stop);  // nothing recorded is equal to that
    got.resize(at);
    got.push_back(stop);
  }

  static ModuleIndex module_of(const Json& event) {
    return static_cast<ModuleIndex>(event.items()[1].as_integer());
  }
  static FetchPass pass_of(const Json& event) {
    return item(event, 2) == "f" ? FetchPass::forward : FetchPass::backward;
  }

  const RecordedFetch& recorded_;
  FetchCoordinator coordinator_;
  LogWriter writer_;
  FetchLog log_;
  std::vector<ReplayMismatch> mismatches_;
  int step_ = 0;
  bool differs_ = false;
  bool backward_open_ = false;
};

}  // namespace

std::vector<ReplayMismatch> replay_fetch(const Json& recording) {
  if (!is_stage3_recording(recording)) return {};
  const RecordedFetch recorded = read_recorded_fetch(recording);
  return Replay(recorded).run();
}

}  // namespace zeroplan::evidence
