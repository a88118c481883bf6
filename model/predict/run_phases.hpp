// Memory by phase where a run is more than the training of one model: the training step, forward
// passes of other models, generation, the synchronisation of weights with who generates,
// evaluation. And which model to move off the GPUs first. docs/model.md, "Several models".
//
// Phases do not overlap: TRL's trainers and the Trainer run them one after the other in one
// process. What stays through all of them is counted in each: the trained model between steps, the
// weights of the others, a vLLM engine that does not sleep.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/phrase.hpp"
#include "model/plan/beside.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

enum class RunPhaseKind { training_step, inference, generation, synchronisation, evaluation };
inline constexpr EnumNames<RunPhaseKind, 5> kRunPhaseKindNames{
    {"training_step", "inference", "generation", "synchronisation", "evaluation"}};

// A part of a phase's memory: "gathered weights", "keys and values".
struct PhasePart {
  Phrase name;
  Bytes bytes;
};

struct RunPhase {
  RunPhaseKind kind = RunPhaseKind::training_step;
  std::string of;                // whose pass it is: "reference"; empty: the trained model's
  Bytes allocated;               // on a GPU at its peak, all of what is there
  std::vector<PhasePart> parts;  // beside what stays between steps
  Bytes host;                    // more than between steps, of a node
};

struct ModelShare {
  ModelRole role = ModelRole::reference;
  std::string name;  // empty: a copy of the trained model
  Placement placement = Placement::replicated;
  Elements parameters;
  Bytes gpu;                       // weights on each GPU between its passes
  Bytes host;                      // weights in the host memory of each node
  std::optional<Seconds> forward;  // of one pass
};

// A way to have less on a GPU, with what it takes from its peak.
struct MemoryChoice {
  Phrase what;                   // one sentence: what to change, as its users write it
  Bytes freed;                   // of a GPU
  std::optional<Seconds> costs;  // of each optimizer step; absent: not known
};

struct RunPhases {
  std::vector<ModelShare> models;
  std::vector<RunPhase> phases;
  std::size_t peak = 0;               // the phase with the most
  std::vector<MemoryChoice> choices;  // the one that frees most first
};

// Those whose memory that of a training step, `gpu`, does not hold: synchronisation, evaluation.
std::vector<RunPhase> phases_outside_step(const Plan& plan, const GpuMemory& gpu);
// The trained model on batches of its evaluation, without gradients. Precondition of both: the plan
// has an evaluation.
Plan evaluation_plan(const Plan& plan);
RunPhase evaluation_phase(const Plan& plan, const GpuMemory& gpu);

// [B4] Nothing where one model is trained and neither evaluation nor generation was said. `result`:
// of the plan's training step.
std::optional<RunPhases> run_phases(const Plan& plan, const StepResult& result);

}  // namespace zeroplan
