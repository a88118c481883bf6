#include "evidence/importers/import.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/json.hpp"
#include "evidence/importers/autotuning.hpp"
#include "evidence/importers/deepspeed_lines.hpp"
#include "evidence/importers/hf_lines.hpp"
#include "evidence/importers/kineto.hpp"
#include "evidence/importers/line_reader.hpp"
#include "evidence/importers/machine_lines.hpp"
#include "evidence/importers/megatron_lines.hpp"
#include "evidence/importers/memory_snapshot_import.hpp"
#include "evidence/importers/run_findings.hpp"
#include "evidence/importers/step_lines.hpp"
#include "evidence/importers/unpickle.hpp"
#include "evidence/log_text.hpp"
#include "evidence/oom_text.hpp"

namespace zeroplan::evidence {
namespace {

struct Importer {
  std::string_view format;  // "deepspeed-memory"
  std::string_view what;    // "DeepSpeed see_memory_usage"

  // One of the three; the others are null.
  std::unique_ptr<LogLineReader> (*lines)() = nullptr;
  struct Document {
    bool (*recognise)(const Json&) = nullptr;
    void (*read)(const Json&, RunFindings&) = nullptr;
  } document{};
  struct Binary {
    bool (*recognise)(std::string_view) = nullptr;
    void (*read)(std::string_view, RunFindings&) = nullptr;  // throws InputError
  } bytes{};

  // The plural of what is counted.
  constexpr std::string_view unit() const { return lines != nullptr ? "lines" : "documents"; }
};

// Lines are offered to them in this order. The configuration comes first: lines of its document
// look like nothing.
constexpr auto kImporters = std::to_array<Importer>({
    {.format = "deepspeed-config",
     .what = "DeepSpeed's printed configuration",
     .lines = deepspeed_config_lines},
    {.format = "megatron-arguments",
     .what = "Megatron's printed arguments",
     .lines = megatron_argument_lines},
    {.format = "zeroplan-steps", .what = "steps of the program itself", .lines = step_lines},
    {.format = "deepspeed-memory",
     .what = "DeepSpeed's see_memory_usage",
     .lines = deepspeed_memory_lines},
    {.format = "deepspeed-timers",
     .what = "DeepSpeed's wall-clock breakdown",
     .lines = deepspeed_timer_lines},
    {.format = "deepspeed-throughput",
     .what = "DeepSpeed's throughput timer",
     .lines = deepspeed_throughput_lines},
    {.format = "deepspeed-flops",
     .what = "DeepSpeed's flops profiler",
     .lines = deepspeed_flops_lines},
    {.format = "hf-trainer", .what = "the Trainer's lines", .lines = hf_trainer_lines},
    {.format = "llama-factory",
     .what = "LLaMA-Factory's trainer_log",
     .lines = llama_factory_lines},
    {.format = "tqdm", .what = "tqdm's bars", .lines = tqdm_lines},
    {.format = "megatron-iterations",
     .what = "Megatron's iterations",
     .lines = megatron_iteration_lines},
    {.format = "megatron-memory",
     .what = "Megatron's memory report",
     .lines = megatron_memory_lines},
    {.format = "nccl-tests", .what = "nccl-tests", .lines = nccl_tests_lines},
    {.format = "nvidia-smi", .what = "nvidia-smi", .lines = nvidia_smi_lines},
    {.format = "hf-trainer-state",
     .what = "the Trainer's state",
     .document = {is_trainer_state, read_trainer_state}},
    {.format = "kineto",
     .what = "PyTorch's profiler",
     .document = {is_kineto_trace, read_kineto_trace}},
    {.format = "memory-snapshot",
     .what = "PyTorch's memory snapshot",
     .bytes = {is_pickle, read_memory_snapshot}},
});

constexpr std::int64_t kLargestFile = std::int64_t{1} << 30;

RunFindings findings_with(const Scenario& given, const std::string& file) {
  RunFindings findings(file);
  for (const ScenarioKeyInfo& key : kScenarioKeys) {
    if (const ExplicitValue* said = given.find(key.key))
      findings.state_value(key.key, said->value, LogPlace{});
  }
  return findings;
}

[[noreturn]] void not_recognised(const std::string& file, Phrase got, Phrase hint = "") {
  if (hint.empty()) hint = "docs/import.md lists the formats, each with a line of it";
  throw InputError({file,
                    "",
                    "a training log, a Trainer's state, a trace, a memory snapshot, nccl-tests or "
                    "nvidia-smi output, or a folder of autotuning results",
                    std::move(got),
                    std::move(hint)});
}

// --- logs

// "worker-1: " in front of a line: pdsh, with which DeepSpeed starts several nodes, writes the
// host.
std::string_view host_prefix(std::string_view line) {
  const std::size_t end =
      line.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.");
  const bool ends = end != 0 && end != std::string_view::npos && line[end] == ':' &&
                    (end + 1 == line.size() || line[end + 1] == ' ') &&
                    line.substr(0, end).find_first_of("0123456789-.") != std::string_view::npos;
  return ends ? line.substr(0, end + 1) : "";
}

// The line of a mark, without line break.
std::string_view line_of(const LogText& text, std::size_t mark) {
  const std::string_view whole = text.text;
  const std::size_t begin = text.marks[mark].offset;
  const std::size_t end = mark + 1 < text.marks.size() ? text.marks[mark + 1].offset : whole.size();
  std::string_view line = whole.substr(begin, end - begin);
  while (line.ends_with('\n')) line.remove_suffix(1);
  return line;
}

// Whether nearly all lines have one, of few hosts with several lines each. A single line may open
// so by itself: "Training: 5%|".
bool has_hosts(const LogText& text) {
  constexpr std::size_t kMostHosts = 4096;
  constexpr std::size_t kLeastLines = 3;
  std::map<std::string_view, std::size_t> hosts;
  std::size_t without = 0;
  const std::size_t lines = text.marks.size();
  for (std::size_t i = 0; i < lines; ++i) {
    const std::string_view host = host_prefix(line_of(text, i));
    if (host.empty()) ++without;
    if (!host.empty() && hosts.size() < kMostHosts) ++hosts[host];
  }
  return !hosts.empty() && without * 20 < lines && hosts.size() * kLeastLines <= lines;
}

class LogImport {
 public:
  explicit LogImport(ImportedFile& file) : file_(file), counts_(kImporters.size(), 0) {}

