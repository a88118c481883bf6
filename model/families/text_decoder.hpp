// Decoders of text whose layers are of several kinds, most of them the text part of a multimodal
// model: what their builders share.
#pragma once

#include <string>

#include "model/families/family.hpp"

namespace zeroplan::families {

Model build_hybrid(const FamilyInput& input);  // qwen3_5.cpp: Qwen3-Next, Qwen3.5

// Of a class that was read: what is left is to write it down.
struct TextDecoder {
  std::string_view classes;  // prefix of its classes: "Qwen3_5"
  std::string trunk_class;   // "Qwen3_5TextModel"
  std::string_view implementation_family;
  Activation activation;
};

// The class with a language head, ...ForCausalLM, whose trunk `trunk` writes. Throws the problems
// that the config has.
template <typename Trunk>
Model text_decoder_model(const ConfigReader& config,
                         const TransformerShape& shape,
                         const TextDecoder& decoder,
                         Trunk trunk) {
  config.throw_problems();
  Model model;
  model.shape = shape;
  model.architecture = std::string(decoder.classes) + std::string(suffix(Head::causal_lm));
  ModelBuilder builder(model.architecture);
  const DecoderHead top = {
      .hidden = shape.hidden, .vocabulary = shape.vocabulary, .tied = shape.tied_embeddings};
  write_decoder(builder, config, top, Head::causal_lm, "model", decoder.trunk_class, trunk);
  builder.move_into(model);
  planned_as(model, decoder.implementation_family, decoder.activation);
  return model;
}

// A module's name of the activation in transformers 5.
inline std::string activation_class_5(const Activation& activation) {
  return activation.class_name == "SiLU" ? "SiLUActivation" : activation.class_name;
}

}  // namespace zeroplan::families
