#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "evidence/importers/deepspeed_lines.hpp"
#include "evidence/importers/dotted_settings.hpp"

namespace zeroplan::evidence {
namespace {

// --- the configuration

constexpr std::size_t kLargestConfig = 1 << 20;

// How many braces stay open behind `text`, `open` of them before it; braces in strings do not
// count.
int open_braces(std::string_view text, int open) {
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && in_string) {
      ++i;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && c == '{') {
      ++open;
    } else if (!in_string && c == '}') {
      --open;
      if (open == 0) return 0;
    }
  }
  return open;
}

// The Trainer sets "steps_per_print" to infinity, which the encoder prints as no JSON has it.
std::string without_infinities(std::string text) {
  for (const std::string_view word : {": inf", ":inf", ": -inf", ": nan"}) {
    for (std::size_t at; (at = text.find(word)) != std::string::npos;) {
      text.replace(at, word.size(), ": null");
    }
  }
  return text;
}

void drop_nulls(Json& value) {
  std::vector<std::string> nulls;
  for (const auto& [key, member] : value.members()) {
    if (member.is_null()) nulls.push_back(key);
  }
  for (const std::string& key : nulls) value.erase(key);
}

class ConfigLines : public LogLineReader {
 public:
  LineOutcome read(std::string_view line, const LogPlace& place, RunFindings& findings) override;
  void finish(RunFindings& findings) override;

 private:
  LineOutcome add(std::string_view text, RunFindings& findings);
  LineOutcome take_document(RunFindings& findings);

  std::string document_;  // the lines so far
  int open_ = 0;          // braces
  LogPlace begin_;
};

LineOutcome ConfigLines::read(std::string_view line, const LogPlace& place, RunFindings& findings) {
  if (open_ > 0) return add(line, findings);
  constexpr std::string_view kVersion = "DeepSpeed info: version=";
  if (const std::size_t at = line.find(kVersion); at != std::string_view::npos) {
    const std::string_view rest = line.substr(at + kVersion.size());
    const std::size_t end = rest.find_first_not_of("0123456789.");
    std::string_view version = rest.substr(0, end);
    while (version.ends_with('.')) version.remove_suffix(1);
    if (!version.empty()) findings.state(ScenarioKey::deepspeed_version, version, place);
    return LineOutcome::understood;
  }
  constexpr std::string_view kJson = "json = {";
  if (const std::size_t at = line.find(kJson); at != std::string_view::npos) {
    begin_ = place;
    return add(line.substr(at + kJson.size() - 1), findings);
  }
  const std::optional<DottedSetting> setting = dotted_setting(line);
  if (!setting || line.find("[config.py") == std::string_view::npos) return LineOutcome::not_mine;
  if (setting->name == "world_size") {
    findings.gpus = findings.gpus ? findings.gpus : setting->integer();
  } else if (setting->name == "train_batch_size") {
    findings.global_batch = findings.global_batch ? findings.global_batch : setting->integer();
  }
  return LineOutcome::understood;
}

LineOutcome ConfigLines::add(std::string_view text, RunFindings& findings) {
  document_ += text;
  document_ += '\n';
  open_ = open_braces(text, open_);
  if (open_ > 0 && document_.size() < kLargestConfig) return LineOutcome::understood;
  return take_document(findings);
}

LineOutcome ConfigLines::take_document(RunFindings& findings) {
  const std::string text = without_infinities(std::move(document_));
  document_.clear();
  open_ = 0;
  try {
    JsonDocument document = parse_json(text, findings.file());
    drop_nulls(document.root);
    findings.state_value(ScenarioKey::ds_config, std::move(document.root), begin_);
    findings.state(ScenarioKey::engine, "deepspeed", begin_);
    return LineOutcome::understood;
  } catch (const InputError&) {
    findings.bad(begin_,
                 "the document that DeepSpeed prints behind \"json = \"",
                 text.substr(0, text.find('\n')),
                 "lines of other processes between its lines? --ds-config FILE says it instead");
    return LineOutcome::bad;
  }
}

void ConfigLines::finish(RunFindings& findings) {
  if (open_ > 0) take_document(findings);
}

