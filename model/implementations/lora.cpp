#include "model/implementations/lora.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/diagnostic.hpp"

namespace zeroplan {

namespace {

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kBias = ".bias";

std::string_view without(std::string_view name, std::string_view suffix) {
  if (name.size() < suffix.size() || name.substr(name.size() - suffix.size()) != suffix) return {};
  return name.substr(0, name.size() - suffix.size());
}

std::string_view last_part(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

// Where the names of a list stand in it: a mixture of experts has tens of thousands.
using Places = std::unordered_map<std::string_view, int>;

template <typename List>
Places places_of(const List& list) {
  Places places;
  places.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    places.emplace(list[i].name, static_cast<int>(i));
  }
  return places;
}

// A model's layers by name, and which of them get adapters.
class Targets {
 public:
  Targets(const Model& model, const std::vector<std::string>& names)
      : model_(model), names_(names), places_(places_of(model.modules)) {}

  bool contain(std::string_view module) const {
    if (std::find(names_.begin(), names_.end(), last_part(module)) == names_.end()) return false;
    const Module* found = find(module);
    // What the adapters here go beside: peft adapts embeddings too, in another way, and refuses
    // norms.
    return found == nullptr || found->type == "Conv1D" ||
           found->type.find("Linear") != std::string::npos;
  }

  // Conv1D stores (in, out), a Linear (out, in).
  bool is_conv1d(std::string_view module) const {
    const Module* found = find(module);
    return found != nullptr ? found->type == "Conv1D" : model_.implementation_family == "gpt2";
  }

 private:
  const Module* find(std::string_view module) const {
    const auto it = places_.find(module);
    return it == places_.end() ? nullptr : &model_.modules[static_cast<std::size_t>(it->second)];
  }

