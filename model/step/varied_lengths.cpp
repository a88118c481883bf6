#include "model/step/varied_lengths.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "model/step/sample_lengths.hpp"
#include "model/step/step_graph.hpp"

namespace zeroplan {
namespace {

// So many micro-batches come before the longest. Of 35 rehearsed configurations 128 of them reserve
// more than 0.2 % more in two (at most 19 %), 8 of them up to 28 % less in eleven (docs/model.md).
constexpr int kMicroBatches = 32;

// Micro-batches longer or shorter than all before them, and the last of each step that has one. The
// others find the blocks that they need: for 69 rehearsals of 32 micro-batches the simulated
// reserved memory is within 0.13 % of that with all of them.
std::vector<std::vector<std::int64_t>> extremes_of(const std::vector<std::int64_t>& lengths,
                                                   std::size_t in_a_step) {
  std::vector<std::vector<std::int64_t>> steps;
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  std::int64_t longest = 0;
  std::vector<std::int64_t> step;
  bool has_extremes = false;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const bool is_extreme = lengths[i] < shortest || lengths[i] > longest;
    const bool ends = (i + 1) % in_a_step == 0 || i + 1 == lengths.size();
    shortest = std::min(shortest, lengths[i]);
    longest = std::max(longest, lengths[i]);
    has_extremes = has_extremes || is_extreme;
    if (is_extreme || ends) step.push_back(lengths[i]);
    if (!ends) continue;
    if (has_extremes) steps.push_back(std::move(step));
    step.clear();
    has_extremes = false;
  }
  return steps;
}

bool has_instances_of(const ModelGraph& graph, const ModelGraph& longest) {
  return std::equal(graph.instances.begin(),
                    graph.instances.end(),
                    longest.instances.begin(),
                    longest.instances.end(),
                    [](const BlockInstance& a, const BlockInstance& b) {
                      return a.block == b.block && a.parameters == b.parameters;
                    }) &&
         graph.blocks.size() == longest.blocks.size();
}

}  // namespace

std::vector<std::vector<std::int64_t>> varied_lengths(const Plan& plan) {
  const Workload& workload = plan.workload;
  const bool pads = workload.dataset && workload.dataset->padding == Padding::longest &&
                    workload.dataset->tells_lengths();
  if (!pads || !plan.stages.empty() || workload.engine == TrainingEngine::embedded) return {};
  std::vector<std::int64_t> lengths = padded_lengths(
      *workload.dataset, workload.sequence_length, workload.micro_batch_size, kMicroBatches);
  // Ulysses cuts a sequence into equal parts.
  const std::int64_t parts = plan.degrees.sequence;
  for (std::int64_t& length : lengths) {
    length = std::min((length + parts - 1) / parts * parts, workload.sequence_length);
  }
  const bool vary = std::any_of(lengths.begin(), lengths.end(), [&](std::int64_t length) {
    return length != workload.sequence_length;
  });
  if (!vary) return {};
  return extremes_of(lengths, static_cast<std::size_t>(workload.gradient_accumulation_steps));
}

VariedGraphs varied_graphs(const Plan& plan, const ModelGraph& longest) {
  VariedGraphs graphs;
  Plan shorter = plan;
  for (const std::vector<std::int64_t>& step : varied_lengths(plan)) {
    std::vector<ModelGraph> of_step;
    for (const std::int64_t length : step) {
      shorter.workload.sequence_length = length;
      ModelGraph graph = step_graph(shorter);
      if (has_instances_of(graph, longest)) of_step.push_back(std::move(graph));
    }
    if (!of_step.empty()) graphs.push_back(std::move(of_step));
  }
  return graphs;
}

}  // namespace zeroplan
