// Rules about keys and values that DeepSpeed refuses before it looks at their meaning; see
// rules.hpp.
#include <array>

#include "base/diagnostic.hpp"
#include "model/knobs/rule_view.hpp"

namespace zeroplan::rules {
namespace {

// Comments and trailing commas are for DeepSpeed's hjson only; repeated keys are refused by it.
void unreadable_file(const View& view, Report& report) {
  const bool trainer = view.context().style == ConfigStyle::hf_trainer;
  for (const Finding& note : view.config().notes()) {
    const bool plain_json_only =
        note.code == note_code::kComments || note.code == note_code::kTrailingCommas;
    const bool twice = note.code == note_code::kDuplicateKey;
    if (trainer && plain_json_only) {
      report.at(note.pointer, {}, note.code == note_code::kComments ? 0 : 1);
    }
    if (!trainer && twice) report.at(note.pointer, {}, 2);
  }
}

std::string_view parent_of(std::string_view pointer) {
  return pointer.substr(0, pointer.rfind('/'));
}

bool is_refused_in(const View& view, std::string_view section) {
  const auto known = find_section(section);
  return known && known->strict_since && view.is_at_least(*known->strict_since);
}

// Unknown keys are refused only in sections that pydantic checks.
void rejected_key(const View& view, Report& report) {
  constexpr int kRefused = 3;  // the first of the texts that say so
  for (const Finding& note : view.config().notes()) {
    if (note.code != note_code::kRejectedKey || !is_refused_in(view, parent_of(note.pointer))) {
      continue;
    }
    report.at(note.pointer, note.arguments, kRefused + note.text);
  }
  for (const auto& [knob, value] : view.config().values()) {
    const KnobRow& row = knob_row(knob);
    if (view.is_at_least(row.since) || !is_refused_in(view, parent_of(row.pointer))) continue;
    report.at(knob, {"", std::string(name(row.since))}, 6);
  }
}

void newer_key(const View& view, Report& report) {
  for (const auto& [knob, value] : view.config().values()) {
    const KnobRow& row = knob_row(knob);
    if (view.is_at_least(row.since) || is_refused_in(view, parent_of(row.pointer))) continue;
    report.at(knob, {std::string(name(row.since))});
  }
}

// pydantic 1 cut a fraction off; pydantic 2, which 0.15 and later need, refuses it.
void refuse_fraction(std::string_view code, const View& view, Report& report) {
  if (!view.acts(ReleaseRule::needs_pydantic_2)) return;
  for (const Finding& note : view.config().notes()) {
    if (note.code == code) report.at(note.pointer, note.arguments, 1);
  }
}

void rounded_number(const View& view, Report& report) {
  refuse_fraction(note_code::kRoundedNumber, view, report);
}

void exponent_sign(const View& view, Report& report) {
  refuse_fraction(note_code::kExponentSign, view, report);
}

// Without the Trainer nobody replaces "auto". DeepSpeedConfigModel drops it before its fields are
// checked, so the default counts; everywhere else the text itself is computed with.
bool is_dropped_by_deepspeed(const View& view, const KnobRow& row) {
  const auto section = find_section(parent_of(row.pointer));
  return section && section->strict_since && view.is_at_least(*section->strict_since);
}

template <typename Visit>
void for_each_stray_auto(const View& view, Visit visit) {
  if (view.context().style == ConfigStyle::hf_trainer) return;
  for (const auto& [knob, value] : view.config().values()) {
    const KnobRow& row = knob_row(knob);
    if (!view.config().is_auto(knob) || row.automatic == AutoRule::unresolved) continue;
    visit(row, is_dropped_by_deepspeed(view, row));
  }
}

void auto_without_trainer(const View& view, Report& report) {
  for_each_stray_auto(view, [&](const KnobRow& row, bool dropped) {
    if (!dropped) report.at(row.id, {quoted(row.id)});
  });
}

void auto_means_default(const View& view, Report& report) {
  for_each_stray_auto(view, [&](const KnobRow& row, bool dropped) {
    if (!dropped) return;
    const std::string counts = to_string(view.default_of(row.id));
    report.at(row.id, {quoted(row.id), counts.empty() ? "none" : counts});
  });
}

// The reading's own row, so that text and cost stand once; the severity is the rule's.
Rule stricter(std::string_view code, void (*check)(const View&, Report&)) {
  return {reading_note(code), check};
}

}  // namespace

std::span<const Rule> file_rules() {
  static const std::array kFileRules = {
      Rule{{.code = "unreadable-file",
            .severity = Severity::error,
            .summary = "the file is one that its reader reads",
            .cost = "the run stops before the model is built",
            .texts = {{"the Trainer reads plain JSON, and the file has comments",
                       "remove the comments"},
                      {"the Trainer reads plain JSON, and the file has trailing commas",
                       "remove the trailing commas"},
                      {"DeepSpeed refuses a key that stands twice", "keep one of them"}},
            .source = "runtime/config_utils.py:dict_raise_error_on_duplicate_keys"},
           unreadable_file},
      stricter(note_code::kRejectedKey, rejected_key),
      stricter(note_code::kRoundedNumber, rounded_number),
      stricter(note_code::kExponentSign, exponent_sign),
      Rule{{.code = "newer-key",
            .severity = Severity::warning,
            .summary = "the release at hand reads every key",
            .cost = "the key does nothing",
            .texts = {{"the key is read since DeepSpeed {0} and ignored before",
                       "remove it or upgrade"}},
            .source = "runtime/config.py:_initialize_params"},
           newer_key},
      Rule{{.code = "auto-without-trainer",
            .severity = Severity::error,
            .summary = "without the Trainer no batch, precision, optimizer or scheduler key is "
                       "\"auto\"",
            .cost = "DeepSpeed computes with the text \"auto\": it stops, or takes it for true",
            .texts = {{"{0} is \"auto\", which only the Trainer or accelerate fills",
                       "write a value, or run under the Trainer (--frontend hf-trainer)"}},
            .source = "runtime/config.py:_batch_assertion"},
           auto_without_trainer},
      Rule{{.code = "auto-means-default",
            .severity = Severity::warning,
            .summary = "without the Trainer no key of ZeRO is \"auto\"",
            .cost = "DeepSpeed's default counts, not the size that fits the model's width",
            .texts = {{"{0} is \"auto\", which DeepSpeed drops: its default {1} counts",
                       "write a value, or leave the key out"}},
            .source = "runtime/config_utils.py:DeepSpeedConfigModel.__init__"},
           auto_means_default},
  };
  return kFileRules;
}

}  // namespace zeroplan::rules
