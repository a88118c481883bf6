#include "tuner/avoid_oom.hpp"

#include <algorithm>

#include "model/plan/scenario_reader.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Scenario scenario_of(const char* cluster) {
  const Json document = Json::object(
      {{"model", "llama-2-7b"},
       {"cluster", cluster},
       {"workload", Json::object({{"sequence_length", 1024}})},
       {"ds_config",
        parse_json(R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}})", "test", {})
            .root}});
  return parse_scenario(document, "test");
}

}  // namespace

TEST_CASE("the smallest change is the first that fits, and those before it do not") {
  const Variations variations(scenario_of("8xA100-40G"));
  const AvoidOom answer = avoid_oom(variations, Resource::gpu_memory);
  REQUIRE_FALSE(answer.that_fit.empty());
  for (std::size_t i = 0; i < answer.that_fit.front(); ++i) CHECK_FALSE(answer.tried[i].fits());
  CHECK(answer.tried[answer.that_fit.front()].fits());
}

TEST_CASE("a smaller GPU than the catalog's needs a larger change") {
  const Variations whole(scenario_of("8xA100-80G"));
  const Variations small(scenario_of("8xA100-80G"), Bytes::gib(20));
  const AvoidOom easy = avoid_oom(whole, Resource::gpu_memory);
  const AvoidOom hard = avoid_oom(small, Resource::gpu_memory);
  REQUIRE_FALSE(easy.that_fit.empty());
  CHECK((hard.that_fit.empty() || hard.that_fit.front() > easy.that_fit.front()));
}

TEST_CASE("where no single change fits they are added up") {
  const Variations variations(scenario_of("8xA100-80G"), Bytes::gib(9));
  const AvoidOom answer = avoid_oom(variations, Resource::gpu_memory);
  const std::size_t singles = changes_against_oom(variations.base(), Resource::gpu_memory).size();
  REQUIRE_FALSE(answer.that_fit.empty());
  CHECK(answer.that_fit.front() >= singles);
  CHECK(answer.tried[answer.that_fit.front()].variation.changes.size() > 1);
}

TEST_CASE("one GPU has nothing to partition over") {
  const Variations variations(scenario_of("1xA100-80G"));
  for (const Variation& change : changes_against_oom(variations.base(), Resource::gpu_memory)) {
    const Knob* knob = std::get_if<Knob>(&change.changes.front().key);
    CHECK_FALSE((knob != nullptr && *knob == Knob::zero_stage && change.changes.size() == 1));
  }
}
