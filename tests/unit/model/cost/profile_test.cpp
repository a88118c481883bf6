#include "model/cost/profile.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/predict.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Json json(const std::string& text) { return parse_json(text, "p.json").root; }

std::string profile_text(const std::string& values) {
  return R"({"schema":"zeroplan.profile/1","name":"here","date":"2026-11-22","values":[)" + values +
         "]}";
}

Profile profile(const std::string& values) {
  return parse_profile(json(profile_text(values)), "p.json", "");
}

std::vector<Diagnostic> problems(const std::string& text) {
  try {
    parse_profile(json(text), "p.json", "/profile");
  } catch (const InputError& error) {
    return error.diagnostics();
  }
  return {};
}

Plan plan_of(const std::string& cluster, const std::string& values) {
  Json scenario = json(R"({"model":"1.5B","workload":{"sequence_length":512},
      "ds_config":{"bf16":{"enabled":true},"zero_optimization":{"stage":2,
                   "offload_optimizer":{"device":"cpu"}}}})");
  scenario["cluster"] = json(cluster);
  if (!values.empty()) scenario["profile"] = json(profile_text(values));
  return resolve(parse_scenario(scenario, "s.json"));
}

}  // namespace

TEST_CASE("a profile's values stand over the tables' by card") {
  const Coefficient id = Coefficient::matmul_sustained_derate;
  const Profile both = profile(R"({"name":"matmul_sustained_derate","value":1.5},
      {"name":"matmul_sustained_derate","value":1.3,"relative_sd":0.01,"gpu":"a100"})");
  const auto of = [&](const char* card) { return Coefficients(card, both.coefficients); };
  CHECK(of("a100_sxm_80gb")[id] == 1.3);
  CHECK(of("a100_sxm_80gb").relative_sd(id) == 0.01);
  CHECK(of("a800_sxm_80gb")[id] == 1.3);                                  // as A100 in the tables
  CHECK(of("a100_pcie_80gb")[id] == Coefficients("a100_pcie_80gb")[id]);  // has its own row
  CHECK(of("h100_sxm")[id] == Coefficients("h100_sxm")[id]);
  CHECK(of("no such card")[id] == 1.5);
}

TEST_CASE("the row that decides is the longest prefix, else the analogue's, else the general one") {
  const Coefficient id = Coefficient::matmul_sustained_derate;
  CHECK(row_for_gpu(id, "a100_sxm_80gb") == "a100");
  CHECK(row_for_gpu(id, "a100_pcie_80gb") == "a100_pcie");
  CHECK(row_for_gpu(id, "a800_sxm_80gb") == "a100");
  CHECK(row_for_gpu(id, "no such card").empty());
  CHECK(row_for_gpu(Coefficient::step_fixed_seconds, "a100_sxm_80gb").empty());
}

TEST_CASE("a range that no plan can lie in and cards that are none are refused") {
  const auto found =
      problems(R"({"schema":"zeroplan.profile/1","values":[],"range":{"parameters":[3e10,1e8],)"
               R"("gpus":[8,8],"sequence_length":[1],"cards":{"a100":1}}})");
  REQUIRE(found.size() == 3);
  CHECK(found[0].pointer == "/profile/range/parameters");
  CHECK(found[1].pointer == "/profile/range/sequence_length");
  CHECK(found[2].pointer == "/profile/range/cards");
  CHECK(found[2].expected == "an array of strings");
}

TEST_CASE("all that is wrong with a profile is reported with its place") {
  const auto found = problems(profile_text(R"({"name":"cpu_adam_proces_rate","value":1e9},
      {"name":"cpu_cores","value":0},{"name":"host_memory_bandwidth","value":1e11,"unit":"GB/s"},
      {"name":"matmul_sustained_derate"},7)"));
  REQUIRE(found.size() == 5);
  CHECK(found[0].pointer == "/profile/values/0/name");
  CHECK(found[0].hint.english().find("cpu_adam_process_rate") != std::string::npos);
  CHECK(found[1].pointer == "/profile/values/1/value");
  CHECK(found[2].pointer == "/profile/values/2/unit");
  CHECK(found[3].got == "nothing");
  CHECK(found[4].expected == "an object");
  CHECK(problems(R"({"values":[]})").front().pointer == "/profile/schema");
  CHECK(problems(R"({"schema":"zeroplan.profile/1"})").front().pointer == "/profile/values");
  CHECK(problems("[]").front().expected == "a profile, an object");
}

TEST_CASE("figures of the machine fill what is unspecified, and what is stated stays") {
  const std::string values = R"({"name":"host_memory_bandwidth","value":2e10,"relative_sd":0.01},
      {"name":"cpu_cores","value":6},{"name":"nvme_read_bandwidth","value":1e9})";
  const Plan plan = plan_of(R"({"gpu":"A100-80G","cpu_cores":32})", values);
  const Node& node = plan.cluster.node;
  CHECK(node.host_memory_bandwidth.value == BytesPerSecond::of(2e10));
  CHECK(node.host_memory_bandwidth.confidence == Confidence::measured);
  CHECK(node.cpu_cores.value == 32);
  CHECK(node.cpu_cores.confidence == Confidence::stated);
  REQUIRE(node.nvme);
  CHECK(node.nvme->read_bandwidth.value == BytesPerSecond::of(1e9));
  for (const std::string& sentence : plan.assumptions) {
    CHECK_FALSE(sentence.starts_with("host memory bandwidth"));
  }
}

