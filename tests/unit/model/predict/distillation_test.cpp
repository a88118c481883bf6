// `trainer` gkd of a scenario: its teacher, its loss and what both take.
#include <string>

#include "base/json.hpp"
#include "model/plan/beside.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/plan/trainer.hpp"
#include "model/predict/beside_memory.hpp"
#include "model/predict/predict.hpp"
#include "model/predict/run_phases.hpp"
#include "model/predict/step_work.hpp"
#include "model/step/generation.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"

namespace zeroplan {
namespace {

constexpr std::int64_t kWords = 8000, kTokens = 256;
constexpr const char* kTeacher =
    R"("teacher": {"model_type": "llama", "hidden_size": 768, "intermediate_size": 2048,
       "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4,
       "vocab_size": 8000})";

// A small student on two GPUs; `workload`: more of its keys.
Scenario scenario(int stage, const std::string& workload) {
  const std::string text = R"({"model": {"model_type": "llama", "hidden_size": 512,
      "intermediate_size": 1536, "num_hidden_layers": 2, "num_attention_heads": 8,
      "vocab_size": 8000}, "cluster": "1x2xA100-80G", "ds_config": {"zero_optimization": {"stage": )" +
                           std::to_string(stage) +
                           R"(}}, "workload": {"sequence_length": 256, "micro_batch_size": 1, )" +
                           R"("activation_checkpointing": "none", )" + workload + "}}";
  return parse_scenario(parse_json(text, "test"));
}

Scenario distilled(int stage, const std::string& settings, const std::string& more = "") {
  return scenario(
      stage,
      R"("trainer": {"gkd": {)" + settings + "}}, " + kTeacher + (more.empty() ? "" : ", " + more));
}

