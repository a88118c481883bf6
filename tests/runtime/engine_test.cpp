// The engine's numbers: losses are those of one rank without ZeRO, whatever the stage, the number
// of ranks and the knobs.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "model/engine/embedded.hpp"
#include "runtime/train/trainer.hpp"
#include "tests/catch.hpp"
#include "tests/runtime/test_model.hpp"

namespace zeroplan::runtime {
namespace {

constexpr int kRows = 8;  // of a step, over all ranks and micro-steps
constexpr int kSteps = 8;

struct Run {
  test::SmallModelSizes sizes;
  EngineConfig config;
  int groups = 1;
  int threads = 1;
  int steps = kSteps;

  TrainingReport train() {
    const test::SmallModel small = test::small_model(sizes);
    make_embedded(config);
    TrainingSetup setup{.model = &small.model, .graph = &small.graph};
    for (const Parameter& parameter : small.model.parameters) {
      const bool matrix = parameter.shape.size() > 1;
      setup.parameters.push_back(
          {.numel = parameter.numel, .group = groups > 1 && !matrix ? 1 : 0, .matrix = matrix});
    }
    setup.config = config;
    setup.micro_batch = sizes.batch;
    setup.sequence = sizes.sequence;
    setup.adamw.learning_rate = 0.002;
    setup.seed = 7;
    setup.kernels = [](int) { return test::plain_kernels(); };
    TrainingOptions options;
    options.steps = steps;
    options.threads_per_rank = threads;
    options.patience = std::chrono::seconds(20);
    const auto data = random_tokens(3, sizes.vocabulary, 8);
    return zeroplan::runtime::train(setup, options, *data);
  }
};

Run make_run(int stage, int ranks, int accumulation) {
  Run run;
  run.config.stage = stage;
  run.config.data_parallel_ranks = ranks;
  run.config.gradient_accumulation_steps = accumulation;
  run.config.model_dtype = run.config.communication_dtype = DType::fp32;
  run.config.gradient_accumulation_dtype = DType::fp32;
  run.config.reduce_bucket = Elements::of(1000);
  run.config.stage3.prefetch_bucket = Elements::of(300);
  run.config.stage3.parameter_persistence_threshold = Elements::of(20);
  run.config.stage3.max_live_parameters = Elements::of(600);
  run.config.stage3.max_reuse_distance = Elements::of(300);
  run.config.stage3.sub_group_size = Elements::of(200);
  run.sizes.batch = kRows / ranks / accumulation;
  return run;
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = a.size() == b.size() ? 0.0 : 1.0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]) / std::abs(b[i]));
  }
  return largest;
}

const std::vector<double>& reference() {
  static const std::vector<double> losses = make_run(0, 1, 1).train().losses;
  return losses;
}

// A table of several of the blocks in which threads draw weights.
TEST_CASE("weights are the same by however many threads they are drawn") {
  for (const int stage : {0, 3}) {
    Run one = make_run(stage, 1, 1);
    one.sizes.vocabulary = 20'011;
    one.sizes.batch = 1;
    one.steps = 1;
    Run several = one;
    several.threads = 3;
    CHECK(one.train().losses == several.train().losses);
  }
}

TEST_CASE("the loss falls, from that of a uniform guess") {
  const std::vector<double>& losses = reference();
  REQUIRE(losses.size() == kSteps);
  CHECK(std::abs(losses[0] - std::log(24.0)) < 0.01);
  CHECK(losses.back() < losses.front() - 0.1);
}

TEST_CASE("every stage and number of ranks trains the same model") {
  const int stage = GENERATE(0, 1, 2, 3);
  const int ranks = GENERATE(1, 2, 4, 8);
  for (const int accumulation : {1, 2, 4}) {
    if (ranks * accumulation > kRows) continue;
    CAPTURE(stage, ranks, accumulation);
    CHECK(difference(make_run(stage, ranks, accumulation).train().losses, reference()) < 1e-6);
  }
}

TEST_CASE("buckets, overlap and how gradients are reduced do not change the losses") {
  const int stage = GENERATE(1, 2, 3);
  for (const std::int64_t bucket : {1, 100, 257, 400, 1'000'000}) {
    for (const int knobs : {0, 1, 2, 3, 4, 5}) {
      Run run = make_run(stage, 4, 2);
      run.config.reduce_bucket = Elements::of(bucket);
      run.config.overlap_comm = knobs % 2 == 1;
      run.config.reduce_scatter = knobs < 4;
      run.config.use_multi_rank_bucket_allreduce = knobs < 2;
      run.config.round_robin_gradients = knobs >= 2;
      CAPTURE(stage, bucket, knobs);
      CHECK(difference(run.train().losses, reference()) < 1e-6);
    }
  }
}

