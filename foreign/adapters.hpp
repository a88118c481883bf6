// What files of other tools say of adapters, in several settings, as one `method`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "foreign/said_elsewhere.hpp"
#include "foreign/setting_roles.hpp"

namespace zeroplan::foreign {

// By LLaMA-Factory and swift.
inline constexpr const char* kLoraByDefault[] = {"finetuning_type lora: LLaMA-Factory's default",
                                                 "tuner_type lora: swift's default"};

class AdapterWords {
 public:
  // `role` is one of the adapters'.
  void read(Role role, const Setting& setting);
  // Behind the last setting of a part: sets the method, unless `meaning` has one already.
  void finish(Tool tool, Meaning& meaning) const;

 private:
  void read_bits(const Setting& setting);
  Json settings(Tool tool, bool four_bits, Meaning& meaning) const;
  void add_targets(Tool tool, Json& settings) const;
  void add_quantization(Tool tool, Json& settings, Meaning& meaning) const;

  std::string method_;
  Json rank_, dropout_, code_, double_quant_;
  std::vector<std::string> targets_;
  bool four_bits_ = false;
  bool names_maker_ = false;     // quant_method
  std::optional<Setting> said_;  // the last one
};

}  // namespace zeroplan::foreign