std::string problem_of(const Scenario& said) {
  try {
    resolve(said);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Of the logits' format, without the last position.
Bytes of_logits(double tensors) {
  return Bytes::nearest(tensors * static_cast<double>((kTokens - 1) * kWords * 2));
}

TEST_CASE("a student's teacher runs between its logits and its loss") {
  const Plan plan = resolve(distilled(2, R"("lmbda": 0.0)"));
  REQUIRE(plan.beside != nullptr);
  REQUIRE(plan.beside->models.size() == 1);
  const BesideModel& teacher = plan.beside->models[0];
  CHECK(teacher.role == ModelRole::teacher);
  CHECK(teacher.placement == Placement::replicated);
  CHECK(teacher.plan->model->shape.hidden == 768);
  CHECK(resolve(distilled(3, "")).beside->models[0].placement == Placement::sharded);
  REQUIRE(plan.beside->passes.size() == 1);
  CHECK(plan.beside->passes[0].moment == PassMoment::in_loss);
}

TEST_CASE("a teacher returns its logits, and keys and values of its layers") {
  const Plan plan = resolve(distilled(2, R"("lmbda": 0.0)"));
  const CategoryBytes results = inference_results(*plan.beside->passes[0].plan);
  CHECK(at(results, MemoryCategory::logits) == Bytes::of(kTokens * kWords * 2));
  const std::int64_t heads = 4, head_dim = 768 / 8, layers = 3;
  CHECK(at(results, MemoryCategory::activations) ==
        Bytes::of(2 * layers * kTokens * heads * head_dim * 2));
}

TEST_CASE("a divergence has fifteen tensors beside both models' logits at its peak") {
  const auto rise = [](const std::string& settings) {
    const Plan plan = resolve(distilled(2, R"("lmbda": 0.0, )" + settings));
    const StepWork work = step_work(plan);
    REQUIRE(work.activations.loss.has_value());
    return at(work.activations.loss->peak, MemoryCategory::logits) -
           at(work.activations.loss->before, MemoryCategory::logits);
  };
  const auto is_about = [](Bytes bytes, double tensors) {
    const double share = bytes / of_logits(tensors);
    CHECK(share > 0.999);
    CHECK(share < 1.01);
  };
  is_about(rise(R"("beta": 0.5)"), 15.0);
  // Both scaled, both scored, an exponential, a product and its rows; the difference, where it is
  // saved, too.
  is_about(rise(R"("beta": 0.0)"), 7.0);
  is_about(rise(R"("beta": 1.0)"), 8.0);
}

TEST_CASE("what the data scores is more than what is generated, but where all is generated") {
  const auto scored = [](const std::string& settings) {
    const Plan plan = resolve(distilled(2, settings));
    return sum(step_work(plan).activations.loss->peak);
  };
  const std::string length = R"("completion_length": 16, "beta": 0.0, )";
  CHECK(scored(length + R"("lmbda": 1.0)") < scored(length + R"("lmbda": 0.5)"));
  CHECK(scored(length + R"("lmbda": 0.5)") == scored(length + R"("lmbda": 0.0)"));
  CHECK(scored(length + R"("lmbda": 0.0, "prompt_length": 200)") <
        scored(length + R"("lmbda": 0.0)"));
}

TEST_CASE("a student generates for each micro-batch, without a cache beside checkpoints") {
  const std::string steps = R"("gradient_accumulation_steps": 4)";
  const Plan with = resolve(distilled(2, R"("lmbda": 1.0)", steps));
  const Plan alone = resolve(distilled(2, R"("lmbda": 1.0)"));
  CHECK(generates_itself(with));
  CHECK(generation_memory(with).cache == generation_memory(alone).cache);
  CHECK(generation_memory(with).forward == Bytes::zero());
  Scenario said = distilled(2, R"("lmbda": 1.0)");
  said.set(ScenarioKey::activation_checkpointing, Json("full"), {});
  const GenerationMemory checkpointed = generation_memory(resolve(said));
  CHECK(checkpointed.cache == Bytes::zero());
  CHECK(checkpointed.forward > Bytes::zero());
  CHECK_FALSE(generates_itself(resolve(distilled(2, R"("lmbda": 0.0)"))));
}

TEST_CASE("the estimate of a distilling step comes near the simulation") {
  for (const int stage : {0, 2, 3}) {
    for (const char* settings : {R"("lmbda": 0.0)", R"("lmbda": 0.0, "beta": 0.0)"}) {
      const Plan plan = resolve(distilled(stage, settings));
      const double share =
          predict(plan, {}).gpu.peak_allocated / simulator::simulate(plan, {}).gpu.peak_allocated;
      CHECK(share > 0.97);
      CHECK(share < 1.03);
    }
  }
}

TEST_CASE("phases name what the teacher takes") {
  const Plan plan = resolve(distilled(2, R"("lmbda": 1.0)"));
  const StepResult result = simulator::simulate(plan, {});
  const auto run = run_phases(plan, result);
  REQUIRE(run.has_value());
  REQUIRE(run->models.size() == 1);
  CHECK(run->models[0].gpu > Bytes::zero());
  REQUIRE(run->phases.size() == 3);
  CHECK(run->phases[1].of == "teacher");
  CHECK(run->phases[1].allocated < run->phases[0].allocated);
  CHECK(run->phases[0].parts.size() == 2);
}

TEST_CASE("gkd refuses what it has no teacher for, and what TRL does not do") {
  const std::string gkd = R"("trainer": "gkd")";
  CHECK(says(problem_of(scenario(2, gkd)), "--teacher MODEL"));
  CHECK(says(problem_of(scenario(2, std::string(R"("trainer": "dpo", )") + kTeacher)),
             "--trainer gkd"));
  CHECK(says(problem_of(scenario(2, kTeacher)), "--trainer gkd"));
  CHECK(says(problem_of(scenario(2, gkd + R"(, "teacher": "gpt2")")), "8000 words"));
  CHECK(says(problem_of(distilled(2, "", R"("engine": "fsdp")")), "deepspeed or ddp"));
  CHECK(says(problem_of(distilled(2, "", R"("evaluation": "loss")")), "evaluation by gkd"));
  CHECK(says(problem_of(distilled(2, R"("seq_kd": true)")), "the teacher generates"));
  CHECK(problem_of(distilled(2, R"("seq_kd": false)")).empty());
  CHECK(says(problem_of(distilled(2, "", R"("models": [{"role": "reference"}])")),
             "a teacher alone"));
  CHECK(says(problem_of(scenario(2, R"("trainer": "minillm")")), "\"minillm\" is not"));
  Scenario old = distilled(2, "");
  old.set(ScenarioKey::trl_version, Json("1.12.0"), {});
  CHECK(says(problem_of(old), "TRL 1.14"));
}

TEST_CASE("a teacher may be one of the models, with a placement of its own") {
  const Plan plan = resolve(
      scenario(3,
               R"("trainer": "gkd", "models": [{"role": "teacher", "placement": "cpu", "model":
          {"model_type": "llama", "hidden_size": 768, "intermediate_size": 2048,
           "num_hidden_layers": 3, "num_attention_heads": 8, "vocab_size": 8000}}])"));
  REQUIRE(plan.beside->models.size() == 1);
  CHECK(plan.beside->models[0].placement == Placement::cpu);
}

TEST_CASE("a resolved distillation is the same when it is read again") {
  const Scenario said = distilled(2, R"("lmbda": 0.25, "beta": 1.0, "completion_length": 32)");
  const Plan plan = resolve(said);
  const Json document = scenario_document(plan, said);
  const Plan again = resolve(parse_scenario(parse_json(document.dump(), "test")));
  CHECK(again.trainer->lmbda == 0.25);
  CHECK(again.trainer->beta == 1.0);
  CHECK(again.trainer->generation.completion_length == 32);
  CHECK(again.beside->models[0].plan->model->shape.hidden == 768);
  CHECK(document.find("workload")->find("models") == nullptr);
}

}  // namespace
}  // namespace zeroplan
