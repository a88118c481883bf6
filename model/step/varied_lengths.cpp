#include "model/step/varied_lengths.hpp"

#include <algorithm>
#include <optional>

#include "model/step/sample_lengths.hpp"
#include "model/step/step_graph.hpp"

namespace zeroplan {
namespace {

// So many micro-batches come before the longest. Of 35 rehearsed configurations 128 of them reserve
// more than 0.2 % more in two (at most 19 %), 8 of them up to 28 % less in eleven (docs/model.md).
constexpr int kMicroBatches = 32;

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

std::vector<std::int64_t> varied_lengths(const Plan& plan) {
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
  return vary ? lengths : std::vector<std::int64_t>{};
}

std::vector<ModelGraph> varied_graphs(const Plan& plan, const ModelGraph& longest) {
  std::vector<ModelGraph> graphs;
  Plan shorter = plan;
  for (const std::int64_t length : varied_lengths(plan)) {
    shorter.workload.sequence_length = length;
    ModelGraph graph = step_graph(shorter);
    if (has_instances_of(graph, longest)) graphs.push_back(std::move(graph));
  }
  return graphs;
}

}  // namespace zeroplan
