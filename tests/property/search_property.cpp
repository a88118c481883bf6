// The search of `tune` over random questions: its bounds hold, and what it answers is what
// exhaustive enumeration answers.
#include <algorithm>
#include <limits>
#include <set>

#include "model/predict/job_time.hpp"
#include "model/predict/step_traffic.hpp"
#include "model/predict/step_work.hpp"
#include "model/step/step_graph.hpp"
#include "simulator/least_step_time.hpp"
#include "simulator/planned_ranks.hpp"
#include "simulator/simulate.hpp"
#include "simulator/simulation_memo.hpp"
#include "tests/catch.hpp"
#include "tests/property/random_scenario.hpp"
#include "tuner/search.hpp"
#include "tuner/search_bounds.hpp"
#include "tuner/search_equivalence.hpp"

using namespace zeroplan;
using namespace zeroplan::testing;

namespace {

// A question without knobs; the GPUs are cut so that memory decides in about half of them.
Json question(ScenarioGenerator& random) {
  const std::int64_t nodes = random.one_of<std::int64_t>({1, 1, 2});
  const std::int64_t gpus = random.one_of<std::int64_t>({1, 2, 4});
  const Json gpu =
      Json::object({{"name", random.one_of<const char*>({"RTX4090", "A100-80G-SXM", "V100-16G"})},
                    {"memory_bytes", random.size_between(1.2e9, 8e9)}});
  return Json::object(
      {{"model", random.model()},
       {"cluster",
        Json::object({{"nodes", nodes},
                      {"gpus_per_node", gpus},
                      {"gpu", gpu},
                      {"nvme",
                       Json::object({{"read_bandwidth", 6e9},
                                     {"write_bandwidth", 3e9},
                                     {"capacity_bytes", std::int64_t{1000000000000}}})}})},
       {"workload",
        Json::object({{"sequence_length", random.between(1, 8) * 128},
                      {"frontend", random.one_of<const char*>({"hf-trainer", "native"})},
                      {"precision", random.one_of<const char*>({"bf16", "fp16"})}})},
       {"software",
        Json::object(
            {{"deepspeed", random.one_of<const char*>({"0.14.5", "0.16.4", "0.19.6"})}})}});
}

tuner::Point random_point_of(const tuner::SearchSpace& space,
                             std::int32_t strategy,
                             ScenarioGenerator& random) {
  const auto pick = [&](std::size_t size) {
    return static_cast<std::int32_t>(random.between(0, static_cast<std::int64_t>(size) - 1));
  };
  tuner::Point point;
  point.strategy = strategy;
  point.checkpointing = pick(space.checkpointings().size());
  point.batch = pick(space.batches().size());
  const std::vector<tuner::Axis>& axes =
      space.strategies()[static_cast<std::size_t>(point.strategy)].axes;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    point.at[a] = static_cast<std::uint8_t>(pick(axes[a].values.size()));
  }
  return point;
}

tuner::Point random_point(const tuner::SearchSpace& space, ScenarioGenerator& random) {
  const auto strategies = static_cast<std::int64_t>(space.strategies().size());
  const auto strategy = static_cast<std::int32_t>(random.between(0, strategies - 1));
  return random_point_of(space, strategy, random);
}

constexpr tuner::BoundDepth kDepths[] = {tuner::BoundDepth::batch,
                                         tuner::BoundDepth::tail,
                                         tuner::BoundDepth::messages,
                                         tuner::BoundDepth::whole,
                                         tuner::BoundDepth::clocks};

