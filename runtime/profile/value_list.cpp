#include "runtime/profile/value_list.hpp"

#include <fmt/format.h>

#include "base/check.hpp"
#include "model/cost/profile.hpp"

namespace zeroplan::runtime {

bool ValueList::figure(std::string_view name,
                       double value,
                       double sd,
                       const std::string& provenance) {
  for (const MachineFigure& row : kMachineFigures) {
    if (row.name != name) continue;
    if (outside(name, value, row.low, row.high)) return false;
    values.push_back(value_json(name, value, row.unit, sd, provenance));
    return true;
  }
  ZP_CHECK(false, "a figure of kMachineFigures");
}

bool ValueList::coefficient(
    Coefficient id, double value, double sd, const std::string& provenance, std::string_view gpu) {
  const CoefficientInfo& row = info(id);
  if (outside(row.name, value, row.low, row.high)) return false;
  constexpr double kMostSd = 2.0;  // that the reader takes (model/cost/profile.cpp)
  if (!(sd <= kMostSd)) {
    note(fmt::format(
        "{} {:.4g} (+- {:.0f} %) is not determined and is left out", row.name, value, 100.0 * sd));
    return false;
  }
  values.push_back(value_json(row.name, value, row.unit, sd, provenance, gpu));
  return true;
}

bool ValueList::outside(std::string_view name, double value, double low, double high) {
  if (value >= low && value <= high) return false;
  note(fmt::format("{} {:.4g} lies outside its bounds and is left out", name, value));
  return true;
}

}  // namespace zeroplan::runtime
