// The models beside the trained one, and a trainer's forward passes without gradients, as parts of
// the program of whichever engine trains (model/plan/beside.hpp).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "model/plan/beside.hpp"
#include "model/step/generation.hpp"
#include "simulator/engines/frozen_weights.hpp"
#include "simulator/engines/graph_writer.hpp"

namespace zeroplan::simulator {

// How the trained model's engine runs a pass over its own weights: below stage 3 nothing is to do.
struct OwnEngine {
  std::function<void()> begin;
  std::function<void(const ModuleStep&)> step;
};

class BesideWriter {
 public:
  // All must outlive it. Nothing is written for a plan without other models.
  BesideWriter(const Plan& policy, ProgramWriter& writer, Communicators& communicators);

  // Weights that are on the GPU from the start, and what a server beside them keeps.
  void hold_weights();
  // Whether the first step is not all: ZeRO-3's coordinator records a model's first pass, and PPO's
  // second rollout finds the logits of the first and the optimizer's states.
  bool needs_two_steps() const;
  // Whether something is generated before this micro-step: before a step's first, by gkd before
  // each of them.
  bool generates_before(int micro_step) const;
  // What generates for the step, or the micro-step, that begins, and goes again.
  void begin_step();
  // Whether the step that begins stands behind a rollout of PPO, and behind any generation by the
  // model itself. Of PPO's steps the first ones do; the steady one, whose time counts, does not.
  bool rolls_out() const;
  bool generates() const;
  // A server that sleeps wakes in the steps before: its allocator is its own, so that what waking
  // takes is no part of a steady step's time.
  void keep_asleep() { asleep_ = true; }

  // PPO's training loop: its variables hold a micro-batch's outputs until the next one's are there.
  // GKD's loss ends with empty_cache() and lets go of what the teacher returned. After the forward
  // pass; after the backward pass, whose graph has let go of them; after the step.
  void end_forward();
  void end_backward(int micro_step, bool steps);
  void end_step();

  // The passes of a moment. `trained`: whose workspaces of products the process has already.
  void write_passes(PassMoment moment, GraphWriter& trained, const OwnEngine& own = {});

 private:
  // A model that runs: one of the others, or the trained one without gradients.
  struct Runner {
    std::shared_ptr<const Plan> plan;
    bool own_weights = false;  // of the trained model
    ModelGraph graph;
    std::unique_ptr<TaskTable> tasks;
    std::unique_ptr<GraphWriter> writer;
    std::unique_ptr<FrozenWeights> weights;  // null: the trained model's engine has them
    std::vector<SlotIndex> casts;            // autocast's copies, by parameter
    std::vector<bool> cast;
  };
  Runner& runner_of(const InferencePass& pass);
  void write_pass(Runner& runner, const OwnEngine& own);
  bool is_ppo() const;
  void drop_results(Runner& runner);
  void generate();
  void roll_out();
  void hold_outputs();
  void drop_outputs();
  void measure();
  void drop_variables();
  void drop(std::vector<SlotIndex>& slots);
  SlotIndex take(Bytes bytes, MemoryCategory category);
  void cast_weights(Runner& runner, const PassStep& pass);

  const Plan& policy_;
  ProgramWriter& writer_;
  Communicators& communicators_;
  std::vector<std::unique_ptr<Runner>> runners_;
  bool asleep_ = false;
  std::optional<GenerationMemory> generation_;  // from the first one on
  std::vector<Runner*> returned_;               // whose results the loss still reads
  std::vector<SlotIndex> logits_;               // of the last rollout
  // The loop's variables, the same slots in every micro-step, which may be repeated.
  std::vector<SlotIndex> outputs_;
  SlotIndex probabilities_ = -1, made_ = -1;
  bool holds_outputs_ = false, holds_probabilities_ = false;
};

}  // namespace zeroplan::simulator
