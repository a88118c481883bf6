// What files of other tools say of their samples: how they are padded or packed, how often they are
// seen.
#pragma once

#include <optional>

#include "cli/from/said_elsewhere.hpp"
#include "cli/from/setting_roles.hpp"
#include "cli/from/settings.hpp"

namespace zeroplan::cli::from {

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

}  // namespace zeroplan::cli::from
