// Which gradients wait for the end of a leaf module, and in which order they go on.
#include "model/engine/leaf_gradients.hpp"

#include "tests/catch.hpp"

namespace zeroplan {
namespace {

// root(0) with an attention(1) and a mixture(2), a leaf whose experts are 3 and 4.
FetchModel with_leaf(bool leaf) {
  FetchModel model;
  const std::vector<std::vector<ParameterIndex>> own = {{}, {0}, {1}, {2}, {3}};
  const std::vector<ModuleIndex> parents = {-1, 0, 0, 2, 2};
  for (std::size_t m = 0; m < own.size(); ++m) {
    model.modules.push_back({own[m], parents[m], leaf && m == 2});
  }
  model.parameters.assign(4, {.numel = Elements::of(10)});
  return model;
}

}  // namespace

// stage3.py create_reduce_and_remove_grad_hooks
TEST_CASE("gradients of a leaf module wait for its end and go on in the order of its parameters") {
  LeafGradients leaves(with_leaf(true));
  CHECK_FALSE(leaves.take(0));
  for (const int expert : {3, 1, 2}) CHECK(leaves.take(expert));
  CHECK(leaves.end_of(1).empty());
  CHECK(leaves.end_of(2) == std::vector<int>{1, 2, 3});
  CHECK(leaves.end_of(2).empty());  // once
}

TEST_CASE("without leaf modules no gradient waits") {
  LeafGradients leaves(with_leaf(false));
  for (const int parameter : {3, 2, 1, 0}) CHECK_FALSE(leaves.take(parameter));
  CHECK(leaves.end_of(2).empty());
}

}  // namespace zeroplan
