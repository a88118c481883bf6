// Steps and time of a whole run.
#include "model/predict/job_time.hpp"

#include <cmath>
#include <string>

#include "model/predict/predict.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

struct Case {
  std::string dataset = R"("samples":20000,"epochs":3)";
  std::string frontend = "hf-trainer";
  int micro_batch = 4;
  int accumulation = 1;
  std::string transformers = "4.50";
};

Plan plan_of(const Case& c) {
  const std::string text =
      R"({"model":{"model_type":"llama","hidden_size":256,"num_hidden_layers":2,
          "num_attention_heads":4,"intermediate_size":512,"vocab_size":1000,
          "max_position_embeddings":4096},"cluster":"8xA100-80G",
          "workload":{"sequence_length":2048,"precision":"bf16","micro_batch_size":)" +
      std::to_string(c.micro_batch) + R"(,"gradient_accumulation_steps":)" +
      std::to_string(c.accumulation) + R"(,"frontend":")" + c.frontend + R"(","dataset":{)" +
      c.dataset + R"(}},"software":{"transformers":")" + c.transformers + R"("}})";
  return resolve(parse_scenario(parse_json(text, "s.json").root, "s.json"));
}

std::int64_t steps(const Case& c) { return job_steps(plan_of(c)); }

}  // namespace

TEST_CASE("an epoch is what a rank's loader yields: samples over ranks and batches, rounded up") {
  CHECK(steps({}) == 3 * 625);                                        // 20000 / 32
  CHECK(steps({.dataset = R"("samples":20001,"epochs":1)"}) == 626);  // one sample more
  CHECK(steps({.dataset = R"("samples":1,"epochs":2)"}) == 2);
}

TEST_CASE("the Trainer's accumulation: a last, shorter one counts since transformers 4.48") {
  const std::string dataset = R"("samples":20000,"epochs":1)";
  CHECK(steps({.dataset = dataset, .accumulation = 4}) == 157);
  CHECK(steps({.dataset = dataset, .accumulation = 4, .transformers = "4.46"}) == 156);
  // An epoch has at least one step.
  CHECK(steps({.dataset = R"("samples":10,"epochs":1)",
               .accumulation = 64,
               .transformers = "4.46"}) == 1);
}

TEST_CASE("DeepSpeed's own counter accumulates over the ends of epochs") {
  CHECK(steps({.dataset = R"("samples":20000,"epochs":3)",
               .frontend = "native",
               .accumulation = 4}) == 468);  // 1875 / 4, the rest never steps
}

TEST_CASE("packed samples fill whole sequences") {
  CHECK(steps({.dataset = R"("samples":20000,"epochs":1,"mean_tokens":512,"padding":"packed")"}) ==
        157);  // 5000 sequences / 32
}

TEST_CASE("short samples make a job shorter where batches are padded to their longest") {
  const auto seconds = [](const std::string& padding) {
    const Plan plan =
        plan_of({.dataset = R"("samples":20000,"epochs":3,"mean_tokens":300,"padding":")" +
                            padding + "\""});
    const StepResult result = predict(plan);
    return result.job_seconds.seconds();
  };
  CHECK(seconds("longest") < seconds("max"));
  CHECK(seconds("packed") < seconds("longest"));
}

TEST_CASE("the peak follows the longest sample whatever the mean is") {
  const StepResult some = predict(
      plan_of({.dataset = R"("samples":20000,"epochs":3,"mean_tokens":300,"padding":"longest")",
               .micro_batch = 1}));
  const StepResult none = predict(plan_of({.micro_batch = 1}));
  CHECK(some.gpu.peak_allocated == none.gpu.peak_allocated);
  CHECK(some.step.total == none.step.total);
  CHECK(some.job_padded_length < 2048);
  CHECK(none.job_padded_length == 2048);
}

TEST_CASE("rows of a micro-batch that end in padding need a mask, which a row alone does not") {
  const std::string vary = R"("samples":20000,"mean_tokens":300)";
  const StepResult padded = predict(plan_of({.dataset = vary}));
  const StepResult full = predict(plan_of({}));
  CHECK(padded.gpu.peak_allocated > full.gpu.peak_allocated);
  const StepResult packed =
      predict(plan_of({.dataset = R"("samples":20000,"mean_tokens":300,"padding":"packed")"}));
  CHECK(packed.gpu.peak_allocated == full.gpu.peak_allocated);
}
