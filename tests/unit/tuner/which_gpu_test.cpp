#include "tuner/which_gpu.hpp"

#include "base/diagnostic.hpp"
#include "model/families/hf_config.hpp"
#include "model/hardware/cluster.hpp"
#include "model/plan/scenario_reader.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Scenario scenario_of(const std::string& text) {
  return parse_scenario(parse_json(text, "s.json").root, "s.json");
}

tuner::PriceList prices(const std::string& rows) {
  return tuner::read_price_list(
      parse_json(R"({"currency":"EUR","source":"ours","prices":)" + rows + "}", "p.json"));
}

std::vector<Diagnostic> problems(const std::string& rows) {
  try {
    prices(rows);
  } catch (const InputError& error) {
    return error.diagnostics();
  }
  return {};
}

tuner::WhichQuestion question(const std::vector<std::string>& clusters) {
  tuner::WhichQuestion asked;
  asked.scenario =
      scenario_of(R"({"model":"gpt2","workload":{"sequence_length":256,"micro_batch_size":1}})");
  for (const std::string& text : clusters) asked.clusters.push_back({text, Json(text)});
  asked.cost.prices = tuner::built_in_prices();
  asked.ask_all = true;
  return asked;
}

}  // namespace

TEST_CASE("the built-in price list names known GPUs and clusters that can be read") {
  const tuner::PriceList list = tuner::built_in_prices();
  CHECK_FALSE(list.source.empty());
  for (const std::string& cluster : offered_clusters(list)) {
    CAPTURE(cluster);
    CHECK(tuner::price_of(list, cluster, parse_cluster_text(cluster)));
  }
}

TEST_CASE("a price is of a GPU and its number, or of a cluster as it is written") {
  const tuner::PriceList list = prices(
      R"([{"gpu":"4090","per_gpu_hour":0.5,"counts":[1,"2x2"]},{"cluster":"8xT4","per_hour":3}])");
  CHECK(offered_clusters(list) == std::vector<std::string>{"1x4090", "2x2x4090", "8xT4"});
  CHECK(tuner::price_of(list, "", parse_cluster_text("2x4xRTX-4090")) == 4.0);
  CHECK(tuner::price_of(list, "8xT4", parse_cluster_text("8xT4")) == 3.0);
  CHECK_FALSE(tuner::price_of(list, "", parse_cluster_text("4xT4")));
}

TEST_CASE("what is wrong in a price list is told with its place") {
  const auto found = problems(
      R"([{"gpu":"4099","per_gpu_hour":1},{"gpu":"T4","per_gpu_hour":-1},{"cluster":"8xT4"}])");
  REQUIRE(found.size() == 3);
  CHECK(found[0].pointer == "/prices/0/gpu");
  CHECK(found[1].pointer == "/prices/1/per_gpu_hour");
  CHECK(found[2].pointer == "/prices/2/per_hour");
  CHECK(problems("7").front().expected == "a list of prices");
}

TEST_CASE("of clusters that were named the smallest, the cheapest and the fastest are told") {
  tuner::WhichQuestion asked = question({"8xH100-80G-SXM", "1xRTX-3090", "2xA100-80G-SXM"});
  asked.cost.tokens = 1e9;
  const tuner::WhichAnswer answer = which_gpu(asked);
  REQUIRE(answer.choices.size() == 3);
  CHECK(answer.choices[*answer.smallest].asked.text == "1xRTX-3090");
  CHECK(answer.choices[*answer.fastest].asked.text == "8xH100-80G-SXM");
  REQUIRE(answer.cheapest);
  for (const tuner::ClusterChoice& choice : answer.choices) {
    CHECK(choice.cost.cost >= answer.choices[*answer.cheapest].cost.cost);
    CHECK(choice.cost.hours == Approx(1e9 / choice.tokens_per_second / 3600.0));
    CHECK(*choice.cost.cost == Approx(*choice.cost.price_per_hour * choice.cost.hours));
  }
}

TEST_CASE("a cluster that is too small is refused with what it lacks") {
  tuner::WhichQuestion asked = question({"1xT4", "1xRTX-4090"});
  asked.scenario.set(ScenarioKey::model, Json("65B"), {"test", ""});
  const tuner::WhichAnswer answer = which_gpu(asked);
  CHECK(answer.choices.empty());
  REQUIRE(answer.refusals.size() == 2);
  CHECK(answer.refusals[0].why.english().find("needs") != std::string::npos);
  CHECK_FALSE(answer.smallest);
}

TEST_CASE(
    "hours are of a billion tokens where nobody said how many, and of the dataset where one is") {
  tuner::WhichQuestion asked = question({"1xRTX-3090"});
  CHECK(which_gpu(asked).choices.at(0).cost.assumed);
  asked.scenario.set(ScenarioKey::dataset,
                     parse_json(R"({"samples":1000,"epochs":1,"padding":"max"})", "d").root,
                     {"test", ""});
  const tuner::ClusterChoice choice = which_gpu(asked).choices.at(0);
  CHECK_FALSE(choice.cost.assumed);
  CHECK(choice.cost.hours == Approx(choice.best.result.job->seconds().seconds() / 3600.0));
}

TEST_CASE("of a price list no cluster is left out that is cheaper, faster or smaller") {
  tuner::WhichQuestion asked = question({});
  asked.scenario = scenario_of(
      R"({"model":"qwen2.5-1.5b","workload":{"sequence_length":1024,"global_batch_size":32}})");
  for (const char* text :
       {"1xRTX-4090", "2xRTX-4090", "1xL4", "1xA100-80G-SXM", "8xA100-80G-SXM"}) {
    asked.clusters.push_back({text, Json(text)});
  }
  const tuner::WhichAnswer of_all = which_gpu(asked);
  asked.ask_all = false;
  const tuner::WhichAnswer of_few = which_gpu(asked);
  REQUIRE(of_all.cheapest);
  REQUIRE(of_few.cheapest);
  const auto text = [](const tuner::WhichAnswer& answer, std::size_t index) {
    return answer.choices[index].asked.text;
  };
  CHECK(text(of_few, *of_few.cheapest) == text(of_all, *of_all.cheapest));
  CHECK(text(of_few, *of_few.fastest) == text(of_all, *of_all.fastest));
  CHECK(text(of_few, *of_few.smallest) == text(of_all, *of_all.smallest));
  CHECK(of_few.refusals.size() <= of_all.refusals.size());
}

TEST_CASE("no cluster is too small that fit takes") {
  tuner::WhichQuestion asked = question({"4xRTX-4090"});
  asked.scenario = scenario_of(R"({"model":"qwen2.5-7b","workload":{"sequence_length":2048}})");
  const tuner::WhichAnswer answer = which_gpu(asked);
  Scenario alone = asked.scenario;
  alone.set(ScenarioKey::cluster, Json("4xRTX-4090"), {"test", ""});
  const tuner::FitAnswer fitted = tuner::fit(alone);
  REQUIRE(fitted.recommended.has_value() == !answer.choices.empty());
  CHECK(answer.choices[0].best.result.step.total ==
        fitted.strategies[*fitted.recommended].result.step.total);
}
