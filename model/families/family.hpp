// The families of models: one row for each model_type, and what their builders share.
//
// A builder reads the config through a ConfigReader, throws what is wrong, and writes the modules
// with a ModelBuilder. Names, classes and order are those of transformers 4.51 (or of the model
// repository's own code where transformers has none); tests/reference/count_parameters.py records
// them from the library itself.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/families/config_reader.hpp"
#include "model/families/model_builder.hpp"
#include "model/transformer.hpp"

namespace zeroplan::families {

// What a model puts on top of its trunk.
enum class Head {
  base,
  causal_lm,
  masked_lm,
  conditional_generation,
  sequence_classification,
  token_classification,
  question_answering
};

struct FamilyInput {
  const ConfigReader& config;
  std::string model_type;
  std::string architecture;  // architectures[0] of the config; "" where it names none
  ExpertLayout experts = ExpertLayout::modules;  // of families that have both
};

// A row of the registry.
struct Family {
  std::string_view model_type;
  std::string_view config_class;  // for messages, "LlamaConfig"
  Model (*build)(const FamilyInput& input) = nullptr;
  // Another class shares the type: its configs have this key, and are of no family.
  std::string_view key_of_another = {};
  // Hugging Face's class is recorded, not written: the builder is for the code of others.
  bool of_others = false;
  bool writes_trunks = false;  // but classes without a head, whose parameters are counted
};

std::span<const Family> all_families();
// The family of a config that has this type, as that code trains it; null where no class is known,
// another shares it, or it is recorded.
const Family* find_family(std::string_view model_type,
                          const Json& config,
                          bool is_hugging_face = true);

// The head that an architecture's name ends in; `fallback` where it is empty; a problem at
// /architectures/0 where it is none of `supported`.
Head head_of(const FamilyInput& input, std::span<const Head> supported, Head fallback);
std::string_view suffix(Head head);  // "ForCausalLM"

// num_labels, else the size of id2label, else 2 (PretrainedConfig).
std::int64_t labels_of(const ConfigReader& config);

// A problem where a token uses more experts than there are.
void check_experts_per_token(const ConfigReader& config, std::int64_t used, std::int64_t experts);

// hidden_act and its like: the function for the operations (nothing where they are not modelled)
// and the module class in named_modules().
struct Activation {
  std::optional<ActivationFunction> function;
  std::string class_name;
};
Activation activation_of(std::string_view name);

// Marks a model with a switch whose operations are not written down: its parameters are counted.
void not_planned(Model& model, std::string reason);

// num_attention_heads and what follows from it, as most decoders read them.
struct AttentionSizes {
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
};

// The heads of the "Generic..." classes of transformers on a trunk that `trunk` writes under
// base_model_prefix: score (no bias), dropout and score, or qa_outputs.
void generic_head(ModelBuilder& builder,
                  const ConfigReader& config,
                  Head head,
                  std::int64_t hidden);

// Marks the model as planned by `implementation_family`, unless its activation is not modelled.
void planned_as(Model& model, std::string_view implementation_family, const Activation& activation);

// A decoder with a language head as others than Hugging Face train it: what is left is to write its
// trunk down.
struct Decoder {
  std::string_view classes;                // prefix of its classes: "Bloom"
  std::string_view implementation_family;  // Model::implementation_family
  Activation activation;
  std::string_view language_suffix = suffix(Head::causal_lm);  // of the class with the head
};

// The model of a decoder whose shape is filled; `trunk` returns the embedding's weight. Throws the
// problems that the config has.
template <typename Trunk>
Model decoder_model(const FamilyInput& input,
                    const TransformerShape& shape,
                    const Decoder& decoder,
                    Trunk trunk) {
  head_of(input, std::array{Head::causal_lm}, Head::causal_lm);
  input.config.throw_problems();
  Model model;
  model.shape = shape;
  const std::string classes(decoder.classes);
  model.architecture = classes;
  model.architecture += decoder.language_suffix;
  ModelBuilder builder(model.architecture);
  int embedding = -1;
  {
    const auto scope = builder.in("transformer", classes + "Model");
    embedding = trunk(builder);
  }
  if (shape.tied_embeddings) {
    builder.tied_linear("lm_head", embedding);
  } else {
    builder.linear("lm_head", shape.hidden, shape.vocabulary, false);
  }
  builder.move_into(model);
  planned_as(model, decoder.implementation_family, decoder.activation);
  return model;
}

inline constexpr std::array<Head, 5> kDecoderHeads = {Head::causal_lm,
                                                      Head::base,
                                                      Head::sequence_classification,
                                                      Head::token_classification,
                                                      Head::question_answering};

// hidden, heads and head_dim of a family without grouped heads; heads must divide hidden.
AttentionSizes read_plain_attention(const ConfigReader& config,
                                    ConfigReader::Keys hidden_keys,
                                    std::int64_t hidden,
                                    ConfigReader::Keys heads_keys,
                                    std::int64_t heads);

// The elements of each head that rotary positions turn, `share` of them as `share_keys` say. They
// turn in pairs: more than one and odd is a problem, because cos and sin are then one longer than
// what they are multiplied with.
std::int64_t rotated_elements(const ConfigReader& config,
                              const AttentionSizes& attention,
                              ConfigReader::Keys share_keys,
                              double share);

// The attention sizes, layers, widths and vocabulary of a shape.
void set_sizes(TransformerShape& shape,
               const AttentionSizes& attention,
               std::int64_t layers,
               std::int64_t intermediate,
               std::int64_t vocabulary);

// Builders, by file.
Model build_bert(const FamilyInput& input);
Model build_bloom(const FamilyInput& input);
Model build_chatglm(const FamilyInput& input);
Model build_glm(const FamilyInput& input);
Model build_gpt2(const FamilyInput& input);
Model build_litgpt(const FamilyInput& input);      // litgpt_configs.cpp
Model build_llama_like(const FamilyInput& input);  // llama_like.cpp
Model build_mpt(const FamilyInput& input);

}  // namespace zeroplan::families
