// Steps and time of a whole run.
#include "model/predict/job_time.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "model/plan/scenario_reader.hpp"
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
    return result.job->seconds().seconds();
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
  CHECK(some.job->padded_length < 2048);
  CHECK(none.job->padded_length == 2048);
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

// --- what the loop does beside its steps

namespace {

Plan with(const std::string& workload, std::int64_t samples = 32'000) {
  const std::string text =
      R"({"model":{"model_type":"llama","hidden_size":256,"num_hidden_layers":2,
          "num_attention_heads":4,"intermediate_size":512,"vocab_size":1000,
          "max_position_embeddings":4096},"cluster":{"nodes":1,"gpus_per_node":8,
          "gpu":"A100-80G","nvme":{"read_bandwidth":2e9,"write_bandwidth":1e9,
          "capacity_bytes":1e12}},
          "workload":{"sequence_length":2048,"micro_batch_size":4,
          "dataset":{"samples":)" +
      std::to_string(samples) + R"(,"epochs":2})" + workload + "}}";
  return resolve(parse_scenario(parse_json(text, "s.json").root, "s.json"));
}

JobTime job_of(const std::string& workload, PredictOptions options = {}) {
  return *predict(with(workload), options).job;
}

}  // namespace

TEST_CASE("how often: steps, a share of all, epochs, never; by steps the Trainer adds the last") {
  const auto count = [](Every::Unit unit, double n, bool end) {
    return times({unit, n}, 1010, 2.5, end);
  };
  CHECK(count(Every::Unit::steps, 500, false) == 2);
  CHECK(count(Every::Unit::steps, 500, true) == 3);
  CHECK(count(Every::Unit::steps, 505, true) == 2);  // the last one is one of them
  CHECK(count(Every::Unit::share, 0.25, true) == 4);
  CHECK(count(Every::Unit::epoch, 0, true) == 3);
  CHECK(count(Every::Unit::never, 0, true) == 0);
}

namespace {

// A run of `work` seconds, failures played at random: the mean of many.
double played_with_failures(double work, double interval, double checkpoint, double mean) {
  constexpr int kRuns = 4000;
  std::mt19937_64 random(7);
  std::exponential_distribution<double> failure(1.0 / mean);
  double all = 0.0;
  for (int run = 0; run < kRuns; ++run) {
    for (double done = 0.0; done < work - 1e-6; done += interval) {
      const double needed = interval + checkpoint;
      for (double left = failure(random); left < needed; left = failure(random)) {
        all += left;
        for (left = failure(random); left < checkpoint; left = failure(random)) all += left;
        all += checkpoint;  // read again
      }
      all += needed;
    }
  }
  return all / kRuns;
}

struct Failing {
  JobTime job;
  std::string sentence;
};

Failing failing(const std::string& save, int mtbf) {
  PredictOptions options;
  options.checkpoint_bandwidth = BytesPerSecond::of(2e5);  // a small model's takes minutes
  const Plan plan =
      with(R"(,"save_steps":")" + save + R"(","mtbf":)" + std::to_string(mtbf), 320'000'000);
  const StepResult result = predict(plan, options);
  Failing failing{*result.job, ""};
  for (const Phrase& one : result.assumptions) {
    if (one.english().find("failure") != std::string::npos) failing.sentence = one.english();
  }
  return failing;
}

}  // namespace

TEST_CASE("what failures cost is what runs with failures at random lose") {
  for (const char* save : {"0.25", "0.02"}) {
    CAPTURE(save);
    constexpr int kHours = 10;
    const JobTime job = failing(save, kHours).job;
    const double checkpoints = std::string(save) == "0.25" ? 4.0 : 50.0;
    const double saving = job[JobPart::saving].seconds();
    const double work = job.seconds().seconds() - saving - job[JobPart::failures].seconds();
    const double played =
        played_with_failures(work, work / checkpoints, saving / checkpoints, kHours * 3600.0);
    CHECK(job.seconds().seconds() == Approx(played).epsilon(0.03));
    CHECK(job[JobPart::failures] > Seconds::zero());
  }
}

