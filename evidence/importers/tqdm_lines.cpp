#include <algorithm>
#include <array>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "evidence/importers/hf_lines.hpp"
#include "evidence/text_scanner.hpp"

namespace zeroplan::evidence {
namespace {

// Enough ticks to leave the warm-up out are better than the Trainer's summary of the whole run.
constexpr std::size_t kEnoughTicks = 5;
constexpr SeriesInfo kBar{Metric::step_seconds, "tqdm's bar", 4};
constexpr SeriesInfo kFewTicks{Metric::step_seconds, "tqdm's bar", 6};

// One drawing of a bar: " 2%|#   | 1/42 [02:52<1:48:00, 158.06s/it, loss=1.2]".
struct Drawing {
  std::string name;                      // "Training: " without the colon; empty for the Trainer's
  std::int64_t ticks = 0, total = 0;     //
  std::int64_t elapsed = 0;              // seconds
  std::optional<double> seconds_a_tick;  // none before the first tick ("?it/s")
  bool counts_iterations = false;        // "it", not "B" or "examples"
};

// "158.06s/it", "3.21it/s", "?it/s".
void read_rate(std::string_view text, Drawing& drawing) {
  TextScanner scanner(text);
  const std::optional<double> number = scanner.real();
  std::string_view unit = text.substr(std::min(scanner.at(), text.size()));
  unit = unit.substr(0, unit.find_first_of(",]"));
  const bool slow = unit.find("s/it") != std::string_view::npos;
  const bool fast = unit.find("it/s") != std::string_view::npos;
  drawing.counts_iterations = slow || fast;
  if (!number || *number <= 0.0 || !drawing.counts_iterations) return;
  drawing.seconds_a_tick = slow ? *number : 1.0 / *number;
}

// The name in front of the percentage: "Training: " of "Training:  12%|".
std::string name_before(std::string_view line, std::size_t percent) {
  std::size_t begin = percent;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  std::string_view name = line.substr(0, begin);
  const std::size_t end = name.find_last_not_of(" :\t");
  name = end == std::string_view::npos ? "" : name.substr(0, end + 1);
  return std::string(name);
}

std::optional<Drawing> read_drawing(std::string_view line) {
  const std::size_t percent = line.find("%|");
  if (percent == std::string_view::npos) return std::nullopt;
  const std::size_t bar = line.find("| ", percent + 2);
  const std::size_t open = line.find('[', bar == std::string_view::npos ? line.size() : bar);
  if (open == std::string_view::npos) return std::nullopt;
  Drawing drawing;
  TextScanner counts(line.substr(bar + 2, open - bar - 2));
  const auto ticks = counts.integer();
  if (!ticks || !counts.take("/")) return std::nullopt;
  const auto total = counts.integer();
  if (!total || *ticks < 0 || *total <= 0) return std::nullopt;
  const std::string_view inside = line.substr(open + 1);
  const std::size_t less = inside.find('<');
  if (less == std::string_view::npos) return std::nullopt;
  const auto elapsed = clock_seconds(inside.substr(0, less));
  const std::size_t comma = inside.find(", ", less);
  if (!elapsed) return std::nullopt;
  drawing.name = name_before(line, percent);
  drawing.ticks = *ticks;
  drawing.total = *total;
  drawing.elapsed = *elapsed;
  if (comma != std::string_view::npos) read_rate(inside.substr(comma + 2), drawing);
  return drawing;
}

bool is_training_name(const std::string& name) {
  if (name.empty()) return true;
  std::string lower;
  for (const char c : name) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (lower.find("eval") != std::string::npos || lower.find("valid") != std::string::npos) {
    return false;
  }
  for (const std::string_view word : {"train", "step", "epoch", "iter"}) {
    if (lower.find(word) != std::string::npos) return true;
  }
  return false;
}

class TqdmLines : public LogLineReader {
 public:
  LineOutcome read(std::string_view line, const LogPlace& place, RunFindings& findings) override;
  void finish(RunFindings& findings) override;

 private:
  struct Bar {
    std::string name;
    std::int64_t total = 0, elapsed = 0, last_ticks = 0;
    std::vector<Sample> samples;
  };
  std::vector<Bar> bars_;
};

LineOutcome TqdmLines::read(std::string_view line, const LogPlace& place, RunFindings& findings) {
  static_cast<void>(findings);
  const std::optional<Drawing> drawing = read_drawing(line);
  if (!drawing) return LineOutcome::not_mine;
  if (!drawing->counts_iterations || !is_training_name(drawing->name))
    return LineOutcome::understood;
  const auto found = std::find_if(bars_.begin(), bars_.end(), [&](const Bar& bar) {
    return bar.total == drawing->total && bar.name == drawing->name;
  });
  constexpr std::size_t kMostBars = 1000;  // an epoch or an evaluation each
  if (found == bars_.end() && bars_.size() == kMostBars) return LineOutcome::understood;
  Bar& bar = found == bars_.end() ? bars_.emplace_back(Bar{drawing->name, drawing->total, 0, 0, {}})
                                  : *found;
  bar.elapsed = std::max(bar.elapsed, drawing->elapsed);
  // A bar is drawn again without a tick when a line is printed through it.
  if (drawing->seconds_a_tick && drawing->ticks != bar.last_ticks) {
    bar.samples.push_back({*drawing->seconds_a_tick, place.rank, place.line});
  }
  bar.last_ticks = drawing->ticks;
  return LineOutcome::understood;
}

void TqdmLines::finish(RunFindings& findings) {
  // A timed bar stands before others, the Trainer's own, which has no name, before the longest.
  const auto rank = [](const Bar& bar) {
    return std::tuple(!bar.samples.empty(), bar.name.empty(), bar.elapsed);
  };
  const Bar* best = nullptr;
  for (const Bar& bar : bars_) {
    if (bar.last_ticks > 0 && (best == nullptr || rank(bar) > rank(*best))) best = &bar;
  }
  if (best == nullptr) return;
  findings.advance({best->last_ticks, best->total});
  if (best->samples.empty()) return;
  const SeriesInfo& info = best->samples.size() >= kEnoughTicks ? kBar : kFewTicks;
  for (const Sample& sample : best->samples) {
    findings.sample(info, sample.value, {sample.rank, sample.line});
  }
  findings.note(fmt::format("a tick of tqdm's bar{} of {} is taken as an optimizer step",
                            best->name.empty() ? "" : " \"" + printable(best->name) + "\"",
                            best->total));
}

}  // namespace

std::unique_ptr<LogLineReader> tqdm_lines() { return std::make_unique<TqdmLines>(); }

}  // namespace zeroplan::evidence
