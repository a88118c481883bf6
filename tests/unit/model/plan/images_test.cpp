// Images beside the text: documents of classes that were traced with two images of 1024x768 in each
// sequence (tests/reference/traced, transformers 5.17), against rehearsals of the same programs.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "model/families/freeze.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"
#include "tuner/fit.hpp"
#include "tuner/kit/kit.hpp"

using namespace zeroplan;

namespace {

Scenario scenario_of(const std::string& model, const std::string& workload, int stage = 2) {
  const std::string path =
      std::string(ZEROPLAN_SOURCE_DIR) + "/tests/reference/traced/" + model + ".graph.json";
  return parse_scenario(
      parse_json(R"({"model":")" + path + R"(","cluster":"1x2xA100-80G-PCIe","workload":{)" +
                     R"("precision":"bf16","optimizer":"adamw","attention":"sdpa",)" +
                     R"("frontend":"native","outputs_kept":false)" + workload +
                     R"(},"software":{"torch":"2.11.0","transformers":"5.17.0",)" +
                     R"("deepspeed":"0.19.6"},"ds_config":{"bf16":{"enabled":true},)" +
                     R"("gradient_accumulation_steps":1,"gradient_clipping":1.0,)" +
                     R"("zero_optimization":{"stage":)" + std::to_string(stage) +
                     R"(},"optimizer":{"type":"AdamW","params":{"lr":1e-5}}}})",
                 "scenario.json"));
}

std::string refused(const Scenario& scenario) {
  try {
    resolve(scenario);
  } catch (const InputError& error) {
    return error.diagnostics().front().pointer;
  }
  return "nothing";
}

}  // namespace

TEST_CASE("a model that was traced with images takes what its program takes") {
  struct Row {
    const char* model;
    int stage;
    const char* workload;
    double allocated, reserved;  // rehearsed, bytes; events ended at once
  };
  constexpr double kAllocated = 1e-3, kReserved = 0.02;
  for (const Row& row :
       {Row{"images/llava-2-m1", 2, R"(,"sequence_length":2048)", 8839585792.0, 10460594176.0},
        Row{"images/llava-2-m1", 3, R"(,"sequence_length":2048)", 10158568960.0, 14557380608.0},
        Row{"images/gemma3-2", 2, R"(,"sequence_length":2048)", 16757678080.0, 23725080576.0},
        Row{"images/qwen3-vl-2-m1",
            2,
            R"(,"sequence_length":4096)",
            17351866368.0,
            20036190208.0}}) {
    INFO(row.model << " at stage " << row.stage);
    const StepResult result =
        simulator::simulate(resolve(scenario_of(row.model, row.workload, row.stage)));
    const auto bytes = [](Bytes of) { return static_cast<double>(of.count()); };
    CHECK(std::abs(bytes(result.gpu.peak_allocated) / row.allocated - 1.0) < kAllocated);
    CHECK(std::abs(bytes(result.gpu.peak_reserved) / row.reserved - 1.0) < kReserved);
  }
}

TEST_CASE("what was traced with images is planned with those alone") {
  const auto with = [](const std::string& workload) {
    return refused(scenario_of("images/llava-2-m1", R"(,"sequence_length":2048)" + workload));
  };
  CHECK(with("") == "nothing");
  CHECK(with(R"(,"images":2,"image_size":"1024x768")") == "nothing");
  CHECK(with(R"(,"images":3,"image_size":"1024x768")") == "/workload/images");
  CHECK(with(R"(,"images":2)") == "/workload/images");  // of 1024x1024
  CHECK(with(R"(,"images":2,"image_size":"1024")") == "/workload/image_size");
  CHECK(with(R"(,"images":2,"image_size":"0x768")") == "/workload/image_size");
  CHECK(with(R"(,"micro_batch_size":2)") == "/workload/micro_batch_size");
  CHECK(refused(scenario_of("images/llava-2-m1", R"(,"sequence_length":1154)")) ==
        "/workload/sequence_length");
  CHECK(refused(scenario_of("llama", R"(,"images":1)")) == "/workload/images");
}

TEST_CASE("a search leaves the micro-batch that a model was traced with") {
  const tuner::FitAnswer answer =
      tuner::fit(scenario_of("images/llava-2-m1", R"(,"sequence_length":2048)"));
  REQUIRE(answer.headroom);
  CHECK(answer.headroom->largest_micro_batch == 1);
  CHECK(answer.headroom->longest_sequence >= 2048);
}

TEST_CASE("a program is told the outermost modules of a part that is frozen") {
  const auto modules = [](const std::string& model, const std::string& said) {
    return frozen_modules(*resolve(scenario_of(model, R"(,"sequence_length":4096)")).model, said);
  };
  CHECK(modules("images/llava-2-m1", "vision") == "model.vision_tower");
  CHECK(modules("images/llava-2-m1", "projector,lm_head") == "model.multi_modal_projector,lm_head");
  CHECK(modules("images/qwen3-vl-2-m1", "projector") ==
        "model.visual.merger,model.visual.deepstack_merger_list");
}

TEST_CASE("a kit for images has what its program makes them with") {
  const Scenario scenario = scenario_of(
      "images/llava-2-m1",
      R"(,"sequence_length":2048,"freeze":"vision","images":2,"image_size":"1024x768")");
  const Plan plan = resolve(scenario);
  const std::vector<tuner::KitFile> files =
      tuner::make_kit(plan, scenario_document(plan, scenario), simulator::simulate(plan));
  const auto text = [&](const std::string& path) {
    const auto found = std::find_if(
        files.begin(), files.end(), [&](const tuner::KitFile& file) { return file.path == path; });
    return found == files.end() ? std::string() : found->text;
  };
  CHECK(text("kit/images.py").find("class TextWithImages") != std::string::npos);
  CHECK(text("kit/model/config.json").find("\"model_type\": \"llava\"") != std::string::npos);
  CHECK(text("kit/model/preprocessor_config.json").find("LlavaImageProcessor") !=
        std::string::npos);
  CHECK(text("kit/requirements.txt").find("pillow") != std::string::npos);
  const Json said = parse_json(text("kit/scenario.json"), "scenario.json").root;
  CHECK(*said.find("workload")->find("freeze") == Json("model.vision_tower"));
  CHECK(text("kit/llamafactory.yaml").empty());
}

TEST_CASE("parts of a model are frozen by name") {
  const auto trained = [](const std::string& freeze) {
    const Plan plan = resolve(scenario_of(
        "images/llava-2-m1", R"(,"sequence_length":2048,"freeze":")" + freeze + R"(")"));
    std::string first, last;
    for (const Parameter& parameter : plan.model->parameters) {
      if (!parameter.trainable) continue;
      if (first.empty()) first = parameter.name;
      last = parameter.name;
    }
    return first + " " + last;
  };
  CHECK(trained("vision") == "model.multi_modal_projector.linear_1.weight lm_head.weight");
  CHECK(trained("vision,projector") == "model.language_model.embed_tokens.weight lm_head.weight");
  CHECK(trained("model.language_model,lm_head,projector").starts_with("model.vision_tower."));
  CHECK(trained("*.weight").ends_with(".bias"));
  const auto refuses = [](const std::string& freeze) {
    return refused(scenario_of("images/llava-2-m1",
                               R"(,"sequence_length":2048,"freeze":")" + freeze + R"(")"));
  };
  CHECK(refuses("model.visual") == "/workload/freeze");
  CHECK(refuses("vision,") == "/workload/freeze");
  CHECK(refuses("*") == "/workload/freeze");
}