  void read(std::string bytes, RunFindings& findings);
  std::int64_t understood() const { return understood_; }

 private:
  using Readers =
      std::vector<std::unique_ptr<LogLineReader>>;  // null for formats that are no lines
  void read_process(const LogText& text, RunFindings& findings);
  void read_line(std::string_view line,
                 const LogPlace& place,
                 Readers& readers,
                 RunFindings& findings);
  void read_errors(const std::vector<LogText>& texts, RunFindings& findings);

  ImportedFile& file_;
  std::vector<std::int64_t> counts_;
  std::int64_t understood_ = 0;
};

void LogImport::read_line(std::string_view line,
                          const LogPlace& place,
                          Readers& readers,
                          RunFindings& findings) {
  ++file_.lines;
  for (std::size_t i = 0; i < readers.size(); ++i) {
    if (!readers[i]) continue;
    const LineOutcome outcome = readers[i]->read(line, place, findings);
    if (outcome == LineOutcome::not_mine) continue;
    ++counts_[i];
    ++understood_;
    return;
  }
  ++file_.skipped;
}

void LogImport::read_process(const LogText& text, RunFindings& findings) {
  Readers readers;
  for (const Importer& importer : kImporters) {
    readers.push_back(importer.lines == nullptr ? nullptr : importer.lines());
  }
  const bool hosts = has_hosts(text);
  for (std::size_t i = 0; i < text.marks.size(); ++i) {
    std::string_view line = line_of(text, i);
    if (hosts) line.remove_prefix(host_prefix(line).size());
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string_view::npos) continue;
    read_line(line.substr(begin), {text.rank, text.marks[i].line}, readers, findings);
  }
  for (const auto& reader : readers) {
    if (reader) reader->finish(findings);
  }
}

// A run that met one of these did not fit.
void LogImport::read_errors(const std::vector<LogText>& texts, RunFindings& findings) {
  const std::vector<OomEvent> events = read_oom_text(texts);
  if (events.empty()) return;
  findings.fits = false;
  const OomEvent& first = events.front();
  findings.note(fmt::format("it ran out of memory ({}, line {}): zeroplan explain says more",
                            zeroplan::name(kOomKindNames, first.kind),
                            first.line));
  file_.formats.push_back({"out-of-memory",
                           "out-of-memory errors",
                           "errors",
                           static_cast<std::int64_t>(events.size())});
  ++understood_;
}

void LogImport::read(std::string bytes, RunFindings& findings) {
  const std::vector<LogText> texts = split_log(std::move(bytes));
  for (const LogText& text : texts) read_process(text, findings);
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    const Importer& importer = kImporters[i];
    if (counts_[i] > 0) {
      file_.formats.push_back({importer.format, importer.what, importer.unit(), counts_[i]});
    }
  }
  read_errors(texts, findings);
}

