// Lengths of samples and of micro-batches that are padded to their longest one.
#include "model/step/sample_lengths.hpp"

#include <algorithm>
#include <numeric>

#include "model/plan/scenario_reader.hpp"
#include "model/predict/step_work.hpp"
#include "model/step/varied_lengths.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Dataset with_mean(double mean, std::optional<double> sd = std::nullopt) {
  Dataset dataset;
  dataset.mean_tokens = mean;
  dataset.tokens_sd = sd;
  return dataset;
}

Dataset with_lengths(std::vector<std::int64_t> lengths, LongSamples longer = LongSamples::cut) {
  Dataset dataset;
  dataset.lengths = std::move(lengths);
  dataset.longer = longer;
  return dataset;
}

double expected_longest(double mean, std::int64_t end, std::int64_t samples) {
  return SampleLengths(with_mean(mean), end).expected_longest(samples);
}

Plan plan_of(const std::string& dataset,
             const std::string& engine = "deepspeed",
             int stage = 2,
             int micro_batch = 1,
             int accumulation = 1) {
  const std::string text =
      R"({"model":{"model_type":"llama","hidden_size":512,"num_hidden_layers":3,
          "num_attention_heads":8,"intermediate_size":1408,"vocab_size":32000,
          "max_position_embeddings":4096},"cluster":"2xA100-80G",
          "workload":{"sequence_length":2048,"precision":"bf16","engine":")" +
      engine + R"(","micro_batch_size":)" + std::to_string(micro_batch) +
      R"(,"gradient_accumulation_steps":)" + std::to_string(accumulation) + R"(,"dataset":)" +
      dataset + R"(},"ds_config":{"bf16":{"enabled":true},"zero_optimization":{"stage":)" +
      std::to_string(stage) + "}}}";
  return resolve(parse_scenario(parse_json(text, "s.json").root, "s.json"));
}

// Where a dataset is refused.
std::string pointer_of(const std::string& dataset) {
  try {
    plan_of(dataset);
  } catch (const InputError& error) {
    return error.diagnostics().front().pointer;
  }
  return "";
}

double count(Bytes bytes) { return static_cast<double>(bytes.count()); }

Bytes reserved(const Plan& plan) { return simulator::simulate(plan).gpu.replayed_reserved; }

}  // namespace

TEST_CASE("the longest of a batch: from the mean of one to the end for many") {
  CHECK(expected_longest(300, 2048, 1) == Approx(300).epsilon(1e-3));
  CHECK(expected_longest(1500, 2048, 1) == Approx(1500));
  CHECK(expected_longest(300, 2048, 100000) == Approx(2048).epsilon(0.02));
  CHECK(expected_longest(2048, 2048, 4) == 2048);
  CHECK(expected_longest(5000, 2048, 4) == 2048);
  double last = 0.0;
  for (const std::int64_t b : {1, 2, 4, 8, 64}) {
    const double now = expected_longest(300, 2048, b);
    CHECK(now > last);
    last = now;
  }
  // Far below the end the maximum of b exponentials is mean times the harmonic number.
  CHECK(expected_longest(10, 100000, 4) == Approx(10 * (1 + 0.5 + 1.0 / 3 + 0.25)).epsilon(0.01));
  // Most samples cut at the end: so is the longest.
  CHECK(expected_longest(2000, 2048, 8) == Approx(2048).epsilon(1e-3));
}

TEST_CASE("a mean with its deviation is a lognormal distribution, cut or without its end") {
  const SampleLengths whole(with_mean(500, 200), 1'000'000);
  CHECK(whole.mean() == Approx(500).epsilon(0.01));
  // Half the samples have at most exp(mu) = mean / sqrt(1 + (sd / mean)^2) tokens.
  CHECK(whole.quantile(0.5) == Approx(500 / std::sqrt(1.16)).epsilon(1e-6));
  CHECK(whole.share_up_to(500 / std::sqrt(1.16)) == Approx(0.5));

  Dataset dataset = with_mean(500, 400);
  const SampleLengths cut(dataset, 512);
  dataset.longer = LongSamples::drop;
  const SampleLengths dropped(dataset, 512);
  CHECK(dropped.mean() < cut.mean());
  CHECK(cut.mean() < 500);
  CHECK(cut.quantile(0.9) == Approx(512));  // a third is longer
  CHECK(dropped.quantile(0.9) < 500);
  CHECK(dropped.share_up_to(512) == 1.0);
}

TEST_CASE("given lengths count as they are") {
  const SampleLengths two(with_lengths({1, 3}), 2048);
  CHECK(two.mean() == 2.0);
  CHECK(two.expected_longest(2) == 2.5);  // 1 in a quarter of the pairs
  const std::vector<std::int64_t> lengths{100, 200, 300, 4000};
  CHECK(SampleLengths(with_lengths(lengths), 2048).mean() == (600 + 2048) / 4.0);
  CHECK(SampleLengths(with_lengths(lengths, LongSamples::drop), 2048).mean() == 200.0);
  CHECK(SampleLengths(with_lengths(lengths), 2048).quantile(0.5) == 300.0);
  CHECK_FALSE(SampleLengths(with_lengths({4000, 5000}), 2048).vary());
}

