#include "evidence/accuracy.hpp"

#include <algorithm>
#include <string>

#include "evidence/validate.hpp"
#include "model/plan/scenario_reader.hpp"
#include "tests/catch.hpp"
#include "tests/evidence/measured_lines.hpp"

using namespace zeroplan;

namespace {

Plan plan_of(const std::string& workload, const std::string& zero) {
  const std::string text =
      R"({"model":"gpt2","cluster":"1x2xA100-80G","workload":{"sequence_length":128)" + workload +
      R"(},"ds_config":{"zero_optimization":{)" + zero + "}}}";
  return resolve(parse_scenario(parse_json(text, "s.json").root, "s.json"));
}

}  // namespace

TEST_CASE("a plan has the errors of its own kind, and those of all where none of it was compared") {
  const evidence::Accuracy plain = evidence::accuracy_of(plan_of("", R"("stage":1)"));
  CHECK(plain.rehearsed.kind == "ZeRO-1");
  CHECK(plain.memory.kind == "ZeRO-1");
  CHECK(plain.time.kind == "ZeRO-1");
  CHECK(plain.rehearsed.rows > 100);
  CHECK(plain.rehearsed.median <= plain.rehearsed.p95);
  CHECK(plain.time.rows > 50);
  CHECK(plain.time.p95 > 0.0);
  const evidence::Accuracy adapters =
      evidence::accuracy_of(plan_of(R"(,"method":"lora")", R"("stage":2)"));
  CHECK(adapters.rehearsed.kind == "LoRA and QLoRA");
  CHECK(adapters.memory.kind == "ZeRO-2");
  const evidence::Accuracy drive = evidence::accuracy_of(
      plan_of("", R"("stage":3,"offload_optimizer":{"device":"nvme","nvme_path":"/nvme"})"));
  CHECK(drive.memory.kind == "all");
  CHECK(drive.time.rows > plain.time.rows);
}

TEST_CASE("a profile with the errors of one's own runs sets them beside the published ones") {
  const double seconds =
      test::simulated(test::scenario_of(test::line_of("a", test::kStated, R"("step_seconds":1.0)")))
          .step.total.seconds();
  // A run that took twice what is predicted, and its repeat.
  const std::string twice = R"("step_seconds":)" + Json(2.0 * seconds).dump();
  const evidence::ValidationReport report = evidence::validate({evidence::parse_measurements(
      test::line_of("first", test::kStated, twice) + test::line_of("again", test::kStated, twice),
      "m.jsonl")});
  const Json document = evidence::validated_profile(Json(), report, "2026-11-30");
  const Profile profile = parse_profile(document, "mine.json", "");
  CHECK_FALSE(has_figures(profile));
  CHECK(profile.validated_memory.empty());
  REQUIRE(profile.validated_time.size() == 2);
  CHECK(profile.validated_time[0].kind == "ZeRO-2");
  CHECK(profile.validated_time[1].kind == "all");
  CHECK(profile.validated_time[0].rows == 1);
  CHECK(profile.validated_time[0].median == Approx(0.5).epsilon(1e-3));

  const auto with_profile = [&](int stage) {
    Json text = parse_json(R"({"model":"gpt2","cluster":"1x2xA100-80G",
        "workload":{"sequence_length":128}})",
                           "s.json")
                    .root;
    text["profile"] = document;
    text["ds_config"]["zero_optimization"]["stage"] = stage;
    return parse_scenario(text, "s.json");
  };
  const Plan plan = resolve(with_profile(2));
  const evidence::Accuracy known = evidence::accuracy_of(plan);
  CHECK_FALSE(known.own_memory);
  REQUIRE(known.own_time);
  CHECK(known.own_time->kind == "ZeRO-2");
  CHECK(evidence::accuracy_of(resolve(with_profile(3))).own_time->kind == "all");
  // Such a profile adds no assumption, and the plan's own document keeps it.
  CHECK(std::none_of(plan.assumptions.begin(), plan.assumptions.end(), [](const std::string& text) {
    return text.starts_with("profile");
  }));
  const Json kept = scenario_document(plan, with_profile(2));
  CHECK(*kept.find("profile")->find("validated") == *document.find("validated"));

  // A profile with a name and figures keeps them.
  Json measured = document;
  measured["name"] = "mine";
  measured["validated"] = Json();
  const Json again = evidence::validated_profile(measured, report, "2026-12-01");
  CHECK(again.find("name")->as_string() == "mine");
  CHECK(*again.find("validated")->find("time") == *document.find("validated")->find("time"));
}
