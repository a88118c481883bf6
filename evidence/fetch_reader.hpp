// The recorded events of a stage-3 engine, call by call of its coordinator, as tokens that the
// policy's are compared with.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evidence/fetch_tokens.hpp"
#include "evidence/recorded_fetch.hpp"
#include "model/engine/fetch_schedule.hpp"

namespace zeroplan::evidence {

using Lines = std::vector<std::string>;

inline const std::string& kind_of(const Json& event) { return event.items()[0].as_string(); }

inline std::string text_of(const Json& value) {
  return value.is_string() ? value.as_string() : value.dump();
}

// The items of an event after its kind, separated by blanks.
inline std::string rest_of(const Json& event) {
  std::string text;
  for (std::size_t i = 1; i < event.items().size(); ++i) {
    if (i > 1) text += " ";
    text += text_of(event.items()[i]);
  }
  return text;
}

inline std::string item(const Json& event, std::size_t i) {
  return i < event.items().size() ? text_of(event.items()[i]) : "";
}

// A parameter list in ascending order (the recorder sorts it too).
inline std::string list_of(std::span<const ParameterIndex> parameters) {
  std::vector<ParameterIndex> sorted(parameters.begin(), parameters.end());
  std::sort(sorted.begin(), sorted.end());
  std::string text = "[";
  for (const ParameterIndex p : sorted) {
    if (text.size() > 1) text += ",";
    text += std::to_string(p);
  }
  return text.append("]");
}

// Reads the recorded events that belong to one call of the coordinator.
class RecordedReader {
 public:
  RecordedReader(const RecordedFetch& recorded, const std::vector<const Json*>& events)
      : recorded_(recorded), events_(events) {}

  std::size_t position = 0;
  bool at_end() const { return position >= events_.size(); }
  // DeepSpeed stopped at what was read last.
  bool stopped() const { return stopped_; }
  const Json& current() const { return *events_[position]; }
  bool next_is(std::string_view kind, std::size_t ahead = 0) const {
    return position + ahead < events_.size() && kind_of(*events_[position + ahead]) == kind;
  }

  // From the current "F": what the entry fetches, waits for and prefetches.
  Lines entry() {
    FetchTokens tokens;
    tokens.line("F " + rest_of(current()));
    ++position;
    gathers(tokens, "fetch");
    bool waiting = true;
    while (waiting && !at_end()) waiting = wait_item(tokens);
    if (next_is("ws") && item(current(), 1) == "C" && item(current(), 2) == gather_stream()) {
      tokens.line("ws " + rest_of(current()));
      ++position;
    }
    gathers(tokens, "prefetch");
    reads(tokens);  // ahead
    return tokens.lines();
  }

  // From the current "X", "L" or "gap": what is released.
  Lines releases() {
    FetchTokens tokens;
    tokens.line(kind_of(current()) + " " + rest_of(current()));
    ++position;
    released(tokens);
    return tokens.lines();
  }

  // Up to "F": a dropped trace.
  Lines invalidation() {
    FetchTokens tokens;
    tokens.line("inval");
    for (++position; !at_end() && !next_is("F"); ++position) {
      dropped(tokens);
    }
    return tokens.lines();
  }

  // Up to and with "trace".
  Lines micro_step() {
    FetchTokens tokens;
    for (; !at_end(); ++position) {
      dropped(tokens);
      if (next_is("bc") && item(current(), 2) == "i64") tokens.line("bc " + rest_of(current()));
      if (next_is("trace")) break;
    }
    if (!at_end()) {
      tokens.line("trace " + rest_of(current()));
      ++position;
    }
    return tokens.lines();
  }

  // What follows the last sub-group's optimizer: the gathers of persistent parameters.
  Lines after_optimizer() {
    FetchTokens tokens;
    for (; !at_end(); ++position) {
      if (next_is("ag")) tokens.unordered("gathers", "ag " + rest_of(current()));
      if (next_is("si") || next_is("sw")) {
        tokens.line(kind_of(current()) + " " + rest_of(current()));
      }
      if (recorded_.stream_events && (next_is("ds") || next_is("ss"))) {
        tokens.line(kind_of(current()) + " " + rest_of(current()));
      }
    }
    return tokens.lines();
  }

 private:
  std::string gather_stream() const { return recorded_.config.overlap_comm ? "A" : "C"; }

  void gathers(FetchTokens& tokens, std::string_view kind) {
    if (!next_is(kind)) return;
    tokens.line(std::string(kind) + " " + rest_of(current()));
    ++position;
    reads(tokens);
    while (next_is("ag") || next_is("ar")) {
      tokens.unordered("gathers", kind_of(current()) + " " + rest_of(current()));
      ++position;
    }
  }

  // From NVMe; the run ends where DeepSpeed finds too few buffers, or one weight twice.
  void reads(FetchTokens& tokens) {
    while (next_is("si") || next_is("sw") || next_is("short") || next_is("twice")) {
      const std::string& kind = kind_of(current());
      if (kind == "short" || kind == "twice") stopped_ = true;
      tokens.line(kind == "si" || kind == "sw" ? kind + " " + rest_of(current()) : kind);
      ++position;
    }
  }

  // One event of the waiting; false when it is over. A host wait or a stream synchronisation only
  // counts where the waiting puts it, so that gradients' events are not taken for it.
  bool wait_item(FetchTokens& tokens) {
    if (next_is("W")) {
      tokens.waited_for(item(current(), 1));
      in_wait_ = true;
    } else if (next_is("es") && next_is("W", 1)) {
      tokens.wait_pattern('h');
    } else if (next_is("cat") && in_wait_) {
      tokens.done_by_wait("cat " + rest_of(current()));
    } else if (next_is("ss") && in_wait_ && recorded_.config.data_parallel_ranks == 1) {
      tokens.done_by_wait("ss " + rest_of(current()));
    } else if (next_is("er") && in_wait_ && item(current(), 1) == gather_stream()) {
      tokens.wait_pattern('e');
      in_wait_ = false;
    } else {
      in_wait_ = false;
      return false;
    }
    ++position;
    return true;
  }

  bool dropped(FetchTokens& tokens) {
    if (next_is("R")) {
      tokens.unordered("R", rest_of(current()));
      return true;
    }
    if (!next_is("W") && !next_is("cat")) return false;
    tokens.unordered("R", kind_of(current()) + " " + rest_of(current()));
    return true;
  }

  void released(FetchTokens& tokens) {
    while (!at_end()) {
      if (dropped(tokens)) {
        // Parameters in flight are waited for and released one by one, in any order.
      } else if (next_is("ss") && next_is("R", 1) &&
                 recorded_.config.stage3.hpz_partition_size > 1) {
        tokens.unordered("R", "sync");
      } else {
        return;
      }
      ++position;
    }
  }

  const RecordedFetch& recorded_;
  const std::vector<const Json*>& events_;
  bool in_wait_ = false;
  bool stopped_ = false;
};

}  // namespace zeroplan::evidence
