#include "model/families/known_shapes.hpp"

#include <algorithm>

#include "tests/catch.hpp"

using namespace zeroplan;

TEST_CASE("Known models have a vocabulary and a hidden size, each triple once") {
  const auto& shapes = known_shapes();
  CHECK(shapes.size() > 50);
  CHECK(std::none_of(shapes.begin(), shapes.end(), [](const KnownShape& shape) {
    return shape.vocabulary <= 0 || shape.hidden <= 0 ||
           shape.name.find("bert") != std::string::npos;
  }));
  const auto qwen = std::find_if(shapes.begin(), shapes.end(), [](const KnownShape& shape) {
    return shape.vocabulary == 152064 && shape.hidden == 5120;
  });
  REQUIRE(qwen != shapes.end());
  CHECK(qwen->name.starts_with("qwen"));
}

TEST_CASE("A number of elements is an embedding, one with added words, or a feed-forward weight") {
  const auto exact = known_matrix(32000LL * 4096);
  REQUIRE(exact);
  CHECK(exact->rows == 32000);
  CHECK(exact->rows_of_model == 32000);
  const auto added = known_matrix(32010LL * 4096);
  REQUIRE(added);
  CHECK(added->rows == 32010);
  CHECK(added->rows_of_model == 32000);
  const auto code_llama = known_matrix(32016LL * 4096);
  REQUIRE(code_llama);
  CHECK(code_llama->rows_of_model == 32016);
  const auto wide = known_matrix(14336LL * 4096);
  REQUIRE(wide);
  CHECK(wide->rows_of_model == 0);
  CHECK(wide->rows == 14336);
  CHECK_FALSE(known_matrix(1234567));
  CHECK_FALSE(known_matrix(0));
}