// A few values of a few keys: between eight and a hundred points.
tuner::SearchWords small_space(ScenarioGenerator& random) {
  tuner::SearchWords words;
  words.search = {
      "stage=" + std::string(random.one_of<const char*>({"0,1,2,3", "1,3", "2,3", "3"})),
      "offload_optimizer.device=" +
          std::string(random.one_of<const char*>({"none", "none,cpu", "cpu"})),
      "offload_param.device=" + std::string(random.one_of<const char*>({"none", "none,cpu"})),
      "micro_batch_size=" + std::string(random.one_of<const char*>({"1,4", "2", "1,2,8"})),
      "gradient_accumulation_steps=" + std::string(random.one_of<const char*>({"1", "1,3", "2"})),
      "reduce_bucket_size=" + std::to_string(random.size_between(1e5, 1e8)),
      "overlap_comm=" + std::string(random.one_of<const char*>({"true", "true,false"})),
      "round_robin_gradients=false",
      "sub_group_size=" + std::to_string(random.size_between(1e6, 1e9)),
      "stage3_prefetch_bucket_size=" + std::to_string(random.size_between(1e5, 1e8)),
      "stage3_param_persistence_threshold=" + std::to_string(random.size_between(10, 1e6)),
      "stage3_max_live_parameters=1e9",
      "stage3_max_reuse_distance=" + std::string(random.one_of<const char*>({"0", "0,1e9"})),
      "zero_hpz_partition_size=1",
      "ratio=" + std::string(random.one_of<const char*>({"1", "1,0.4"})),
      "offload_optimizer.pin_memory=true",
      "offload_param.pin_memory=true"};
  return words;
}

// Stage 3 with something on NVMe; from a quarter of the weights to all of them stay there.
tuner::SearchWords nvme_space(ScenarioGenerator& random) {
  tuner::SearchWords words;
  words.search = {
      "stage=3",
      "offload_optimizer.device=" +
          std::string(random.one_of<const char*>({"nvme", "nvme,cpu", "none"})),
      "offload_param.device=" +
          std::string(random.one_of<const char*>({"nvme", "nvme", "none,nvme"})),
      "offload_param.max_in_cpu=0," + std::to_string(random.size_between(1e5, 1e8)),
      "offload_optimizer.pipeline_read=true,false",
      "offload_optimizer.pipeline_write=true,false",
      "offload_optimizer.buffer_count=12",
      "sub_group_size=" + std::to_string(random.size_between(1e6, 1e8)) + ",1000000000",
      "aio.block_size=1048576,8388608",
      "aio.queue_depth=8,32",
      "micro_batch_size=" + std::string(random.one_of<const char*>({"1", "2,8"})),
      "gradient_accumulation_steps=" + std::string(random.one_of<const char*>({"1", "1,3"}))};
  return words;
}

// Of one step on the drive.
Bytes swapped(const Plan& plan) {
  const StepTraffic traffic = step_traffic(plan, step_work(plan));
  return traffic.nvme_read + traffic.nvme_write;
}

void check_bounds(const tuner::SearchBounds& bounds,
                  const tuner::Point& point,
                  const tuner::Evaluated& simulated) {
  for (const tuner::BoundDepth depth : kDepths) {
    INFO("depth " << static_cast<int>(depth));
    CHECK(bounds.step_time(point, depth).seconds() <= simulated.step.seconds());
    if (depth == tuner::BoundDepth::messages) continue;
    CHECK(bounds.gpu_memory(point, depth) <= simulated.gpu_memory);
  }
  CHECK(bounds.host(point).peak.count() <= simulated.host_memory.count());
}

}  // namespace

TEST_CASE("bounds hold where weights and states are on NVMe") {
  ScenarioGenerator random(78);
  int on_drive = 0;
  for (int i = 0; i < 20; ++i) {
    const Json document = question(random);
    const tuner::SearchSpace space(read(document), tuner::read_request(nvme_space(random)));
    const tuner::SearchBounds bounds(space, {});
    for (int k = 0; k < 2; ++k) {
      const tuner::Point point = random_point(space, random);
      INFO(document.dump() << "\n" << space.describe(point).dump());
      const tuner::Evaluated simulated = evaluate(space, point, {});
      if (simulated.step == Seconds::zero()) continue;  // refused
      on_drive += swapped(space.plan(point)) > Bytes::zero() ? 1 : 0;
      check_bounds(bounds, point, simulated);
    }
  }
  CHECK(on_drive > 15);
}

