// The training method of a scenario: full fine-tuning, or low-rank adapters on a frozen model,
// whose weights may be stored in four bits; and, with it, the model as its implementation builds
// it.
#include <algorithm>
#include <array>
#include <cctype>

#include "base/described.hpp"
#include "model/families/hf_config.hpp"
#include "model/families/litgpt.hpp"
#include "model/implementations/lora.hpp"
#include "model/plan/packed_copy.hpp"
#include "model/plan/resolver.hpp"
#include "model/releases.hpp"

namespace zeroplan {
namespace {

constexpr std::int64_t kHighestRank = 65536;

void read_rank(Resolver& r, const Origin& origin, const Json& value) {
  if (value.is_integer() && value.as_integer() >= 1 && value.as_integer() <= kHighestRank) {
    r.plan.workload.lora.rank = value.as_integer();
    return;
  }
  r.problem({origin.file, origin.pointer + "/rank"},
            phrase("a whole number from 1 to {}", kHighestRank),
            described(value));
}

// What a module of PyTorch may be called, by itself or with those above it: model.layers.0.mlp.
bool is_module_name(std::string_view text) {
  constexpr std::size_t kLongest = 256;
  if (text.empty() || text.front() == '-' || text.front() == '.') return false;
  return text.size() <= kLongest && text.find("..") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return (std::isalnum(c) != 0 && c < 0x80) || c == '_' || c == '.' || c == '-';
         });
}

void read_names(Resolver& r,
                const Origin& origin,
                const Json& value,
                const std::string& example,
                std::vector<std::string>& names) {
  const bool good = value.is_array() &&
                    std::all_of(value.items().begin(), value.items().end(), [](const Json& item) {
                      return item.is_string();
                    });
  if (!good) {
    r.problem(origin, phrase("an array of {}", example), described(value));
    return;
  }
  for (std::size_t i = 0; i < value.items().size(); ++i) {
    const std::string& name = value.items()[i].as_string();
    if (!is_module_name(name)) {
      r.problem({origin.file, origin.pointer + "/" + std::to_string(i)},
                "a module's name of letters, digits, \"_\", \".\" and \"-\"",
                in_quotes(name));
    }
    names.push_back(name);
  }
}

void read_sub_targets(Resolver& r, const Origin& origin, const Json& value) {
  std::vector<std::string>& parts = r.plan.workload.lora.sub_targets;
  read_names(r, origin, value, "the parts \"q\", \"k\", \"v\"", parts);
  for (const std::string& part : parts) {
    if (part != "q" && part != "k" && part != "v") {
      r.problem(origin, "the parts \"q\", \"k\", \"v\"", in_quotes(part));
    }
  }
  if (!parts.empty() && r.plan.workload.implementation != Implementation::litgpt) {
    r.problem(origin, "implementation litgpt: peft adapts a fused projection as a whole", "parts");
  }
}

// "nf4", "fp4", or with double quantisation "nf4-dq", "fp4-dq" as litgpt spells it.
void read_quant(Resolver& r, const Origin& origin, const Json& value, bool& double_said) {
  constexpr std::string_view kDouble = "-dq";
  FourBitWeights& weights = r.plan.workload.lora.weights;
  std::string code = value.is_string() ? value.as_string() : "";
  const bool twice = code.ends_with(kDouble);
  if (twice) code.resize(code.size() - kDouble.size());
  const auto found = find(kFourBitCodeNames, std::string_view(code));
  if (!found) {
    r.problem(origin, "nf4, fp4, nf4-dq or fp4-dq", described(value));
    return;
  }
  weights.code = *found;
  if (twice) weights.double_quant = double_said = true;
}

void read_dropout(Resolver& r, const Origin& origin, const Json& value) {
  const std::optional<double> share =
      value.is_number() ? std::optional(value.as_number()) : std::nullopt;
  if (!share || !(*share >= 0.0) || *share >= 1.0) {
    r.problem(origin, "a number from 0, below 1", described(value));
    return;
  }
  r.plan.workload.lora.dropout = *share;
}