  const Model& model_;
  const std::vector<std::string>& names_;
  Places places_;
};

Parameter named(std::string_view module, std::string_view name, std::vector<std::int64_t> shape) {
  Parameter parameter;
  parameter.name = std::string(module);
  parameter.name += name;
  parameter.numel = 1_elements;
  for (const std::int64_t size : shape) parameter.numel = parameter.numel * size;
  parameter.shape = std::move(shape);
  return parameter;
}

// The modules again from the parameters' new names: the wrapped layer's children replace its own
// parameters, and every index into the parameter list moves.
void rebuild_modules(const Model& base,
                     const std::vector<int>& moved,
                     const Targets& targets,
                     Model& result) {
  result.modules.clear();
  std::vector<int> new_index;
  const Places places = places_of(result.parameters);
  const auto index_of = [&](const std::string& name) { return places.at(name); };
  for (const Module& module : base.modules) {
    Module copy = module;
    if (copy.parent >= 0) copy.parent = new_index[static_cast<std::size_t>(copy.parent)];
    for (int& parameter : copy.parameters) parameter = moved[static_cast<std::size_t>(parameter)];
    const int self = static_cast<int>(result.modules.size());
    new_index.push_back(self);
    const bool wrapped = !module.parameters.empty() && targets.contain(module.name);
    if (!wrapped) {
      result.modules.push_back(std::move(copy));
      continue;
    }
    const std::vector<int> own = std::exchange(copy.parameters, {});
    result.modules.push_back(std::move(copy));
    const auto child =
        [&](const std::string& name, const std::string& type, std::vector<int> parameters) {
          result.modules.push_back({module.name + name, type, std::move(parameters), self});
          return static_cast<int>(result.modules.size()) - 1;
        };
    child(".base_layer", module.type, own);
    for (const std::string adapter : {".lora_A", ".lora_B"}) {
      const int container = child(adapter, "ModuleDict", {});
      const std::string name = adapter + ".default";
      child(name, "Linear", {index_of(module.name + name + std::string(kWeight))});
      result.modules.back().parent = container;
    }
  }
}

// peft gives a tied layer adapters of its own, which no graph here has.
void require_own_weights(const Model& model, const Targets& targets) {
  for (const Module& module : model.modules) {
    if (module.parameters.empty() || !targets.contain(module.name)) continue;
    const bool own =
        std::any_of(module.parameters.begin(), module.parameters.end(), [&](int index) {
          return without(model.parameters[static_cast<std::size_t>(index)].name, kWeight) ==
                 module.name;
        });
    if (own) continue;
    throw InputError(Diagnostic{"",
                                "/workload/method/lora/targets",
                                "layers with weights of their own",
                                phrase("{}, whose weight is the embedding's", module.name),
                                "adapters beside tied layers are not predicted"});
  }
}

}  // namespace

std::vector<std::string> all_linear_targets(const Model& model) {
  std::vector<std::string> names;
  for (const Module& module : model.modules) {
    const bool linear = module.type == "Conv1D" || module.type.find("Linear") != std::string::npos;
    const std::string_view name = last_part(module.name);
    // get_output_embeddings() of each class.
    const bool head = name.size() == module.name.size() ||
                      module.name == "cls.predictions.decoder" || module.name == "lm_head.decoder";
    if (!linear || head) continue;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  }
  return names;
}

std::vector<std::string> default_lora_targets(const Model& model) {
  // peft, TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
  static const std::array<std::vector<std::string>, 9> kLists = {{{"q_proj", "v_proj"},
                                                                  {"qkv_proj"},
                                                                  {"query_key_value"},
                                                                  {"c_attn"},
                                                                  {"query", "value"},
                                                                  {"W_pack"},
                                                                  {"q_lin", "v_lin"},
                                                                  {"Wqkv"},
                                                                  {"q", "v"}}};
  for (const auto& list : kLists) {
    for (const Parameter& parameter : model.parameters) {
      const std::string_view module = without(parameter.name, kWeight);
      if (!module.empty() && last_part(module) == list.front()) return list;
    }
  }
  return {};
}

Model with_lora(const Model& model, const LoraOptions& lora) {
  const std::vector<std::string> names =
      lora.targets.empty() ? default_lora_targets(model) : lora.targets;
  const Targets targets(model, names);
  require_own_weights(model, targets);
  Model result = model;
  result.parameters.clear();
  std::vector<int> moved;
  bool any = false;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    Parameter parameter = model.parameters[i];
    parameter.trainable = false;
    moved.push_back(static_cast<int>(result.parameters.size()));
    const std::string_view weight = without(model.parameters[i].name, kWeight);
    const std::string_view bias = without(model.parameters[i].name, kBias);
    const std::string_view module = weight.empty() ? bias : weight;
    if (module.empty() || !targets.contain(module)) {
      result.parameters.push_back(std::move(parameter));
      continue;
    }
    parameter.name =
        std::string(module) + ".base_layer" + std::string(weight.empty() ? kBias : kWeight);
    result.parameters.push_back(std::move(parameter));
    const bool ends =
        i + 1 == model.parameters.size() || without(model.parameters[i + 1].name, kBias) != module;
    if (!ends) continue;
    any = true;
    const Parameter& matrix = model.parameters[weight.empty() ? i - 1 : i];
    std::int64_t out = matrix.shape[0], in = matrix.shape[1];
    if (targets.is_conv1d(module)) std::swap(out, in);
    result.parameters.push_back(named(module, ".lora_A.default.weight", {lora.rank, in}));
    result.parameters.push_back(named(module, ".lora_B.default.weight", {out, lora.rank}));
  }
  if (!any) {
    Phrase got;
    for (const std::string& target : names) got += (got.empty() ? "" : ", ") + target;
    throw InputError(Diagnostic{"",
                                "/workload/method/lora/targets",
                                "names of the model's linear layers",
                                in_quotes(got.english()),
                                ""});
  }
  rebuild_modules(model, moved, targets, result);
  return result;
}

Model with_four_bit_weights(const Model& model, bool with_head) {
  Model result = model;
  bool any = false;
  for (const Module& module : model.modules) {
    const bool linear = module.type.find("Linear") != std::string::npos;
    if (!linear || (module.parent <= 0 && !with_head)) continue;
    for (const int index : module.parameters) {
      Parameter& parameter = result.parameters[static_cast<std::size_t>(index)];
      if (parameter.trainable || without(parameter.name, kWeight).empty()) continue;
      parameter.quantized = any = true;
    }
  }
  if (!any) {
    throw InputError(Diagnostic{"",
                                "/workload/method/qlora",
                                "a model with linear layers to store in four bits",
                                model.architecture,
                                ""});
  }
  return result;
}

Model with_upcast(const Model& model, Upcast upcast) {
  Model result = model;
  for (const Module& module : model.modules) {
    const bool norm = module.type.find("Norm") != std::string::npos;
    if (!norm && upcast != Upcast::all) continue;
    for (const int index : module.parameters) {
      Parameter& parameter = result.parameters[static_cast<std::size_t>(index)];
      parameter.upcast = !parameter.trainable && !parameter.quantized;
    }
  }
  return result;
}

}  // namespace zeroplan