TEST_CASE("no simulated step is faster and no peak lower than its bounds say") {
  ScenarioGenerator random(71);
  for (int i = 0; i < 60; ++i) {
    const Json document = question(random);
    const tuner::SearchSpace space(read(document), {});
    const tuner::SearchBounds bounds(space, {});
    for (int k = 0; k < 2; ++k) {
      const tuner::Point point = random_point(space, random);
      INFO(document.dump() << "\n" << space.describe(point).dump());
      const tuner::Evaluated simulated = evaluate(space, point, {});
      if (simulated.step == Seconds::zero()) continue;  // refused
      check_bounds(bounds, point, simulated);
      if (simulated.fits) CHECK(bounds.may_fit(point));
    }
  }
}

TEST_CASE("bounds hold with hpZ and frozen weights, in any order of its values") {
  ScenarioGenerator random(80);
  for (const auto& [sizes, adapters] : {std::pair{"1,2", true},
                                        std::pair{"2,1", true},
                                        std::pair{"4,2,1", true},
                                        std::pair{"4,2", false},
                                        std::pair{"2,4", false}}) {
    Json document = question(random);
    document["cluster"]["nodes"] = 2;
    document["cluster"]["gpus_per_node"] = 4;
    if (adapters) {
      document["workload"]["method"] = Json::object({{"lora", Json::object({{"rank", 4}})}});
    }
    tuner::SearchWords words = small_space(random);
    words.search.front() = "stage=3";
    std::replace(words.search.begin(),
                 words.search.end(),
                 std::string("zero_hpz_partition_size=1"),
                 std::string("zero_hpz_partition_size=") + sizes);
    const tuner::SearchSpace space(read(document), tuner::read_request(words));
    const tuner::SearchBounds bounds(space, {});
    for (int k = 0; k < 6; ++k) {
      const tuner::Point point = random_point(space, random);
      INFO(document.dump() << "\n" << space.describe(point).dump());
      const tuner::Evaluated simulated = evaluate(space, point, {});
      if (simulated.step == Seconds::zero()) continue;  // refused
      check_bounds(bounds, point, simulated);
    }
  }
}

TEST_CASE("the steady step alone takes on the clocks what that of the whole run takes") {
  ScenarioGenerator random(83);
  int walked = 0;
  int accumulates = 0;
  for (int i = 0; i < 60; ++i) {
    const Json document = question(random);
    const tuner::SearchSpace space(read(document), {});
    const tuner::Point point = random_point(space, random);
    INFO(document.dump() << "\n" << space.describe(point).dump());
    const Plan plan = space.plan(point);
    if (plan.engine.stage == 3 && plan.engine.gradient_accumulation_steps > 1) ++accumulates;
    if (!tuner::startup_refusal(plan).empty() || !simulator::is_simulated(plan)) continue;
    const StepWork work = step_work(plan);
    const Seconds alone =
        simulator::least_passes_time(simulator::write_steady_step(plan, work.graph));
    const Seconds whole =
        simulator::least_passes_time(simulator::write_representative(plan, work.graph));
    CHECK(alone.seconds() == Approx(whole.seconds()).epsilon(1e-9));
    ++walked;
  }
  CHECK(walked > 40);
  CHECK(accumulates > 10);
}

TEST_CASE("a memo of equal ranks answers as playing them does") {
  ScenarioGenerator random(77);
  int shared = 0;
  for (int i = 0; i < 8; ++i) {
    const Json document = question(random);
    const tuner::SearchSpace space(read(document), tuner::read_request(small_space(random)));
    simulator::SimulationMemo memo;
    for (int k = 0; k < 8; ++k) {
      const tuner::Point point = random_point(space, random);
      INFO(document.dump() << "\n" << space.describe(point).dump());
      const tuner::Evaluated simulated = evaluate(space, point, {});
      const std::size_t before = memo.size();
      const tuner::Evaluated remembered = evaluate(space, point, {}, &memo);
      shared += memo.size() == before && simulated.step > Seconds::zero() ? 1 : 0;
      CHECK(remembered.fits == simulated.fits);
      CHECK(remembered.step == simulated.step);
      CHECK(remembered.gpu_memory == simulated.gpu_memory);
      CHECK(remembered.host_memory == simulated.host_memory);
      CHECK(remembered.why_not == simulated.why_not);
    }
  }
  CHECK(shared > 0);
}

