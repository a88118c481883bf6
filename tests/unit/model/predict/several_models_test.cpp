// `trainer` and `models` of a scenario: what becomes of them in a plan, and what they add to
// memory.
#include <string>

#include "base/json.hpp"
#include "model/plan/beside.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/plan/trainer.hpp"
#include "model/predict/io_run_phases.hpp"
#include "model/predict/predict.hpp"
#include "model/predict/run_phases.hpp"
#include "model/step/generation.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"

namespace zeroplan {
namespace {

// A small model on two GPUs; `workload`: more of its keys.
Scenario scenario(int stage, const std::string& workload) {
  const std::string text = R"({"model": {"model_type": "llama", "hidden_size": 512,
      "intermediate_size": 1536, "num_hidden_layers": 2, "num_attention_heads": 8,
      "vocab_size": 8000}, "cluster": "1x2xA100-80G", "ds_config": {"zero_optimization": {"stage": )" +
                           std::to_string(stage) + R"(}}, "workload": {"sequence_length": 256)" +
                           (workload.empty() ? "" : ", " + workload) + "}}";
  return parse_scenario(parse_json(text, "test"));
}

Bytes weights(const Plan& plan) {
  Elements elements;
  for (const Parameter& parameter : plan.model->parameters) elements += parameter.numel;
  return elements * DType::bf16;
}

std::string problem_of(const Scenario& said) {
  try {
    resolve(said);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("a scenario of one model has no others") {
  for (const char* said : {"", R"("trainer": "sft")"}) {
    const Plan plan = resolve(scenario(2, said));
    CHECK(plan.beside == nullptr);
    CHECK(plan.trainer == nullptr);
    CHECK_FALSE(run_phases(plan, predict(plan, {})).has_value());
  }
}

TEST_CASE("DPO's reference is a frozen copy, sharded as the trained model is") {
  const Plan two = resolve(scenario(2, R"("trainer": "dpo")"));
  REQUIRE(two.beside != nullptr);
  REQUIRE(two.beside->models.size() == 1);
  CHECK(two.beside->models[0].placement == Placement::replicated);
  CHECK(two.beside->models[0].plan->engine.stage == 0);
  CHECK(two.beside->passes.size() == 1);
  const Plan three = resolve(scenario(3, R"("trainer": "dpo")"));
  CHECK(three.beside->models[0].placement == Placement::sharded);
  CHECK(three.beside->models[0].plan->engine.stage == 3);
  for (const Parameter& parameter : three.beside->models[0].plan->model->parameters) {
    CHECK_FALSE(parameter.trainable);
  }
}

TEST_CASE("a replicated reference adds its weights to what stays between steps") {
  const Plan with = resolve(scenario(2, R"("trainer": "dpo")"));
  const Plan without =
      resolve(scenario(2, R"("trainer": {"dpo": {"precompute_reference": true}})"));
  const Bytes more = simulator::simulate(with, {}).gpu.static_allocated -
                     simulator::simulate(without, {}).gpu.static_allocated;
  const double share = more / weights(with);
  CHECK(share > 0.999);
  CHECK(share < 1.02);  // whole blocks of the allocator
}

TEST_CASE("a reference is sharded beside a trained model that is not") {
  const auto simulated = [](const char* placement) {
    const std::string models = std::string(R"("trainer": "dpo", "models": [{"role": "reference",
        "placement": ")") + placement +
                               R"("}])";
    return simulator::simulate(resolve(scenario(2, models)), {});
  };
  const StepResult whole = simulated("replicated"), sharded = simulated("sharded");
  const Bytes all = weights(resolve(scenario(2, "")));
  // Two ranks: half of each weight is elsewhere, but of the small ones that stay.
  CHECK((whole.gpu.static_allocated - sharded.gpu.static_allocated) / (all / 2) > 0.98);
  CHECK(whole.gpu.static_allocated - sharded.gpu.static_allocated <= all / 2);
}

TEST_CASE("with adapters the reference is the trained model without them") {
  const Plan plan = resolve(scenario(2, R"("trainer": "dpo", "method": "lora")"));
  REQUIRE(plan.beside->models.size() == 1);
  CHECK(plan.beside->models[0].placement == Placement::policy_weights);
  CHECK(plan.beside->models[0].plan->adapters_off);
  CHECK(plan.beside->passes[0].model == -1);
}

TEST_CASE("KTO scores mismatched completions with both models") {
  const Plan plan = resolve(scenario(2, R"("trainer": "kto")"));
  REQUIRE(plan.beside->passes.size() == 3);
  CHECK(plan.beside->passes[0].moment == PassMoment::before_forward);
  CHECK(plan.beside->passes[0].model == -1);
  CHECK(plan.beside->passes[1].moment == PassMoment::after_forward);
  CHECK(resolve(scenario(2, R"("trainer": {"kto": {"compares_mismatched": false}})"))
            .beside->passes.size() == 1);
}

TEST_CASE("another model, in host memory, is named and its weights are the host's") {
  const Plan plan = resolve(
      scenario(3, R"("trainer": "dpo", "models": [{"role": "reference", "model": "qwen2.5-0.5b",
            "placement": "cpu"}])"));
  REQUIRE(plan.beside->models.size() == 1);
  const auto run = run_phases(plan, predict(plan, {}));
  REQUIRE(run.has_value());
  CHECK(run->models[0].name == "qwen2.5-0.5b");
  CHECK(run->models[0].host > run->models[0].gpu);
}

