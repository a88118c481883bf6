// A small model for tests of the engine, through the same types as the real ones: embedding, layers
// of linear and gelu, a head with cross entropy; and plain kernels for it.
#pragma once

#include <cstdint>
#include <memory>

#include "model/graph/graph.hpp"
#include "model/transformer.hpp"
#include "runtime/kernels/kernels.hpp"

namespace zeroplan::runtime::test {

struct SmallModelSizes {
  std::int64_t batch = 1, sequence = 8, hidden = 16, vocabulary = 24, layers = 3;
  bool tied = false;  // the head uses the embedding's weight
};

struct SmallModel {
  Model model;
  ModelGraph graph;
};

SmallModel small_model(const SmallModelSizes& sizes);

// Loops in fp32 arithmetic; fp32 tensors alone.
std::unique_ptr<Kernels> plain_kernels();

}  // namespace zeroplan::runtime::test
