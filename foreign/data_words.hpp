// What files of other tools say of their samples: how they are padded or packed, how often they are
// seen.
#pragma once

#include <optional>

#include "foreign/said_elsewhere.hpp"
#include "foreign/setting_roles.hpp"
#include "foreign/settings.hpp"

namespace zeroplan::foreign {

class DataWords {
 public:
  // `role` is padding, packing or epochs.
  void read(Role role, const Setting& setting);
  // Sets `dataset` where nobody said it before.
  void finish(Meaning& meaning) const;

 private:
  Json dataset_ = Json::object();
  std::optional<Setting> said_;  // the last one
};

}  // namespace zeroplan::foreign
