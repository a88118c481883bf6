#include "foreign/adapters.hpp"

#include <charconv>
#include <utility>

#include "base/written_names.hpp"
#include "model/plan/scenario_reader.hpp"

namespace zeroplan::foreign {
namespace {

// A share as number or text; null where it is none.
Json share_of(const Json& value) {
  if (value.is_number()) return value.as_number();
  const std::string text = text_of(value);
  double share = 0.0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), share);
  const bool whole = error == std::errc() && stop == text.data() + text.size();
  return whole ? Json(share) : Json();
}

// 4, "4bit", "nf4", "int4".
bool is_four(const Json& value) {
  const std::string text = folded(text_of(value), "-_ ");
  return count_of(value) == 4 || text == "4bit" || text == "nf4" || text == "fp4" ||
         text == "int4" || text == "bnb4bit" || text == "bnb";
}

const char* own_name(Tool tool) {
  return tool == Tool::llama_factory ? "LLaMA-Factory"
         : tool == Tool::axolotl     ? "axolotl"
                                     : "swift";
}

bool adapts_by_default(Tool tool) { return tool == Tool::llama_factory || tool == Tool::swift; }

}  // namespace

void AdapterWords::read(Role role, const Setting& setting) {
  const Json& value = setting.value;
  if (role == Role::adapter) method_ = text_of(value);
  if (role == Role::use_adapter && is_on(value) && method_.empty()) method_ = "lora";
  if (role == Role::rank) rank_ = value;
  if (role == Role::dropout) dropout_ = share_of(value);
  if (role == Role::targets) targets_ = names_in(value);
  if (role == Role::all_targets && is_on(value)) targets_ = {"all"};
  if (role == Role::four_bits) four_bits_ = is_on(value);
  if (role == Role::bits) four_bits_ = four_bits_ || is_four(value);
  if (role == Role::quant_method) names_maker_ = true;
  if (role == Role::four_bit_code) code_ = text_of(value);
  if (role == Role::double_quant) double_quant_ = is_on(value);
  if (role == Role::bnb_arguments) read_bits(setting);
  said_ = setting;
}

// axolotl's bnb_config_kwargs: keywords of transformers' BitsAndBytesConfig.
void AdapterWords::read_bits(const Setting& setting) {
  if (const Json* code = setting.value.find("bnb_4bit_quant_type")) code_ = text_of(*code);
  if (const Json* twice = setting.value.find("bnb_4bit_use_double_quant")) {
    double_quant_ = is_on(*twice);
  }
}

// peft's "all-linear", which LLaMA-Factory calls "all".
void AdapterWords::add_targets(Tool tool, Json& settings) const {
  const bool all = targets_.size() == 1 && (targets_[0] == "all" || targets_[0] == "all-linear");
  const bool unsaid = targets_.empty() && adapts_by_default(tool);
  if (all || unsaid) {
    settings["targets"] = "all-linear";
  } else if (!targets_.empty()) {
    Json names = Json::array();
    for (const std::string& name : targets_) names.push_back(name);
    settings["targets"] = names;
  }
}

// LLaMA-Factory (hparams/model_args.py), axolotl (loaders/model.py) and swift (quant_args.py)
// quantise scales again unless they are told not to; transformers and TRL do not.
void AdapterWords::add_quantization(Tool tool, Json& settings, Meaning& meaning) const {
  if (!code_.is_null()) settings["quant"] = code_;
  if (!double_quant_.is_null()) {
    settings["double_quant"] = double_quant_;
  } else if (tool == Tool::axolotl || adapts_by_default(tool)) {
    settings["double_quant"] = true;
    meaning.assumed.push_back(
        phrase("scales of the four-bit weights are quantised again: {}'s default", own_name(tool)));
  }
}

Json AdapterWords::settings(Tool tool, bool four_bits, Meaning& meaning) const {
  Json settings = Json::object();
  if (!rank_.is_null()) {
    settings["rank"] = count_of(rank_);
  } else if (adapts_by_default(tool)) {
    settings["rank"] = 8;
    meaning.assumed.push_back(phrase("lora_rank 8: {}'s default", own_name(tool)));
  }
  if (!dropout_.is_null()) settings["dropout"] = dropout_;
  add_targets(tool, settings);
  if (four_bits) add_quantization(tool, settings, meaning);
  return settings;
}

void AdapterWords::finish(Tool tool, Meaning& meaning) const {
  std::string method = method_;
  if (method.empty() && adapts_by_default(tool) && said_) {
    method = "lora";
    meaning.assumed.emplace_back(kLoraByDefault[tool == Tool::swift ? 1 : 0]);
  }
  if (method.empty() || meaning.scenario.find(ScenarioKey::method) != nullptr) return;
  const Origin origin{said_->file, said_->name};
  if (method != "lora" && method != "qlora") {
    meaning.scenario.set(
        ScenarioKey::method, parse_flag(info(ScenarioKey::method), method), origin);
    return;
  }
  // swift's quant_bits are 4 where quant_method alone is said.
  const bool four_bits = method == "qlora" || four_bits_ || (tool == Tool::swift && names_maker_);
  Json settings = this->settings(tool, four_bits, meaning);
  meaning.scenario.set(ScenarioKey::method,
                       Json::object({{four_bits ? "qlora" : "lora", std::move(settings)}}),
                       origin);
}

}  // namespace zeroplan::foreign
