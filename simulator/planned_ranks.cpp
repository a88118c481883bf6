#include "simulator/planned_ranks.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "model/engine/buffers.hpp"
#include "model/releases.hpp"
#include "model/step/varied_lengths.hpp"
#include "simulator/engines/ddp_writer.hpp"
#include "simulator/engines/deepspeed_writer.hpp"
#include "simulator/engines/fsdp_writer.hpp"
#include "simulator/simulation_memo.hpp"

namespace zeroplan::simulator {
namespace {

// A pipeline's micro-batches that are simulated besides those it has alive.
constexpr std::int64_t kSteadyMicroBatches = 3;

// With what the release of torch does, whatever the engine.
RankProgram under_torch(const Plan& plan, RankProgram program) {
  program.expandable_segments = program.expandable_segments || plan.workload.expandable_segments;
  program.oldest_segment_first = plan.software.torch_acts(ReleaseRule::takes_oldest_segment);
  return program;
}

RankProgram write_deepspeed(const Plan& plan,
                            const ModelGraph& graph,
                            const VariedGraphs& varied,
                            int rank,
                            bool is_representative) {
  EngineConfig config = plan.engine;
  config.rank = rank;
  if (!plan.stages.empty()) {
    // Between the first micro-batches and the last a pipeline's memory repeats itself.
    const std::int64_t simulated = live_micro_batches(plan) + kSteadyMicroBatches;
    config.gradient_accumulation_steps =
        static_cast<int>(std::min<std::int64_t>(config.gradient_accumulation_steps, simulated));
  }
  DeepSpeedWriter writer(plan, graph, varied, config);
  if (is_representative) writer.represent_peers();
  RankProgram program = writer.write();
  program.rank = rank;
  return under_torch(plan, std::move(program));
}

}  // namespace

bool ranks_differ(const Plan& plan) {
  return runs_deepspeed(plan.workload) && plan.stages.empty() &&
         optimizer_wrapper(plan.engine) == OptimizerWrapper::zero12 &&
         partition_ranks(plan.engine) > 1;
}

int heaviest_rank_of(const Plan& plan) {
  return runs_deepspeed(plan.workload) ? heaviest_rank(plan.engine, plan.engine_parameters) : 0;
}

RankProgram write_rank_program(const Plan& plan, const ModelGraph& graph, std::optional<int> rank) {
  const VariedGraphs varied = varied_graphs(plan, graph);
  if (plan.workload.engine == TrainingEngine::fsdp) {
    return under_torch(plan, FsdpWriter(plan, graph, varied).write());
  }
  if (plan.workload.engine == TrainingEngine::ddp) {
    return under_torch(plan, DdpWriter(plan, graph, varied).write());
  }
  const int written = rank.value_or(heaviest_rank_of(plan));
  return write_deepspeed(plan, graph, varied, written, /*is_representative=*/false);
}

std::vector<PlannedRank> write_rank_programs(const Plan& plan,
                                             const ModelGraph& graph,
                                             std::optional<int> shown) {
  std::vector<PlannedRank> ranks;
  if (!ranks_differ(plan)) {
    ranks.push_back({.program = write_rank_program(plan, graph)});
    return ranks;
  }
  const VariedGraphs varied = varied_graphs(plan, graph);
  const auto add = [&](int rank, bool is_representative) {
    RankProgram program = write_deepspeed(plan, graph, varied, rank, is_representative);
    const Fingerprint print = fingerprint(program);
    const auto same = std::find_if(ranks.begin(),
                                   ranks.end(),
                                   [&](const PlannedRank& one) { return one.print == print; }) -
                      ranks.begin();
    if (same == std::ssize(ranks)) {
      ranks.push_back({is_representative, std::move(program), print});
    }
    if (!is_representative && rank == shown) ranks[static_cast<std::size_t>(same)].is_shown = true;
  };
  const int all = partition_ranks(plan.engine);
  std::vector<int> distinct = distinct_ranks(plan.engine, plan.engine_parameters);
  const auto also = [&](int rank) {
    const auto at = std::lower_bound(distinct.begin(), distinct.end(), rank);
    if (at == distinct.end() || *at != rank) distinct.insert(at, rank);
  };
  if (shown) also(*shown);
  // A single remaining rank is simulated itself and needs no representative rank.
  if (std::ssize(distinct) + 1 == all) {
    for (int rank = 0; rank < all; ++rank) also(rank);
  }
  for (const int rank : distinct) add(rank, false);
  if (std::ssize(distinct) < all) add(heaviest_rank_of(plan), true);
  return ranks;
}

RankProgram write_representative(const Plan& plan, const ModelGraph& graph) {
  if (!ranks_differ(plan)) return write_rank_program(plan, graph);
  const VariedGraphs varied = varied_graphs(plan, graph);
  return write_deepspeed(plan, graph, varied, heaviest_rank_of(plan), /*is_representative=*/true);
}

RankProgram write_steady_step(const Plan& plan, const ModelGraph& graph) {
  EngineConfig config = plan.engine;
  config.rank = heaviest_rank_of(plan);
  DeepSpeedWriter writer(plan, graph, {}, config);
  if (ranks_differ(plan)) writer.represent_peers();
  return writer.write_steady_step();
}

}  // namespace zeroplan::simulator
