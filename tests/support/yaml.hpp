// Tests that read YAML.
#pragma once

#include "cli/from/yaml.hpp"
#include "tests/catch.hpp"

namespace zeroplan::testing {

// Whether the program was built with libyaml; says so where a test is skipped without.
inline bool has_yaml() {
  if (!cli::reads_yaml()) WARN("skipped: built without libyaml (Debian: libyaml-dev)");
  return cli::reads_yaml();
}

}  // namespace zeroplan::testing