TEST_CASE("fetching, prefetching and persistence do not change the losses") {
  for (const std::int64_t live : {0, 300, 1'000'000}) {
    for (const std::int64_t prefetch : {0, 100, 1'000'000}) {
      for (const std::int64_t threshold : {0, 300, 1'000'000}) {
        for (const int knobs : {0, 1, 2}) {
          Run run = make_run(3, 4, 1);
          run.config.stage3.max_live_parameters = Elements::of(live);
          run.config.stage3.max_reuse_distance = Elements::of(live);
          run.config.stage3.prefetch_bucket = Elements::of(prefetch);
          run.config.stage3.parameter_persistence_threshold = Elements::of(threshold);
          run.config.stage3.allgather_sequential = knobs == 1;
          run.config.stage3.use_all_reduce_for_fetch = knobs == 2;
          CAPTURE(live, prefetch, threshold, knobs);
          CHECK(difference(run.train().losses, reference()) < 1e-6);
        }
      }
    }
  }
}

// Secondary partitions, and shards: what is gathered, when, and how much of it on the way.
template <typename Check>
void under_fetching_knobs(Run run, Check&& check) {
  for (const int knobs : {0, 1, 2, 3, 4, 5}) {
    run.config.stage3.parameter_persistence_threshold = Elements::of(knobs % 2 == 0 ? 20 : 300);
    run.config.stage3.max_live_parameters = Elements::of(knobs < 3 ? 600 : 1'000'000);
    run.config.stage3.allgather_sequential = knobs == 1;
    run.config.stage3.use_all_reduce_for_fetch = knobs >= 4;
    run.config.reduce_scatter = knobs != 2;
    run.config.overlap_comm = knobs % 3 == 0;
    CAPTURE(knobs);
    check(run);
  }
}

TEST_CASE("secondary partitions of the weights do not change the losses") {
  const int ranks = GENERATE(2, 4, 8);
  for (int shared_by = 2; shared_by <= ranks; shared_by *= 2) {
    for (const int accumulation : {1, 2}) {
      if (ranks * accumulation > kRows) continue;
      Run run = make_run(3, ranks, accumulation);
      run.config.stage3.hpz_partition_size = shared_by;
      CAPTURE(ranks, shared_by, accumulation);
      under_fetching_knobs(run, [](Run& knobs) {
        CHECK(difference(knobs.train().losses, reference()) < 1e-6);
        knobs.config.offload_parameter.device = OffloadDevice::cpu;
        CHECK(difference(knobs.train().losses, reference()) < 1e-6);
        knobs.config.offload_parameter.device = OffloadDevice::none;
      });
    }
  }
}

TEST_CASE("secondary partitions round nothing, and take room") {
  Run run = make_run(3, 4, 2);
  run.config.stage3.hpz_partition_size = 2;
  const TrainingReport with = run.train();
  run.config.stage3.hpz_partition_size = 1;
  const TrainingReport without = run.train();
  CHECK(with.losses == without.losses);  // to the bit: gathers round nothing
  CHECK(with.gradient_norms == without.gradient_norms);
  const auto peak = [](const TrainingReport& report) {
    return report.ranks.front().memory.of(Place::device).peak;
  };
  CHECK(peak(with) > peak(without));
}

TEST_CASE("shards and their replicas train what one shard of all ranks trains") {
  const int ranks = GENERATE(1, 2, 4, 8);
  for (int shard = 1; shard <= ranks; shard *= 2) {
    for (const int accumulation : {1, 2}) {
      if (ranks * accumulation > kRows) continue;
      Run run = make_run(3, ranks, accumulation);
      run.config.stage3.mics_shard_size = shard;
      CAPTURE(ranks, shard, accumulation);
      under_fetching_knobs(
          run, [](Run& knobs) { CHECK(difference(knobs.train().losses, reference()) < 1e-6); });
    }
  }
}

// What the runtime refuses of four ranks' stage 3, by its key and what it needs instead.
std::vector<std::string> refusals(const std::function<void(EngineConfig&)>& set) {
  EngineConfig config = make_run(3, 4, 1).config;
  set(config);
  make_embedded(config);
  std::vector<std::string> found;
  for (const Diagnostic& problem : not_embedded(config, {})) {
    found.push_back(problem.pointer.substr(problem.pointer.rfind('/') + 1) + ": " +
                    problem.expected.english().substr(0, problem.expected.english().find(" (")));
  }
  return found;
}

TEST_CASE("16-bit masters are refused where they are not carried out, by their keys") {
  using Found = std::vector<std::string>;
  const auto pure = [](EngineConfig& c) {
    c.model_dtype = c.master_dtype = c.optimizer_state_dtype = DType::bf16;
  };
  CHECK(refusals(pure).empty());
  CHECK(refusals([&](EngineConfig& c) {
          pure(c);
          c.optimizer_state_dtype = DType::fp32;
        }) == Found{"bf16_optimizer_states: true with bf16_master_weights_and_grads"});
  CHECK(refusals([&](EngineConfig& c) {
          pure(c);
          c.offload_optimizer.device = OffloadDevice::cpu;
        }) == Found{"bf16_master_weights_and_grads: false with offload_optimizer"});
  CHECK(refusals([](EngineConfig& c) { c.model_dtype = c.master_dtype = DType::fp16; }) ==
        Found{"fp16_master_weights_and_grads: false"});
}

