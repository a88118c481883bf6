#include "evidence/accuracy.hpp"

#include <string>

#include "model/plan/scenario_reader.hpp"
#include "tests/catch.hpp"

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
