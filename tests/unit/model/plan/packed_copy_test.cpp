#include "model/plan/packed_copy.hpp"

#include "model/families/hf_config.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

std::optional<PackedCopy> copy_of(const char* name) {
  return packed_copy(load_model(Json(name), "test", "/model"));
}

}  // namespace

// Qwen2.5-7B-Instruct-AWQ has 5.57 GB of files: 28 layers, embedding and head of 152064 x 3584 in
// fp16.
TEST_CASE("packed weights are what the files of a published copy hold") {
  const std::optional<PackedCopy> copy = copy_of("qwen2.5-7b-awq");
  REQUIRE(copy);
  CHECK(copy->format == "AWQ");
  const double outside = 2.0 * 2.0 * 152064 * 3584;
  CHECK(static_cast<double>(copy->packed.count()) + outside == Approx(5.57e9).epsilon(0.01));
  CHECK(copy->in_16_bits / copy->packed == Approx(16.0 / (4.0 + 20.0 / 128.0)));
}

TEST_CASE("a copy of eight bits is twice as large, and one in 16 bits is no packed copy") {
  const std::optional<PackedCopy> eight = copy_of("qwen2.5-7b-gptq-int8");
  REQUIRE(eight);
  CHECK(eight->packed / copy_of("qwen2.5-7b-gptq")->packed == Approx(8.1875 / 4.15625));
  CHECK_FALSE(copy_of("qwen2.5-7b"));
  CHECK_FALSE(copy_of("gpt-oss-20b"));
}
