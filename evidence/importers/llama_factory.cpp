#include "evidence/importers/hf_lines.hpp"

namespace zeroplan::evidence {
namespace {

constexpr SeriesInfo kLlamaFactoryStep{Metric::step_seconds, "LLaMA-Factory's log", 4, 0.0, true};

class LlamaFactoryLines : public LogLineReader {
 public:
  LineOutcome read(std::string_view line, const LogPlace& place, RunFindings& findings) override;
  void finish(RunFindings& findings) override;

 private:
  struct Moment {
    std::int64_t steps = 0, seconds = 0;
    LogPlace place;
  };
  std::optional<Moment> first_, last_;
};

LineOutcome LlamaFactoryLines::read(std::string_view line,
                                    const LogPlace& place,
                                    RunFindings& findings) {
  constexpr std::string_view kElapsed = "\"elapsed_time\": \"";
  const std::size_t at = line.find(kElapsed);
  if (at == std::string_view::npos || line.find("\"current_steps\"") == std::string_view::npos) {
    return LineOutcome::not_mine;
  }
  const std::string_view rest = line.substr(at + kElapsed.size());
  const std::string_view clock = rest.substr(0, rest.find('"'));
  if (clock.find("day") != std::string_view::npos) return LineOutcome::understood;
  const auto steps = count_after(line, "\"current_steps\"");
  const auto seconds = clock_seconds(clock);
  if (steps) findings.advance({*steps, count_after(line, "\"total_steps\"")});
  if (!steps || !seconds) {
    findings.bad(place, "\"current_steps\": N, ... \"elapsed_time\": \"H:MM:SS\"", line);
    return LineOutcome::bad;
  }
  // Another run was appended, or the same one was resumed.
  if (last_ && (*steps <= last_->steps || *seconds < last_->seconds)) first_.reset();
  last_ = Moment{*steps, *seconds, place};
  if (!first_) first_ = last_;
  return LineOutcome::understood;
}

// Whole seconds are printed, so the longest stretch tells most. It begins at the first line, which
// leaves the warm-up before it out.
void LlamaFactoryLines::finish(RunFindings& findings) {
  if (!first_ || last_->steps == first_->steps || last_->seconds == first_->seconds) return;
  findings.sample(kLlamaFactoryStep,
                  static_cast<double>(last_->seconds - first_->seconds) /
                      static_cast<double>(last_->steps - first_->steps),
                  last_->place);
  findings.note(
      "LLaMA-Factory's log: from its first line to its last, logging and saving included");
}

}  // namespace

std::unique_ptr<LogLineReader> llama_factory_lines() {
  return std::make_unique<LlamaFactoryLines>();
}

}  // namespace zeroplan::evidence