// peft's word for the targets; LLaMA-Factory has "all".
constexpr std::string_view kAllLinear = "all-linear";

bool is_all_linear(const Json& value) {
  const Json& word = value.is_array() && value.items().size() == 1 ? value.items()[0] : value;
  return word.is_string() && (word.as_string() == kAllLinear || word.as_string() == "all");
}

struct SaidSettings {
  bool rank = false;
  bool double_quant = false;
};

SaidSettings read_settings(Resolver& r, const Origin& origin, const Json& settings) {
  SaidSettings said;
  if (!settings.is_object()) {
    r.problem(origin, "an object {\"rank\": 8, \"targets\": [...]}", described(settings));
    return said;
  }
  const bool quantized = r.plan.workload.method == Method::qlora;
  std::vector<std::string_view> keys = {
      "rank", "targets", "sub_targets", "dtype", "dropout", "autocast", "upcast"};
  if (quantized) keys.insert(keys.end(), {"quant", "double_quant"});
  for (const auto& [key, value] : settings.members()) {
    const Origin place{origin.file, origin.pointer + "/" + pointer_token(key)};
    if (key == "rank") {
      read_rank(r, origin, value);
      said.rank = true;
    } else if (key == "targets" && is_all_linear(value)) {
      r.plan.workload.lora.targets = {std::string(kAllLinear)};
    } else if (key == "targets") {
      read_names(r,
                 place,
                 value,
                 "module names such as [\"q_proj\", \"v_proj\"]",
                 r.plan.workload.lora.targets);
    } else if (key == "sub_targets") {
      read_sub_targets(r, place, value);
    } else if (key == "dropout") {
      read_dropout(r, place, value);
    } else if (key == "dtype" || key == "autocast" || key == "upcast") {
      continue;  // resolve_adapters.cpp
    } else if (key == "quant" && quantized) {
      read_quant(r, place, value, said.double_quant);
    } else if (key == "double_quant" && quantized) {
      if (!value.is_boolean()) {
        r.problem(place, "true or false", described(value));
        continue;
      }
      r.plan.workload.lora.weights.double_quant = value.as_boolean();
      said.double_quant = true;
    } else {
      if (r.problems.size() >= kMostProblems) break;
      r.problem(place, "a key of the adapters", in_quotes(key), did_you_mean(key, keys));
    }
  }
  return said;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Freezes the model and puts peft's adapters beside the targeted layers.
void add_adapters(Resolver& r, const Origin& origin) {
  LoraSettings& lora = r.plan.workload.lora;
  if (lora.targets.size() == 1 && lora.targets[0] == kAllLinear) {
    lora.targets = all_linear_targets(*r.plan.model);
    r.assume(phrase("LoRA on all linear layers: {}", listed(lora.targets)));
  }
  if (lora.targets.empty()) {
    lora.targets = default_lora_targets(*r.plan.model);
    if (lora.targets.empty()) {
      r.problem(origin,
                "the targets: peft has no default for this model",
                "none",
                "say {\"lora\": {\"targets\": [\"NAME\"]}} with the names of its linear layers");
      return;
    }
    r.assume(phrase("LoRA on {}: the default of peft for this model", listed(lora.targets)));
  }
  LoraOptions options;
  options.rank = lora.rank;
  options.targets = lora.targets;
  try {
    const auto base = r.plan.model;
    std::string what = "LoRA:" + std::to_string(lora.rank);
    for (const std::string& target : lora.targets) what += " " + target;
    r.plan.model = r.make(base, what, [&] { return with_lora(*base, options); });
  } catch (const InputError& error) {
    const Origin targets{origin.file, origin.pointer + "/targets"};
    for (const Diagnostic& d : error.diagnostics()) r.problem(targets, d.expected, d.got, d.hint);
  }
}

// --- litgpt ---

// litgpt's switches by the names of Hugging Face's layers.
struct Switch {
  std::string_view target;
  bool LitgptAdapters::*on;
};
constexpr std::array kSwitches = {
    Switch{"q_proj", &LitgptAdapters::query},
    Switch{"k_proj", &LitgptAdapters::key},
    Switch{"v_proj", &LitgptAdapters::value},
    Switch{"o_proj", &LitgptAdapters::projection},
    Switch{"dense", &LitgptAdapters::projection},
    Switch{"gate_proj", &LitgptAdapters::mlp},
    Switch{"up_proj", &LitgptAdapters::mlp},
    Switch{"down_proj", &LitgptAdapters::mlp},
    Switch{"dense_h_to_4h", &LitgptAdapters::mlp},
    Switch{"dense_4h_to_h", &LitgptAdapters::mlp},
    Switch{"fc1", &LitgptAdapters::mlp},
    Switch{"fc2", &LitgptAdapters::mlp},
    Switch{"lm_head", &LitgptAdapters::head},
    Switch{"embed_out", &LitgptAdapters::head},
};

void switch_on(Resolver& r, const Origin& origin, LitgptAdapters& adapters) {
  const LoraSettings& lora = r.plan.workload.lora;
  const auto part = [&](const char* name) {
    return lora.sub_targets.empty() ||
           std::find(lora.sub_targets.begin(), lora.sub_targets.end(), name) !=
               lora.sub_targets.end();
  };
  for (const std::string& target : lora.targets) {
    if (target == "query_key_value") {
      adapters.query = adapters.query || part("q");
      adapters.key = adapters.key || part("k");
      adapters.value = adapters.value || part("v");
      continue;
    }
    const auto known = std::find_if(
        kSwitches.begin(), kSwitches.end(), [&](const Switch& s) { return s.target == target; });
    if (known == kSwitches.end()) {
      r.problem({origin.file, origin.pointer + "/targets"},
                "names of the model's linear layers",
                in_quotes(target));
      return;
    }
    adapters.*(known->on) = true;
  }
}

void build_litgpt(Resolver& r, const Origin& origin) {
  LitgptAdapters adapters;
  LoraSettings& lora = r.plan.workload.lora;
  if (r.plan.workload.method != Method::full) {
    adapters.rank = lora.rank;
    switch_on(r, origin, adapters);
    if (lora.targets.empty()) {
      adapters.query = adapters.value = true;
      r.assume("LoRA on queries and values: the default of litgpt");
    }
  }
  if (!r.problems.empty()) return;
  r.plan.model = std::make_shared<const Model>(litgpt_model(*r.plan.model, adapters));
}

// --- four bits ---

// What stores the frozen weights, and how it is set unless somebody says so.
void store_in_four_bits(Resolver& r, bool double_said) {
  Plan& plan = r.plan;
  FourBitWeights& weights = plan.workload.lora.weights;
  const bool litgpt = plan.workload.implementation == Implementation::litgpt;
  // litgpt's recipes are of bitsandbytes 0.41 and 0.42.
  weights.reads_fp16 = litgpt;
  weights.keeps_input =
      litgpt || plan.software.transformers_act(ReleaseRule::goes_with_four_bit_inputs);
  if (!double_said && !litgpt) {
    // A hand-written loop takes bnb.nn.Linear4bit's own default, compress_statistics=True; the
    // Trainer goes through transformers' BitsAndBytesConfig(bnb_4bit_use_double_quant=False).
    weights.double_quant = plan.workload.frontend == Frontend::native;
    r.assume(weights.double_quant
                 ? "scales of the four-bit weights are quantised again: bitsandbytes' default"
                 : "scales of the four-bit weights stay in fp32: the default of transformers");
  }
  try {
    const auto base = plan.model;
    plan.model = r.make(base, litgpt ? "four_bits_of_litgpt" : "four_bits", [&] {
      return with_four_bit_weights(*base, litgpt);
    });
  } catch (const InputError& error) {
    for (const Diagnostic& d : error.diagnostics()) {
      r.problem(r.origin(ScenarioKey::method), d.expected, d.got);
    }
  }
}

// The loading of a checkpoint in `stored` by transformers (quantizers/quantizer_*.py,
// trainer_utils.py validate_quantization_for_training, quantizers/auto.py
// merge_quantization_configs of 5.17): MXFP4 becomes bf16; GPTQ and AWQ stay packed, under adapters
// alone; FP8 is not trained. None takes another quantization on top.
void check_checkpoint(Resolver& r, std::string_view stored, Method method, const Origin& said) {
  if (stored.empty() || r.plan.workload.engine == TrainingEngine::embedded) return;
  const bool becomes_bf16 = stored == kMxfp4Checkpoint;
  if (method == Method::full && !becomes_bf16 && stored != kFp8Checkpoint) {
    r.problem(said,
              phrase("adapters, because the weights of this copy are {}", stored),
              "full",
              "name the model in 16 bits, or say --method lora");
    return;
  }
  if (stored == kFourBitCopy) return;
  if (method == Method::qlora) {
    r.problem(said,
              phrase("lora, or a copy in 16 bits: from_pretrained refuses four bits for a "
                     "checkpoint in {}",
                     stored),
              "qlora");
    return;
  }
  if (becomes_bf16) {
    r.assume(
        "the checkpoint's MXFP4 becomes bf16 as it is loaded: without the package kernels, or with "
        "Mxfp4Config(dequantize=True); kept in MXFP4 the Trainer refuses to train it");
    return;
  }
  if (const std::optional<PackedCopy> copy = packed_copy(*r.plan.model)) {
    r.warn(
        phrase("the checkpoint's weights are in {}, which is not planned: these are the numbers of "
               "the weights in 16 bits, which take {:.1f} GiB where the packed ones take about "
               "{:.1f}; what is planned in four bits is the 16-bit model with --method qlora",
               stored,
               copy->in_16_bits.gib(),
               copy->packed.gib()));
    return;
  }
  r.warn(stored == kFp8Checkpoint
             ? phrase("the checkpoint's weights are in {}, which transformers does not train: "
                      "these are the numbers of the weights in 16 bits",
                      stored)
             : phrase("the checkpoint's weights are in {}, which is not planned: these are the "
                      "numbers of the weights in 16 bits",
                      stored));
}

}  // namespace

