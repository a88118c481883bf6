// Rules about who reads the file: keys that a release added or removed, and what the Hugging Face
// Trainer and accelerate refuse before DeepSpeed sees anything; see rules.hpp. Found by letting
// these libraries judge files (tests/reference/judge_ds_config.py).
#include <algorithm>
#include <array>
#include <span>

#include "base/units.hpp"
#include "model/knobs/rule_view.hpp"

namespace zeroplan::rules {
namespace {

// Releases within a described behaviour differ only for the newest one.
bool has_release(const View& view, const Version& version) {
  return view.is_at_least(kNewestDeepSpeed) && view.context().release >= version;
}

void removed_key(const View& view, Report& report) {
  for (const auto& [knob, value] : view.config().values()) {
    const KnobRow& row = knob_row(knob);
    if (row.removed == Version{} || !has_release(view, row.removed)) continue;
    report.at(knob, {to_string(row.removed)});
  }
}

void added_key(const View& view, Report& report) {
  for (const auto& [knob, value] : view.config().values()) {
    const KnobRow& row = knob_row(knob);
    if (row.added == Version{} || !view.is_at_least(row.since)) continue;  // rejected-key says it
    if (has_release(view, row.added)) continue;
    const auto section = find_section(row.pointer.substr(0, row.pointer.rfind('/')));
    const std::string since = to_string(row.added);
    if (section && section->strict_since) {
      report.at(knob, {since});
    } else {
      report.as(Severity::warning, knob, {since}, 1);
    }
  }
}

// --- the Trainer and accelerate

// accelerate goes through the whole document before deepspeed.initialize and refuses an "auto" for
// which neither it nor the Trainer has a value, although DeepSpeed would drop it in its sections.
void auto_left_over(const View& view, Report& report) {
  if (view.context().style != ConfigStyle::hf_trainer) return;
  // accelerate's plugin writes its own numbers over these two.
  constexpr std::array kPlugin = {Knob::zero_stage, Knob::steps_per_print};
  constexpr std::array kNobody = {
      AutoRule::unresolved, AutoRule::dropped, AutoRule::pipeline_degree};
  for (const auto& [knob, value] : view.config().values()) {
    if (!view.config().is_auto(knob) ||
        std::find(kPlugin.begin(), kPlugin.end(), knob) != kPlugin.end()) {
      continue;
    }
    const KnobRow& row = knob_row(knob);
    if (std::find(kNobody.begin(), kNobody.end(), row.automatic) != kNobody.end()) {
      report.at(knob);
    }
  }
  for (const UnknownKey& key : view.config().unknown()) {
    if (key.value.is_string() && key.value.as_string() == "auto") report.at(key.pointer);
  }
}

bool is_zero_key(std::string_view pointer) { return pointer.starts_with("/zero_optimization"); }

void zero_section_missing(const View& view, Report& report) {
  if (view.context().style != ConfigStyle::hf_trainer) return;
  const auto& values = view.config().values();
  const auto& unknown = view.config().unknown();
  const bool any =
      std::any_of(values.begin(),
                  values.end(),
                  [](const auto& entry) { return is_zero_key(pointer_of(entry.first)); }) ||
      std::any_of(unknown.begin(), unknown.end(), [](const UnknownKey& key) {
        return is_zero_key(key.pointer);
      });
  if (any) return;
  report.at("/zero_optimization");
}

// The Trainer multiplies its own arguments and compares: a given total must be a multiple of what
// is known.
void trainer_batch(const View& view, Report& report) {
  if (view.context().style != ConfigStyle::hf_trainer) return;
  const bool both_given = view.is_given(Knob::train_micro_batch_size_per_gpu) &&
                          view.is_given(Knob::gradient_accumulation_steps);
  if (!view.config().is_set(Knob::train_batch_size) &&
      !view.config().is_set(Knob::train_micro_batch_size_per_gpu)) {
    report.at(Knob::train_micro_batch_size_per_gpu);
  }
  const auto train = view.integer(Knob::train_batch_size);
  // batch-identity judges what is given
  if (!train || both_given || !view.context().ranks_known) return;
  const std::int64_t known = detail::checked_product(
      detail::checked_product(view.integer(Knob::train_micro_batch_size_per_gpu).value_or(1),
                              view.integer(Knob::gradient_accumulation_steps).value_or(1)),
      view.data_parallel());
  if (*train % known == 0) return;
  report.at(Knob::train_batch_size, {std::to_string(known), std::to_string(*train)}, 1);
}

// --- values that are read as their author meant them, and that DeepSpeed refuses

bool is_one_of(std::string_view pointer, std::span<const std::string_view> pointers) {
  return std::find(pointers.begin(), pointers.end(), pointer) != pointers.end();
}

bool is_refused_in_section(const View& view, std::string_view pointer) {
  const auto section = find_section(pointer.substr(0, pointer.rfind('/')));
  return section && section->strict_since && view.is_at_least(*section->strict_since);
}

// null where pydantic wants a value, and where a section is asked for its keys; a few are optional.
void refused_null(const View& view, Report& report) {
  constexpr std::array<std::string_view, 5> kOptional = {"/zero_optimization/overlap_comm",
                                                         "/zero_optimization/offload_param",
                                                         "/zero_optimization/offload_optimizer",
                                                         "/bf16",
                                                         "/aio"};
  for (const Finding& note : view.config().notes()) {
    if (note.code != note_code::kNullValue || is_one_of(note.pointer, kOptional)) continue;
    const bool section = find_section(note.pointer).has_value();
    if (!section && !is_refused_in_section(view, note.pointer)) continue;
    report.at(note.pointer);
  }
}

// DeepSpeed computes with these as they stand, and the Trainer compares them with numbers.
void refused_quotes(const View& view, Report& report) {
  constexpr std::array<std::string_view, 5> kNumbers = {"/train_batch_size",
                                                        "/train_micro_batch_size_per_gpu",
                                                        "/gradient_accumulation_steps",
                                                        "/wall_clock_breakdown",
                                                        "/flops_profiler/enabled"};
  for (const Finding& note : view.config().notes()) {
    if (note.code != note_code::kQuotedValue || !is_one_of(note.pointer, kNumbers)) continue;
    report.at(note.pointer);
  }
}

void refused_spelling(const View& view, Report& report) {
  constexpr std::array<std::string_view, 4> kExact = {"/zero_optimization/offload_param/device",
                                                      "/zero_optimization/offload_optimizer/device",
                                                      "/communication_data_type",
                                                      "/seq_parallel_communication_data_type"};
  constexpr std::string_view kGone = "/zero_optimization/cpu_offload_params";
  for (const Finding& note : view.config().notes()) {
    const bool inside_zero = is_zero_key(note.pointer);
    if (note.code == note_code::kOtherSpelling && is_one_of(note.pointer, kExact)) {
      report.at(note.pointer, note.arguments, 0);
    } else if (note.code == note_code::kConflictingKeys && inside_zero) {
      report.at(note.pointer, {}, 1);
    } else if (note.code == note_code::kDeprecatedKey && note.pointer == kGone) {
      report.at(note.pointer, {}, 2);
    }
  }
}

void refused_section(const View& view, Report& report) {
  const bool trainer = view.context().style == ConfigStyle::hf_trainer;
  for (const Finding& note : view.config().notes()) {
    if (note.code == note_code::kAutoSection) {
      report.at(note.pointer);
    } else if (note.code == note_code::kBooleanZero && trainer) {
      report.at(note.pointer, {}, 1);
    }
  }
}

void zero_values(const View& view, Report& report) {
  if (!view.acts(ReleaseRule::refuses_empty_buckets)) return;
  if (view.integer(Knob::reduce_bucket_size) == 0) {
    report.at(Knob::reduce_bucket_size);
  }
  if (view.config().boolean(Knob::compute_grad_norm) == false && view.stage() != 1 &&
      view.stage() != 2) {
    report.at(Knob::compute_grad_norm, {}, 1);
  }
}

constexpr std::array kReaderRules = {
    Rule{{.code = "removed-key",
          .severity = Severity::error,
          .summary = "no key is of a feature that the release has removed",
          .cost = "DeepSpeed stops, even where the feature is off",
          .texts = {{"DeepSpeed {0} removed the feature, and refuses its keys even where they "
                     "switch it off",
                     "remove it, or run an older DeepSpeed"}},
          .source = "runtime/config.py:_reject_removed_config_keys"},
         removed_key},
    Rule{{.code = "added-key",
          .severity = Severity::error,
          .summary = "the release knows every key",
          .cost = "DeepSpeed stops, or ignores the key",
          .texts =
              {{"the key is read since DeepSpeed {0} and refused before", "remove it or upgrade"},
               {"the key is read since DeepSpeed {0} and ignored before", "remove it or upgrade"}},
          .source = "runtime/zero/config.py:DeepSpeedZeroConfig"},
         added_key},
    Rule{{.code = "auto-left-over",
          .severity = Severity::error,
          .summary = "under the Trainer \"auto\" stands only where somebody fills it",
          .cost = "accelerate stops: ... not found in kwargs",
          .texts = {{"neither the Trainer nor accelerate has a value for \"auto\" here",
                     "write a value or leave the key out"}},
          .source = "accelerate/utils/dataclasses.py:DeepSpeedPlugin.fill_match"},
         auto_left_over},
    Rule{{.code = "zero-section-missing",
          .severity = Severity::error,
          .summary = "under the Trainer the file has a section zero_optimization",
          .cost = "accelerate stops: Please specify the ZeRO optimization config",
          .texts = {{"accelerate refuses a file without the section zero_optimization",
                     "write \"zero_optimization\": {\"stage\": 0} or the stage that is meant"}},
          .source = "accelerate/utils/dataclasses.py:DeepSpeedPlugin.__post_init__"},
         zero_section_missing},
    Rule{{.code = "trainer-batch",
          .severity = Severity::error,
          .summary = "under the Trainer the batch keys are there, and a total is the product of "
                     "its arguments",
          .cost = "the Trainer or DeepSpeed stops at the batch sizes",
          .texts = {{"the Trainer fills \"auto\" and adds no key: DeepSpeed gets no batch size",
                     "write \"train_micro_batch_size_per_gpu\": \"auto\""},
                    {"the Trainer computes train_batch_size as a multiple of {0}, which {1} is not",
                     "write \"auto\""}},
          .source = "transformers/integrations/deepspeed.py:trainer_config_process"},
         trainer_batch},
    Rule{{.code = "null-refused",
          .severity = Severity::error,
          .summary = "no key is null where DeepSpeed wants a value",
          .cost = "DeepSpeed stops with a message about types",
          .texts = {{"DeepSpeed refuses null here", "leave the key out"}},
          .source = "runtime/config_utils.py:DeepSpeedConfigModel"},
         refused_null},
    Rule{{.code = "quotes-refused",
          .severity = Severity::error,
          .summary = "numbers that DeepSpeed computes with have no quotes",
          .cost = "DeepSpeed stops with a message about types",
          .texts = {{"DeepSpeed computes with the text and stops", "remove the quotes"}},
          .source = "runtime/config.py:_batch_assertion"},
         refused_quotes},
    Rule{{.code = "spelling-refused",
          .severity = Severity::error,
          .summary = "names and values are spelled as DeepSpeed knows them",
          .cost = "DeepSpeed stops",
          .texts = {{"DeepSpeed does not know {0}", "write {1}"},
                    {"DeepSpeed refuses two names of one setting", "remove this key"},
                    {"DeepSpeed refuses this old name",
                     "write {\"device\": \"cpu\"} in offload_param"}},
          .source = "runtime/config_utils.py:DeepSpeedConfigModel._process_deprecated_field"},
         refused_spelling},
    Rule{{.code = "section-refused",
          .severity = Severity::error,
          .summary = "a section is an object",
          .cost = "the Trainer, accelerate or DeepSpeed stops with an AttributeError or TypeError",
          .texts = {{"\"auto\" stands for a value, not for a section",
                     "leave the section out or write its keys"},
                    {"accelerate reads zero_optimization as a section",
                     "write its stage in braces"}},
          .source = "accelerate/utils/deepspeed.py:HfDeepSpeedConfig.find_config_node"},
         refused_section},
    Rule{{.code = "zero-value-refused",
          .severity = Severity::error,
          .summary = "buckets hold something, and the norm is left out only at stages 1 and 2",
          .cost = "DeepSpeed stops",
          .texts = {{"a bucket holds at least one element", "write 500000000"},
                    {"false works only with stage 1 or 2", "remove the key"}},
          .source = "runtime/zero/config.py:DeepSpeedZeroConfig"},
         zero_values},
};

}  // namespace

std::span<const Rule> reader_rules() { return kReaderRules; }

}  // namespace zeroplan::rules