TEST_CASE("the verdict is the same where a point is dropped at the capacity threshold") {
  ScenarioGenerator random(79);
  int dropped = 0;
  int fits = 0;
  int unlucky = 0;
  for (int i = 0; i < 100; ++i) {
    const Json document = question(random);
    const tuner::SearchSpace space(read(document), {});
    for (int k = 0; k < 3; ++k) {
      const tuner::Point point = random_point(space, random);
      tuner::SearchLimits limits;
      limits.predict.confidence = random.one_of<double>({0.5, 0.8, 0.95, 0.99});
      // Near the limit: the GPU is about as large as the point needs.
      const tuner::Evaluated anywhere = evaluate(space, point, limits);
      if (anywhere.step == Seconds::zero()) continue;
      const Bytes gpu = space.prepared().cluster->gpu.memory.value;
      const auto wanted = Bytes::nearest(random.between(80, 125) * 0.01 *
                                         static_cast<double>(anywhere.gpu_memory.count()));
      if (wanted < gpu) limits.predict.reserve = gpu - wanted;
      INFO(document.dump() << "\n" << space.describe(point).dump());
      const tuner::Evaluated all = evaluate(space, point, limits);
      const tuner::Evaluated alone =
          evaluate(space, point, limits, nullptr, tuner::Numbers::of_what_fits);
      // What is dropped may fit by chance: at the threshold itself the allocator can be out of
      // luck, and not a little above.
      if (all.fits && !alone.fits) {
        ++unlucky;
        continue;
      }
      CHECK(all.fits == alone.fits);
      CHECK(all.why_not == alone.why_not);
      ++(all.fits ? fits : dropped);
      if (!all.fits) continue;
      CHECK(all.step == alone.step);
      CHECK(all.gpu_memory == alone.gpu_memory);
      CHECK(all.host_memory == alone.host_memory);
    }
  }
  CHECK(unlucky <= 1);
  CHECK(dropped > 40);
  CHECK(fits > 40);
}

TEST_CASE("points of equal tails have equal programs") {
  ScenarioGenerator random(78);
  int alike = 0;
  int different = 0;
  for (int i = 0; i < 80; ++i) {
    const Json document = question(random);
    const bool on_drives = i >= 60;
    const tuner::SearchSpace space(
        read(document),
        on_drives ? tuner::read_request(nvme_space(random)) : tuner::SearchRequest{});
    for (int k = 0; k < 4; ++k) {
      const tuner::Point one = random_point(space, random);
      tuner::Point other = one;
      const tuner::Point values = random_point_of(space, one.strategy, random);
      const std::vector<tuner::Axis>& axes =
          space.strategies()[static_cast<std::size_t>(one.strategy)].axes;
      for (std::size_t a = 0; a < axes.size(); ++a) {
        if (axes[a].role == KnobRole::step) other.at[a] = values.at[a];
      }
      if (one == other) continue;
      const bool same =
          tuner::tail_fingerprint(space, one) == tuner::tail_fingerprint(space, other);
      INFO(document.dump() << "\n"
                           << space.describe(one).dump() << "\n"
                           << space.describe(other).dump());
      ++(same ? alike : different);
      if (!same) continue;
      const Plan plan = space.plan(one);
      const Plan equal = space.plan(other);
      CHECK(fingerprint(simulator::write_rank_program(plan, step_graph(plan))) ==
            fingerprint(simulator::write_rank_program(equal, step_graph(equal))));
      const tuner::Evaluated simulated = evaluate(space, one, {});
      const tuner::Evaluated simulated_equal = evaluate(space, other, {});
      CHECK(simulated.step == simulated_equal.step);
      CHECK(simulated.gpu_memory == simulated_equal.gpu_memory);
      CHECK((simulated.why_not == simulated_equal.why_not ||
             simulated.host_memory != simulated_equal.host_memory));
    }
  }
  CHECK(alike > 20);
  CHECK(different > 20);
}

