#include "tests/engine/module_calls.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace zeroplan {
namespace {

using CallIndex = std::int32_t;

// What autograd knows of a call.
struct CallFacts {
  CallIndex end = 0;            // one past the calls inside it
  CallIndex checkpoint = -1;    // the checkpointed call around it, or itself
  bool hidden = false;          // inside a leaf module: no hooks
  bool input_gradient = false;  // a tensor argument requires a gradient
  bool output_gradient = false;
};

// A node of the autograd graph that matters here.
struct Node {
  enum class Kind : std::uint8_t { before_backward, after_backward, kept_tensor, checkpoint };
  Kind kind;
  CallIndex call;
};

std::size_t at(CallIndex index) { return static_cast<std::size_t>(index); }

class OrderWriter {
 public:
  OrderWriter(const std::vector<ModuleCall>& calls, const FetchModel& model, Recompute recompute)
      : calls_(calls), model_(model), recompute_(recompute), facts_(calls.size()) {
    place_calls();
    propagate_gradients();
  }

  std::vector<ModuleEvent> write() {
    if (calls_.empty()) return {};
    std::vector<Node> nodes;
    forward(0, kToTheEnd, &nodes);
    events_.push_back({ModuleEventKind::backward_begin, -1});
    backward(nodes);
    return std::move(events_);
  }

 private:
  static constexpr CallIndex kToTheEnd = -1;

  void place_calls() {
    const auto count = static_cast<CallIndex>(calls_.size());
    for (CallIndex i = 0; i < count; ++i) {
      const ModuleCall& call = calls_[at(i)];
      ZP_CHECK(i == 0 ? call.caller < 0 : call.caller >= 0 && call.caller < i,
               "calls must be listed in order of entry, the root first");
      CallFacts& facts = facts_[at(i)];
      const bool checkpointed = call.checkpointed && recompute_ != Recompute::none;
      if (i > 0) {
        const CallFacts& caller = facts_[at(call.caller)];
        facts.checkpoint = caller.checkpoint;
        facts.hidden = caller.hidden || model_.modules[at(calls_[at(call.caller)].module)].leaf;
      }
      ZP_CHECK(!checkpointed || facts.checkpoint < 0, "a checkpoint inside a checkpoint");
      if (checkpointed) facts.checkpoint = i;
      for (CallIndex around = i; around >= 0; around = calls_[at(around)].caller) {
        facts_[at(around)].end = i + 1;
      }
    }
  }

  bool has_trainable(const ModuleCall& call) const {
    const auto& own = model_.modules[at(call.module)].parameters;
    return std::any_of(own.begin(), own.end(), [&](ParameterIndex p) {
      return model_.parameters[at(p)].trainable;
    });
  }

  bool carries_gradient(CallIndex source, CallIndex caller) const {
    if (source == kModelInput) return false;
    if (source == kCallerInput) return caller >= 0 && facts_[at(caller)].input_gradient;
    return facts_[at(source)].output_gradient;
  }

  // Inputs on the way in, outputs on the way out; a call is complete when the next one outside it
  // begins, and sources of an input are complete calls.
  void propagate_gradients() {
    std::vector<CallIndex> open;
    const auto count = static_cast<CallIndex>(calls_.size());
    for (CallIndex i = 0; i <= count; ++i) {
      while (!open.empty() && (i == count || facts_[at(open.back())].end <= i)) {
        close(open.back());
        open.pop_back();
      }
      if (i == count) break;
      for (const CallIndex source : calls_[at(i)].inputs) {
        facts_[at(i)].input_gradient |= carries_gradient(source, calls_[at(i)].caller);
      }
      open.push_back(i);
    }
  }

  void close(CallIndex i) {
    const ModuleCall& call = calls_[at(i)];
    CallFacts& facts = facts_[at(i)];
    if (recompute_ == Recompute::reentrant && facts.checkpoint == i) {
      facts.output_gradient = facts.input_gradient;
      return;
    }
    facts.output_gradient = has_trainable(call);
    if (call.results.empty()) facts.output_gradient |= facts.input_gradient;
    for (const CallIndex source : call.results) {
      facts.output_gradient |= carries_gradient(source, i);
    }
  }

  // Runs a call forward and notes the graph's nodes (none without `nodes`). False: it stopped after
  // the kept tensor of `stop_at`.
  bool forward(CallIndex i, CallIndex stop_at, std::vector<Node>* nodes) {
    const ModuleCall& call = calls_[at(i)];
    const CallFacts& facts = facts_[at(i)];
    if (!facts.hidden) events_.push_back({ModuleEventKind::forward_enter, call.module});
    const bool hooks = nodes != nullptr && !facts.hidden;
    if (hooks && facts.input_gradient && call.positional) {
      nodes->push_back({Node::Kind::after_backward, i});
    }
    for (CallIndex inner = i + 1; inner < facts.end; inner = facts_[at(inner)].end) {
      if (!call_inner(inner, stop_at, nodes)) return false;
    }
    if (nodes != nullptr && call.keeps_tensors && facts.output_gradient) {
      nodes->push_back({Node::Kind::kept_tensor, i});
    }
    if (i == stop_at) return false;
    if (!facts.hidden) events_.push_back({ModuleEventKind::forward_exit, call.module});
    if (hooks && facts.output_gradient) {
      nodes->insert(nodes->end(), at(call.outputs), {Node::Kind::before_backward, i});
    }
    return true;
  }

  bool call_inner(CallIndex inner, CallIndex stop_at, std::vector<Node>* nodes) {
    const CallFacts& facts = facts_[at(inner)];
    if (recompute_ != Recompute::reentrant || facts.checkpoint != inner || nodes == nullptr) {
      return forward(inner, stop_at, nodes);
    }
    if (facts.input_gradient) nodes->push_back({Node::Kind::checkpoint, inner});
    return forward(inner, stop_at, nullptr);
  }

  void backward(const std::vector<Node>& nodes) {
    for (std::size_t i = nodes.size(); i-- > 0;) {
      const Node& node = nodes[i];
      const ModuleIndex module = calls_[at(node.call)].module;
      switch (node.kind) {
        case Node::Kind::before_backward:
          events_.push_back({ModuleEventKind::backward_enter, module});
          break;
        case Node::Kind::after_backward:
          events_.push_back({ModuleEventKind::backward_exit, module});
          break;
        case Node::Kind::kept_tensor:
          recompute_for(node.call);
          break;
        case Node::Kind::checkpoint: {
          std::vector<Node> inner;
          forward(node.call, kToTheEnd, &inner);
          backward(inner);
          break;
        }
      }
    }
  }

  // The first kept tensor that a block's backward asks for makes the whole block run again, up to
  // that tensor, which is the last one the block kept.
  void recompute_for(CallIndex call) {
    const CallIndex block = facts_[at(call)].checkpoint;
    if (recompute_ != Recompute::non_reentrant || block < 0 || block == recomputed_) return;
    recomputed_ = block;
    forward(block, call, nullptr);
  }

  const std::vector<ModuleCall>& calls_;
  const FetchModel& model_;
  const Recompute recompute_;
  std::vector<CallFacts> facts_;
  std::vector<ModuleEvent> events_;
  CallIndex recomputed_ = -1;  // the block recomputed last; blocks run backward one by one
};

}  // namespace

std::vector<ModuleEvent> module_order(const std::vector<ModuleCall>& calls,
                                      const FetchModel& model,
                                      Recompute recompute) {
  return OrderWriter(calls, model, recompute).write();
}

}  // namespace zeroplan