// --- documents and bytes

bool opens_document(std::string_view bytes) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (bytes.starts_with(kByteOrderMark)) bytes.remove_prefix(kByteOrderMark.size());
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && (bytes[first] == '{' || bytes[first] == '[');
}

void read_document(const Json& document, ImportedFile& file, RunFindings findings) {
  for (const Importer& importer : kImporters) {
    if (importer.document.recognise == nullptr || !importer.document.recognise(document)) continue;
    importer.document.read(document, findings);
    file.formats.push_back({importer.format, importer.what, importer.unit(), 1});
    file.runs.push_back({file.file, std::move(findings)});
    return;
  }
  Phrase hint;
  if (document.find("zero_optimization") != nullptr) {
    hint = "a ds_config.json measures nothing; --ds-config says it of a log";
  } else if (document.find("measured") != nullptr) {
    hint = "this is a measurement already: zeroplan validate reads it";
  } else if (document.find("ds_config") != nullptr) {
    hint = "an experiment's metrics.json stands beside its exp.json: give the folder";
  }
  not_recognised(file.file, "a JSON document of another kind", hint);
}

bool read_binary(std::string_view bytes, ImportedFile& file, const RunFindings& empty) {
  for (const Importer& importer : kImporters) {
    if (importer.bytes.recognise == nullptr || !importer.bytes.recognise(bytes)) continue;
    RunFindings findings = empty;
    importer.bytes.read(bytes, findings);
    file.formats.push_back({importer.format, importer.what, importer.unit(), 1});
    file.runs.push_back({file.file, std::move(findings)});
    return true;
  }
  return false;
}

void refuse_packed(std::string_view bytes, const std::string& file) {
  struct Magic {
    std::string_view bytes, what, hint;
  };
  constexpr std::array<Magic, 3> kMagics = {{
      {"\x1f\x8b", "a gzip file", "gunzip it first"},
      {"PK\x03\x04", "a zip file", "unzip it first"},
      {"\x28\xb5\x2f\xfd", "a zstd file", "unzstd it first"},
  }};
  for (const Magic& magic : kMagics) {
    if (bytes.starts_with(magic.bytes)) {
      not_recognised(file, std::string(magic.what), std::string(magic.hint));
    }
  }
}

ImportedFile import_folder(const std::string& path, const Scenario& given) {
  ImportedFile result;
  result.file = path;
  const std::vector<std::string> folders = autotuning_experiments(path);
  if (folders.empty()) {
    not_recognised(path,
                   "a folder without an exp.json in it",
                   phrase("logs are given by their names: {}", path + "/*.log"));
  }
  for (const std::string& folder : folders) {
    AutotuningExperiment experiment =
        read_autotuning_experiment(folder, findings_with(given, folder));
    result.runs.push_back({experiment.name, std::move(experiment.findings)});
  }
  result.formats.push_back({"deepspeed-autotuning",
                            "DeepSpeed's autotuner",
                            "experiments",
                            static_cast<std::int64_t>(folders.size())});
  return result;
}

}  // namespace

ImportedFile import_bytes(std::string bytes, const std::string& file, const Scenario& given) {
  ImportedFile result;
  result.file = file;
  const RunFindings empty = findings_with(given, file);
  refuse_packed(bytes, file);
  if (read_binary(bytes, result, empty)) return result;
  std::optional<InputError> no_document;
  if (opens_document(bytes)) {
    try {
      JsonOptions options;
      options.max_values =
          std::clamp(std::ssize(bytes) / kTracedValueBytes, kMostRecordedValues, kMostTracedValues);
      read_document(parse_json(bytes, file, options).root, result, empty);
      return result;
    } catch (const InputError& error) {
      no_document = error;  // a log may open with a brace, too
    }
  }
  RunFindings findings = empty;
  LogImport log(result);
  log.read(std::move(bytes), findings);
  if (log.understood() == 0) {
    if (no_document) throw InputError(*no_document);
    not_recognised(
        file, result.lines == 0 ? "no text" : phrase("{} lines of no known format", result.lines));
  }
  result.runs.push_back({file, std::move(findings)});
  return result;
}

ImportedFile import_file(const std::string& path, const Scenario& given) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return import_folder(path, given);
  const std::filesystem::path name(path);
  if (name.filename() == "exp.json" || name.filename() == "metrics.json") {
    const std::string folder = name.has_parent_path() ? name.parent_path().string() : ".";
    if (!autotuning_experiments(folder).empty()) return import_folder(folder, given);
  }
  return import_bytes(read_text_file(path, kLargestFile), path, given);
}

}  // namespace zeroplan::evidence
