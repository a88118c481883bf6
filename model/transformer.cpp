#include "model/transformer.hpp"

#include <map>
#include <utility>

namespace zeroplan {

ParameterCounts count_parameters(const Model& model) {
  ParameterCounts counts;
  // Shares are summed per ratio before dividing, so that E experts of which k are active count
  // exactly.
  std::map<std::pair<std::int64_t, std::int64_t>, Elements> routed;
  for (const Parameter& parameter : model.parameters) {
    counts.total += parameter.numel;
    if (parameter.trainable) counts.trainable += parameter.numel;
    routed[{parameter.routed_active, parameter.routed_of}] += parameter.numel;
  }
  for (const auto& [share, numel] : routed) counts.active += numel * share.first / share.second;
  return counts;
}

Model without_training(Model model) {
  for (Parameter& parameter : model.parameters) parameter.trainable = false;
  return model;
}

}  // namespace zeroplan
