// Packages that the model's code can run on beside what every environment has: Liger's fused loss,
// flash-attn and flash-linear-attention. They cost nothing but an installation, and the kit
// starts them; so plans without them come first, and an answer that needs them names them.
//
// Tried are those that nobody said anything about, that make a difference to the class and that
// the GPU can run: where logits decide (large vocabulary, long sequences) Liger's loss, where the
// class has no attention of PyTorch's (GPT-J; older releases of transformers) flash-attn, where
// layers have gated linear attention the kernels for it.
// Checked by tests/unit/tuner/packages_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "base/phrase.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan::tuner {

struct Packages {
  bool fused_loss = false;        // liger-kernel
  bool flash_attention = false;   // flash-attn
  bool linear_attention = false;  // flash-linear-attention
  bool state_space = false;       // mamba-ssm with causal-conv1d

  bool any() const { return fused_loss || flash_attention || linear_attention || state_space; }
  friend bool operator==(const Packages&, const Packages&) = default;
};

// Can the GPU run what these packages compile?
bool runs_packages(const Gpu& gpu);

// Is it PyTorch's allocator, which could map pages instead of keeping segments, and does not?
bool may_expand_segments(const Plan& plan);

// Does the plan's class have attention of that kind that keeps no scores?
bool has_fused_attention(Scenario scenario, Plan plan, Attention attention);

// The choices beyond none, the fewest packages first. `plan`: any of the question.
std::vector<Packages> packages_to_try(const Scenario& scenario, const Plan& plan);

// The scenario with them, as its flags would say them, and those that were said so.
Scenario with_packages(Scenario scenario, const Packages& packages);
Packages chosen_packages(const Scenario& scenario);

// "liger-kernel", "flash-attn, liger-kernel": as pip knows them. Precondition of both: there is
// one.
std::string names_of(const Packages& packages);
// "--fused-loss true": what asks for them.
std::string flags_of(const Packages& packages);
// Of a plan that takes them for granted, for its assumptions.
std::vector<Phrase> sentences_of(const Packages& packages);

}  // namespace zeroplan::tuner