TEST_CASE("padded lengths are spread over the distribution of the longest of a micro-batch") {
  Dataset dataset = with_mean(300);
  dataset.pad_to_multiple_of = 8;
  const std::vector<std::int64_t> one = padded_lengths(dataset, 2048, 1, 256);
  const std::vector<std::int64_t> four = padded_lengths(dataset, 2048, 4, 256);
  const auto mean = [](const std::vector<std::int64_t>& lengths) {
    return std::accumulate(lengths.begin(), lengths.end(), 0.0) /
           static_cast<double>(lengths.size());
  };
  CHECK(mean(one) == Approx(300 + 4).epsilon(0.02));  // rounded up by four on average
  CHECK(mean(four) == Approx(expected_longest(300, 2048, 4) + 4).epsilon(0.02));
  for (const std::int64_t tokens : four) {
    CHECK(tokens % 8 == 0);
    CHECK(tokens <= 2048);
  }
}

TEST_CASE("lengths that vary leave blocks of every size behind: more is reserved, not allocated") {
  const std::string alike = R"({"samples":1000})";
  const std::string vary = R"({"samples":1000,"mean_tokens":700})";
  for (const auto& [engine, stage] : {std::pair{"deepspeed", 0},
                                      std::pair{"deepspeed", 2},
                                      std::pair{"deepspeed", 3},
                                      std::pair{"ddp", 0},
                                      std::pair{"fsdp", 3}}) {
    CAPTURE(engine, stage);
    const StepResult one = simulator::simulate(plan_of(alike, engine, stage));
    const StepResult many = simulator::simulate(plan_of(vary, engine, stage));
    CHECK(many.gpu.replayed_reserved > one.gpu.replayed_reserved);
    // A block that is a little too large is taken whole, and counts with all of its bytes.
    CHECK(count(many.gpu.static_allocated) ==
          Approx(count(one.gpu.static_allocated)).epsilon(0.01));
    CHECK(count(many.gpu.peak_allocated) == Approx(count(one.gpu.peak_allocated)).epsilon(0.01));
    CHECK(many.step.total.seconds() == Approx(one.step.total.seconds()).epsilon(0.02));
  }
}

TEST_CASE("of a run's lengths those that set a mark come before the longest, step by step") {
  const std::string vary = R"({"samples":1000,"mean_tokens":700})";
  const auto alone = varied_lengths(plan_of(vary, "deepspeed", 2));
  std::int64_t shortest = alone.front().front();
  std::int64_t longest = shortest;
  for (std::size_t i = 1; i < alone.size(); ++i) {
    REQUIRE(alone[i].size() == 1);
    const std::int64_t length = alone[i].front();
    CHECK((length < shortest || length > longest));
    shortest = std::min(shortest, length);
    longest = std::max(longest, length);
  }
  const auto in_fours = varied_lengths(plan_of(vary, "deepspeed", 2, 1, 4));
  CHECK(in_fours.size() < alone.size());
  for (const std::vector<std::int64_t>& step : in_fours) CHECK(step.size() <= 4);
}

TEST_CASE("all micro-batches of a window have their own length") {
  const std::string vary = R"({"samples":1000,"mean_tokens":700})";
  const std::string alike = R"({"samples":1000,"mean_tokens":700,"padding":"max"})";
  for (const int accumulation : {3, 8, 100}) {
    CAPTURE(accumulation);
    CHECK(reserved(plan_of(vary, "deepspeed", 2, 1, accumulation)) >
          reserved(plan_of(alike, "deepspeed", 2, 1, accumulation)));
  }
}

TEST_CASE(
    "who pads to the longest of all, packs or tells no lengths has micro-batches of one length") {
  CHECK(varied_lengths(plan_of(R"({"samples":9})")).empty());
  CHECK(varied_lengths(plan_of(R"({"samples":9,"mean_tokens":300,"padding":"max"})")).empty());
  CHECK(varied_lengths(plan_of(R"({"samples":9,"mean_tokens":300,"padding":"packed"})")).empty());
  CHECK(varied_lengths(plan_of(R"({"samples":9,"lengths":[4096,5000]})")).empty());
  CHECK_FALSE(varied_lengths(plan_of(R"({"samples":9,"mean_tokens":300})")).empty());
}

TEST_CASE("a dataset that contradicts itself is refused at its key") {
  CHECK(pointer_of(R"({"tokens_sd":300})") == "/workload/dataset/tokens_sd");
  CHECK(pointer_of(R"({"mean_tokens":300,"lengths":[3]})") == "/workload/dataset/mean_tokens");
  CHECK(pointer_of(R"({"mean_tokens":300,"longer":"drop"})") == "/workload/dataset/longer");
  CHECK(pointer_of(R"({"lengths":[12,0]})") == "/workload/dataset/lengths/1");
  CHECK(pointer_of(R"({"lengths":[]})") == "/workload/dataset/lengths");
}