TEST_CASE("phases are ranked, and so is what to move off the GPUs") {
  const Plan plan = resolve(scenario(
      2, R"("trainer": "dpo", "evaluation": {"logits": {"batch_size": 64, "samples": 4096}})"));
  const StepResult result = simulator::simulate(plan, {});
  const auto run = run_phases(plan, result);
  REQUIRE(run.has_value());
  CHECK(run->phases[run->peak].kind == RunPhaseKind::evaluation);
  for (const RunPhase& phase : run->phases) {
    CHECK(phase.allocated <= run->phases[run->peak].allocated);
  }
  REQUIRE(run->choices.size() >= 2);
  for (std::size_t i = 1; i < run->choices.size(); ++i) {
    CHECK(run->choices[i].freed <= run->choices[i - 1].freed);
  }
  Json document = Json::object();
  add_run_phases(*run, document);
  CHECK(document.find("phases")->items().size() == run->phases.size());
}

// How the verdict of a plan with an evaluation comes out.
StepResult judged(const std::string& evaluation) {
  return simulator::simulate(resolve(scenario(2, "\"evaluation\": " + evaluation)), {});
}

TEST_CASE("an evaluation that is larger than the GPU does not fit, and says what to set") {
  const StepResult small = judged(R"({"logits": {"batch_size": 8, "samples": 16}})");
  CHECK(small.fits);
  CHECK(small.limits.empty());
  // 65,536 samples x 256 tokens x 8000 words x 2 bytes x 2 (joined) are 500 GB on each GPU.
  const StepResult large = judged(R"({"logits": {"batch_size": 8, "samples": 65536}})");
  CHECK_FALSE(large.fits);
  CHECK(large.fit_probability < 0.01);
  REQUIRE_FALSE(large.limits.empty());
  CHECK(large.limits[0].resource == Resource::gpu_memory);
  CHECK(large.limits[0].needed.gib() > 450.0);
  CHECK(large.limits[0].largest_term.english().find("evaluation: logits of 4096 batches") == 0);
  // Every process keeps all of them on the host, so that parts of them do not help.
  CHECK(large.limits[0].cheapest_change.english().find("prediction_loss_only") == 0);
  CHECK(large.limits.back().resource == Resource::host_memory);
  CHECK(judged(R"({"loss": {"batch_size": 8, "samples": 65536}})").fits);
}

TEST_CASE("an evaluation whose logits the host has room for asks for eval_accumulation_steps") {
  const auto with_host = [](const std::string& evaluation) {
    Plan plan = resolve(scenario(2, "\"evaluation\": " + evaluation));
    plan.cluster.node.host_memory.value = Bytes::of(2'000'000'000'000);
    plan.cluster.node.host_memory.relative_sd = 0.0;
    plan.cluster.node.host_memory.confidence = Confidence::stated;
    return simulator::simulate(plan, {});
  };
  const StepResult result = with_host(R"({"logits": {"batch_size": 32, "samples": 12288}})");
  CHECK_FALSE(result.fits);
  REQUIRE(result.limits.size() == 1);
  CHECK(result.limits[0].cheapest_change == "eval_accumulation_steps 64");
  const std::string in_parts =
      R"({"logits": {"batch_size": 32, "samples": 12288, "accumulation_steps": 64}})";
  CHECK(with_host(in_parts).fits);
}

