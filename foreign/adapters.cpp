#include "foreign/adapters.hpp"

#include <string>
#include <utility>
#include <vector>

#include "base/written_names.hpp"
#include "foreign/setting_table.hpp"
#include "model/plan/scenario_reader.hpp"

namespace zeroplan::foreign {
namespace {

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

std::string_view lora_by_default(Tool tool) {
  for (const DefaultRow& row : default_rows()) {
    const bool its = is_named_in(row.tools, name(kToolNames, tool));
    if (its && row.key == ScenarioKey::method) return row.says;
  }
  return "";
}

// peft's "all-linear", which LLaMA-Factory calls "all".
void add_targets(Tool tool, const Json* said, Json& settings) {
  const std::vector<std::string> targets =
      said == nullptr ? std::vector<std::string>() : names_in(*said);
  const bool all = targets.size() == 1 && (targets[0] == "all" || targets[0] == "all-linear");
  const bool unsaid = targets.empty() && adapts_by_default(tool);
  if (all || unsaid) {
    settings["targets"] = "all-linear";
  } else if (!targets.empty()) {
    settings["targets"] = *said;
  }
}

// LLaMA-Factory (hparams/model_args.py), axolotl (loaders/model.py) and swift (quant_args.py)
// quantise scales again unless they are told not to; transformers and TRL do not.
void add_quantization(Tool tool, const Json& said, Json& settings, Meaning& meaning) {
  if (const Json* code = said.find("quant")) settings["quant"] = text_of(*code);
  if (const Json* twice = said.find("double_quant")) {
    settings["double_quant"] = *twice;
  } else if (tool == Tool::axolotl || adapts_by_default(tool)) {
    settings["double_quant"] = true;
    meaning.assumed.push_back(
        phrase("scales of the four-bit weights are quantised again: {}'s default", own_name(tool)));
  }
}

Json lora_settings(Tool tool, const Json& said, bool four_bits, Meaning& meaning) {
  Json settings = Json::object();
  if (const Json* rank = said.find("rank")) {
    settings["rank"] = count_of(*rank);
  } else if (adapts_by_default(tool)) {
    settings["rank"] = 8;
    meaning.assumed.push_back(phrase("lora_rank 8: {}'s default", own_name(tool)));
  }
  if (const Json* dropout = said.find("dropout")) settings["dropout"] = *dropout;
  if (const Json* upcast = said.find("upcast")) settings["upcast"] = *upcast;
  add_targets(tool, said.find("targets"), settings);
  if (four_bits) add_quantization(tool, said, settings, meaning);
  return settings;
}

}  // namespace

void finish_adapters(Tool tool, const SaidParts& said, Meaning& meaning) {
  const Json& parts = said.object;
  std::string method = parts.find("kind") == nullptr ? "" : text_of(*parts.find("kind"));
  if (method.empty() && adapts_by_default(tool) && said.last) {
    method = "lora";
    meaning.assumed.emplace_back(lora_by_default(tool));
  }
  if (method.empty() && said.last) {
    meaning.assumed.push_back(
        phrase("{} without a word for adapters (use_peft, adapter): full fine-tuning, as the "
               "program trains then",
               said.last->name));
  }
  if (method.empty() || meaning.scenario.find(ScenarioKey::method) != nullptr) return;
  const Origin origin{said.last->file, said.last->name};
  if (method != "lora" && method != "qlora") {
    meaning.scenario.set(
        ScenarioKey::method, parse_flag(info(ScenarioKey::method), method), origin);
    return;
  }
  const Json* bits = parts.find("bits");
  const Json* switched = parts.find("four_bits");
  // swift's quant_bits are 4 where quant_method alone is said.
  const bool four_bits = method == "qlora" || (bits != nullptr && is_four(*bits)) ||
                         (switched != nullptr && is_on(*switched)) ||
                         (tool == Tool::swift && parts.find("maker") != nullptr);
  Json settings = lora_settings(tool, parts, four_bits, meaning);
  meaning.scenario.set(ScenarioKey::method,
                       Json::object({{four_bits ? "qlora" : "lora", std::move(settings)}}),
                       origin);
}

}  // namespace zeroplan::foreign
