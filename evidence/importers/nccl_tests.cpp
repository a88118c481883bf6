#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "evidence/importers/machine_lines.hpp"

namespace zeroplan::evidence {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kPrograms = {{
    {"all_reduce_perf", "all_reduce"},
    {"all_gather_perf", "all_gather"},
    {"reduce_scatter_perf", "reduce_scatter"},
    {"broadcast_perf", "broadcast"},
    {"alltoall_perf", "all_to_all"},
    {"sendrecv_perf", "send_receive"},
    {"scatter_perf", "scatter"},
    {"gather_perf", "gather"},
    {"reduce_perf", "reduce"},
}};

constexpr std::array<std::string_view, 18> kTypes = {"int8",
                                                     "uint8",
                                                     "int32",
                                                     "uint32",
                                                     "int64",
                                                     "uint64",
                                                     "half",
                                                     "float",
                                                     "double",
                                                     "bfloat16",
                                                     "fp8_e4m3",
                                                     "fp8_e5m2",
                                                     "f8e4m3",
                                                     "f8e5m2",
                                                     "char",
                                                     "int",
                                                     "u8",
                                                     "i8"};

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  std::size_t at = 0;
  while (true) {
    const std::size_t begin = line.find_first_not_of(" \t", at);
    if (begin == std::string_view::npos) return words;
    at = std::min(line.find_first_of(" \t", begin), line.size());
    words.push_back(line.substr(begin, at - begin));
  }
}

