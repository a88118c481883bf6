// The knob table as text: names of its enums, rows for `zeroplan knobs`, docs/knobs.md.
#include "model/knobs/knobs.hpp"

namespace zeroplan {
namespace {

std::string heading(const KnobRow& row) {
  const std::string_view pointer = row.pointer.substr(1);
  const std::size_t last = pointer.rfind('/');
  return last == std::string_view::npos ? "top level" : std::string(pointer.substr(0, last));
}

std::string code(std::string_view text) {
  if (text.empty()) return "";
  std::string quoted(1, '`');
  quoted += text;
  quoted += '`';
  return quoted;
}

void append(std::string& list, std::string_view separator, std::string_view item) {
  if (!list.empty()) list += separator;
  list += item;
}

std::string type_text(const KnobRow& row) {
  if (row.allowed.empty()) return std::string(name(row.type));
  std::string text;
  for (const std::string_view allowed : row.allowed) append(text, ", ", code(allowed));
  return text;
}

std::string default_text(const KnobRow& row) {
  std::string text = row.default_value.is_none() ? "" : code(to_string(row.default_value));
  if (row.default_value.kind == KnobLiteral::Kind::text && row.default_value.text.empty()) {
    text = "`\"\"`";
  }
  if (!row.stage3_default.is_none()) {
    append(text, "; ", code(to_string(row.stage3_default)) + " with stage 3");
  }
  for (const OlderDefault& older : row.older) {
    const std::string until = older.before == Version{} ? "up to " + std::string(name(older.until))
                                                        : "before " + to_string(older.before);
    append(text, "; ", until + " " + code(to_string(older.value)));
  }
  if (row.added != Version{}) {
    append(text, "; ", "since " + to_string(row.added));
  } else if (row.since != DeepSpeedVersion::v0_12) {
    append(text, "; ", "since " + std::string(name(row.since)));
  }
  if (row.removed != Version{}) append(text, "; ", "refused since " + to_string(row.removed));
  return text;
}

std::string automatic_text(const KnobRow& row) {
  return std::string(describe(row.automatic)) + (row.trainer_owned ? " (Trainer)" : "");
}

std::string stages_text(StageSet stages) {
  std::string text;
  for (int stage = 0; stage <= 3; ++stage) {
    if (stages.contains(stage)) append(text, ", ", std::to_string(stage));
  }
  return stages.bits == kEveryStage.bits ? "all" : text;
}

std::string affects_text(const KnobRow& row) {
  std::string text;
  if (row.affects.gpu_memory) append(text, ", ", "GPU memory");
  if (row.affects.host_memory) append(text, ", ", "host memory");
  if (row.affects.time) append(text, ", ", "time");
  return text.empty() ? "nothing" : text;
}

std::string other_names_text(const KnobRow& row) {
  std::string text;
  for (const KnobAlias& alias : row.aliases) {
    append(text, ", ", code(alias.pointer));
    if (alias.kind != AliasKind::alternative) text += " (old)";
  }
  return text;
}

// `|` would end a cell.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

constexpr std::string_view kIntroduction =
    R"(# Keys of ds_config.json

Generated from the table in configs/knobs.json; `UPDATE_GOLDEN=1` and the unit tests write it anew.

- **Default**: of DeepSpeed 0.19.6, then what differs with stage 3 or in older releases, and since
  which described release (0.12, 0.14, 0.16 to 0.19) the key is read. Empty: derived or absent.
- **auto**: what the value "auto" becomes. *(Trainer)*: the Hugging Face Trainer owns the value, and
  files written for it say "auto". Empty: nobody replaces it.
- **Stages**: ZeRO stages where the key does something.
- **Modelled**: "no" means that the key is read, kept and reported, without influence on predictions.
- Sizes of buckets, sub-groups and thresholds count elements, not bytes.
- Sources are files under `deepspeed/` of DeepSpeed 0.19.6 and the symbol there.
)";

}  // namespace

