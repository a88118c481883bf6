// What files of other tools say of the format of weights and arithmetic: switches of 16 bits, and
// what the weights are loaded in.
#pragma once

#include "foreign/said_elsewhere.hpp"
#include "foreign/setting_table.hpp"
#include "foreign/taken.hpp"

namespace zeroplan::foreign {

class WeightWords {
 public:
  WeightWords(Tool tool, Meaning& meaning) : tool_(tool), meaning_(meaning) {}

  // The row's rule is half, dtype or pure_bf16. Settings must outlive finish().
  Became read(const SettingRow& row, const Setting& setting);
  // Behind everything that says engine and method. `trl`: TRL's own command runs.
  void finish(bool trl);

 private:
  Became read_half(const SettingRow& row, const Setting& setting);
  void finish_precision();
  void finish_dtype(const Setting& setting, bool casts);
  bool says(ScenarioKey key, const char* value) const;
  bool switched_off() const { return no_bf16_ != nullptr && no_fp16_ != nullptr; }
  Became set(ScenarioKey key, const Json& value, const Setting& setting) {
    return take(key, value, setting, meaning_);
  }
  void file(const Setting& setting, const Became& became) {
    file_setting(setting, became, tool_, meaning_);
  }

  Tool tool_;
  Meaning& meaning_;
  const Setting* no_bf16_ = nullptr;
  const Setting* no_fp16_ = nullptr;
  const Setting* dtype_ = nullptr;
  const Setting* pure_bf16_ = nullptr;
};

}  // namespace zeroplan::foreign