TEST_CASE("a batch of evaluation that is too large asks for a smaller one") {
  const StepResult result = judged(R"({"loss": {"batch_size": 65536}})");
  CHECK_FALSE(result.fits);
  REQUIRE_FALSE(result.limits.empty());
  CHECK(result.limits[0].cheapest_change.english().find("per_device_eval_batch_size ") == 0);
}

TEST_CASE("the verdict of the analytic estimate knows the evaluation, too") {
  const Plan plan =
      resolve(scenario(2, R"("evaluation": {"logits": {"batch_size": 8, "samples": 65536}})"));
  CHECK_FALSE(predict(plan, {}).fits);
}

TEST_CASE("generation by the model holds keys and values, and at stage 3 all weights") {
  const std::string grpo = R"("trainer": {"grpo": {"completion_length": 128)";
  const Plan two = resolve(scenario(2, grpo + "}}"));
  const Plan three = resolve(scenario(3, grpo + "}}"));
  const Plan apart = resolve(scenario(3, grpo + R"(, "gathers_model": false}})"));
  CHECK(generation_memory(two).gathered == Bytes::zero());
  CHECK(generation_memory(apart).gathered == Bytes::zero());
  CHECK(generation_memory(three).gathered >= weights(three));
  // 2 (keys, values) x 8 heads x 64 x 256 tokens x 2 layers x 2 bytes
  CHECK(generation_memory(two).cache == Bytes::of(2 * 8 * 64 * 256 * 2 * 2));
  CHECK(two.beside->models.empty());  // beta 0
}

TEST_CASE("GRPO's defaults are those of the TRL that trains") {
  const auto beside = [](const std::string& trl, const std::string& trainer) {
    Scenario said = scenario(2, R"("trainer": )" + trainer);
    said.set(ScenarioKey::trl_version, Json(trl), {"test", ""});
    return resolve(said);
  };
  CHECK(beside("0.19.1", R"("grpo")").beside->models.empty());
  const Plan before = beside("0.18.2", R"("grpo")");
  CHECK(before.trainer->beta == 0.04);
  CHECK(before.beside->models.size() == 1);
  CHECK(beside("0.18.2", R"({"grpo": {"beta": 0.0}})").beside->models.empty());
  REQUIRE(before.warnings.size() == 1);
  CHECK(before.warnings.front().english().find("num_generations 8 does not divide the 2 seq") !=
        std::string::npos);
  CHECK(beside("0.18.2", R"({"grpo": {"completions": 2}})").warnings.empty());
  CHECK(beside("0.14.0", R"("grpo")").warnings.size() == 1);  // its batch counts prompts
}

// Logits of the forward phase in units of all of them in fp32: 2 rows x 256 tokens x 8000 words.
double wide_logits(const std::string& workload) {
  const Plan plan = resolve(scenario(2, workload));
  const GpuMemory gpu = predict(plan, {}).gpu;
  const Bytes logits =
      at(gpu.by_phase[static_cast<std::size_t>(Phase::forward)], MemoryCategory::logits);
  return logits / Bytes::of(2 * 256 * 8000 * 4);
}

TEST_CASE("LLaMA-Factory's preferences have all logits in fp32") {
  // Held, dense for log_softmax, and its result.
  const double alone =
      wide_logits(R"("trainer": {"dpo": {"code": "llama-factory", "precompute_reference": true}})");
  CHECK(alone > 2.9);
  CHECK(alone < 3.1);
  // The trained model's are held and its log-probabilities saved while the reference has its three.
  const double both = wide_logits(R"("trainer": {"dpo": {"code": "llama-factory"}})");
  CHECK(both > 4.9);
  CHECK(both < 5.1);
  // Liger is asked to leave them (require_logits).
  const double liger = wide_logits(
      R"("fused_loss": true, "trainer": {"dpo": {"code": "llama-factory", "precompute_reference": true}})");
  CHECK(liger > 2.9);
  // No default of TRL: LLaMA-Factory says its checkpointing itself.
  const Plan plan = resolve(scenario(2, R"("trainer": {"dpo": {"code": "llama-factory"}})"));
  CHECK(plan.workload.activation_checkpointing == ActivationCheckpointing::none);
}

