// A simulated step and what else a result says of it.
#include "simulator/simulate.hpp"

#include <algorithm>

#include "base/json.hpp"
#include "model/plan/scenario_reader.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Plan small_plan(const std::string& workload) {
  const std::string text =
      R"({"model":{"model_type":"llama","hidden_size":256,"num_hidden_layers":2,
          "num_attention_heads":4,"intermediate_size":512,"vocab_size":1000,
          "max_position_embeddings":4096},"cluster":"8xA100-80G",
          "ds_config":{"zero_optimization":{"stage":3},"bf16":{"enabled":true}},
          "workload":{"sequence_length":2048,"micro_batch_size":4)" +
      workload + "}}";
  return resolve(parse_scenario(parse_json(text, "s.json").root, "s.json"));
}

}  // namespace

TEST_CASE("a job's parts follow from the simulated step") {
  // 32000 samples on 8 GPUs by 4: 1000 steps.
  Plan plan = small_plan(R"(,"dataset":{"samples":32000,"epochs":1},"dataloader_num_workers":1)");
  const double batch = 1.0;  // seconds, longer than any step of such a model
  plan.coefficients.set(Coefficient::dataloader_batch_seconds, batch);
  plan.coefficients.set(Coefficient::dataloader_token_seconds, 0.0);
  const StepResult estimated = predict(plan);
  const StepResult simulated = simulator::simulate(plan);
  const double step = simulated.step.total.seconds();
  REQUIRE(step != Approx(estimated.step.total.seconds()));  // else it could follow from either
  const JobTime& job = *simulated.job;
  CHECK(job[JobPart::steps].seconds() == Approx(1000.0 * step));
  CHECK(job[JobPart::dataloader].seconds() == Approx(1000.0 * (batch - step)));
}

TEST_CASE("shorter steps of a job are estimated and scaled as the full one is") {
  const Plan plan = small_plan(R"(,"dataset":{"samples":32000,"epochs":1,"mean_tokens":400})");
  const StepResult estimated = predict(plan);
  const StepResult simulated = simulator::simulate(plan);
  const double ratio = simulated.step.total / estimated.step.total;
  REQUIRE(estimated.job->padded_length < 2048.0);
  CHECK((*simulated.job)[JobPart::steps].seconds() ==
        Approx(ratio * (*estimated.job)[JobPart::steps].seconds()));
}

TEST_CASE("a critic of a recorded class leaves its vocabulary's tied matrix to the embedding") {
  const char* const text = R"({"model":{"model_type":"helium","hidden_size":2560,
      "intermediate_size":7040,"num_hidden_layers":2,"num_attention_heads":20,
      "num_key_value_heads":20,"head_dim":128,"vocab_size":48000,"tie_word_embeddings":true},
      "cluster":"4xA100-80G",
      "ds_config":{"zero_optimization":{"stage":2},"bf16":{"enabled":true}},
      "workload":{"sequence_length":1024,"micro_batch_size":1,"trainer":"ppo","fused_loss":true}})";
  const Plan plan = resolve(parse_scenario(parse_json(text, "s.json").root, "s.json"));
  const double estimated = static_cast<double>(predict(plan).gpu.peak_allocated.count());
  const StepResult result = simulator::simulate(plan);
  CHECK(static_cast<double>(result.gpu.peak_allocated.count()) == Approx(estimated).epsilon(0.1));
}

TEST_CASE("a loop that empties the allocator's cache is not taken for a full GPU") {
  const StepResult result = simulator::simulate(small_plan(R"(,"trainer":"ppo")"));
  REQUIRE(result.gpu.peak_total * 2 < result.gpu.capacity);
  REQUIRE(result.gpu.allocator_flushes == 0);
  const auto says = [&](const char* words) {
    return std::any_of(result.warnings.begin(), result.warnings.end(), [&](const Phrase& warning) {
      return warning.english().find(words) != std::string::npos;
    });
  };
  CHECK(says("calls torch.cuda.empty_cache()"));
  CHECK_FALSE(says("nearly full"));
}
