#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "evidence/importers/deepspeed_lines.hpp"
#include "evidence/text_scanner.hpp"

namespace zeroplan::evidence {
namespace {

constexpr double kTimerGib = 1024.0 * 1024.0 * 1024.0;
constexpr double kMilli = 1e-3;

constexpr SeriesInfo kStepTimers{Metric::step_seconds, "DeepSpeed's timers", 2, 1.5e-5};
constexpr SeriesInfo kMicroTimers{
    Metric::step_seconds, "DeepSpeed's timers of micro-steps", 3, 1.5e-5};
constexpr SeriesInfo kPipeline{Metric::step_seconds, "DeepSpeed's pipeline engine", 1, 5e-4};
constexpr SeriesInfo kPipelineRate{
    Metric::samples_per_second, "DeepSpeed's pipeline engine", 1, 5e-4};
constexpr SeriesInfo kCurrentRate{
    Metric::samples_per_second, "DeepSpeed's throughput timer", 1, 0.0};
constexpr SeriesInfo kAverageRate{
    Metric::samples_per_second, "DeepSpeed's throughput timer (running average)", 2, 0.0};
constexpr SeriesInfo kThroughputPeak{
    Metric::peak_allocated_bytes, "DeepSpeed's throughput timer", 2, 0.005 * kTimerGib};
constexpr SeriesInfo kThroughputHeld{
    Metric::static_allocated_bytes, "DeepSpeed's throughput timer", 2, 0.005 * kTimerGib};

// --- wall_clock_breakdown

enum class TimerKind { micro, step, part, optimizer, pipeline };

struct TimerName {
  std::string_view name;
  TimerKind kind;
};

// A part is contained in another timer. New names and those of releases up to 0.10.
constexpr std::array<TimerName, 26> kTimers = {{
    {"fwd_microstep", TimerKind::micro},
    {"bwd_microstep", TimerKind::micro},
    {"step_microstep", TimerKind::micro},
    {"bwd_inner_microstep", TimerKind::part},
    {"bwd_allreduce_microstep", TimerKind::part},
    {"forward_microstep", TimerKind::micro},
    {"backward_microstep", TimerKind::micro},
    {"backward_inner_microstep", TimerKind::part},
    {"backward_allreduce_microstep", TimerKind::part},
    {"fwd", TimerKind::step},
    {"bwd", TimerKind::step},
    {"step", TimerKind::step},
    {"bwd_inner", TimerKind::part},
    {"bwd_allreduce", TimerKind::part},
    {"forward", TimerKind::step},
    {"backward", TimerKind::step},
    {"backward_inner", TimerKind::part},
    {"backward_allreduce", TimerKind::part},
    {"optimizer_step", TimerKind::optimizer},
    {"optimizer_gradients", TimerKind::optimizer},
    {"optimizer_allgather", TimerKind::optimizer},
    {"optimizer_swap_in_state", TimerKind::part},
    {"optimizer_swap_out_state", TimerKind::part},
    {"optimizer_step_microstep", TimerKind::part},
    {"train_batch", TimerKind::pipeline},
    {"batch_input", TimerKind::pipeline},
}};

std::optional<TimerKind> timer_kind(std::string_view name) {
  for (const TimerName& timer : kTimers) {
    if (timer.name == name) return timer.kind;
  }
  return std::nullopt;
}

struct TimerSums {
  double micro = 0.0, step = 0.0;  // seconds
  int micro_timers = 0, step_timers = 0, optimizer_timers = 0, pipeline_timers = 0, known = 0;
};

// "| fwd: 1.25 | bwd: 2.5"; nothing where a known timer has no number.
std::optional<TimerSums> read_timers(std::string_view text) {
  TimerSums sums;
  while (!text.empty()) {
    const std::size_t bar = text.find('|');
    const std::string_view entry = text.substr(0, bar);
    text = bar == std::string_view::npos ? "" : text.substr(bar + 1);
    const std::size_t colon = entry.find(':');
    if (colon == std::string_view::npos) continue;
    const std::size_t begin = entry.find_first_not_of(" \t");
    const auto kind = timer_kind(entry.substr(begin, colon - begin));
    if (!kind) continue;
    const std::optional<double> value = TextScanner(entry, colon + 1).real();
    if (!value || *value < 0.0) return std::nullopt;
    ++sums.known;
    if (*kind == TimerKind::micro) {
      sums.micro += *value * kMilli;
      ++sums.micro_timers;
    } else if (*kind == TimerKind::step) {
      sums.step += *value * kMilli;
      ++sums.step_timers;
    } else if (*kind == TimerKind::optimizer) {
      ++sums.optimizer_timers;
    } else if (*kind == TimerKind::pipeline) {
      ++sums.pipeline_timers;
    }
  }
  return sums;
}

class TimerLines : public LogLineReader {
 public:
  LineOutcome read(std::string_view line, const LogPlace& place, RunFindings& findings) override;
  void finish(RunFindings& findings) override;

 private:
  struct MicroStep {
    double seconds;
    bool ends_step;  // the optimizer's timers stood in front of it
    LogPlace place;
  };
  std::optional<std::size_t> micro_steps_of_a_step(const RunFindings& findings) const;

