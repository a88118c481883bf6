// A model with low-rank adapters, as peft makes it: the base weights frozen, two small matrices
// beside every targeted layer.
#pragma once

#include "model/implementations/graph_options.hpp"
#include "model/transformer.hpp"

namespace zeroplan {

// The layers that peft targets where the user names none
// (TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING, peft/utils/constants.py): the first of its
// name lists that the model has.
std::vector<std::string> default_lora_targets(const Model& model);

// peft's "all-linear" (tuners_utils.py _maybe_include_all_linear_layers): the last names of all
// linear layers but the head, in the model's order. Experts whose weights are one tensor are none.
std::vector<std::string> all_linear_targets(const Model& model);

// The model with everything frozen, and for each two-dimensional weight `X.weight` whose module's
// last name is a target: `X.base_layer.weight` in its place, then `X.lora_A.default.weight` (rank,
// in) and `X.lora_B.default.weight` (out, rank), trainable. peft's outer prefix "base_model.model."
// is left out. Targets empty: the defaults. Throws InputError where no layer has a target's name.
Model with_lora(const Model& model, const LoraOptions& lora);

// The model with the weights of its frozen linear layers marked as stored in four bits, as
// transformers replaces them (integrations/bitsandbytes.py replace_with_bnb_linear): all but those
// that hang directly from the root, the heads (get_keys_to_not_convert), unless `with_head`. Throws
// InputError where there are none.
Model with_four_bit_weights(const Model& model, bool with_head);

// The frozen parameters that `upcast` names, marked: modules whose type is a norm's, or all that is
// not in four bits.
Model with_upcast(const Model& model, Upcast upcast);

}  // namespace zeroplan
