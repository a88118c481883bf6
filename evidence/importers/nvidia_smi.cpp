#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "evidence/importers/machine_lines.hpp"
#include "evidence/text_scanner.hpp"

namespace zeroplan::evidence {
namespace {

constexpr double kSmiMib = 1024.0 * 1024.0;
constexpr SeriesInfo kUsed{Metric::peak_total_bytes, "nvidia-smi", 1, 0.5 * kSmiMib, false, "GPU"};

std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> cells;
  while (true) {
    const std::size_t comma = line.find(',');
    std::string_view cell = line.substr(0, comma);
    const std::size_t begin = cell.find_first_not_of(" \t");
    cell = begin == std::string_view::npos
               ? ""
               : cell.substr(begin, cell.find_last_not_of(" \t") + 1 - begin);
    cells.push_back(cell);
    if (comma == std::string_view::npos) return cells;
    line.remove_prefix(comma + 1);
  }
}

class NvidiaSmiLines : public LogLineReader {
 public:
  LineOutcome read(std::string_view line, const LogPlace& place, RunFindings& findings) override;
  void finish(RunFindings& findings) override;

 private:
  bool read_header(std::string_view line);
  LineOutcome read_row(std::string_view line, const LogPlace& place, RunFindings& findings);
  LineOutcome read_table(std::string_view line, const LogPlace& place, RunFindings& findings);

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t columns_ = 0;  // of the CSV; 0: none
  std::size_t used_ = kNone, index_ = kNone, name_ = kNone;
  std::set<int> gpus_;
  int table_rows_ = 0;
  bool has_samples_ = false;
};

// A header names memory.used among names with dots or well-known ones: "index, memory.used [MiB]".
bool NvidiaSmiLines::read_header(std::string_view line) {
  if (line.find("memory.used") == std::string_view::npos) return false;
  const std::vector<std::string_view> cells = cells_of(line);
  used_ = index_ = name_ = kNone;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (cells[i] == "memory.used" || cells[i].starts_with("memory.used [")) used_ = i;
    if (cells[i] == "index" || cells[i] == "gpu_index") index_ = i;
    if (cells[i] == "name" || cells[i] == "gpu_name") name_ = i;
  }
  columns_ = used_ == kNone ? 0 : cells.size();
  return columns_ > 0;
}

LineOutcome NvidiaSmiLines::read_row(std::string_view line,
                                     const LogPlace& place,
                                     RunFindings& findings) {
  const std::vector<std::string_view> cells = cells_of(line);
  if (cells.size() != columns_) return LineOutcome::not_mine;
  if (columns_ == 1 && TextScanner(line).integer() == std::nullopt && !line.starts_with("[N/A]")) {
    return LineOutcome::not_mine;  // any line is one cell
  }
  const std::string_view used = cells[used_];
  if (used == "[N/A]" || used == "N/A" || used == "[Not Supported]") {
    findings.note(
        "nvidia-smi has no memory.used for this GPU: memory that it shares with the host");
    return LineOutcome::understood;
  }
  TextScanner scanner(used);
  const std::optional<double> mebibytes = scanner.real();
  const bool unit = mebibytes && (scanner.at_end() || scanner.take("MiB"));
  const auto index =
      index_ == kNone ? std::optional<std::int64_t>(0) : TextScanner(cells[index_]).integer();
  constexpr std::int64_t kMostGpus = 1024;
  if (!unit || *mebibytes < 0.0 || !index || *index < 0 || *index > kMostGpus) {
    findings.bad(place, "a row of nvidia-smi's CSV with memory.used in MiB", line);
    return LineOutcome::bad;
  }
  const int gpu = static_cast<int>(*index);
  if (index_ != kNone) gpus_.insert(gpu);
  if (name_ != kNone && !findings.gpu_name) findings.gpu_name = std::string(cells[name_]);
  findings.sample(kUsed, *mebibytes * kSmiMib, {gpu, place.line});
  has_samples_ = true;
  return LineOutcome::understood;
}

// "N/A   34C    P0    60W / 400W |  38213MiB / 40960MiB |      0%      Default |"
LineOutcome NvidiaSmiLines::read_table(std::string_view line,
                                       const LogPlace& place,
                                       RunFindings& findings) {
  const std::size_t bar = line.find("W |");
  if (bar == std::string_view::npos) return LineOutcome::not_mine;
  TextScanner scanner(line, bar + 3);
  const std::optional<std::int64_t> used = scanner.integer();
  if (!used || !scanner.take("MiB /")) return LineOutcome::not_mine;
  if (!scanner.integer() || !scanner.take("MiB")) {
    findings.bad(place, "N MiB / N MiB of nvidia-smi's table", line);
    return LineOutcome::bad;
  }
  findings.sample(kUsed, static_cast<double>(*used) * kSmiMib, {table_rows_++, place.line});
  has_samples_ = true;
  return LineOutcome::understood;
}

LineOutcome NvidiaSmiLines::read(std::string_view line,
                                 const LogPlace& place,
                                 RunFindings& findings) {
  if (read_header(line)) return LineOutcome::understood;
  if (columns_ > 0) {
    const LineOutcome outcome = read_row(line, place, findings);
    if (outcome != LineOutcome::not_mine) return outcome;
  }
  return read_table(line, place, findings);
}

void NvidiaSmiLines::finish(RunFindings& findings) {
  if (!has_samples_) return;
  findings.note("nvidia-smi counts every process of a GPU");
  if (!gpus_.empty() && !findings.gpus_per_node) {
    findings.gpus_per_node = static_cast<std::int64_t>(gpus_.size());
  }
}

}  // namespace

std::unique_ptr<LogLineReader> nvidia_smi_lines() { return std::make_unique<NvidiaSmiLines>(); }

}  // namespace zeroplan::evidence
