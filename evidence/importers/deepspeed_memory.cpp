#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "evidence/importers/deepspeed_lines.hpp"

namespace zeroplan {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
constexpr double kHundredth = 0.005 * kGib;
constexpr double kWhole = 0.5 * kGib;

constexpr std::string_view kFrom = "see_memory_usage";
constexpr SeriesInfo kHeld{Metric::static_allocated_bytes, kFrom, 1, kHundredth};
constexpr SeriesInfo kPeakAllocated{Metric::peak_allocated_bytes, kFrom, 1, kHundredth};
constexpr SeriesInfo kPeakReserved{Metric::peak_reserved_bytes, kFrom, 2, kWhole};
constexpr SeriesInfo kHost{Metric::host_peak_bytes, kFrom, 1, kHundredth};

// Beginnings and parts of the messages that initialisation prints: all that DeepSpeed 0.12 to 0.19
// prints before the first forward pass. Source: every call of see_memory_usage in
// deepspeed/runtime.
constexpr std::array<std::string_view, 21> kInitialisation = {
    "nitializ",  // "Stage 3 initialize beginning", "After initializing ZeRO optimizer"
    "DeepSpeed Engine: ",
    "DeepZeRO init",
    "begin bf16_optimizer",
    "end bf16_",
    "param group",
    "creating fp16 partitions",
    "creating fp32 partitions",
    "After Set Grad positions",
    "After configuration",
    "partitioning param",
    "converting params",
    "converting and partitioning",
    "After Building Model",
    "Before Building Model",
    "Model built",
    "before building",
    "after building",
    "Before deepspeed.init",
    "GatheredParameters",
    "before model",
};

class MemoryLines : public LineReader {
 public:
  LineOutcome read(std::string_view line, const Place& place, RunFindings& findings) override;
  void finish(RunFindings& findings) override;

 private:
  void read_gpu(std::string_view line, const Place& place, RunFindings& findings);

  std::string message_;  // the last line that is none of these
  std::optional<double> last_peak_;
  bool trained_ = false;  // a line outside initialisation was there
  struct Peak {
    double allocated, reserved;
    Place place;
  };
  std::vector<Peak> while_initialising_;
};

bool is_initialisation(std::string_view message) {
  for (const std::string_view part : kInitialisation) {
    if (message.find(part) != std::string_view::npos) return true;
  }
  return false;
}

// Between two steps: gradients are gone, nothing is gathered.
bool is_between_steps(std::string_view message) {
  return message.find("Engine after step") != std::string_view::npos ||
         message.find("Engine before forward") != std::string_view::npos;
}

LineOutcome MemoryLines::read(std::string_view line, const Place& place, RunFindings& findings) {
  constexpr std::string_view kHostLine = "CPU Virtual Memory:";
  if (line.find(kHostLine) != std::string_view::npos) {
    const std::optional<double> used = number_after(line, "used");
    if (!used) {
      findings.bad(place, "CPU Virtual Memory: used = N GB", line);
      return LineOutcome::bad;
    }
    findings.sample(kHost, *used * kGib, place);
    findings.note(
        "host memory is all of the machine's that was in use, as see_memory_usage counts");
    return LineOutcome::understood;
  }
  const std::size_t at = line.find("MA ");
  if (at == std::string_view::npos || line.find("Max_MA") == std::string_view::npos) {
    message_ = line;
    return line.find(":see_memory_usage]") == std::string_view::npos ? LineOutcome::not_mine
                                                                     : LineOutcome::understood;
  }
  const std::string_view numbers = line.substr(at);
  if (!number_after(numbers, "MA ") || !number_after(numbers, "Max_MA") ||
      !number_after(numbers, "Max_CA")) {
    findings.bad(place, "MA N GB Max_MA N GB CA N GB Max_CA N GB", line);
    return LineOutcome::bad;
  }
  read_gpu(numbers, place, findings);
  return LineOutcome::understood;
}

void MemoryLines::read_gpu(std::string_view line, const Place& place, RunFindings& findings) {
  const double held = *number_after(line, "MA ") * kGib;
  const Peak peak{
      *number_after(line, "Max_MA") * kGib, *number_after(line, "Max_CA") * kGib, place};
  if (!trained_ && is_initialisation(message_)) {
    while_initialising_.push_back(peak);
    return;
  }
  trained_ = true;
  findings.sample(kPeakAllocated, peak.allocated, place);
  findings.sample(kPeakReserved, peak.reserved, place);
  if (is_between_steps(message_)) findings.sample(kHeld, held, place);
}

void MemoryLines::finish(RunFindings& findings) {
  double largest = 0.0;
  for (const Peak& peak : while_initialising_) {
    if (trained_) {
      findings.sample(kPeakAllocated, peak.allocated, peak.place);
      findings.sample(kPeakReserved, peak.reserved, peak.place);
    }
    largest = std::max(largest, peak.allocated);
  }
  if (!trained_ && !while_initialising_.empty()) {
    findings.note(fmt::format(
        "see_memory_usage was printed while initialising only (peak {:.2f} GiB allocated): not the "
        "peak of a step; \"memory_breakdown\": true in ds_config.json prints the steps'",
        largest / kGib));
  }
}

}  // namespace

std::unique_ptr<LineReader> deepspeed_memory_lines() { return std::make_unique<MemoryLines>(); }

}  // namespace zeroplan