// --- the flops profiler

constexpr SeriesInfo kProfiledStep{Metric::step_seconds, "DeepSpeed's flops profiler", 8};

// "76.67 ms", "1.02 s", "34.09 us" (duration_to_string).
std::optional<double> duration_after(std::string_view line, std::string_view key) {
  const std::optional<double> number = number_after(line, key);
  if (!number) return std::nullopt;
  struct Unit {
    std::string_view name;
    double seconds;
  };
  constexpr std::array<Unit, 4> kUnits = {
      {{" ns", 1e-9}, {" us", 1e-6}, {" ms", 1e-3}, {" s", 1.0}}};
  const std::string_view behind = line.substr(line.find(key) + key.size());
  for (const Unit& unit : kUnits) {
    if (behind.find(unit.name) != std::string_view::npos) return *number * unit.seconds;
  }
  return std::nullopt;
}

// The other lines of the summary, as they begin.
bool is_label(std::string_view line) {
  constexpr std::array<std::string_view, 15> kBeginnings = {"Profile Summary at",
                                                            "Notations:",
                                                            "data parallel size",
                                                            "model parallel size",
                                                            "expert tensor parallelism",
                                                            "non-expert params",
                                                            "expert params",
                                                            "number of ",
                                                            "fwd",
                                                            "bwd",
                                                            "step latency:",
                                                            "step (weights update",
                                                            "FLOPS per GPU",
                                                            "samples/second:",
                                                            "samples/sec:"};
  for (const std::string_view beginning : kBeginnings) {
    if (line.starts_with(beginning)) return true;
  }
  return false;
}

class FlopsLines : public LogLineReader {
 public:
  LineOutcome read(std::string_view line, const LogPlace& place, RunFindings& findings) override;

 private:
  LineOutcome read_label(std::string_view line, const LogPlace& place, RunFindings& findings);
  bool inside_ = false;
};

LineOutcome FlopsLines::read(std::string_view line, const LogPlace& place, RunFindings& findings) {
  if (line.find("DeepSpeed Flops Profiler ---") != std::string_view::npos) {
    inside_ = true;
    return LineOutcome::understood;
  }
  if (!inside_) return LineOutcome::not_mine;
  if (line.find("Aggregated Profile") != std::string_view::npos) {
    inside_ = false;
    return LineOutcome::understood;
  }
  return read_label(line, place, findings);
}

LineOutcome FlopsLines::read_label(std::string_view line,
                                   const LogPlace& place,
                                   RunFindings& findings) {
  if (line.starts_with("world size:")) {
    if (!findings.gpus) findings.gpus = count_after(line, "world size:");
  } else if (line.starts_with("batch size per GPU:")) {
    if (const auto size = count_after(line, "batch size per GPU:")) {
      findings.state(ScenarioKey::micro_batch_size, std::to_string(*size), place);
    }
  } else if (line.starts_with("iter latency:")) {
    const std::optional<double> latency = duration_after(line, "iter latency:");
    if (!latency) {
      findings.bad(place, "iter latency: N ms", line);
      return LineOutcome::bad;
    }
    findings.sample(kProfiledStep, *latency, place);
    findings.note(
        "the flops profiler's step is forward, backward and optimizer of one step, slower for "
        "being "
        "profiled");
  } else if (line.starts_with("params per")) {
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos) {
      const std::size_t begin = line.find_first_not_of(' ', colon + 1);
      if (begin != std::string_view::npos) {
        std::string_view count = line.substr(begin);
        count = count.substr(0, count.find_last_not_of(" \t") + 1);
        findings.note(
            fmt::format("the flops profiler counts {} parameters on a GPU", printable(count)));
      }
    }
  } else {
    return is_label(line) ? LineOutcome::understood : LineOutcome::not_mine;
  }
  return LineOutcome::understood;
}

}  // namespace

std::unique_ptr<LogLineReader> deepspeed_config_lines() { return std::make_unique<ConfigLines>(); }

std::unique_ptr<LogLineReader> deepspeed_flops_lines() { return std::make_unique<FlopsLines>(); }

}  // namespace zeroplan::evidence