void resolve_method(Resolver& r) {
  const bool litgpt = r.plan.workload.implementation == Implementation::litgpt;
  const ExplicitValue* said = r.scenario.find(ScenarioKey::method);
  const std::string copy(quantized_format(*r.plan.model));
  const ExplicitValue of_copy{"lora", {}};
  if (said == nullptr && copy == kFourBitCopy) said = &of_copy;
  if (said == nullptr) {
    r.assume("full fine-tuning: every parameter is trained");
    check_checkpoint(r, copy, Method::full, r.origin(ScenarioKey::method));
    if (litgpt && r.problems.empty()) build_litgpt(r, {});
    return;
  }
  const Json* settings = nullptr;
  std::string method;
  if (said->value.is_string()) {
    method = said->value.as_string();
  } else if (said->value.members().size() == 1) {
    method = said->value.members()[0].first;
    settings = &said->value.members()[0].second;
  }
  const auto found = find(kMethodNames, std::string_view(method));
  if (!found || (*found == Method::full && settings != nullptr)) {
    r.problem(said->origin, "full, lora, qlora, or {\"lora\": {...}}", described(said->value));
    return;
  }
  r.plan.workload.method = *found;
  check_checkpoint(r, copy, *found, said->origin);
  if (!r.problems.empty()) return;
  if (copy == kFourBitCopy && *found == Method::lora) {
    r.plan.workload.method = Method::qlora;
    r.assume("qlora: the weights of this copy are four bits of bitsandbytes");
  }
  const Origin origin{said->origin.file, said->origin.pointer + "/" + method};
  SaidSettings have;
  if (*found != Method::full) {
    if (settings != nullptr) have = read_settings(r, origin, *settings);
    if (!have.rank) {
      r.assume(phrase("LoRA rank {}: the default", r.plan.workload.lora.rank));
    }
  }
  if (!r.problems.empty()) return;
  if (litgpt) {
    build_litgpt(r, origin);
  } else if (*found != Method::full) {
    add_adapters(r, origin);
  }
  if (r.plan.workload.method == Method::qlora && r.problems.empty())
    store_in_four_bits(r, have.double_quant);
}

}  // namespace zeroplan
