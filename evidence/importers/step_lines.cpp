#include "evidence/importers/step_lines.hpp"

namespace zeroplan::evidence {
namespace {

constexpr std::string_view kFrom = "steps of the program itself";
constexpr SeriesInfo kHeld{Metric::static_allocated_bytes, kFrom, 0, 0.0};
constexpr SeriesInfo kAllocated{Metric::peak_allocated_bytes, kFrom, 0, 0.0};
constexpr SeriesInfo kReserved{Metric::peak_reserved_bytes, kFrom, 0, 0.0};
constexpr SeriesInfo kSeconds{Metric::step_seconds, kFrom, 0, 0.0};

class StepLines : public LogLineReader {
 public:
  LineOutcome read(std::string_view line, const LogPlace& place, RunFindings& findings) override {
    constexpr std::string_view kStep = "\"zeroplan_step\"";
    if (line.find(kStep) == std::string_view::npos) return LineOutcome::not_mine;
    const auto step = count_after(line, kStep);
    if (!step) {
      findings.bad(place, "\"zeroplan_step\": N, \"allocated_bytes\": N, ...", line);
      return LineOutcome::bad;
    }
    findings.advance({*step, count_after(line, "\"steps\"")});
    const auto sample = [&](const SeriesInfo& info, std::string_view key) {
      if (const auto value = number_after(line, key)) findings.sample(info, *value, place);
    };
    sample(kHeld, "\"allocated_bytes\"");
    sample(kAllocated, "\"peak_allocated_bytes\"");
    sample(kReserved, "\"peak_reserved_bytes\"");
    sample(kSeconds, "\"seconds\"");
    return LineOutcome::understood;
  }
};

}  // namespace

std::unique_ptr<LogLineReader> step_lines() { return std::make_unique<StepLines>(); }

}  // namespace zeroplan::evidence
