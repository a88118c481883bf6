// A step's timeline in the Trace Event Format, which Perfetto (ui.perfetto.dev) opens: a track a
// stream, phases above them, memory by category as counters. Simulated and measured steps are
// written by this one, so that both look alike side by side.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/units.hpp"
#include "model/memory_category.hpp"

namespace zeroplan {

// Times count from `origin`, in whatever clock the caller has. Texts are escaped.
class ChromeTrace {
 public:
  // `title`: of the first process.
  ChromeTrace(const std::string& title, Seconds origin);

  // What follows belongs to another process, with tracks of its own; they are numbered from 1 on.
  void next_process(const std::string& title);

  // Tracks are shown in the order of their numbers, below the phases.
  void track(int track, const std::string& name);
  // `about` says for which module; may be empty.
  void span(int track,
            std::string_view category,
            const std::string& name,
            const std::string& about,
            Seconds begin,
            Seconds end);
  void phase(std::string_view name, Seconds begin, Seconds end);
  // Bytes held by category, and those that the allocator holds beside them.
  void memory(Seconds time,
              const std::array<Bytes, kMemoryCategoryCount>& held,
              Bytes not_allocated);

  // The document; nothing follows.
  std::string finish();

 private:
  double micro(Seconds time) const;

  void append_track_name(int track, const std::string& name, int order);

  std::string text_;
  int process_ = 0;
  double origin_ = 0.0;  // s
};

}  // namespace zeroplan