  std::vector<MicroStep> micro_steps_;
  bool optimizer_ran_ = false;
};

LineOutcome TimerLines::read(std::string_view line, const LogPlace& place, RunFindings& findings) {
  if (line.find("iter time (s):") != std::string_view::npos) {
    const std::optional<double> seconds = number_after(line, "iter time (s)");
    if (!seconds) {
      findings.bad(place, "iter time (s): N samples/sec: N", line);
      return LineOutcome::bad;
    }
    findings.sample(kPipeline, *seconds, place);
    if (const auto rate = number_after(line, "samples/sec")) {
      findings.sample(kPipelineRate, *rate, place);
    }
    return LineOutcome::understood;
  }
  constexpr std::string_view kOpening = "time (ms) |";
  const std::size_t at = line.find(kOpening);
  if (at == std::string_view::npos) return LineOutcome::not_mine;
  const LogPlace stated = with_stated_rank(line, place);
  const std::optional<TimerSums> sums = read_timers(line.substr(at + kOpening.size()));
  if (!sums) {
    findings.bad(place, "time (ms) | TIMER: N | ...", line);
    return LineOutcome::bad;
  }
  if (sums->known == 0) return LineOutcome::not_mine;  // Megatron's timers look alike
  // A stage of a pipeline waits between its passes, so they are no step: it prints "iter time".
  if (sums->pipeline_timers > 0) return LineOutcome::understood;
  constexpr int kWholeStep = 3;  // forward, backward, step
  if (sums->step_timers >= kWholeStep) findings.sample(kStepTimers, sums->step, stated);
  if (sums->optimizer_timers > 0) optimizer_ran_ = true;
  if (sums->micro_timers >= kWholeStep) {
    micro_steps_.push_back({sums->micro, optimizer_ran_, stated});
    optimizer_ran_ = false;
  }
  return LineOutcome::understood;
}

// From the configuration, else from how far apart the optimizer's timers stand.
std::optional<std::size_t> TimerLines::micro_steps_of_a_step(const RunFindings& findings) const {
  constexpr std::int64_t kMost = 1'000'000;
  const auto within = [&](std::int64_t count) { return count > 0 && count <= kMost; };
  if (const ExplicitValue* said =
          findings.scenario().find(ScenarioKey::gradient_accumulation_steps)) {
    if (within(said->value.as_integer())) return static_cast<std::size_t>(said->value.as_integer());
  }
  if (const ExplicitValue* said = findings.scenario().find(ScenarioKey::ds_config)) {
    const Json* steps = said->value.find("gradient_accumulation_steps");
    if (steps != nullptr && steps->is_integer() && within(steps->as_integer())) {
      return static_cast<std::size_t>(steps->as_integer());
    }
  }
  std::optional<std::size_t> last;
  std::optional<std::size_t> apart;
  for (std::size_t i = 0; i < micro_steps_.size(); ++i) {
    if (!micro_steps_[i].ends_step) continue;
    if (last && apart && *apart != i - *last) return std::nullopt;
    if (last) apart = i - *last;
    last = i;
  }
  return apart;
}

// Micro-steps add up to steps. The step's own timers are better where they were printed.
void TimerLines::finish(RunFindings& findings) {
  if (micro_steps_.empty()) return;
  findings.note(
      "DeepSpeed's timers leave out what the loop does between the calls, such as loading");
  const std::optional<std::size_t> count = micro_steps_of_a_step(findings);
  if (!count) {
    findings.note(
        fmt::format("{} micro-steps were timed; how many make a step is not said: "
                    "--gradient-accumulation-steps",
                    micro_steps_.size()));
    return;
  }
  const bool marked = std::any_of(micro_steps_.begin(),
                                  micro_steps_.end(),
                                  [](const MicroStep& micro) { return micro.ends_step; });
  double sum = 0.0;
  std::size_t summed = 0;
  for (const MicroStep& micro : micro_steps_) {
    sum += micro.seconds;
    ++summed;
    if (marked ? !micro.ends_step : summed < *count) continue;
    if (summed == *count) findings.sample(kMicroTimers, sum, micro.place);
    sum = 0.0;
    summed = 0;
  }
}

// --- throughput timer

class ThroughputLines : public LogLineReader {
 public:
  LineOutcome read(std::string_view line, const LogPlace& place, RunFindings& findings) override;
};

LineOutcome ThroughputLines::read(std::string_view line,
                                  const LogPlace& place,
                                  RunFindings& findings) {
  if (line.find("SamplesPerSec=") == std::string_view::npos) return LineOutcome::not_mine;
  const LogPlace stated = with_stated_rank(line, place);
  const std::optional<double> current = number_after(line, "CurrSamplesPerSec=");
  std::optional<double> average = number_after(line, "RunningAvgSamplesPerSec=");
  if (!average) average = number_after(line, " SamplesPerSec=");
  if (!current && !average) {
    // The first report stands before the timer starts: "-inf", "inf" or "nan".
    if (line.find("inf") != std::string_view::npos || line.find("nan") != std::string_view::npos) {
      return LineOutcome::understood;
    }
    findings.bad(place, "SamplesPerSec=N", line);
    return LineOutcome::bad;
  }
  if (const auto steps = count_after(line, "global_step=")) findings.advance({*steps, {}});
  if (current) findings.sample(kCurrentRate, *current, stated);
  if (average) findings.sample(kAverageRate, *average, stated);
  if (const auto peak = number_after(line, "MaxMemAllocated=")) {
    findings.sample(kThroughputPeak, *peak * kTimerGib, stated);
  }
  if (const auto held = number_after(line, " MemAllocated=")) {
    findings.sample(kThroughputHeld, *held * kTimerGib, stated);
  }
  return LineOutcome::understood;
}

}  // namespace

std::unique_ptr<LogLineReader> deepspeed_timer_lines() { return std::make_unique<TimerLines>(); }

std::unique_ptr<LogLineReader> deepspeed_throughput_lines() {
  return std::make_unique<ThroughputLines>();
}

}  // namespace zeroplan::evidence
