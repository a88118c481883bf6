// PPO's second trained model. TRL's PPOTrainer wraps the policy and a value model in one module
// (PolicyAndValueWrapper), which one engine trains: parameters of both are partitioned, reduced and
// stepped together. The value model and the reward model are classes that score tokens
// (...ForSequenceClassification with one label).
//
// Sources: trl/trainer/ppo_trainer.py of 0.17.0, trl/experimental/ppo/ppo_trainer.py of 1.10.0
// (PolicyAndValueWrapper, PPOTrainer.__init__), examples/scripts/ppo/ppo.py.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "model/families/hf_config.hpp"
#include "model/plan/resolver.hpp"
#include "model/plan/trainer.hpp"

namespace zeroplan {
namespace {

struct SaidConfig {
  const Json* model = nullptr;
  Origin origin;
};

// What was said of a role; of a critic else what was said of the reward model, from which TRL's
// script loads both; else the trained model.
SaidConfig said_of(const Resolver& r, ModelRole role) {
  const ExplicitValue* models = r.scenario.find(ScenarioKey::models);
  const std::size_t count = models == nullptr ? 0 : models->value.items().size();
  SaidConfig found;
  for (const ModelRole wanted : {ModelRole::reward, role}) {
    for (std::size_t i = 0; i < count; ++i) {
      const Json& object = models->value.items()[i];
      const Json* its = object.find("role");
      const Json* model = object.find("model");
      const bool is =
          its != nullptr && its->is_string() && its->as_string() == name(kModelRoleNames, wanted);
      if (!is || model == nullptr) continue;
      found = {model,
               {models->origin.file, models->origin.pointer + "/" + std::to_string(i) + "/model"}};
    }
  }
  if (found.model != nullptr) return found;
  const ExplicitValue* trained = r.scenario.find(ScenarioKey::model);
  return {&trained->value, trained->origin};
}

Json config_of(const SaidConfig& said) {
  if (!said.model->is_string()) return *said.model;
  const std::string& text = said.model->as_string();
  if (is_model_name(text)) return config_of_name(text);
  return config_of_path(text, said.origin.file).value_or(Json::object());
}

// "LlamaForCausalLM" -> "LlamaForSequenceClassification"
std::string scoring_class(std::string architecture) {
  for (const std::string_view head : {"ForCausalLM", "LMHeadModel"}) {
    if (!architecture.ends_with(head)) continue;
    architecture.resize(architecture.size() - head.size());
    return architecture + "ForSequenceClassification";
  }
  return architecture;
}

// Causal models that transformers, or the repository that brings them, gives no class that scores
// (models/auto/modeling_auto.py MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES of 5.17).
bool has_scoring_class(const Model& causal) {
  constexpr std::array<std::string_view, 8> kWithout = {"baichuan",
                                                        "chatglm",
                                                        "cohere",
                                                        "cohere2",
                                                        "granite",
                                                        "internlm",
                                                        "internlm2",
                                                        "qwen3_5_moe_text"};
  return std::find(kWithout.begin(), kWithout.end(), causal.model_type) == kWithout.end();
}

void append(const Model& part, std::string_view prefix, Model& whole) {
  const auto parameters = static_cast<int>(whole.parameters.size());
  const auto modules = static_cast<int>(whole.modules.size());
  for (Parameter parameter : part.parameters) {
    parameter.name.insert(0, prefix);
    whole.parameters.push_back(std::move(parameter));
  }
  for (Module module : part.modules) {
    const bool root = module.name.empty();
    module.name =
        root ? std::string(prefix.substr(0, prefix.size() - 1)) : std::string(prefix) + module.name;
    module.parent = root ? 0 : module.parent + modules;
    for (int& parameter : module.parameters) parameter += parameters;
    whole.modules.push_back(std::move(module));
  }
}

Model joined(const std::shared_ptr<const Model>& policy,
             const std::shared_ptr<const Model>& value) {
  Model whole = *policy;
  whole.parameters.clear();
  whole.modules = {Module{"", "PolicyAndValueWrapper", {}, -1}};
  append(*policy, kPolicyPrefix, whole);
  append(*value, kValuePrefix, whole);
  whole.policy = policy;
  whole.value_model = value;
  return whole;
}

// Its class that scores tokens; the model itself where the config does not say what it is.
Model scoring(const Model& causal, const SaidConfig& said, const ModelUse& use) {
  Json config = config_of(said);
  if (config.find("model_type") == nullptr) return causal;
  config["architectures"] = Json::array();
  config["architectures"].push_back(scoring_class(causal.architecture));
  config["num_labels"] = 1;
  try {
    Model model = read_model(config, said.origin.file, said.origin.pointer, use);
    model.name = causal.name;
    return model;
  } catch (const InputError&) {  // a recorded class that has none
    return causal;
  }
}

}  // namespace

bool trains_values(const Plan& plan) {
  return plan.trainer != nullptr && plan.trainer->trains_values();
}

std::shared_ptr<const Model> scoring_model(Resolver& r, ModelRole role) {
  const SaidConfig said = said_of(r, role);
  const ModelUse use = r.model_use();
  const auto causal = r.read(*said.model, said.origin.file, said.origin.pointer);
  const auto refuse = [&](const Phrase& got) {
    r.problem(
        said.origin,
        "a model whose class scores tokens: ...ForSequenceClassification with a head `score`, "
        "which PPOTrainer calls",
        got,
        phrase("say another one: --beside {}=MODEL", name(kModelRoleNames, role)));
    return r.plan.model;
  };
  if (!has_scoring_class(*causal)) {
    return refuse(causal->architecture.empty() ? causal->model_type : causal->architecture);
  }
  const auto model = r.make(causal, "scores", [&] { return scoring(*causal, said, use); });
  const bool scores = std::any_of(model->modules.begin(),
                                  model->modules.end(),
                                  [](const Module& m) { return m.name == "score"; });
  return scores ? model : refuse(causal->architecture);
}

void join_value_model(Resolver& r) {
  if (!trains_values(r.plan)) return;
  const Degrees& degrees = r.plan.degrees;
  if (degrees.tensor > 1 || degrees.pipeline > 1 || degrees.sequence > 1) return;  // refused later
  const std::shared_ptr<const Model> value = scoring_model(r, ModelRole::critic);
  if (!r.problems.empty()) return;
  if (!value->planned) {
    r.problem(said_of(r, ModelRole::critic).origin,
              "a value model whose memory and time are modelled",
              value->architecture + ": " + value->not_planned_reason);
    return;
  }
  const auto policy = r.plan.model;
  r.plan.model = r.make(policy,
                        "with_value_model:" + said_of(r, ModelRole::critic).model->dump(),
                        [&] { return joined(policy, value); });
}

}  // namespace zeroplan
