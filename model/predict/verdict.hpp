// Does a plan fit, with which probability, and what is missing where it does not.
#pragma once

#include <optional>
#include <vector>

#include "base/phrase.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/memory_prediction.hpp"
#include "model/predict/predict_options.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

// What a resource needs and what there is, both normal; what there is may be assumed.
struct NormalDemand {
  Bytes mean;
  double relative_sd = 0.0;
  double capacity_sd = 0.0;  // relative
};
// 1 where nothing is needed or the limit is infinite.
double probability_below(const NormalDemand& demand, Bytes limit);
// How much of a resource there must be for it to suffice with the asked probability.
Bytes needed_for(const NormalDemand& demand, double confidence);

// The host memory of a node, as a plan's demands meet it: so much was said; or nobody said it, and
// what is needed is a requirement.
class HostRoom {
 public:
  HostRoom(const Plan& plan, const MemoryPrediction& memory, const PredictOptions& options);

  // That `needed` bytes of a node, predicted, suffice; of an open host, whether a node can have
  // them: 1 where it can.
  double probability(Bytes needed) const;
  // Precondition: they do not suffice with the asked confidence.
  Limit limit(Bytes needed, Phrase largest_term, Phrase change) const;
  // Nothing where the amount was said, or the usual amount does. `of_the_rest`: the probability
  // that everything else suffices.
  std::optional<HostCondition> condition(Bytes needed, double of_the_rest) const;

 private:
  NormalDemand demand(Bytes needed) const { return {needed, sd_, capacity_sd_}; }
  Bytes most() const;

  bool open_ = false;
  Bytes capacity_;  // said, or usual
  double sd_ = 0.0;
  double capacity_sd_ = 0.0;
  double confidence_ = 0.0;
};

// Behind "yes" or "fits": ", if a node has 326 GiB of host memory (usual: 251.5 GiB)"; empty where
// the usual amount does, or one was said.
Phrase condition_text(const StepResult& result);

struct GpuVerdict {
  double probability = 0.0;  // that the GPU's memory suffices
  Bytes needed;              // the likeliest peak, as it is shown
  Bytes margin;              // beside it, at the asked confidence
};

// From the analytic estimate: what is needed is normal around gpu_needed.
GpuVerdict gpu_verdict(const MemoryPrediction& memory, const PredictOptions& options);

struct Verdict {
  bool fits = false;
  double probability = 0.0;
  std::vector<Limit> limits;
  std::optional<HostCondition> host_condition;  // of a whole run: judge_phases()
};

// The plan fits with the product of the probabilities that GPU, host and NVMe suffice; of a host
// whose memory is unspecified that a node can have what it needs, which is then a condition and no
// part of the probability. Weights on NVMe whose pool of buffers ends the run do not fit for
// certain.
Verdict judge(const Plan& plan,
              const MemoryPrediction& memory,
              const GpuVerdict& of_gpu,
              const PredictOptions& options);

}  // namespace zeroplan