TEST_CASE("closer bounds are no weaker") {
  ScenarioGenerator random(72);
  for (int i = 0; i < 15; ++i) {
    const Json document = question(random);
    const tuner::SearchSpace space(read(document), {});
    const tuner::SearchBounds bounds(space, {});
    const tuner::Point point = random_point(space, random);
    INFO(document.dump() << "\n" << space.describe(point).dump());
    for (std::size_t d = 1; d < std::size(kDepths); ++d) {
      CHECK(bounds.step_time(point, kDepths[d - 1]) <= bounds.step_time(point, kDepths[d]));
    }
  }
}

TEST_CASE("with a gap of zero the answer is that of exhaustive enumeration") {
  ScenarioGenerator random(73);
  int answered = 0;
  std::int64_t left_out = 0;
  const int scenarios = kUnderThreadSanitizer ? 20 : 200;
  for (int i = 0; i < scenarios; ++i) {
    const Json document = question(random);
    const tuner::SearchWords words = small_space(random);
    const tuner::SearchSpace space(read(document), tuner::read_request(words));
    if (space.points() > 100) continue;
    INFO(document.dump());
    tuner::SearchOptions options;
    options.gap = 0.0;
    options.jobs = 2;
    options.goal = random.chance(0.8) ? tuner::SearchGoal::throughput : tuner::SearchGoal::memory;
    if (random.chance(0.2)) options.limits.tokens_per_second = 1000.0;
    const tuner::SearchResult bounded = search(space, options);
    options.use_bounds = false;
    const tuner::SearchResult all = search(space, options);
    CHECK(all.evaluated == space.points());
    REQUIRE(bounded.best.has_value() == all.best.has_value());
    left_out += bounded.pruned;
    if (!all.best) continue;
    ++answered;
    INFO(space.describe(bounded.best->point).dump() << "\n"
                                                    << space.describe(all.best->point).dump());
    CHECK(bounded.best->point == all.best->point);
    CHECK(bounded.optimal);
  }
  CHECK(answered > scenarios * 3 / 10);
  CHECK(left_out > 0);
}

TEST_CASE("where lengths are told, what is found is the fastest on these samples") {
  ScenarioGenerator random(81);
  int answered = 0;
  for (int i = 0; i < 10; ++i) {
    Json document = question(random);
    const std::int64_t longest = document.find("workload")->find("sequence_length")->as_integer();
    document["workload"]["dataset"] =
        Json::object({{"mean_tokens", random.between(longest / 8, longest / 2)},
                      {"tokens_sd", random.between(1, longest / 2)}});
    const tuner::SearchSpace space(read(document), tuner::read_request(small_space(random)));
    if (space.points() > 100) continue;
    INFO(document.dump());
    const tuner::SearchBounds bounds(space, {});
    const tuner::Point point = random_point(space, random);
    const tuner::Evaluated one = evaluate(space, point, {});
    if (one.step > Seconds::zero()) check_bounds(bounds, point, one);
    tuner::SearchOptions options;
    options.gap = 0.0;
    options.jobs = 2;
    const tuner::SearchResult bounded = search(space, options);
    options.use_bounds = false;
    const tuner::SearchResult all = search(space, options);
    REQUIRE(bounded.best.has_value() == all.best.has_value());
    if (!all.best) continue;
    ++answered;
    CHECK(bounded.best->point == all.best->point);
    // Its step is that of a plan whose sequences have the mean length; full ones take longer, but
    // for a mask or two of small models.
    const Plan plan = space.plan(all.best->point);
    const std::optional<Plan> mean = mean_step_plan(plan);
    REQUIRE(mean.has_value());
    CHECK(mean->workload.sequence_length < plan.workload.sequence_length);
    CHECK(all.best->step.seconds() <= simulator::simulate(plan).step.total.seconds() * 1.01);
  }
  CHECK(answered > 2);
}

