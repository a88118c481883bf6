// Tests that read YAML.
#pragma once

#include "foreign/yaml.hpp"
#include "tests/catch.hpp"

namespace zeroplan::testing {

// Whether the program was built with libyaml; says so where a test is skipped without.
inline bool has_yaml() {
  if (!foreign::reads_yaml()) WARN("skipped: built without libyaml (Debian: libyaml-dev)");
  return foreign::reads_yaml();
}

}  // namespace zeroplan::testing
