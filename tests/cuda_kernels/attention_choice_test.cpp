// ZEROPLAN_ATTENTION, in a program without cuDNN.
#include <cstdlib>

#include "base/diagnostic.hpp"
#include "runtime/cuda/kernels/library_attention.hpp"
#include "tests/catch.hpp"

namespace zeroplan::runtime::cuda {
namespace {

class Environment {
 public:
  explicit Environment(const char* value) { ::setenv(kName, value, 1); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() { ::unsetenv(kName); }

 private:
  static constexpr const char* kName = kAttentionVariable.data();
};

TEST_CASE("The environment says who computes attention") {
  CHECK(asked_attention({}) == AttentionBy::asked);
  CHECK(make_library_attention(nullptr, {}) == nullptr);
  {
    const Environment own("own");
    CHECK(asked_attention({}) == AttentionBy::own);
    CHECK(asked_attention({.attention = AttentionBy::library}) == AttentionBy::library);
  }
  {
    const Environment library("cudnn");
    CHECK(asked_attention({}) == AttentionBy::library);
    CHECK_THROWS_WITH(make_library_attention(nullptr, {}), Catch::Contains("built without cuDNN"));
  }
  {
    const Environment reproducible("reproducible");
    CHECK(asked_attention({}) == AttentionBy::reproducible);
    CHECK(make_library_attention(nullptr, {}) == nullptr);
  }
  const Environment other("flash");
  CHECK_THROWS_WITH(asked_attention({}),
                    Catch::Contains("expected own, cudnn or reproducible, got flash"));
}

}  // namespace
}  // namespace zeroplan::runtime::cuda