TEST_CASE("with a gap nothing that was left out is better by more") {
  ScenarioGenerator random(74);
  for (int i = 0; i < 10; ++i) {
    const Json document = question(random);
    const tuner::SearchSpace space(read(document), tuner::read_request(small_space(random)));
    if (space.points() > 100) continue;
    INFO(document.dump());
    tuner::SearchOptions options;
    options.gap = 0.05;
    const tuner::SearchResult bounded = search(space, options);
    options.use_bounds = false;
    options.gap = 0.0;
    const tuner::SearchResult all = search(space, options);
    REQUIRE(bounded.best.has_value() == all.best.has_value());
    if (!all.best) continue;
    // The best one found is within the gap, and the simplest within the gap of it is taken.
    CHECK(all.best->tokens_per_second <= bounded.best->tokens_per_second * 1.05 * 1.05);
    CHECK(space.cost(bounded.best->point) <= space.cost(all.best->point));
  }
}

TEST_CASE("where patience ends a search, the rest is no better than is said") {
  ScenarioGenerator random(79);
  int ended = 0;
  for (int i = 0; i < 12; ++i) {
    const Json document = question(random);
    const tuner::SearchSpace space(read(document), tuner::read_request(small_space(random)));
    if (space.points() > 200) continue;
    INFO(document.dump());
    tuner::SearchOptions options;
    options.gap = 0.0;
    options.patience = 2;
    const tuner::SearchResult early = search(space, options);
    CHECK(early.evaluated + early.pruned + early.unseen == space.points());
    options.patience = std::numeric_limits<std::int64_t>::max();
    options.use_bounds = false;
    const tuner::SearchResult all = search(space, options);
    if (!early.best || !all.best) continue;
    ended += early.stalled ? 1 : 0;
    CHECK(early.optimal == (early.unseen_at_most == 0.0));
    CHECK(all.best->tokens_per_second <=
          early.best->tokens_per_second * (1.0 + early.unseen_at_most) * (1.0 + 1e-9));
  }
  CHECK(ended > 0);
}

TEST_CASE("the answer does not depend on the number of threads") {
  ScenarioGenerator random(75);
  for (int i = 0; i < 4; ++i) {
    const Json document = question(random);
    const tuner::SearchSpace space(read(document), tuner::read_request(small_space(random)));
    INFO(document.dump());
    tuner::SearchOptions options;
    options.jobs = 1;
    const tuner::SearchResult one = search(space, options);
    options.jobs = 5;
    const tuner::SearchResult five = search(space, options);
    REQUIRE(one.best.has_value() == five.best.has_value());
    CHECK(one.evaluated == five.evaluated);
    if (one.best) CHECK(one.best->point == five.best->point);
    REQUIRE(one.pareto.size() == five.pareto.size());
    for (std::size_t k = 0; k < one.pareto.size(); ++k) {
      CHECK(one.pareto[k].point == five.pareto[k].point);
    }
    for (const auto& [reason, row] : one.tally) {
      CHECK(five.tally.at(reason).count == row.count);
      CHECK(five.tally.at(reason).sample == row.sample);
    }
  }
}

TEST_CASE("every point is counted once: simulated, or left out for a reason") {
  ScenarioGenerator random(76);
  for (int i = 0; i < 6; ++i) {
    const Json document = question(random);
    const tuner::SearchSpace space(read(document), tuner::read_request(small_space(random)));
    INFO(document.dump());
    const tuner::SearchResult result = search(space, {});
    CHECK(result.evaluated + result.pruned == space.points());
    std::int64_t lost = 0;
    for (const auto& [reason, row] : result.tally) lost += row.count;
    for (const tuner::LeftOut& item : space.left_out()) lost -= item.points;
    CHECK(lost + (result.best ? 1 : 0) == space.points());
  }
}
