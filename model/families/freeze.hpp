// Parameters that do not train: what the user freezes by name (requires_grad_(False)).
#pragma once

#include <string>
#include <string_view>

#include "base/diagnostic.hpp"
#include "model/transformer.hpp"

namespace zeroplan {

// `said`: names with commas between them, each of which is
//   vision      the towers for images and sound, without what joins them to the text
//   projector   what joins them (projectors, mergers, connectors, resamplers)
//   vision?, projector?   the same where the model has one
//   a module or a parameter, or a pattern of its name with *
// Throws InputError, at the place of `where`, for a name that no parameter has, and where nothing
// is left to train.
void freeze(Model& model, std::string_view said, const Diagnostic& where);

// The names that a program freezes that knows no parts: each part stands by the outermost modules
// that are all its own.
std::string frozen_modules(const Model& model, std::string_view said);

}  // namespace zeroplan
