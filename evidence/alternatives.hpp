// What a measured scenario leaves open, and what it may have been.
//
// Each value has a weight, the share of runs that are thought to use it; the
// probability that a scenario fits is the mean over them. Weights are assumed, docs/validate.md
// says why; none is fitted to a measurement.
//
// Besides keys, two things that no key can say are open: whether a hand-written loop holds the
// model's outputs while it runs backward, and whether a job on some GPUs of a machine may use the
// whole host.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/plan/plan.hpp"
#include "model/plan/scenario.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan::evidence {

struct Alternative {
  double weight = 0.0;
  std::string text;                    // of the value, for a reader
  std::function<void(Scenario&)> say;  // before it is resolved; may be null
  std::function<void(Plan&)> change;   // after it; may be null
};

struct OpenKey {
  std::string name;                       // the last part of the key's pointer
  std::vector<Alternative> alternatives;  // to the default, which has the rest of the weight
  // Hardly ever stated by anybody: widens the interval and is not named as a reason.
  bool is_quiet = false;

  double default_weight() const;
};

// Of a scenario, the plan that its defaults make, and what is predicted for it.
std::vector<OpenKey> open_keys(const Scenario& scenario,
                               const Plan& defaults,
                               const StepResult& result);

// The scenario's ds_config, or an empty one. What cannot be read is resolve()'s to report.
DsConfig ds_config_of(const Scenario& scenario);

// How likely a fused loss is where nobody says:
//
//   w = r^2 / (1 + r^2), from 0.1 to 0.95;  r = 6 L / max(C - M, C / 20)
//
// L the logits in 16 bits, 6 L with log-softmax and two gradients of it in fp32, C the GPU, M the
// peak of the default without logits. Who meets logits that do not fit beside the rest (r > 1)
// takes a fused loss, which costs nothing; where they are small few care. Assumed: the form and the
// bounds come from no measurement.
double fused_loss_weight(const Plan& plan, const StepResult& result);

// How likely a tiled feed-forward is where nobody says, by the same form:
//
//   w = r^2 / (1 + r^2), 0 below r = 1/3, at most 0.95;  r = 6 F / max(C - M, C / 20)
//
// F the width of the feed-forward of all tokens of a rank in 16 bits (gate, its activation, up,
// their product, and two gradients live at once), M the peak of the default without logits and
// activations. Only recipes for long sequences have it. Assumed, as above.
double tiled_mlp_weight(const Plan& plan, const StepResult& result);

}  // namespace zeroplan::evidence
