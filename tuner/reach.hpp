// How far a cluster reaches: the longest sequences of a model, the largest model, micro-batch, rank
// of adapters, number of completions; and how few GPUs are enough.
//
// The analytic estimate finds how long the sequences of each strategy may be, and the simulator
// settles it for those that come near the longest. Of strategies that are about as long the best is
// taken, as fit() ranks them. Checked by tests/unit/tuner/reach_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/plan/scenario.hpp"
#include "model/predict/predict_options.hpp"
#include "tuner/fit_answer.hpp"

namespace zeroplan::tuner {

// A strategy with the longest sequences that it trains, in steps of kSequenceQuantum tokens and
// with the smallest micro-batch that was not ruled out.
struct SequenceReach {
  std::int64_t tokens = 0;
  StrategyResult row;
};

// Of strategies that reach equally far (within 3 %) the best; the longest where that is another.
struct LongestSequence {
  SequenceReach best;
  std::optional<SequenceReach> longer;
};

struct LongestSequences {
  std::optional<LongestSequence> plain;  // without packages that an environment may lack
  // Where there are such packages and they make a difference.
  Packages packages;
  std::optional<LongestSequence> with_packages;
  // Where the answer, which is `plain`'s if there is one, has a host_condition: that of nodes with
  // the usual host memory, nothing where no length fits them.
  bool has_condition = false;
  std::optional<LongestSequence> usual_host;
  // Where longer ones train by DeepSpeed-Ulysses and nobody said how many ranks share a sequence:
  // as many GPUs of a node as the model allows, with `packages` where they make a difference.
  std::int64_t ranks = 1;
  std::optional<LongestSequence> shared;

  const std::optional<LongestSequence>& answer() const { return plain ? plain : with_packages; }
};

// Checkpointing is full unless something was said. Throws InputError as fit() does.
LongestSequences longest_sequence(const Scenario& scenario, const PredictOptions& options = {});

// What is looked for besides: the largest value with which something trains; of GPUs the smallest.
enum class Sought {
  model,        // of a LLaMA's shape (as "13B" names one), in steps of 4 %
  micro_batch,  // sequences a GPU takes in a pass, where no global batch was said
  rank,         // of LoRA, in steps of 8
  completions,  // of a prompt (GRPO), by powers of two
  gpus          // of the cluster's kind: 1, 2, 4, ... of a node, then whole nodes
};

// The value and the best strategy with it, on nodes with the usual host memory where nobody says
// how much they have.
struct Reach {
  std::string value;     // "13.2B", "12"
  bool is_last = false;  // none beyond it was looked at
  StrategyResult best;
  std::string beyond;                     // the next value
  std::optional<StrategyResult> lacking;  // it, placed so, with its limit
};

// Nothing where no value is one. Throws InputError as fit() does, and where the scenario has
// nothing of what is sought: no adapters, no trainer of completions.
std::optional<Reach> reach(const Scenario& scenario,
                           Sought sought,
                           const PredictOptions& options = {});

}  // namespace zeroplan::tuner
