#include "model/predict/model_flops.hpp"

#include <string_view>
#include <vector>

namespace zeroplan {
namespace {

// Tables that rows are looked up in and nothing is multiplied by.
std::vector<bool> looked_up(const Model& model) {
  std::vector<bool> found(model.parameters.size(), false);
  if (model.shape.tied_embeddings) return found;
  for (const bool tables : {true, false}) {
    for (const Module& module : model.modules) {
      if (std::string_view(module.type).ends_with("Embedding") != tables) continue;
      for (const int index : module.parameters) found[static_cast<std::size_t>(index)] = tables;
    }
  }
  return found;
}

}  // namespace

Flops model_flops_per_token(const Model& model, std::int64_t sequence_length) {
  double products = 0.0;
  const std::vector<bool> tables = looked_up(model);
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    if (tables[i]) continue;
    const Parameter& parameter = model.parameters[i];
    const double used =
        static_cast<double>(parameter.routed_active) / static_cast<double>(parameter.routed_of);
    products +=
        (parameter.trainable ? 6.0 : 4.0) * used * static_cast<double>(parameter.numel.count());
  }
  const double layers = static_cast<double>(model.shape.layers + model.shape.encoder_layers);
  return Flops::of(products + 12.0 * layers * static_cast<double>(model.shape.hidden) *
                                  static_cast<double>(sequence_length));
}

}  // namespace zeroplan
