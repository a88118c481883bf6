// Llama-7B at its true size under ten settings of the stage-3 knobs. Expected numbers: the same
// rules replayed in Python on event orders that were recorded from DeepSpeed 0.19.6 at 1/64 of the
// width (recorded at 1/64 of the width).
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/engine/fetch_step.hpp"
#include "tests/engine/live_parameters.hpp"
#include "tests/engine/llama_like.hpp"

namespace zeroplan {
namespace {

struct Row {
  const char* name;
  Recompute recompute;
  double prefetch_bucket, max_live, max_reuse_distance;
  double persistence_threshold;
  double peak;        // elements
  double peak_digit;  // half a unit of its last digit
  double gathered;    // of the model's elements, a micro-step
  double gathered_digit;
  std::int64_t collectives;
  std::int64_t multi_parameter;
};

constexpr auto kNone = Recompute::none;
constexpr auto kReentrant = Recompute::reentrant;
constexpr auto kNonReentrant = Recompute::non_reentrant;

const std::vector<Row> kRows = {
    {"row 1", kNone, 1.5e7, 1e9, 1e9, 40960, 1.126e9, 5e5, 1.85, 5e-3, 422, 0},
    {"row 2", kNone, 5e7, 1e9, 1e9, 1e5, 1.126e9, 5e5, 1.85, 5e-3, 395, 20},
    {"row 3", kNone, 5e7, 3e8, 3e8, 1e5, 0.424e9, 5e5, 1.96, 5e-3, 315, 68},
    {"row 4", kNone, 5e7, 1e8, 0, 1e5, 0.222e9, 5e5, 2.00, 5e-3, 322, 66},
    {"row 5", kNone, 0, 1e9, 0, 1e5, 0.131e9, 5e5, 2.00, 5e-3, 452, 0},
    {"row 6", kNone, 0, 1e9, 1e9, 1e5, 0.503e9, 5e5, 1.93, 5e-3, 439, 0},
    {"row 7", kReentrant, 1.5e7, 1e9, 1e9, 40960, 1.126e9, 5e5, 1.860, 5e-4, 423, 0},
    {"row 8", kReentrant, 5e7, 1e8, 0, 1e5, 0.2215e9, 5e4, 2.533, 5e-4, 449, 98},
    {"row 9", kReentrant, 0, 1e9, 0, 1e5, 0.131e9, 5e5, 2.961, 5e-4, 676, 0},
    {"row 10", kReentrant, 0, 1e9, 1e9, 1e5, 0.334e9, 5e5, 1.950, 5e-4, 444, 0},
    {"row 7, non-reentrant",
     kNonReentrant,
     1.5e7,
     1e9,
     1e9,
     40960,
     1.126e9,
     5e5,
     1.854,
     5e-4,
     422,
     0},
    {"row 8, non-reentrant", kNonReentrant, 5e7, 1e8, 0, 1e5, 0.2215e9, 5e4, 2.533, 5e-4, 480, 67},
    {"row 9, non-reentrant", kNonReentrant, 0, 1e9, 0, 1e5, 0.131e9, 5e5, 2.747, 5e-4, 644, 0},
    {"row 10, non-reentrant", kNonReentrant, 0, 1e9, 1e9, 1e5, 0.379e9, 5e5, 1.944, 5e-4, 443, 0},
};

Elements elements(double count) { return Elements::of(static_cast<std::int64_t>(count)); }

EngineConfig config_of(const Row& row) {
  EngineConfig config;
  config.stage = 3;
  config.overlap_comm = true;
  config.data_parallel_ranks = 8;
  config.stage3.prefetch_bucket = elements(row.prefetch_bucket);
  config.stage3.max_live_parameters = elements(row.max_live);
  config.stage3.max_reuse_distance = elements(row.max_reuse_distance);
  config.stage3.parameter_persistence_threshold = elements(row.persistence_threshold);
  return config;
}

LlamaLike llama_7b(const EngineConfig& config) {
  LlamaLike llama = make_llama_like({.hidden = 4096,
                                     .intermediate = 11008,
                                     .layers = 32,
                                     .vocabulary = 32000,
                                     .heads = 32,
                                     .kv_heads = 32});
  mark_persistent(llama.model, config);
  return llama;
}

}  // namespace

TEST_CASE("Llama-7B gathers what the recorded engine gathers, in ten settings") {
  for (const Row& row : kRows) {
    const EngineConfig config = config_of(row);
    const LlamaLike llama = llama_7b(config);
    const auto order = module_order(llama.calls, llama.model, row.recompute);
    const FetchSchedule schedule = schedule_fetches(llama.model, config, order);
    const LiveParameterProfile profile =
        profile_live_parameters(schedule.steady.micro_step(0), llama.layers);
    const auto total = static_cast<double>(total_elements(llama.model));
    INFO(row.name);
    CHECK(total == Approx(6.738e9).epsilon(1e-4));
    CHECK(static_cast<double>(profile.peak.parameters.count()) ==
          Approx(row.peak).margin(row.peak_digit));
    CHECK(static_cast<double>(profile.gathers.gathered.count()) / total ==
          Approx(row.gathered).margin(row.gathered_digit));
    CHECK(profile.gathers.collectives == row.collectives);
    CHECK(profile.gathers.multi_parameter == row.multi_parameter);
  }
}

TEST_CASE("the live elements while a layer of Llama-7B runs follow its look-ahead and reuse") {
  // No prefetch, no reuse: while a layer runs there is one weight of it, and persistent norms.
  const Row& bare = kRows[4];
  const EngineConfig config = config_of(bare);
  const LlamaLike llama = llama_7b(config);
  const auto order = module_order(llama.calls, llama.model, bare.recompute);
  const auto profile = profile_live_parameters(
      schedule_fetches(llama.model, config, order).steady.micro_step(0), llama.layers);
  const std::int64_t norms = 65 * 4096;
  const std::int64_t largest = 4096 * 11008;
  REQUIRE(profile.blocks.size() == 32);
  for (std::size_t i = 0; i < 32; ++i) {
    const BlockProfile& block = profile.blocks[i];
    CHECK(block.block == llama.layers[i]);
    CHECK(block.forward.begin.parameters.count() == norms);
    CHECK(block.forward.peak.parameters.count() == norms + largest);
    CHECK(block.forward.end.parameters.count() == norms);
    // In backward too; single-parameter gathers have no second copy.
    CHECK(block.backward.peak.parameters.count() == norms + largest);
    CHECK(block.backward.peak.buffers == block.backward.peak.parameters);
  }
}

TEST_CASE("buckets of several parameters cost a second copy on top of the live elements") {
  const Row& row = kRows[3];  // 66 of 322 gathers are of several parameters
  const EngineConfig config = config_of(row);
  const LlamaLike llama = llama_7b(config);
  const auto order = module_order(llama.calls, llama.model, row.recompute);
  const auto profile =
      profile_live_parameters(schedule_fetches(llama.model, config, order).steady.micro_step(0));
  CHECK(profile.peak.buffers > profile.peak.parameters);
  CHECK(profile.gathers.copied > Elements::zero());
  CHECK(profile.gathers.copied < profile.gathers.gathered);
  // A step frees what it gathered: the live set is the persistent one again.
  CHECK(profile.backward.live.end.parameters == profile.forward.live.begin.parameters);
  CHECK(profile.backward.live.end.buffers == profile.forward.live.begin.buffers);
}

TEST_CASE("steady steps repeat event for event") {
  const Row& row = kRows[7];
  const EngineConfig config = config_of(row);
  const LlamaLike llama = llama_7b(config);
  const auto order = module_order(llama.calls, llama.model, row.recompute);
  FetchCoordinator coordinator(llama.model, config);
  FetchStep step;
  for (int warm = 0; warm < 3; ++warm) play_step(coordinator, order, 1, step);
  const std::size_t events = step.log.events.size();
  for (int run = 0; run < 3; ++run) {
    play_step(coordinator, order, 1, step);
    CHECK(step.log.events.size() == events);
    const auto profile = profile_live_parameters(step.micro_step(0), llama.layers);
    CHECK(profile.gathers.collectives == row.collectives);
  }
}

}  // namespace zeroplan