TEST_CASE("a figure that a document marks as assumed gives way to a measured one") {
  Json cluster = json(R"({"gpu":"A100-80G","host_memory_bandwidth":1e11,"cpu_cores":8,
      "assumed":["host_memory_bandwidth"],
      "assumptions":["host memory bandwidth 100 GB/s per node: assumed, as somebody's"]})");
  const Profile measured = profile(R"({"name":"host_memory_bandwidth","value":2e10},
                                      {"name":"cpu_cores","value":6})");
  std::vector<std::string> taken;
  cluster = with_machine_figures(cluster, measured, taken);
  CHECK(taken == std::vector<std::string>{"host_memory_bandwidth"});
  CHECK(cluster.find("host_memory_bandwidth")->as_number() == 2e10);
  CHECK(cluster.find("cpu_cores")->as_integer() == 8);
  CHECK(cluster.find("assumed")->items().empty());
  CHECK(cluster.find("assumptions")->items().empty());
}

TEST_CASE("CPU Adam of a profile changes the step") {
  const Plan plain = plan_of(R"("RTX4090-24G")", "");
  const Plan slow = plan_of(R"("RTX4090-24G")",
                            R"({"name":"cpu_adam_process_rate","value":2e8,"relative_sd":0.02})");
  CHECK(predict(slow).step.optimizer > predict(plain).step.optimizer * 1.5);
  CHECK(std::any_of(slow.assumptions.begin(), slow.assumptions.end(), [](const std::string& text) {
    return text.starts_with("profile here of 2026-11-22: 1 coefficients");
  }));
}

TEST_CASE("a resolved scenario holds its profile and resolves to the same again") {
  Json scenario = json(R"({"model":"1.5B","cluster":"RTX4090-24G"})");
  scenario["profile"] = json(profile_text(R"({"name":"cpu_cores","value":6},
      {"name":"matmul_sustained_derate","value":1.3,"gpu":"rtx_4090"})"));
  const Scenario said = parse_scenario(scenario, "s.json");
  const Plan once = resolve(said);
  const Json document = scenario_document(once, said);
  const Scenario again_said = parse_scenario(document, "s.json");
  const Plan again = resolve(again_said);
  CHECK(again.coefficients[Coefficient::matmul_sustained_derate] == 1.3);
  CHECK(again.cluster.node.cpu_cores.value == 6);
  CHECK(scenario_document(again, again_said) == document);
}

TEST_CASE("errors of own runs that are none are refused, each by its place") {
  const auto found = problems(R"({"schema":"zeroplan.profile/1","values":[],"validated":{
      "memory":[{"kind":"ZeRO-3","rows":0,"median_abs_error":0.1,"p95_abs_error":0.2}, 7,
                {"rows":1.5,"median_abs_error":-1,"p95_abs_error":0}],
      "time":{}}})");
  std::vector<std::string> pointers;
  for (const Diagnostic& problem : found) pointers.push_back(problem.pointer);
  CHECK(pointers == std::vector<std::string>{"/profile/validated/memory/0/rows",
                                             "/profile/validated/memory/1",
                                             "/profile/validated/memory/2/kind",
                                             "/profile/validated/memory/2/rows",
                                             "/profile/validated/memory/2/median_abs_error",
                                             "/profile/validated/time"});
  CHECK(problems(R"({"schema":"zeroplan.profile/1","values":[],"validated":[]})").size() == 1);
  CHECK(problems(R"({"schema":"zeroplan.profile/1","values":[],"validated":{}})").empty());
}
