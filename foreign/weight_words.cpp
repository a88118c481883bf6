#include "foreign/weight_words.hpp"

#include <optional>
#include <string>

#include "foreign/unplanned.hpp"

namespace zeroplan::foreign {

Became WeightWords::read(const SettingRow& row, const Setting& setting) {
  if (row.rule == Rule::half) return read_half(row, setting);
  if (row.rule == Rule::pure_bf16) {
    if (is_on(setting.value)) pure_bf16_ = &setting;
    return {Use::later};
  }
  // Of swift the format of the weights is that of the arithmetic, too.
  const std::string said = text_of(setting.value);
  if (tool_ == Tool::swift && said != "auto") return set(ScenarioKey::precision, said, setting);
  dtype_ = &setting;
  return {Use::later};
}

bool WeightWords::says(ScenarioKey key, const char* value) const {
  const ExplicitValue* said = meaning_.scenario.find(key);
  return said != nullptr && said->value == Json(value);
}

// Both off: 32 bits, and a ds_config that says otherwise is the Trainer's error.
Became WeightWords::read_half(const SettingRow& row, const Setting& setting) {
  if (is_on(setting.value)) return set(ScenarioKey::precision, Json(row.names), setting);
  (row.names == "bf16" ? no_bf16_ : no_fp16_) = &setting;
  return {Use::taken};
}

void WeightWords::finish_precision() {
  const bool open = meaning_.scenario.find(ScenarioKey::precision) == nullptr;
  if (switched_off() && open) {
    file(*no_bf16_, set(ScenarioKey::precision, "fp32", *no_bf16_));
  }
}

// What weights are loaded in. DeepSpeed casts them. LLaMA-Factory makes what it trains fp32
// (model/adapter.py init_adapter), TRL's command and axolotl say a dtype where the file says
// none.
void WeightWords::finish(bool trl) {
  finish_precision();
  const bool casts = says(ScenarioKey::engine, "deepspeed");
  const bool full = says(ScenarioKey::method, "full");
  const bool adapters = meaning_.scenario.find(ScenarioKey::method) != nullptr && !full;
  if (pure_bf16_ != nullptr && casts) {
    refuse(*pure_bf16_, "weights and optimizer states all in bf16 under DeepSpeed");
  }
  if (pure_bf16_ != nullptr) {
    file(*pure_bf16_, set(ScenarioKey::weights_dtype, "pure-bf16", *pure_bf16_));
    meaning_.scenario.set(ScenarioKey::precision, "bf16", {pure_bf16_->file, pure_bf16_->name});
  } else if (dtype_ != nullptr) {
    finish_dtype(*dtype_, casts);
  } else if (tool_ == Tool::llama_factory && !casts && full) {
    meaning_.assume(ScenarioKey::weights_dtype,
                    "fp32",
                    "weights in fp32: LLaMA-Factory makes what it trains fp32");
  } else if (tool_ == Tool::axolotl && !casts && !adapters &&
             says(ScenarioKey::precision, "bf16")) {
    meaning_.assume(ScenarioKey::weights_dtype,
                    "bf16",
                    "weights in bf16: axolotl loads them so where bf16 is on");
  } else if (trl && !casts && !adapters) {
    meaning_.assume(
        ScenarioKey::weights_dtype, "fp32", "weights in fp32: dtype float32 is TRL's default");
  }
}

void WeightWords::finish_dtype(const Setting& setting, bool casts) {
  const std::string text = text_of(setting.value);
  const SettingRow& row = *find_row("dtype", tool_);
  const std::optional<Json> ours =
      read_value(row, Json(text.starts_with("torch.") ? text.substr(6) : text));
  const std::string format = ours ? text_of(*ours) : "";
  // "auto" is the checkpoint's.
  const bool known = row.words->find(format) != nullptr;
  if (!known || casts) {
    file(setting, {Use::taken, casts ? Phrase("DeepSpeed casts to its own format") : Phrase("")});
    return;
  }
  const bool pure = switched_off() && format == "bf16";
  if (pure) meaning_.scenario.set(ScenarioKey::precision, "bf16", {setting.file, setting.name});
  file(setting, set(ScenarioKey::weights_dtype, pure ? "pure-bf16" : format, setting));
}

}  // namespace zeroplan::foreign