std::string_view name(KnobType type) {
  constexpr std::array<std::string_view, 6> kNames = {
      "boolean", "integer", "real", "text", "list", "object"};
  return kNames[static_cast<std::size_t>(type)];
}

std::string_view name(KnobUnit unit) {
  constexpr std::array<std::string_view, 9> kNames = {
      "", "elements", "bytes", "samples", "micro-batches", "steps", "ranks", "seconds", "ratio"};
  return kNames[static_cast<std::size_t>(unit)];
}

std::string_view describe(AutoRule rule) {
  switch (rule) {
    case AutoRule::unresolved:
      return "";
    case AutoRule::dropped:
      return "default";
    case AutoRule::accelerate_default:
      return "default, or what accelerate's plugin says";
    case AutoRule::micro_batch_size:
      return "per_device_train_batch_size";
    case AutoRule::gradient_accumulation_steps:
      return "gradient_accumulation_steps";
    case AutoRule::train_batch_size:
      return "micro-batch x accumulation x ranks";
    case AutoRule::max_grad_norm:
      return "max_grad_norm";
    case AutoRule::learning_rate:
      return "learning_rate";
    case AutoRule::adam_betas:
      return "adam_beta1 and adam_beta2";
    case AutoRule::adam_epsilon:
      return "adam_epsilon";
    case AutoRule::weight_decay:
      return "weight_decay";
    case AutoRule::zero:
      return "0";
    case AutoRule::warmup_steps:
      return "warmup_steps or warmup_ratio";
    case AutoRule::total_steps:
      return "optimizer steps of the job";
    case AutoRule::fp16_flag:
      return "--fp16";
    case AutoRule::bf16_flag:
      return "--bf16";
    case AutoRule::apex_flag:
      return "--fp16 with Apex";
    case AutoRule::apex_level:
      return "fp16_opt_level";
    case AutoRule::hidden_squared:
      return "hidden size squared";
    case AutoRule::hidden_squared_0_9:
      return "0.9 x hidden size squared (stage 3)";
    case AutoRule::hidden_times_10:
      return "10 x hidden size (stage 3)";
    case AutoRule::pipeline_degree:
      return "pipeline stages of the run";
  }
  return "";
}

KnobReferenceRow reference_row(const KnobRow& row) {
  return {.section = heading(row),
          .key = std::string(row.pointer.substr(row.pointer.rfind('/') + 1)),
          .type = type_text(row),
          .unit = std::string(name(row.unit)),
          .default_value = default_text(row),
          .automatic = automatic_text(row),
          .stages = stages_text(row.stages),
          .affects = affects_text(row),
          .other_names = other_names_text(row),
          .modelled = row.modelled,
          .description = std::string(row.description),
          .source = std::string(row.source)};
}

std::vector<KnobReferenceRow> knob_reference() {
  std::vector<KnobReferenceRow> rows;
  rows.reserve(knob_rows().size());
  for (const KnobRow& row : knob_rows()) rows.push_back(reference_row(row));
  return rows;
}

std::string knob_reference_markdown() {
  std::string text(kIntroduction);
  std::string section;
  for (const KnobReferenceRow& row : knob_reference()) {
    if (row.section != section) {
      section = row.section;
      text +=
          "\n## " + section +
          "\n\n| Key | Type | Default | auto | Stages | Affects | Modelled | Meaning | Source |\n"
          "|---|---|---|---|---|---|---|---|---|\n";
    }
    const std::string unit = row.unit.empty() ? "" : ", " + row.unit;
    const std::string others = row.other_names.empty() ? "" : " Also " + row.other_names + ".";
    for (const std::string& part : {code(row.key),
                                    row.type + unit,
                                    row.default_value,
                                    row.automatic,
                                    row.stages,
                                    row.affects,
                                    std::string(row.modelled ? "yes" : "no"),
                                    row.description + others,
                                    code(row.source)}) {
      text += "| " + cell(part) + " ";
    }
    text += "|\n";
  }
  return text;
}

}  // namespace zeroplan
