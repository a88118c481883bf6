#include "cli/fit_document.hpp"

#include <algorithm>
#include <string>

#include "model/plan/scenario_reader.hpp"
#include "tests/catch.hpp"
#include "tuner/fit.hpp"
#include "tuner/io_fit_answer.hpp"

using namespace zeroplan;

namespace {

Scenario scenario(const char* cluster) {
  return parse_scenario(Json::object({{"model", "llama-2-7b"}, {"cluster", cluster}}), "test");
}

}  // namespace

TEST_CASE("the document of fit in English is that of the answer") {
  const Scenario asked = scenario("8xA100-80G");
  const tuner::FitAnswer answer = tuner::quick_fit(asked, {});
  CHECK(fit_document(answer, asked, cli::Translation(cli::Language::en)) == to_json(answer, asked));
}

TEST_CASE("what a reader is shown of fit's document is in the reader's language") {
  const Scenario asked = scenario("8xA100-80G");
  const tuner::FitAnswer answer = tuner::quick_fit(asked, {});
  REQUIRE(answer.recommended);
  const Json document = fit_document(answer, asked, cli::Translation(cli::Language::zh));
  const Json& best = *document.find("recommended");
  const Json& result = *best.find("result");
  const auto has = [&](const char* sentence) {
    for (const Json& item : result.find("assumptions")->items()) {
      if (item.as_string() == sentence) return true;
    }
    return false;
  };
  CHECK(has("序列长度 2048：默认值，即 min(2048, 模型的最大长度)"));
  CHECK(has("A100-80G 按 A100-80G-SXM 处理：每节点 8 张时假设为 SXM"));
  bool offloads = false;
  for (const Json& row : document.find("strategies")->items()) {
    offloads = offloads || row.find("name")->as_string().starts_with("ZeRO-3，");
    CHECK(row.find("ds_config")->is_object());
  }
  CHECK(offloads);
  CHECK(*best.find("stage") == *to_json(answer, asked).find("recommended")->find("stage"));
}

TEST_CASE("what would make it fit is in the reader's language") {
  const Scenario asked =
      parse_scenario(Json::object({{"model", "llama-2-7b"},
                                   {"cluster", "1xA100-80G"},
                                   {"workload", Json::object({{"micro_batch_size", 256}})}}),
                     "test");
  const tuner::FitAnswer answer = tuner::fit(asked, {});
  REQUIRE_FALSE(answer.recommended);
  REQUIRE_FALSE(answer.remedies.empty());
  const Json document = fit_document(answer, asked, cli::Translation(cli::Language::zh));
  for (const Json& remedy : document.find("remedies")->items()) {
    const std::string change = remedy.find("change")->as_string();
    INFO(change);
    CHECK(std::any_of(change.begin(), change.end(), [](char c) { return c < 0; }));
  }
}