TEST_CASE("groups that cannot be are refused, by their keys") {
  using Found = std::vector<std::string>;
  CHECK(refusals([](EngineConfig&) {}).empty());
  CHECK(refusals([](EngineConfig& c) { c.stage3.mics_shard_size = 3; }) ==
        Found{"mics_shard_size: a divisor of 4 ranks"});
  CHECK(refusals([](EngineConfig& c) { c.stage3.hpz_partition_size = 8; }) ==
        Found{"zero_hpz_partition_size: a divisor of 4 ranks"});
  CHECK(refusals([](EngineConfig& c) {
          c.stage3.mics_shard_size = 2;
          c.stage3.hpz_partition_size = 2;
        }) == Found{"zero_hpz_partition_size: 1 with mics_shard_size"});
  CHECK(refusals([](EngineConfig& c) {
          c.stage3.mics_shard_size = 2;
          c.offload_optimizer.device = OffloadDevice::cpu;
          c.optimizer = OptimizerKind::cpu_adam;
        }) == Found{"mics_shard_size: -1 with offload_optimizer"});
  CHECK(refusals([](EngineConfig& c) {
          c.stage3.mics_shard_size = 2;
          c.stage3.mics_hierarchical_gather = true;
        }) == Found{"mics_hierarchical_params_gather: false"});
  CHECK(refusals([](EngineConfig& c) {
          c.stage3.hpz_partition_size = 2;
          c.offload_parameter.device = OffloadDevice::nvme;
        }) == Found{"zero_hpz_partition_size: 1 with weights on nvme"});
  // In other stages they are not read.
  CHECK(refusals([](EngineConfig& c) {
          c.stage = 2;
          c.stage3.mics_shard_size = 3;
          c.stage3.hpz_partition_size = 3;
        }).empty());
}

TEST_CASE("a tied weight is trained once, by the sum of its gradients") {
  std::vector<double> expected;
  for (const int stage : {0, 1, 2, 3}) {
    Run run = make_run(stage, stage == 0 ? 1 : 4, stage == 0 ? 1 : 2);
    run.sizes.tied = true;
    const std::vector<double> losses = run.train().losses;
    if (stage == 0) expected = losses;
    CAPTURE(stage);
    CHECK(difference(losses, expected) < 1e-6);
    CHECK(difference(losses, reference()) > 1e-4);
  }
}

TEST_CASE("two optimizer groups train like one where nothing decays") {
  for (const int stage : {1, 2, 3}) {
    Run run = make_run(stage, 4, 1);
    run.groups = 2;
    CAPTURE(stage);
    CHECK(difference(run.train().losses, reference()) < 1e-6);
  }
}

TEST_CASE("clipping acts on the norm of the whole gradient") {
  const TrainingReport whole = make_run(0, 1, 1).train();
  std::vector<double> expected;
  for (const int stage : {0, 1, 2, 3}) {
    Run run = make_run(stage, stage == 0 ? 1 : 4, stage == 0 ? 1 : 2);
    run.config.gradient_clipping = 0.25 * whole.gradient_norms[0];
    const TrainingReport report = run.train();
    if (stage == 0) expected = report.losses;
    CAPTURE(stage);
    CHECK(std::abs(report.gradient_norms[0] / whole.gradient_norms[0] - 1.0) < 1e-6);
    CHECK(difference(report.losses, expected) < 1e-6);
  }
  Run shards = make_run(3, 8, 1);
  shards.config.stage3.mics_shard_size = 2;
  shards.config.gradient_clipping = 0.25 * whole.gradient_norms[0];
  const TrainingReport report = shards.train();
  CHECK(std::abs(report.gradient_norms[0] / whole.gradient_norms[0] - 1.0) < 1e-6);
  CHECK(difference(report.losses, expected) < 1e-6);
}

TEST_CASE("a rank without room ends the run and says what it lacked") {
  const test::SmallModel small = test::small_model({});
  Run run = make_run(3, 2, 1);
  make_embedded(run.config);
  TrainingSetup setup{.model = &small.model, .graph = &small.graph, .config = run.config};
  for (const Parameter& p : small.model.parameters) setup.parameters.push_back({.numel = p.numel});
  setup.sequence = 8;
  setup.kernels = [](int) { return test::plain_kernels(); };
  TrainingOptions options;
  options.capacity = Bytes::kib(24);
  const auto data = random_tokens(3, 24);
  CHECK_THROWS_AS(train(setup, options, *data), OutOfMemory);
}

}  // namespace
}  // namespace zeroplan::runtime
