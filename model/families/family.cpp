#include "model/families/family.hpp"

#include <array>
#include <utility>

namespace zeroplan::families {

namespace {

struct HeadName {
  Head head;
  std::string_view suffix;
};

// Longer endings first: "Model" ends "LMHeadModel" too.
constexpr std::array<HeadName, 11> kHeadNames = {{
    {Head::causal_lm, "ForCausalLM"},
    {Head::conditional_generation, "ForConditionalGeneration"},
    {Head::conditional_generation, "WithLMHeadModel"},  // T5WithLMHeadModel, its old name
    {Head::causal_lm, "LMHeadModel"},
    {Head::masked_lm, "ForMaskedLM"},
    {Head::sequence_classification, "ForSequenceClassification"},
    {Head::token_classification, "ForTokenClassification"},
    {Head::question_answering, "ForQuestionAnswering"},
    {Head::question_answering, "ForQuestionAnsweringSimple"},
    {Head::base, "EncoderModel"},
    {Head::base, "Model"},
}};

std::string list_of(std::span<const Head> heads) {
  std::string text;
  for (const Head head : heads) {
    if (!text.empty()) text += ", ";
    text += "..." + std::string(suffix(head));
  }
  return text;
}

}  // namespace

std::string_view suffix(Head head) {
  for (const HeadName& row : kHeadNames) {
    if (row.head == head) return head == Head::base ? "Model" : row.suffix;
  }
  return "";
}

Head head_of(const FamilyInput& input, std::span<const Head> supported, Head fallback) {
  if (input.architecture.empty()) return fallback;
  for (const HeadName& row : kHeadNames) {
    if (!input.architecture.ends_with(row.suffix)) continue;
    for (const Head head : supported) {
      if (head == row.head) return head;
    }
    break;
  }
  const std::string pointer = input.config.has({"architectures"}) ? "architectures" : "model_type";
  input.config.problem(
      pointer,
      phrase("a class of {} ending in one of {}", input.model_type, list_of(supported)),
      in_quotes(input.architecture),
      phrase("leave architectures out for {}", "..." + std::string(suffix(fallback))));
  return fallback;
}

std::int64_t labels_of(const ConfigReader& config) {
  if (config.has({"num_labels"})) {
    return config.derived({"num_labels"}, 2, SizeKind::vocabulary);
  }
  const Json* names = config.find({"id2label"});
  if (names != nullptr && names->is_object() && !names->members().empty()) {
    return static_cast<std::int64_t>(names->members().size());
  }
  config.note("num_labels is not in the config: 2, the default of transformers, was used.");
  return 2;
}

Activation activation_of(std::string_view name) {
  using Function = ActivationFunction;
  if (name == "silu") return {Function::silu, "SiLU"};
  if (name == "swish") return {Function::silu, "SiLU"};
  if (name == "gelu") return {Function::gelu, "GELUActivation"};
  if (name == "gelu_new") return {Function::gelu_new, "NewGELUActivation"};
  if (name == "gelu_pytorch_tanh") return {Function::gelu_tanh, "PytorchGELUTanh"};
  if (name == "quick_gelu") return {Function::quick_gelu, "QuickGELUActivation"};
  if (name == "relu") return {Function::relu, "ReLU"};
  if (name == "gelu_fast") return {std::nullopt, "FastGELUActivation"};
  if (name == "relu2") return {std::nullopt, "ReLUSquaredActivation"};
  if (name == "tanh") return {std::nullopt, "Tanh"};
  return {std::nullopt, std::string(name)};
}

void not_planned(Model& model, std::string reason) {
  model.planned = false;
  model.implementation_family.clear();
  model.not_planned_reason = std::move(reason);
}

void generic_head(ModelBuilder& builder,
                  const ConfigReader& config,
                  Head head,
                  std::int64_t hidden) {
  switch (head) {
    case Head::sequence_classification:
      builder.linear("score", hidden, labels_of(config), false);
      break;
    case Head::token_classification:
      builder.leaf("dropout", "Dropout");
      builder.linear("score", hidden, labels_of(config), true);
      break;
    case Head::question_answering:
      builder.linear("qa_outputs", hidden, 2, true);
      break;
    default:
      break;
  }
}

void planned_as(Model& model,
                std::string_view implementation_family,
                const Activation& activation) {
  if (!activation.function.has_value()) {
    not_planned(model, phrase("the activation {} is not modelled", activation.class_name));
    return;
  }
  model.planned = true;
  model.implementation_family = std::string(implementation_family);
  model.shape.activation = *activation.function;
}

AttentionSizes read_plain_attention(const ConfigReader& config,
                                    ConfigReader::Keys hidden_keys,
                                    std::int64_t hidden,
                                    ConfigReader::Keys heads_keys,
                                    std::int64_t heads) {
  AttentionSizes sizes;
  sizes.hidden = config.core(hidden_keys, hidden, SizeKind::width);
  sizes.heads = config.core(heads_keys, heads, SizeKind::heads);
  sizes.kv_heads = sizes.heads;
  config.must_divide(sizes.heads, heads_keys, sizes.hidden, *hidden_keys.begin());
  sizes.head_dim = sizes.hidden / sizes.heads;
  return sizes;
}

void check_experts_per_token(const ConfigReader& config, std::int64_t used, std::int64_t experts) {
  if (used <= experts) return;
  config.problem("num_experts_per_tok",
                 phrase("at most the number of experts, {}", experts),
                 std::to_string(used));
}

std::int64_t rotated_elements(const ConfigReader& config,
                              const AttentionSizes& attention,
                              ConfigReader::Keys share_keys,
                              double share) {
  const double width = static_cast<double>(attention.head_dim);
  const auto rotated = static_cast<std::int64_t>(share * width);
  if (rotated % 2 == 0) return rotated;
  const bool divides = attention.heads > 0 && attention.hidden % attention.heads == 0;
  if (!divides && config.find({"head_dim"}) == nullptr) return rotated;  // said already
  std::string used;
  if (share == 1.0 || config.find(share_keys, &used) == nullptr) {
    const bool given = config.find({"head_dim"}, &used) != nullptr;
    if (!given &&
        config.find({"num_attention_heads", "n_head", "n_heads", "num_heads"}, &used) == nullptr) {
      used = "num_attention_heads";
    }
  }
  config.problem(used,
                 "an even number of elements of each head for rotary positions, which turn pairs",
                 std::to_string(rotated) + " of " + std::to_string(attention.head_dim));
  return rotated;
}

void set_sizes(TransformerShape& shape,
               const AttentionSizes& attention,
               std::int64_t layers,
               std::int64_t intermediate,
               std::int64_t vocabulary) {
  shape.hidden = attention.hidden;
  shape.heads = attention.heads;
  shape.kv_heads = attention.kv_heads;
  shape.head_dim = attention.head_dim;
  shape.layers = layers;
  shape.intermediate = intermediate;
  shape.vocabulary = vocabulary;
}

}  // namespace zeroplan::families