template <typename Number>
std::optional<Number> number_of(std::string_view word) {
  Number number{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return number;
}

class NcclTestsLines : public LogLineReader {
 public:
  LineOutcome read(std::string_view line, const LogPlace& place, RunFindings& findings) override;
  void finish(RunFindings& findings) override;

 private:
  bool read_header(std::string_view line);
  bool read_device(std::string_view line, RunFindings& findings);
  LineOutcome read_row(std::string_view line, const LogPlace& place, RunFindings& findings);
  std::string guess(double ratio, bool reduces) const;

  std::string operation_;  // as its program says; empty: unknown
  bool table_ = false;     // the header of a table was there
  std::int64_t ranks_ = 0;
  std::set<std::string, std::less<>> hosts_;
  std::int64_t iterations_ = 0;
  bool guessed_ = false;
};

bool NcclTestsLines::read_header(std::string_view line) {
  for (const auto& [program, operation] : kPrograms) {
    const std::size_t at = line.find(program);
    if (at == std::string_view::npos) continue;
    // "reduce_perf" is the end of "all_reduce_perf", too: the table has the longer ones first.
    operation_ = operation;
    table_ = false;
    return true;
  }
  if (line.starts_with("nThread ") && line.find("minBytes") != std::string_view::npos) {
    ranks_ = 0;
    hosts_.clear();
    table_ = false;
    constexpr std::string_view kIterations = " iters:";  // behind "warmup iters:"
    const std::size_t at = line.find(kIterations, line.find("warmup iters:") + 13);
    iterations_ =
        at == std::string_view::npos ? 0 : count_after(line.substr(at), kIterations).value_or(0);
    return true;
  }
  if (line.starts_with("size ") && line.find("algbw") != std::string_view::npos) {
    table_ = true;
    return true;
  }
  return line.starts_with("out-of-place ") || line.starts_with("Using devices") ||
         line.starts_with("Out of bounds values") || line.starts_with("Avg bus bandwidth") ||
         (line.starts_with("(B) ") && line.find("(us)") != std::string_view::npos);
}

bool NcclTestsLines::read_device(std::string_view line, RunFindings& findings) {
  if (!line.starts_with("Rank ")) return false;
  const std::size_t on = line.find(" on ");
  const std::size_t device = line.find(" device ");
  const std::size_t close = line.find("] ");
  if (on == std::string_view::npos || device == std::string_view::npos || device < on ||
      close == std::string_view::npos) {
    return false;
  }
  ++ranks_;
  const std::vector<std::string_view> host = words_of(line.substr(on + 4, device - on - 4));
  if (!host.empty()) hosts_.emplace(host.front());
  const std::string_view name = line.substr(close + 2);
  if (!findings.gpu_name && !name.empty()) {
    findings.gpu_name = std::string(name.substr(0, name.find_last_not_of(" \t") + 1));
  }
  return true;
}

// From what nccl-tests multiplies the rate by: 2 (n - 1) / n, (n - 1) / n or 1.
std::string NcclTestsLines::guess(double ratio, bool reduces) const {
  const double n = static_cast<double>(ranks_);
  constexpr double kNear = 0.02;
  const auto is = [&](double factor) { return std::abs(ratio - factor) <= kNear * factor; };
  if (ranks_ < 2) return "";
  if (reduces && ranks_ > 2 && is(2.0 * (n - 1.0) / n)) return "all_reduce";
  if (is((n - 1.0) / n)) return reduces ? "reduce_scatter" : "all_gather";
  if (reduces && ranks_ > 2 && is(1.0)) return "reduce";
  return "";
}

LineOutcome NcclTestsLines::read_row(std::string_view line,
                                     const LogPlace& place,
                                     RunFindings& findings) {
  const std::vector<std::string_view> words = words_of(line);
  constexpr std::size_t kLeast = 9;
  if (words.size() < kLeast) return LineOutcome::not_mine;
  const auto size = number_of<std::int64_t>(words[0]);
  const auto count = number_of<std::int64_t>(words[1]);
  const bool typed = std::find(kTypes.begin(), kTypes.end(), words[2]) != kTypes.end();
  if (!size || !count || !typed) return LineOutcome::not_mine;
  // Columns from the right: four for each placement.
  constexpr std::size_t kColumns = 4;
  const std::size_t placements = words.size() >= 3 + 2 * kColumns ? 2 : 1;
  const std::size_t first = words.size() - placements * kColumns;
  const bool reduces = first > 3 && words[3] != "none";
  for (std::size_t i = 0; i < placements; ++i) {
    const std::size_t at = first + i * kColumns;
    if (words[at] == "N/A") continue;
    const auto micro = number_of<double>(words[at]);
    const auto algorithm = number_of<double>(words[at + 1]);
    const auto bus = number_of<double>(words[at + 2]);
    if (!micro || !algorithm || !bus || *micro < 0.0) {
      findings.bad(place, "a row of nccl-tests: size count type ... time algbw busbw #wrong", line);
      return LineOutcome::bad;
    }
    if (*size <= 0 || *micro == 0.0) continue;
    CollectiveTiming timing;
    timing.operation = operation_;
    if (operation_.empty() && *algorithm > 0.0) {
      timing.operation = guess(*bus / *algorithm, reduces);
      guessed_ |= !timing.operation.empty();
    }
    if (timing.operation.empty()) timing.operation = "unknown";
    timing.bytes = Bytes::of(*size);
    timing.ranks = ranks_;
    timing.nodes = static_cast<std::int64_t>(hosts_.size());
    timing.dtype = words[2];
    timing.in_place = i == 1;
    timing.count = iterations_;
    timing.seconds = Seconds::of(*micro / 1e6);
    findings.parts.collectives.push_back(std::move(timing));
  }
  return LineOutcome::understood;
}

LineOutcome NcclTestsLines::read(std::string_view line,
                                 const LogPlace& place,
                                 RunFindings& findings) {
  if (read_header(line) || read_device(line, findings)) return LineOutcome::understood;
  if (!table_) return LineOutcome::not_mine;
  return read_row(line, place, findings);
}

void NcclTestsLines::finish(RunFindings& findings) {
  if (guessed_) {
    findings.note(
        "which collective nccl-tests ran is taken from busbw / algbw; the line with its "
        "command says it");
  }
  if (ranks_ == 0 || findings.parts.collectives.empty()) return;
  if (!findings.gpus) findings.gpus = ranks_;
  const auto nodes = static_cast<std::int64_t>(hosts_.size());
  if (!findings.gpus_per_node && nodes > 0 && ranks_ % nodes == 0) {
    findings.gpus_per_node = ranks_ / nodes;
  }
}

}  // namespace

std::unique_ptr<LogLineReader> nccl_tests_lines() { return std::make_unique<NcclTestsLines>(); }

}  // namespace zeroplan::evidence
