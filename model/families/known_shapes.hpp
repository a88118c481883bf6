// Sizes of the models that are known by name, for whoever has a number and no model: an embedding
// of 32,016 x 4,096, logits of 4,096 tokens over 152,064 words.
//
// Numbers of elements. Checked by tests/unit/model/families/known_shapes_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zeroplan {

struct KnownShape {
  std::string name;  // of the first preset with these sizes: "llama-2-7b"
  std::int64_t vocabulary = 0;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;  // of a dense feed-forward; 0: not in its config
};

// One for each triple of sizes, in the order of the presets; read at the first call.
const std::vector<KnownShape>& known_shapes();

// A matrix that has as many elements: an embedding or a feed-forward weight. A vocabulary may have
// some rows more than its model's, as words are added and sizes rounded up.
struct KnownMatrix {
  const KnownShape* shape = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t rows_of_model = 0;  // of the embedding; 0: a feed-forward weight
};
// The one whose model has the nearest number of rows; absent where no known model has such a one.
std::optional<KnownMatrix> known_matrix(std::int64_t elements);

}  // namespace zeroplan
