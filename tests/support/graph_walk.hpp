#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "base/check.hpp"
#include "model/graph/graph.hpp"

namespace zeroplan::testing {

// Bytes that the operations of one kind move in a pass of a block.
inline Bytes traffic_of(const Block& block, Pass pass, OpKind kind) {
  Bytes sum;
  for (const Event& event : block.of(pass)) {
    if (event.kind != EventKind::operation) continue;
    const Operation& operation = block.operations[static_cast<std::size_t>(event.index)];
    if (operation.kind == kind) sum += operation.traffic;
  }
  return sum;
}

// Follows what is alive through a whole micro-batch, and fails on a tensor that is allocated twice,
// released twice or released before it exists. Weight gradients die as soon as they are complete.
class GraphWalk {
 public:
  explicit GraphWalk(const ModelGraph& graph) : graph_(graph) { play_micro_batch(graph, *this); }

  struct Step {
    PassStep step;
    Bytes peak;  // within the step
    Bytes after;
  };
  const std::vector<Step>& steps() const { return steps_; }
  Bytes alive() const { return alive_; }
  Bytes peak_of(Pass pass, std::int32_t instance) const {
    for (const Step& s : steps_) {
      if (s.step.pass == pass && s.step.instance == instance) return s.peak;
    }
    check_failed(__FILE__, __LINE__, "step", "no such step");
  }
  Bytes after(Pass pass, std::int32_t instance) const {
    for (const Step& s : steps_) {
      if (s.step.pass == pass && s.step.instance == instance) return s.after;
    }
    check_failed(__FILE__, __LINE__, "step", "no such step");
  }
  int gradients() const { return gradients_; }

  void begin(const PassStep& step) { steps_.push_back({step, alive_, alive_}); }
  void module_enter(const PassStep&, int) {}
  void module_exit(const PassStep&, int) {}
  void operation(const PassStep&, const Operation&) {}
  void allocate(StorageId id, const Storage& storage) {
    ZP_CHECK(sizes_.emplace(id, storage.bytes).second, "allocated twice");
    alive_ += rounded(storage.bytes);
    note();
  }
  void release(StorageId id, const Storage& storage) {
    ZP_CHECK(sizes_.erase(id) == 1, "released without being alive");
    alive_ -= rounded(storage.bytes);
    note();
  }
  void weight_gradient(const PassStep& step, const WeightGradient& gradient) {
    const BlockInstance& instance = graph_.instances[static_cast<std::size_t>(step.instance)];
    const int parameter = instance.parameters[static_cast<std::size_t>(gradient.parameter)];
    if (gradient.storage >= 0) pending_[parameter] = {step.instance, gradient.storage};
    ZP_CHECK(pending_.count(parameter) == 1, "a part of a gradient that was never begun");
    if (!gradient.complete) return;
    const StorageId id = pending_[parameter];
    pending_.erase(parameter);
    ++gradients_;
    release(id, graph_.storage(id));
  }

 private:
  static Bytes rounded(Bytes bytes) { return Bytes::of(round_up(bytes.count(), 512)); }
  void note() {
    if (steps_.empty()) return;
    steps_.back().peak = std::max(steps_.back().peak, alive_);
    steps_.back().after = alive_;
  }
  const ModelGraph& graph_;
  std::map<StorageId, Bytes> sizes_;
  std::map<int, StorageId> pending_;
  std::vector<Step> steps_;
  Bytes alive_;
  int gradients_ = 0;
};

}  // namespace zeroplan::testing
