// The `values` of a profile while they are made: each checked against the bounds that a reader of
// the profile would hold it to.
#pragma once

#include <string>
#include <string_view>

#include "base/json.hpp"
#include "model/cost/coefficients.hpp"

namespace zeroplan::runtime {

class ValueList {
 public:
  // A figure of the machine (kMachineFigures) or a coefficient, of GPUs whose key begins with
  // `gpu`. Outside its bounds it is left out, and a note says so: then false.
  bool figure(std::string_view name, double value, double sd, const std::string& provenance);
  bool coefficient(Coefficient id,
                   double value,
                   double sd,
                   const std::string& provenance,
                   std::string_view gpu = "");
  void note(std::string text) { notes.push_back(std::move(text)); }

  Json values = Json::array();
  Json notes = Json::array();

 private:
  bool outside(std::string_view name, double value, double low, double high);
};

}  // namespace zeroplan::runtime
