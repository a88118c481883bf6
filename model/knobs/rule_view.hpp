// Shared by the files of rules: what a rule asks and where it writes. Not for other code.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/written_names.hpp"
#include "model/knobs/ds_config.hpp"
#include "model/knobs/finding.hpp"
#include "model/knobs/rule_context.hpp"
#include "model/knobs/rule_info.hpp"
#include "model/release_table.hpp"
#include "model/releases.hpp"

namespace zeroplan::rules {

inline std::string lower(std::string_view text) { return folded(text, ""); }

// The value that DeepSpeed would see: what was said, else the default; nothing for an "auto" that
// the Trainer fills.
class View {
 public:
  View(const DsConfig& config, const RuleContext& context) : config_(config), context_(context) {
    stage_ = integer(Knob::zero_stage).value_or(0);
  }

  const DsConfig& config() const { return config_; }
  const RuleContext& context() const { return context_; }
  std::int64_t stage() const { return stage_; }
  bool is_given(Knob knob) const { return config_.is_set(knob) && !config_.is_auto(knob); }
  bool is_on(Knob knob) const { return get<bool>(knob).value_or(false); }
  std::optional<std::int64_t> integer(Knob knob) const { return get<std::int64_t>(knob); }
  std::optional<double> real(Knob knob) const { return get<double>(knob); }
  std::string text(Knob knob) const { return get<std::string>(knob).value_or(""); }

  bool is_offloaded(Knob device) const { return text(device) == "cpu" || text(device) == "nvme"; }
  // The optimizer's name as DeepSpeed compares it; empty where the script brings its own.
  std::string optimizer() const { return lower(text(Knob::optimizer_type)); }
  // "bf16", "fp16", "fp32"; empty where the Trainer decides.
  std::string model_format() const {
    if (config_.is_auto(Knob::fp16_enabled) || config_.is_auto(Knob::bf16_enabled)) return "";
    if (is_on(Knob::bf16_enabled)) return "bf16";
    if (is_on(Knob::fp16_enabled)) return "fp16";
    return context_.style == ConfigStyle::hf_trainer ? "" : "fp32";
  }
  bool is_at_least(DeepSpeedVersion version) const { return context_.deepspeed >= version; }
  // What DeepSpeed takes for a knob that the file does not say.
  KnobLiteral default_of(Knob knob) const {
    const int stage = static_cast<int>(stage_);
    return context_.deepspeed == kNewestDeepSpeed
               ? default_literal(knob, stage, context_.release)
               : default_literal(knob, stage, context_.deepspeed);
  }
  // Whether the described behaviour does what the rule says.
  bool acts(ReleaseRule rule) const {
    const bool newest = context_.deepspeed == kNewestDeepSpeed;
    return zeroplan::acts(rule, newest ? context_.release : first_release(context_.deepspeed));
  }
  std::int64_t data_parallel() const {
    return context_.world_size /
           (context_.tensor_parallel * context_.sequence_parallel * context_.pipeline_parallel);
  }

 private:
  template <typename T>
  std::optional<T> get(Knob knob) const {
    KnobValue value = config_.value(knob);
    const bool dropped = knob_row(knob).automatic <= AutoRule::accelerate_default;
    if (std::holds_alternative<Unset>(value) || (std::holds_alternative<Auto>(value) && dropped)) {
      value = to_value(default_of(knob));
    }
    if (const T* given = std::get_if<T>(&value)) return *given;
    return std::nullopt;
  }

  const DsConfig& config_;
  const RuleContext& context_;
  std::int64_t stage_ = 0;
};

// Where a rule writes what it found: a pointer, what fills the {0}, {1}, ... of its text, and
// which of its texts.
class Report {
 public:
  Report(const RuleInfo& info, std::vector<Finding>& findings) : info_(info), findings_(findings) {}

  void at(std::string_view pointer, std::vector<Phrase> arguments = {}, int text = 0) {
    add(info_.severity, pointer, std::move(arguments), text);
  }
  void at(Knob knob, std::vector<Phrase> arguments = {}, int text = 0) {
    at(pointer_of(knob), std::move(arguments), text);
  }
  // The same, milder or graver than the rule mostly is.
  void as(Severity severity, Knob knob, std::vector<Phrase> arguments = {}, int text = 0) {
    as(severity, pointer_of(knob), std::move(arguments), text);
  }
  void as(Severity severity,
          std::string_view pointer,
          std::vector<Phrase> arguments = {},
          int text = 0) {
    add(severity, pointer, std::move(arguments), text);
  }
  // Whether a rule before this one found an error there.
  bool has_error(std::string_view pointer) const {
    return std::any_of(findings_.begin(), findings_.end(), [&](const Finding& finding) {
      return finding.severity == Severity::error && finding.pointer == pointer;
    });
  }

 private:
  void add(Severity severity, std::string_view pointer, std::vector<Phrase> arguments, int text) {
    findings_.push_back(finding_of(info_, pointer, std::move(arguments), text, severity));
  }

  const RuleInfo& info_;
  std::vector<Finding>& findings_;
};

// The key without its section.
inline std::string quoted(Knob knob) {
  const std::string_view pointer = pointer_of(knob);
  return std::string(pointer.substr(pointer.rfind('/') + 1));
}

struct Rule {
  RuleInfo info;
  void (*check)(const View&, Report&);
};

// The row of a note of reading. Precondition: there is one of that code.
const RuleInfo& reading_note(std::string_view code);

std::span<const RuleInfo> reading_notes();  // rules_reading.cpp: what reading the file noticed
std::span<const Rule> file_rules();         // rules_file.cpp: keys and values DeepSpeed refuses
std::span<const Rule> batch_rules();        // rules_batch.cpp
std::span<const Rule> precision_rules();    // rules_precision.cpp: number formats
std::span<const Rule> zero_rules();         // rules_zero.cpp: stages and what goes with them
std::span<const Rule> offload_rules();      // rules_offload.cpp: host memory
std::span<const Rule> nvme_rules();         // rules_nvme.cpp
std::span<const Rule> optimizer_rules();  // rules_optimizer.cpp: optimizer, scheduler, activations
std::span<const Rule> effect_rules();     // rules_effect.cpp: keys that do nothing, or changed
std::span<const Rule> habit_rules();      // rules_habit.cpp: it runs, at a cost
std::span<const Rule> reader_rules();     // rules_reader.cpp: releases, the Trainer, accelerate

}  // namespace zeroplan::rules
