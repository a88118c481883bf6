// Ranks that share a model: tensor parallelism, and pipeline stages. From here
// on the plan's model is what one rank of its stage holds.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "model/families/megatron.hpp"
#include "model/families/pipeline_stage.hpp"
#include "model/graph/traced_graph.hpp"
#include "model/plan/resolver.hpp"
#include "model/releases.hpp"
#include "model/tensor_ranks.hpp"

namespace zeroplan {
namespace {

bool is_megatron(const Workload& workload) {
  return workload.implementation == Implementation::megatron;
}

// Megatron-DeepSpeed's own choice of the layers that count, or the ds_config's.
StageWeights stage_weights(Resolver& r) {
  const std::int64_t stages = r.plan.degrees.pipeline;
  const std::int64_t layers = r.plan.model->shape.layers;
  const bool room = layers + 2 >= 2 * stages;  // partition_layers()
  if (const auto method = r.plan.ds_config.text(Knob::pipeline_partition)) {
    if (method->find("embed") != std::string::npos) {
      return room ? StageWeights::layers_and_ends : StageWeights::layers;
    }
    if (method->find("type:") == 0) return StageWeights::layers;
  }
  const bool even = layers % stages == 0;
  const bool even_with_ends = (layers + 2) % stages == 0;
  const bool ends = !even && even_with_ends && room;
  r.assume(ends ? phrase("stages: embedding and head count as a layer each (partition method {}), "
                         "which divides evenly",
                         std::string("type:transformer|embedding"))
                : "stages: equal numbers of layers (partition method type:transformer)");
  return ends ? StageWeights::layers_and_ends : StageWeights::layers;
}

// What train_pipeline.py of a kit makes its PipelineModule of. Its classes are EmbeddingLayer,
// TransformerLayer, NormLayer and HeadLayer; a tied head is an EmbeddingLayer once more. The engine
// reads the two keys of checkpointing itself. Checked by tests/kit/check_pipeline.py.
void write_pipeline_section(Plan& plan, StageWeights weights) {
  const bool ends = weights == StageWeights::layers_and_ends;
  const bool checkpoints = plan.workload.activation_checkpointing == ActivationCheckpointing::full;
  DsConfig& config = plan.ds_config;
  config.set(Knob::pipeline_stages, plan.degrees.pipeline);
  config.set(Knob::pipeline_partition,
             std::string(ends ? "type:transformer|embedding|head" : "type:transformer"));
  config.set(Knob::pipeline_activation_checkpoint_interval, std::int64_t{checkpoints ? 1 : 0});
  config.set(Knob::pipeline_use_reentrant, plan.workload.checkpoint_reentrant);
}

// Families whose blocks hand on hidden states and nothing else that is not made again.
bool hands_on_hidden_states(const Model& model) {
  constexpr std::array<std::string_view, 4> kKnown = {"llama", "chatglm", "bloom", "gpt_bigcode"};
  const bool traced = traced_graph_of(model) != nullptr;
  const std::string& name = traced ? model.model_type : model.implementation_family;
  const bool known = std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end();
  return known && model.shape.experts.experts == 0;
}

void check_pipeline(Resolver& r) {
  const Plan& plan = r.plan;
  const std::int64_t stages = plan.degrees.pipeline;
  if (stages <= 1) return;
  const Model& model = *plan.model;
  const Origin origin = r.origin(ScenarioKey::pipeline_parallel);
  const bool described_class =
      plan.workload.implementation == Implementation::hf && hands_on_hidden_states(model);
  const bool described = plan.workload.engine == TrainingEngine::deepspeed &&
                         plan.workload.frontend == Frontend::native &&
                         (is_megatron(plan.workload) || described_class) &&
                         plan.workload.method == Method::full && plan.degrees.sequence == 1 &&
                         has_stages(model);
  if (!described) {
    r.not_modelled(ScenarioKey::pipeline_parallel,
                   "pipeline stages of this model, code, method, engine or frontend");
    return;
  }
  if (stages > model.shape.layers) {
    r.problem(origin,
              phrase("at most {} stages, one for each layer", model.shape.layers),
              std::to_string(stages));
  }
}

std::string preset_of(const Plan& plan) {
  return plan.ds_config.text(Knob::tensor_parallel_preset_model).value_or("");
}

// Presets that cut layers as the class's own plan does, and no head (module_inject/autotp_config.py
// AutoTPPresets).
bool leaves_head(std::string_view preset) { return preset == "llama" || preset == "qwen2"; }

// Why AutoTP does not run this plan, or is not described; empty: neither.
Phrase autotp_limit(const Plan& plan) {
  const Workload& workload = plan.workload;
  const Software& software = plan.software;
  if (!software.deepspeed_acts(ReleaseRule::autotp_reads_plan)) {
    return "AutoTP before DeepSpeed 0.18.9";
  }
  if (has_head_norms(*plan.model) && !software.deepspeed_acts(ReleaseRule::autotp_sums_norms)) {
    return phrase("AutoTP of {} before DeepSpeed 0.19.6", plan.model->architecture);
  }
  if (plan.ds_config.is_set(Knob::tensor_parallel_partition_config)) {
    return "AutoTP by a partition_config of one's own";
  }
  if (const std::string preset = preset_of(plan); !preset.empty() && !leaves_head(preset)) {
    return phrase("AutoTP's preset \"{}\"", preset);
  }
  if (plan.ds_config.integer(Knob::zero_stage) == 3) {
    return software.deepspeed_acts(ReleaseRule::autotp_misses_zero_init)
               ? "AutoTP under stage 3, whose zero.Init leaves it no layer to cut"
               : "AutoTP under stage 3";
  }
  if (workload.method != Method::full) return "adapters on layers that AutoTP cuts";
  if (plan.degrees.sequence > 1) return "sequence-parallel ranks beside AutoTP's";
  if (workload.fused_loss && !plan.model->shape.tied_embeddings) {
    return "a fused loss that reads the weight of a head that AutoTP cuts";
  }
  return "";
}

void check_tensor(Resolver& r) {
  const Plan& plan = r.plan;
  const std::int64_t ranks = plan.degrees.tensor;
  if (ranks <= 1 && !is_megatron(plan.workload)) return;
  if (!is_megatron(plan.workload) && plan.degrees.autotp == 1) {
    r.not_modelled(ScenarioKey::tensor_parallel,
                   "tensor parallelism of other code than Megatron's and DeepSpeed's AutoTP");
    return;
  }
  const Phrase limit = plan.degrees.autotp > 1 ? autotp_limit(plan) : Phrase();
  if (!limit.empty()) {
    r.not_modelled(ScenarioKey::tensor_parallel, limit);
    return;
  }
  const Phrase refusal = plan.degrees.autotp > 1 ? autotp_refusal(*plan.model, ranks)
                                                 : uneven_shares(plan.model->shape, ranks);
  if (!refusal.empty()) {
    r.problem(r.origin(ScenarioKey::tensor_parallel), refusal, std::to_string(ranks));
  }
}

}  // namespace

bool runs_autotp(const Plan& plan) {
  return plan.degrees.tensor > 1 && plan.workload.engine == TrainingEngine::deepspeed &&
         plan.workload.implementation == Implementation::hf;
}

void check_model_parallel(Resolver& r) {
  check_tensor(r);
  check_pipeline(r);
}

// runtime/pipe/engine.py PipelineEngine.__init__: ZeRO 2 and 3 do not work with pipelines.
void require_stage_for_pipeline(Resolver& r) {
  const std::int64_t stage = r.plan.ds_config.integer(Knob::zero_stage).value_or(0);
  if (r.plan.degrees.pipeline <= 1 || stage < 2) return;
  const Origin stages = !r.has_ds_config
                            ? r.origin(ScenarioKey::pipeline_parallel)
                            : Origin{r.ds_config_file, std::string(pointer_of(Knob::zero_stage))};
  r.problem(stages, "ZeRO stage 0 or 1, all that a pipeline runs with", phrase("stage {}", stage));
}

void divide_model(Resolver& r) {
  Plan& plan = r.plan;
  if (is_megatron(plan.workload)) {
    plan.tensor_model =
        std::make_shared<const Model>(megatron_model(*plan.model, plan.degrees.tensor));
    plan.model = plan.tensor_model;
  }
  if (plan.degrees.autotp > 1) {
    const bool cuts_head = plan.software.deepspeed_acts(ReleaseRule::autotp_cuts_head) &&
                           !leaves_head(preset_of(plan));
    plan.tensor_model =
        std::make_shared<const Model>(autotp_model(*plan.model, plan.degrees.tensor, cuts_head));
    plan.model = plan.tensor_model;
  }
  if (plan.degrees.pipeline <= 1) return;
  const StageWeights weights = stage_weights(r);
  plan.stages = partition_layers(plan.model->shape.layers, plan.degrees.pipeline, weights);
  if (!is_megatron(plan.workload)) write_pipeline_section(plan, weights);
  plan = stage_plan(plan, 0);
}

Plan stage_plan(const Plan& plan, std::int64_t stage) {
  Plan result = plan;
  const LayerRange& range = plan.stages[static_cast<std::size_t>(stage)];
  result.stage = stage;
  result.model = std::make_shared<const Model>(
      stage_of(*plan.tensor_model,
               {range.first,
                range.count,
                stage == 0,
                stage + 1 == static_cast<std::int64_t>(plan.stages.size())}));
  result.engine_parameters = engine_parameters(result);
  return result;
}

// Of stages with as many layers and the same ends the first has the most micro-batches alive.
std::vector<std::int64_t> distinct_stages(const Plan& plan) {
  const auto count = static_cast<std::int64_t>(plan.stages.size());
  std::vector<std::int64_t> distinct;
  for (std::int64_t stage = 0; stage < count; ++stage) {
    if (representative_stage(plan, stage) == stage) distinct.push_back(stage);
  }
  return distinct;
}

std::int64_t representative_stage(const Plan& plan, std::int64_t stage) {
  const auto last = static_cast<std::int64_t>(plan.stages.size()) - 1;
  if (stage == 0 || stage == last) return stage;
  for (std::int64_t other = 1; other < stage; ++other) {
    if (plan.stages[static_cast<std::size_t>(other)].count ==
        plan.stages[static_cast<std::size_t>(stage)].count) {
      return other;
    }
  }
  return stage;
}

std::int64_t live_micro_batches(const Plan& plan) {
  if (plan.stages.empty()) return 1;
  return live_micro_batches(plan.workload.gradient_accumulation_steps,
                            static_cast<std::int64_t>(plan.stages.size()),
                            plan.stage);
}

}  // namespace zeroplan