TEST_CASE("LLaMA-Factory's KTO keeps copies of its rows and scores mismatched ones behind them") {
  const Plan plan = resolve(scenario(2, R"("trainer": {"kto": {"code": "llama-factory"}})"));
  REQUIRE(plan.beside->passes.size() == 3);
  CHECK(plan.beside->passes[0].model == -1);
  CHECK(plan.beside->passes[0].moment == PassMoment::after_forward);
  // Copies and log-probabilities of the trained model; the reference's earlier ones and three.
  const double logits =
      wide_logits(R"("micro_batch_size": 2, "trainer": {"kto": {"code": "llama-factory"}})");
  CHECK(logits > 5.9);
  CHECK(logits < 6.1);
}

TEST_CASE("TRL checkpoints reentrantly with adapters at stage 3, whatever it is told") {
  const std::string lora =
      R"("trainer": "dpo", "method": "lora", "activation_checkpointing": "full")";
  CHECK_FALSE(resolve(scenario(2, lora)).workload.checkpoint_reentrant);
  CHECK(resolve(scenario(3, lora)).workload.checkpoint_reentrant);
  const Plan told = resolve(scenario(3, lora + R"(, "checkpoint_reentrant": false)"));
  CHECK(told.workload.checkpoint_reentrant);
  REQUIRE_FALSE(told.warnings.empty());
  CHECK(told.warnings.back().english().find("whatever use_reentrant says") != std::string::npos);
}

TEST_CASE("a vLLM engine that sleeps gives its share back while the model trains") {
  const std::string colocated =
      R"("trainer": {"grpo": {"completion_length": 128, "generation": "colocated", "memory_share": 0.3)";
  const Plan awake = resolve(scenario(2, colocated + "}}"));
  const Plan asleep = resolve(scenario(2, colocated + R"(, "sleeps": true}})"));
  const Bytes difference = simulator::simulate(awake, {}).gpu.static_allocated -
                           simulator::simulate(asleep, {}).gpu.static_allocated;
  const double share = difference / server_share(awake);
  CHECK(share > 0.999);
  CHECK(share < 1.001);
}

Elements elements_of(const Model& model) {
  Elements elements;
  for (const Parameter& parameter : model.parameters) elements += parameter.numel;
  return elements;
}

TEST_CASE(
    "PPO trains a value model in the policy's engine, beside a reference and a reward model") {
  const Plan plan = resolve(scenario(2, R"("trainer": "ppo")"));
  const Plan alone = resolve(scenario(2, ""));
  REQUIRE(plan.model->policy != nullptr);
  // The head of 8,000 words gives way to one number a token.
  const Elements policy = elements_of(*alone.model);
  const Elements value = policy - Elements::of(8000 * 512) + Elements::of(512);
  CHECK(elements_of(*plan.model) == policy + value);
  CHECK(plan.engine_parameters.size() == plan.model->parameters.size());
  REQUIRE(plan.beside->models.size() == 3);
  CHECK(plan.beside->models[0].role == ModelRole::reference);
  CHECK(plan.beside->models[0].placement == Placement::replicated);
  CHECK(plan.beside->models[1].role == ModelRole::critic);
  CHECK(plan.beside->models[1].placement == Placement::policy_engine);
  CHECK(plan.beside->models[2].role == ModelRole::reward);
  CHECK(elements_of(*plan.beside->models[2].plan->model) == value);
  CHECK(resolve(scenario(3, R"("trainer": "ppo")")).beside->models[2].placement ==
        Placement::sharded);
  const StepResult result = simulator::simulate(plan, {});
  const double states = at(result.gpu.by_phase[static_cast<std::size_t>(Phase::step)],
                           MemoryCategory::optimizer_states) /
                        (elements_of(*plan.model) * DType::fp32);
  CHECK(states > 0.99);  // master, momentum and variance on two ranks: 6 bytes an element
  CHECK(states < 1.6);
}

TEST_CASE("a critic is of the reward model's size, where that is said and it is not") {
  const std::string models = R"("trainer": "ppo", "models": [{"role": "reward", "model": "gpt2"})";
  const Plan both = resolve(scenario(2, models + "]"));
  CHECK(both.model->value_model->architecture == "GPT2ForSequenceClassification");
  CHECK(both.model->policy->architecture == "LlamaForCausalLM");
  const Plan own = resolve(scenario(2, models + R"(, {"role": "critic", "model": "opt-125m"}])"));
  CHECK(own.model->value_model->model_type == "opt");
}

