// Releases that go together: configs/software.json and who takes what of it.
#include "model/plan/software_sets.hpp"

#include <algorithm>
#include <filesystem>
#include <string>

#include "base/json.hpp"
#include "model/hardware/known_hardware.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Plan plan_of(const std::string& model, const std::string& cluster, const char* software = "{}") {
  Json document = Json::object({{"model", model}, {"cluster", cluster}});
  document["software"] = parse_json(software, "test").root;
  return resolve(parse_scenario(document, "test"));
}

std::string releases_of(const Plan& plan) {
  return to_string(plan.software.deepspeed_release) + " " + to_string(plan.software.torch) + " " +
         to_string(plan.software.transformers);
}

bool warns(const Plan& plan, const std::string& part) {
  return std::any_of(plan.warnings.begin(), plan.warnings.end(), [&](const std::string& text) {
    return text.find(part) != std::string::npos;
  });
}

}  // namespace

TEST_CASE("what nobody states is the newest set that has the GPU and the model") {
  CHECK(releases_of(plan_of("llama-3-8b", "8xA100-80G")) == "0.19.6 2.11.0 5.17.0");
  CHECK(releases_of(plan_of("qwen3-8b", "8xB200-180G")) == "0.19.6 2.11.0 5.17.0");
  CHECK(releases_of(plan_of("qwen3-8b", "8xV100-32G")) == "0.19.6 2.7.1 5.17.0");
  CHECK(releases_of(plan_of("chatglm2-6b", "8xA100-80G")) == "0.16.4 2.6.0 4.50.3");
  CHECK(releases_of(plan_of("baichuan2-7b", "8xA100-80G")) == "0.19.6 2.11.0 5.17.0");
}

TEST_CASE("a class goes with releases that know it and that it does not stop under") {
  Model model;
  model.model_type = "exaone";
  CHECK(to_string(software_for(model, nullptr, {}).transformers) == "5.24.0");
  model.model_type = "llama4";
  CHECK(to_string(software_for(model, nullptr, {}).transformers) == "5.17.0");
  const auto under = [&](const char* transformers) {
    return software_conflicts(
        model,
        gpu_of_key("a100_sxm_80gb"),
        {parse_version("0.19.6"), *parse_version("2.11.0"), *parse_version(transformers)});
  };
  CHECK(under("5.23.0").empty());
  REQUIRE(under("5.24.0").size() == 1);
  CHECK(under("5.24.0").front().english().find("reads image_outputs") != std::string::npos);
}

TEST_CASE("a stated release takes the others of a set that is not newer with it") {
  CHECK(releases_of(plan_of("llama-3-8b", "8xA100-80G", R"({"deepspeed":"0.16.4"})")) ==
        "0.16.4 2.6.0 4.50.3");
  CHECK(releases_of(plan_of("llama-3-8b", "8xA100-80G", R"({"deepspeed":"0.17.2"})")) ==
        "0.17.2 2.6.0 4.50.3");
  CHECK(releases_of(plan_of("llama-3-8b", "8xA100-80G", R"({"torch":"2.6"})")) ==
        "0.16.4 2.6.0 4.50.3");
  CHECK(releases_of(plan_of("llama-3-8b", "8xA100-80G", R"({"transformers":"4.44.2"})")) ==
        "0.14.2 2.2.0 4.44.2");
  CHECK(releases_of(plan_of("llama-3-8b", "8xA100-80G", R"({"torch":"2.12.1"})")) ==
        "0.19.6 2.12.1 5.17.0");
  // Older than every set: the oldest.
  CHECK(releases_of(plan_of("llama-3-8b", "8xA100-80G", R"({"torch":"1.13"})")) ==
        "0.14.2 1.13.0 4.40.2");
}

TEST_CASE("releases that do not go together are said") {
  CHECK(plan_of("qwen3-8b", "8xA100-80G").warnings.empty());
  CHECK(warns(plan_of("llama-3-8b", "8xA100-80G", R"({"deepspeed":"0.19.6","torch":"2.6"})"),
              "DeepSpeed 0.19.6 needs torch 2.7.0 or newer"));
  CHECK(warns(plan_of("qwen3-8b", "8xA100-80G", R"({"transformers":"4.50"})"),
              "does not know qwen3: 4.51.0 is the first"));
  CHECK(warns(plan_of("llama-3-8b", "8xV100-32G", R"({"torch":"2.11"})"), "has no kernels"));
  CHECK(warns(plan_of("chatglm2-6b", "8xA100-80G", R"({"transformers":"5.17"})"), "max_length"));
  // No set has both the GPU and the model: the GPU goes first.
  CHECK(warns(plan_of("chatglm2-6b", "8xB200-180G"), "max_length"));
}

TEST_CASE("every set that trains is whole, and no default is one that does not") {
  for (const SoftwareSet& set : software_sets()) {
    INFO(set.name);
    CHECK_FALSE(set.kernels.empty());
    CHECK_FALSE(set.outcome.empty());
    CHECK(set.trains == !set.image.empty());
    CHECK(set.trains == !set.accelerate.empty());
  }
}

TEST_CASE("a measurement's releases are those of reports where its source states none") {
  const Json document =
      parse_json(R"({"model":"gpt2","cluster":"V100-32G","software":{"deepspeed":"0.12.6"}})", "m")
          .root;
  const Plan plan = resolve(with_reported_software(parse_scenario(document, "m")));
  CHECK(releases_of(plan) == "0.12.6 2.6.0 4.50.0");
  CHECK_FALSE(plan.software.torch_said);
}

TEST_CASE("docs/software.md has every set of the table") {
  const std::string page = read_text_file(std::string(ZEROPLAN_SOURCE_DIR) + "/docs/software.md");
  for (const SoftwareSet& set : software_sets()) {
    const std::string row = "| " + set.name + " | " + to_string(set.deepspeed) + " | " +
                            to_string(set.torch) + " | " + to_string(set.transformers) + " |";
    INFO(row);
    CHECK(page.find(row) != std::string::npos);
    CHECK(page.find(set.outcome) != std::string::npos);
  }
}
