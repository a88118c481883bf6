// The graphs that a run's micro-batches have, one of which is being written at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "model/step/varied_lengths.hpp"
#include "simulator/engines/graph_writer.hpp"
#include "simulator/engines/micro_steps.hpp"

namespace zeroplan::simulator {

class GraphWriters {
 public:
  // `graph` for each of `alive` micro-batches that a pipeline has at once, or 1; then `varied`,
  // those of the steps that come before (varied_lengths.hpp). All must outlive the writers.
  GraphWriters(const Plan& plan,
               const ModelGraph& graph,
               const VariedGraphs& varied,
               ProgramWriter& writer,
               TaskTable& tasks,
               std::size_t alive = 1)
      : alive_(alive) {
    for (std::size_t i = 0; i < alive; ++i) writers_.emplace_back(plan, graph, writer, tasks);
    for (const std::vector<ModelGraph>& step : varied) {
      steps_.push_back({writers_.size(), step.size()});
      for (const ModelGraph& other : step) writers_.emplace_back(plan, other, writer, tasks);
    }
  }

  GraphWriter& current() { return writers_[at_]; }
  const GraphWriter& current() const { return writers_[at_]; }

  // From here on micro-batches have the graph of buffer `micro_batch` modulo those alive.
  void select(std::size_t micro_batch) { go_to(micro_batch % alive_); }

  // The first steps have varied graphs, so many of them.
  std::size_t varied_steps() const { return steps_.size(); }
  // The micro-steps of the step of this number, from 0 on; `write` appends one.
  std::vector<RepeatedSection> write_step(std::size_t number,
                                          int accumulation,
                                          const ProgramWriter& writer,
                                          const std::function<Section(int)>& write) {
    const Graphs graphs = number < steps_.size() ? steps_[number] : Graphs{0, 1};
    return write_micro_steps(accumulation, graphs.count, writer, [&](int micro_step) {
      go_to(graphs.of(micro_step, accumulation));
      return write(micro_step);
    });
  }

  void add_tied_parts_on(StreamId stream) {
    for (GraphWriter& writer : writers_) writer.add_tied_parts_on(stream);
  }

 private:
  struct Graphs {
    std::size_t first = 0;  // of writers_
    std::size_t count = 1;
    // The graph of a micro-step: of the last one the last, of those without one of their own the
    // last but one.
    std::size_t of(int micro_step, int accumulation) const {
      const std::size_t last = count - 1;
      const std::size_t turn = std::max<std::size_t>(last, 1) - 1;
      const bool ends = micro_step + 1 == accumulation;
      return first + (ends ? last : std::min(static_cast<std::size_t>(micro_step), turn));
    }
  };

  void go_to(std::size_t at) {
    if (at == at_) return;
    writers_[at].take_workspaces(writers_[at_]);
    writers_[at].take_kept_outputs(writers_[at_]);
    at_ = at;
  }

  std::vector<GraphWriter> writers_;
  std::size_t alive_ = 1;
  std::size_t at_ = 0;
  std::vector<Graphs> steps_;  // those with varied graphs
};

}  // namespace zeroplan::simulator