TEST_CASE("with adapters PPO's value model trains whole") {
  const Plan plan = resolve(scenario(2, R"("trainer": "ppo", "method": "lora")"));
  std::int64_t adapters = 0;
  for (const Parameter& parameter : plan.model->parameters) {
    const bool value = parameter.name.starts_with(kValuePrefix);
    const bool adapter = parameter.name.find("lora_") != std::string::npos;
    CHECK(parameter.trainable == (value || adapter));
    adapters += adapter ? 1 : 0;
  }
  CHECK(adapters > 0);
  CHECK(plan.beside->models[0].placement == Placement::policy_weights);
  CHECK(plan.beside->models[0].plan->part == ModelPart::policy);
}

TEST_CASE("the logits of PPO's rollout stay while the policy trains") {
  const auto allocated = [](const char* length) {
    const std::string trainer = std::string(R"("micro_batch_size": 4, "trainer": {"ppo":
        {"completion_length": )") +
                                length + "}}";
    return simulator::simulate(resolve(scenario(2, trainer)), {}).gpu.static_allocated;
  };
  // 4 rows of 200 more tokens, 8,000 words, fp32; the allocator leaves up to 1 MiB of a block
  // whole.
  const Bytes more = allocated("232") - allocated("32"), logits = Bytes::of(4LL * 200 * 8000 * 4);
  CHECK(more > logits - Bytes::mib(1));
  CHECK(more < logits + Bytes::mib(1));
}

TEST_CASE("PPO's micro-steps repeat, many of them and in several mini-batches") {
  const auto allocated = [](int accumulation, const char* mini_batches) {
    const std::string workload =
        R"("gradient_accumulation_steps": )" + std::to_string(accumulation) +
        R"(, "trainer": {"ppo": {"rollout_rows": 1, "mini_batches": )" + mini_batches + "}}";
    return simulator::simulate(resolve(scenario(2, workload)), {}).gpu.peak_allocated;
  };
  // 6 samples more: logits of 53 tokens of 8,000 words in fp32, once in what stays.
  const Bytes more = allocated(12, "1") - allocated(6, "1"),
              logits = Bytes::of(6LL * 53 * 8000 * 4);
  CHECK(more > logits - Bytes::mib(2));
  CHECK(more < logits * 2 + Bytes::mib(2));
  CHECK(allocated(12, "12") < allocated(12, "1"));
  CHECK(allocated(12, "3") > Bytes::zero());
}

TEST_CASE("a PPO scenario resolves again to itself") {
  const Scenario said = scenario(3, R"("trainer": {"ppo": {"rollout_rows": 2, "epochs": 1}})");
  const Plan plan = resolve(said);
  const Json document = scenario_document(plan, said);
  const Scenario again = parse_scenario(document, "test");
  CHECK(scenario_document(resolve(again), again).dump() == document.dump());
}

TEST_CASE("what PPO's trainer does not have is refused") {
  const std::string ppo = R"("trainer": "ppo")";
  CHECK(problem_of(scenario(2, ppo + R"(, "engine": "fsdp")")).find("FSDP") != std::string::npos);
  CHECK(problem_of(scenario(2, R"("trainer": {"ppo": {"completions": 2}})")).find("key") !=
        std::string::npos);
  Scenario newer = scenario(2, ppo);
  newer.set(ScenarioKey::trl_version, Json("1.13.0"), {"test", "trl"});
  CHECK(problem_of(newer).find("0.12 to 1.12") != std::string::npos);
}

TEST_CASE("what cannot be is refused with its place") {
  CHECK(problem_of(scenario(2, R"("trainer": "dop")")).find("sft, dpo, kto") != std::string::npos);
  CHECK(problem_of(scenario(2, R"("trainer": {"dpo": {"betta": 1}})")).find("beta") !=
        std::string::npos);
  CHECK(problem_of(scenario(2, R"("models": [{"role": "referee"}])")).find("reference, reward") !=
        std::string::npos);
  CHECK(problem_of(scenario(2, R"("trainer": "dpo", "frontend": "native")")).find("hf-trainer") !=
        std::string::npos);
  CHECK(
      problem_of(scenario(2, R"("models": [{"role": "reference", "placement": "policy_weights"}])"))
          .find("no adapters") != std::string::npos);
}

TEST_CASE("flags say models one by one") {
  const Json list = parse_flag(info(ScenarioKey::models), "reference,sharded\nreward=10B,cpu", "");
  REQUIRE(list.items().size() == 2);
  CHECK(list.items()[0].find("placement")->as_string() == "sharded");
  CHECK(list.items()[1].find("model")->as_string() == "10B");
}

}  // namespace
}  // namespace zeroplan
