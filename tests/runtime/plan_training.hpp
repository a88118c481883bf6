// Training of a plan as `zeroplan run` sets it up, and a model for it.
#pragma once

#include "base/json.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/step_work.hpp"
#include "runtime/train/trainer.hpp"

namespace zeroplan::runtime::test {

// On CPU ranks. Both must outlive the setup.
inline TrainingSetup setup_of(const Plan& plan, const StepWork& work) {
  TrainingSetup setup;
  setup.model = plan.model.get();
  setup.graph = &work.graph;
  setup.parameters = plan.engine_parameters;
  setup.config = plan.engine;
  setup.micro_batch = plan.workload.micro_batch_size;
  setup.sequence = plan.workload.sequence_length;
  setup.kernels = cpu_kernels;
  return setup;
}

// Large enough for a drive: partitions of the embeddings have 1 MiB and more on up to four ranks,
// those of the feed-forward weights on one; none is a multiple of a block.
inline Json wide_llama() {
  return Json::object({{"model_type", "llama"},
                       {"architectures", Json::array({"LlamaForCausalLM"})},
                       {"hidden_size", 256},
                       {"intermediate_size", 1028},
                       {"num_hidden_layers", 1},
                       {"num_attention_heads", 4},
                       {"num_key_value_heads", 2},
                       {"vocab_size", 4201},
                       {"max_position_embeddings", 64},
                       {"rms_norm_eps", 1e-5}});
}

}  // namespace zeroplan::runtime::test
