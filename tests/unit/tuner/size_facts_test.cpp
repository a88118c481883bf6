#include "tuner/size_facts.hpp"

#include <algorithm>

#include "model/plan/scenario_reader.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Model model_named(const char* name) {
  const Json document = Json::object({{"model", name}, {"cluster", "1xA100-80G"}});
  return *prepare(parse_scenario(document, "test")).model;
}

// As PyTorch prints it: two digits.
tuner::SizeQuestion printed_gib(double number) {
  return {Bytes::nearest(number * (1 << 30)), Bytes::nearest(0.005 * (1 << 30)), {}};
}
tuner::SizeQuestion printed_mib(double number) {
  return {Bytes::nearest(number * (1 << 20)), Bytes::nearest(0.005 * (1 << 20)), {}};
}

}  // namespace

TEST_CASE("sizes of public logs are told by arithmetic") {
  const Model llama = model_named("llama-7b");
  const auto shard = tuner::size_facts(llama, {8, {}}, printed_gib(3.14));
  REQUIRE(shard.size() == 1);
  CHECK(shard[0].what == "one of 8 shards of the trained weights in fp32");
  CHECK(shard[0].arithmetic == "6,738,415,616 x 4 B / 8");
  const auto head = tuner::size_facts(llama, {}, printed_mib(500));
  REQUIRE(head.size() == 1);
  CHECK(head[0].what ==
        "model.embed_tokens.weight or its gradient in fp32, or another tensor as "
        "large");
  CHECK(head[0].arithmetic == "131,072,000 x 4 B");
  const auto mlp = tuner::size_facts(llama, {}, printed_mib(172));
  REQUIRE(mlp.size() == 1);
  CHECK(mlp[0].arithmetic == "45,088,768 x 4 B");
}

TEST_CASE("a size with two readings gives both") {
  const Model model = model_named("llama-3-8b");
  const auto facts = tuner::size_facts(model, {2, {}}, printed_gib(14.96));
  REQUIRE(facts.size() == 2);
  CHECK(facts[0].what == "a copy of the whole model in 16 bit");
  CHECK(facts[1].what == "one of 2 shards of the trained weights in fp32");
}

TEST_CASE("segments that many tensors share tell nothing") {
  CHECK(tuner::size_facts(model_named("gpt2"), {}, printed_mib(20)).empty());
  CHECK(tuner::size_facts(model_named("gpt2"), {}, printed_mib(2)).empty());
}

TEST_CASE("logits are known where the tokens are") {
  const auto facts = tuner::size_facts(model_named("llama-3-8b"), {8, 4096}, printed_gib(1.96));
  REQUIRE_FALSE(facts.empty());
  CHECK(facts.back().what == "logits of a micro-batch in fp32");
}

TEST_CASE("where nothing has the size the nearest within 2 % is told with its difference") {
  // exp_avg_sq of a vision model whose language model is this one (QwenLM, 32 ranks).
  const Model model = model_named("qwen3-30b-a3b");
  const auto facts = tuner::size_facts(model, {32, {}}, printed_gib(3.56));
  REQUIRE(facts.size() == 1);
  CHECK(facts[0].what == "one of 32 shards of the trained weights in fp32");
  CHECK(facts[0].off < 0.0);
  CHECK(facts[0].off > -0.003);
  CHECK(tuner::size_facts(model, {32, {}}, printed_gib(3.70)).empty());
}

TEST_CASE("without a model a size is logits of round numbers of tokens over known vocabularies") {
  const auto round = tuner::vocabulary_facts({}, printed_gib(2.32));
  REQUIRE_FALSE(round.empty());
  CHECK(std::any_of(round.begin(), round.end(), [](const tuner::SizeFact& fact) {
    return fact.arithmetic == "4,096 x 152,064 x 4 B";
  }));
  for (const tuner::SizeFact& fact : tuner::vocabulary_facts({{}, 4096}, printed_gib(2.32))) {
    CHECK(fact.arithmetic.starts_with("4,096 x "));
  }
  CHECK(tuner::vocabulary_facts({{}, 1000}, printed_gib(2.32)).empty());
  CHECK(tuner::vocabulary_facts({}, printed_mib(98)).empty());
}