TEST_CASE("the save_steps that is told loses least") {
  const Failing now = failing("0.25", 10);
  CAPTURE(now.sentence);
  const std::string mark = "with save_steps ";
  const std::size_t at = now.sentence.find(mark);
  REQUIRE(at != std::string::npos);
  const double best = std::stod(now.sentence.substr(at + mark.size()));
  const auto seconds = [](double steps) {
    return failing(std::to_string(std::llround(steps)), 10).job.seconds();
  };
  for (const double factor : {0.5, 0.8, 1.25, 2.0}) {
    CHECK(seconds(best) < seconds(best * factor) * 1.0005);
  }
}

TEST_CASE("failures without checkpoints, or more often than checkpoints, are not counted") {
  const Failing unsaved = failing("no", 10);
  CHECK(unsaved.job[JobPart::failures] == Seconds::zero());
  CHECK(unsaved.sentence.find("nothing that is counted saves") != std::string::npos);
  const Failing hopeless = failing("0.5", 1);
  CHECK(hopeless.job[JobPart::failures] == Seconds::zero());
  CHECK(hopeless.sentence.find("hardly ever done") != std::string::npos);
  CHECK(job_of("")[JobPart::failures] == Seconds::zero());
}

TEST_CASE("saving takes what a checkpoint takes, as often as it is written") {
  // 32000 samples on 8 GPUs by 4: 1000 steps an epoch.
  const JobTime usual = job_of("");  // every 500
  REQUIRE(usual.steps == 2000);
  const JobTime often = job_of(R"(,"save_steps":100)");
  CHECK(often[JobPart::saving].seconds() == Approx(5.0 * usual[JobPart::saving].seconds()));
  CHECK(usual[JobPart::saving] > Seconds::zero());
  CHECK(job_of(R"(,"save_steps":"no")")[JobPart::saving] == Seconds::zero());
  CHECK(job_of(R"(,"save_steps":"epoch")")[JobPart::saving].seconds() ==
        Approx(0.5 * usual[JobPart::saving].seconds()));
  PredictOptions slow;
  slow.checkpoint_bandwidth = BytesPerSecond::of(1e7);
  CHECK(job_of("", slow)[JobPart::saving] > usual[JobPart::saving]);
  CHECK(usual.seconds() > usual[JobPart::steps]);
}

TEST_CASE("batches made by workers cost nothing while they keep up") {
  const JobTime own = job_of("");
  CHECK(own[JobPart::dataloader] > Seconds::zero());
  CHECK(job_of(R"(,"dataloader_num_workers":4)")[JobPart::dataloader] == Seconds::zero());
  // 4 sequences of 2048 tokens in each of 2000 steps.
  const Coefficients c = with("").coefficients;
  CHECK(own[JobPart::dataloader].seconds() ==
        Approx(2000.0 * (c[Coefficient::dataloader_batch_seconds] +
                         8192.0 * c[Coefficient::dataloader_token_seconds])));
}

TEST_CASE("evaluation costs forward passes of its samples after each epoch") {
  const std::string evaluation = R"(,"evaluation":{"loss":{"samples":6400}})";
  const JobTime each = job_of(evaluation);
  CHECK(each[JobPart::evaluation] > Seconds::zero());
  const JobTime often = job_of(evaluation + R"(,"eval_steps":250)");
  CHECK(often[JobPart::evaluation].seconds() == Approx(4.0 * each[JobPart::evaluation].seconds()));
  CHECK(job_of(R"(,"evaluation":"loss")")[JobPart::evaluation] == Seconds::zero());
}

TEST_CASE("a loop of the user's own saves when it says so, and what is unknown is said") {
  const Plan plan = with(R"(,"frontend":"native")");
  const StepResult result = predict(plan);
  CHECK((*result.job)[JobPart::saving] == Seconds::zero());
  CHECK((*result.job)[JobPart::dataloader] == Seconds::zero());
  const auto said = [&](const char* sentence) {
    return std::count(result.assumptions.begin(), result.assumptions.end(), sentence) == 1;
  };
  CHECK(said("job: making batches is not counted (--dataloader-num-workers)"));
  CHECK(said("job: saving is not counted (--save-steps)"));
  CHECK(job_of(R"(,"frontend":"native","save_steps":1500)")[JobPart::saving] > Seconds::zero());
}

TEST_CASE("what is neither a count nor a word is refused") {
  for (const char* wrong : {"sometimes", "1.5", "-3", "1e12"}) {
    INFO(wrong);
    CHECK_THROWS_AS(with(R"(,"save_steps":")" + std::string(wrong) + "\""), InputError);
  }
}
