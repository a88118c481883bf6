#include "model/plan/scenario.hpp"

namespace zeroplan {

const ExplicitValue* Scenario::find(ScenarioKey key) const {
  const auto& said = said_[static_cast<std::size_t>(key)];
  return said ? &*said : nullptr;
}

void Scenario::set(ScenarioKey key, Json value, Origin origin) {
  said_[static_cast<std::size_t>(key)] = ExplicitValue{std::move(value), std::move(origin)};
}

void Scenario::unset(ScenarioKey key) { said_[static_cast<std::size_t>(key)].reset(); }

}  // namespace zeroplan
