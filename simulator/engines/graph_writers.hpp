// The graphs that a run's micro-batches have, one of which is being written at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "simulator/engines/graph_writer.hpp"

namespace zeroplan::simulator {

class GraphWriters {
 public:
  // `graph` for each of `alive` micro-batches that a pipeline has at once, or 1; then `varied`,
  // those of the micro-batches that come before the longest. All must outlive the writers.
  GraphWriters(const Plan& plan,
               const ModelGraph& graph,
               std::span<const ModelGraph> varied,
               ProgramWriter& writer,
               TaskTable& tasks,
               std::size_t alive = 1)
      : alive_(alive) {
    for (std::size_t i = 0; i < alive; ++i) writers_.emplace_back(plan, graph, writer, tasks);
    for (const ModelGraph& other : varied) writers_.emplace_back(plan, other, writer, tasks);
  }

  GraphWriter& current() { return writers_[at_]; }
  const GraphWriter& current() const { return writers_[at_]; }

  // From here on micro-batches have the graph of buffer `micro_batch` modulo those alive.
  void select(std::size_t micro_batch) { go_to(micro_batch % alive_); }

  // Graphs besides the longest's, and the next of them in a round.
  std::size_t varied() const { return writers_.size() - alive_; }
  void select_next_varied() { go_to(alive_ + next_++ % varied()); }

  void add_tied_parts_on(StreamId stream) {
    for (GraphWriter& writer : writers_) writer.add_tied_parts_on(stream);
  }

 private:
  void go_to(std::size_t at) {
    writers_[at].take_workspaces(writers_[at_]);
    writers_[at].take_kept_outputs(writers_[at_]);
    at_ = at;
  }

  std::vector<GraphWriter> writers_;
  std::size_t alive_ = 1;
  std::size_t at_ = 0;
  std::size_t next_ = 0;
};

// Steps in which each of the varied graphs is written once.
inline std::size_t steps_of_varied(std::size_t varied, int accumulation) {
  const auto each = static_cast<std::size_t>(accumulation);
  return (varied + each - 1) / each;
}

}  // namespace zeroplan::simulator
