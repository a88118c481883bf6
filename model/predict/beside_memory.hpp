// What the models beside the trained one add to a rank's memory, analytically: their weights, and
// the peaks of their forward passes (model/plan/beside.hpp). docs/model.md, "Several models".
#pragma once

#include <vector>

#include "model/memory_category.hpp"
#include "model/plan/beside.hpp"
#include "model/predict/step_result.hpp"
#include "model/predict/step_work.hpp"

namespace zeroplan {

// [B1] A model's weights between passes.
struct BesideWeights {
  Bytes gpu;   // of a rank
  Bytes host;  // of a rank, pinned: those that are offloaded
};
BesideWeights weights_between_passes(const Plan& model);

// [B2] Above what is there when a forward pass without gradients begins: its activations, logits
// and gathered weights at their peak. `plan` is a pass's.
CategoryBytes inference_rise(const Plan& plan);
// Its results: logits, keys and values.
CategoryBytes inference_results(const Plan& plan);

// Of all models; nothing for a plan of one.
struct BesideMemory {
  Bytes gpu;                       // weights
  Bytes host;                      //
  Bytes logits;                    // of the last rollout
  CategoryBytes before_forward{};  // highest rise of the passes of that moment
  CategoryBytes after_forward{};   //
  CategoryBytes in_loss{};         //
  CategoryBytes results{};         // that those of in_loss leave until the loss is there
};
BesideMemory beside_memory(const Plan& policy);

// Adds them to the phases of the trained model's memory. The passes of after_forward run beside
// what its forward pass has saved and returned.
void add_beside(const Plan& policy,
                const StepWork& work,
                const BesideMemory& beside,
                GpuMemory& gpu);

}  // namespace zeroplan
