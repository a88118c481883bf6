#include "model/plan/scenario.hpp"

#include "base/diagnostic.hpp"
#include "model/plan/scenario_reader.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Scenario read(const std::string& text) {
  return parse_scenario(parse_json(text, "s.json").root, "s.json");
}

std::vector<Diagnostic> problems(const std::string& text) {
  try {
    read(text);
  } catch (const InputError& error) {
    return error.diagnostics();
  }
  return {};
}

}  // namespace

TEST_CASE("every row of the scenario table is found under its key") {
  for (const ScenarioKeyInfo& row : kScenarioKeys) CHECK(info(row.key).pointer == row.pointer);
}

TEST_CASE("wrong keys and values are reported together with the nearest key") {
  const auto found = problems(R"({"modell":"7B","workload":{"micro_batch_size":0,"precision":"bf61",
                                  "sequence_lenght":5}})");
  REQUIRE(found.size() == 4);
  CHECK(found[0].pointer == "/modell");
  CHECK(found[0].hint.english().find("model") != std::string::npos);
  CHECK(found[1].pointer == "/workload/sequence_lenght");
  CHECK(found[1].hint.english().find("sequence_length") != std::string::npos);
  CHECK(found[2].pointer == "/workload/micro_batch_size");
  CHECK(found[3].hint.english().find("bf16") != std::string::npos);
}

TEST_CASE("whole numbers may be written as 2e3") {
  const Scenario said = read(R"({"workload":{"sequence_length":2e3}})");
  CHECK(said.find(ScenarioKey::sequence_length)->value.as_integer() == 2000);
  CHECK(problems(R"({"workload":{"sequence_length":2.5}})").size() == 1);
  CHECK(problems(R"({"workload":{"sequence_length":1e300}})").size() == 1);
}

TEST_CASE("null means absent") {
  CHECK(read(R"({"model":null,"workload":{"precision":null}})").find(ScenarioKey::model) ==
        nullptr);
}

TEST_CASE("flags override the document") {
  Scenario flags;
  flags.set(ScenarioKey::sequence_length, Json(512), {"command line", "--seq"});
  const Scenario both = overlay(read(R"({"workload":{"sequence_length":2048}})"), flags);
  CHECK(both.find(ScenarioKey::sequence_length)->value.as_integer() == 512);
  CHECK(both.find(ScenarioKey::sequence_length)->origin.pointer == "--seq");
}

TEST_CASE("a flag's text is checked like a document's value") {
  CHECK(parse_flag(info(ScenarioKey::micro_batch_size), "8").as_integer() == 8);
  CHECK_THROWS_AS(parse_flag(info(ScenarioKey::micro_batch_size), "8x"), InputError);
  CHECK_THROWS_AS(parse_flag(info(ScenarioKey::micro_batch_size), "99999999999999999999"),
                  InputError);
  CHECK(parse_flag(info(ScenarioKey::fused_loss), "true").as_boolean());
  CHECK(parse_flag(info(ScenarioKey::method), R"({"lora":{"rank":8}})").is_object());
}

TEST_CASE("flags replace what the ds_config inside the document says of the same thing") {
  const Scenario base = read(R"({"workload":{"micro_batch_size":1},"ds_config":{
      "train_batch_size":8,"train_micro_batch_size_per_gpu":1,"gradient_accumulation_steps":1,
      "bf16":{"enabled":true},"optimizer":{"type":"AdamW"},"zero_optimization":{"stage":2}}})");
  Scenario flags;
  flags.set(ScenarioKey::micro_batch_size, Json(4), {"command line", "--mbs"});
  flags.set(ScenarioKey::precision, Json("fp16"), {"command line", "--precision"});
  const Json changed = overlay(base, flags).find(ScenarioKey::ds_config)->value;
  CHECK(changed.find("train_micro_batch_size_per_gpu")->as_integer() == 4);
  CHECK(changed.find("gradient_accumulation_steps")->as_integer() == 1);
  CHECK(changed.find("train_batch_size") == nullptr);
  CHECK_FALSE(changed.find("bf16")->find("enabled")->as_boolean());
  CHECK(changed.find("fp16")->find("enabled")->as_boolean());
  CHECK(changed.find("optimizer") != nullptr);
  CHECK(changed.find("zero_optimization")->find("stage")->as_integer() == 2);
}

TEST_CASE("a total batch alone stays, and so does a ds_config that flags name or that is a file") {
  Scenario flags;
  flags.set(ScenarioKey::micro_batch_size, Json(4), {"command line", "--mbs"});
  const Scenario total = overlay(read(R"({"ds_config":{"train_batch_size":64}})"), flags);
  CHECK(total.find(ScenarioKey::ds_config)->value.find("train_batch_size")->as_integer() == 64);
  const Scenario file = overlay(read(R"({"ds_config":"ds.json"})"), flags);
  CHECK(file.find(ScenarioKey::ds_config)->value.as_string() == "ds.json");
}
