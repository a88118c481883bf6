#include "model/engine/leaf_gradients.hpp"

#include <algorithm>
#include <utility>

namespace zeroplan {

LeafGradients::LeafGradients(const FetchModel& model) {
  const std::vector<ModuleIndex> around = leaves_around(model);
  if (around.empty()) return;
  leaf_of_.assign(model.parameters.size(), -1);
  for (std::size_t m = 0; m < around.size(); ++m) {
    if (around[m] < 0) continue;
    for (const ParameterIndex p : model.modules[m].parameters) {
      leaf_of_[static_cast<std::size_t>(p)] = around[m];
    }
  }
}

bool LeafGradients::take(int parameter) {
  const bool waits = !leaf_of_.empty() && leaf_of_[static_cast<std::size_t>(parameter)] >= 0;
  if (waits) waiting_.push_back(parameter);
  return waits;
}

std::vector<int> LeafGradients::end_of(ModuleIndex module) {
  if (waiting_.empty()) return {};
  if (leaf_of_[static_cast<std::size_t>(waiting_.front())] != module) return {};
  return rest();
}

std::vector<int> LeafGradients::rest() {
  std::sort(waiting_.begin(), waiting_.end());
  return std::exchange(waiting_, {});
}

}  // namespace zeroplan
