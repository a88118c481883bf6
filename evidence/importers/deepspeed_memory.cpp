#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "evidence/importers/deepspeed_lines.hpp"

namespace zeroplan::evidence {
namespace {

constexpr double kGibBytes = 1024.0 * 1024.0 * 1024.0;
constexpr double kHundredth = 0.005 * kGibBytes;
constexpr double kWhole = 0.5 * kGibBytes;

constexpr std::string_view kSeeMemory = "see_memory_usage";
constexpr SeriesInfo kSeenHeld{Metric::static_allocated_bytes, kSeeMemory, 1, kHundredth};
constexpr SeriesInfo kSeenAllocated{Metric::peak_allocated_bytes, kSeeMemory, 1, kHundredth};
constexpr SeriesInfo kSeenReserved{Metric::peak_reserved_bytes, kSeeMemory, 2, kWhole};
constexpr SeriesInfo kHost{Metric::host_peak_bytes, kSeeMemory, 1, kHundredth};

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

class SeeMemoryLines : public LogLineReader {
 public:
  LineOutcome read(std::string_view line, const LogPlace& place, RunFindings& findings) override;
  void finish(RunFindings& findings) override;

 private:
  void read_gpu(std::string_view line, const LogPlace& place, RunFindings& findings);

  std::string message_;  // the last line that is none of these
  std::optional<double> last_peak_;
  bool trained_ = false;  // a line outside initialisation was there
  struct Peak {
    double allocated, reserved;
    LogPlace place;
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

LineOutcome SeeMemoryLines::read(std::string_view line,
                                 const LogPlace& place,
                                 RunFindings& findings) {
  constexpr std::string_view kHostLine = "CPU Virtual Memory:";
  if (line.find(kHostLine) != std::string_view::npos) {
    const std::optional<double> used = number_after(line, "used");
    if (!used) {
      findings.bad(place, "CPU Virtual Memory: used = N GB", line);
      return LineOutcome::bad;
    }
    findings.sample(kHost, *used * kGibBytes, place);
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

void SeeMemoryLines::read_gpu(std::string_view line, const LogPlace& place, RunFindings& findings) {
  const double held = *number_after(line, "MA ") * kGibBytes;
  const Peak peak{
      *number_after(line, "Max_MA") * kGibBytes, *number_after(line, "Max_CA") * kGibBytes, place};
  if (!trained_ && is_initialisation(message_)) {
    while_initialising_.push_back(peak);
    return;
  }
  trained_ = true;
  findings.sample(kSeenAllocated, peak.allocated, place);
  findings.sample(kSeenReserved, peak.reserved, place);
  if (is_between_steps(message_)) findings.sample(kSeenHeld, held, place);
}

void SeeMemoryLines::finish(RunFindings& findings) {
  double largest = 0.0;
  for (const Peak& peak : while_initialising_) {
    if (trained_) {
      findings.sample(kSeenAllocated, peak.allocated, peak.place);
      findings.sample(kSeenReserved, peak.reserved, peak.place);
    }
    largest = std::max(largest, peak.allocated);
  }
  if (!trained_ && !while_initialising_.empty()) {
    findings.note(fmt::format(
        "see_memory_usage was printed while initialising only (peak {:.2f} GiB allocated): not the "
        "peak of a step; \"memory_breakdown\": true in ds_config.json prints the steps'",
        largest / kGibBytes));
  }
}

}  // namespace

std::unique_ptr<LogLineReader> deepspeed_memory_lines() {
  return std::make_unique<SeeMemoryLines>();
}

}  // namespace zeroplan::evidence
