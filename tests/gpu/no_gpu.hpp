// Tests that need a GPU are skipped without one.
#pragma once

#include "runtime/cuda/hardware.hpp"
#include "tests/catch.hpp"

namespace zeroplan::runtime::test {

// tests/CMakeLists.txt: a program in which this is said was skipped.
inline bool no_gpu() {
  const cuda::Gpus gpus = cuda::find_gpus();
  if (!gpus.found.empty()) return false;
  WARN("skipped: " << gpus.problem);
  return true;
}

}  // namespace zeroplan::runtime::test
