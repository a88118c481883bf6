#include "tuner/kit/kit_scope.hpp"

#include <algorithm>

#include "model/graph/traced_graph.hpp"
#include "model/plan/beside.hpp"
#include "model/plan/software_sets.hpp"
#include "model/plan/trainer.hpp"
#include "model/releases.hpp"

namespace zeroplan::tuner {
namespace {

// Ranks that share a model, a sequence or activations in a way that needs a program of its own.
void add_parallel(const Plan& plan, std::vector<Phrase>& reasons) {
  const Workload& work = plan.workload;
  if (work.pipeline_parallel > 1 && work.fused_loss) {
    reasons.emplace_back("a fused loss in a pipeline, whose loss is not in the model");
  }
  if (work.tensor_parallel > 1 && work.implementation != Implementation::hf) {
    reasons.emplace_back("tensor parallelism needs layers that are split (Megatron-DeepSpeed)");
  }
  if (work.sequence_parallel > 1) {
    reasons.emplace_back(
        "sequences over ranks need DeepSpeed's UlyssesSPAttentionHF and its data loader");
  }
  if (work.activation_offload != ActivationOffload::none) {
    reasons.emplace_back("checkpoints that are kept on the host need a checkpointing function");
  }
  if (work.activation_checkpointing == ActivationCheckpointing::selective) {
    reasons.emplace_back("selective checkpointing needs a list of the operations that are kept");
  }
}

void add_torch_engine(const Plan& plan, std::vector<Phrase>& reasons) {
  const Workload& work = plan.workload;
  if (work.frontend == Frontend::native || plan.model->shape.kind == ModelKind::encoder) {
    reasons.emplace_back("a loop of one's own under FSDP or DDP (the script is the Trainer's)");
  }
  if (work.tiled_mlp) reasons.emplace_back("a tiled feed-forward outside of DeepSpeed");
}

void add_hybrid_groups(const Plan& plan, std::vector<Phrase>& reasons) {
  const Workload& work = plan.workload;
  if (work.engine != TrainingEngine::fsdp || plan.fsdp.sharding == Sharding::no_shard) return;
  if (plan.fsdp.shard_ranks != plan.fsdp.ranks &&
      plan.fsdp.shard_ranks != static_cast<int>(plan.cluster.gpus_per_node())) {
    reasons.emplace_back("groups of FSDP that are not the GPUs of one node");
  }
}

// Whether rows of text alone are no batch of the class: sound and pixels have the model's dtype.
bool reads_more_than_text(const TracedGraph& graph) {
  return std::any_of(graph.inputs.begin(), graph.inputs.end(), [](const NamedTensor& input) {
    return input.tensor.of_model;
  });
}

}  // namespace

bool starts_with_accelerate(const Plan& plan) {
  return plan.workload.engine == TrainingEngine::fsdp ||
         plan.workload.engine == TrainingEngine::ddp;
}

bool trains_with_trl(const Plan& plan) {
  if (plan.trainer == nullptr || plan.trainer->code != TrainerCode::trl) return false;
  if (plan.beside == nullptr) return true;
  const bool full = plan.workload.method == Method::full;
  const std::vector<BesideModel>& models = plan.beside->models;
  return std::all_of(models.begin(), models.end(), [&](const BesideModel& model) {
    const bool shares = model.role == ModelRole::reference && !full;
    const Placement usual = model.role == ModelRole::critic ? Placement::policy_engine
                            : shares                        ? Placement::policy_weights
                                                            : usual_placement(plan);
    if (plan.trainer->distils()) {
      const bool written = own_code_of(*model.plan->model) == nullptr;
      return written && model.placement == usual_placement(plan);
    }
    const bool its_own = model.role == ModelRole::reference || plan.trainer->trains_values();
    return its_own && model.name.empty() && model.placement == usual;
  });
}

std::vector<Phrase> beyond_trainer(const Plan& plan) {
  const Workload& work = plan.workload;
  std::vector<Phrase> reasons;
  if (work.implementation != Implementation::hf) {
    reasons.push_back(phrase("the code of {} (the scripts train Hugging Face's)",
                             name(kImplementationNames, work.implementation)));
  }
  if (const TracedGraph* traced = traced_graph_of(*plan.model)) {
    if (!traced->recorded) {
      reasons.emplace_back("a traced model, which the program that it was traced from builds");
    } else if (plan.workload.images.count == 0 && reads_more_than_text(*traced)) {
      reasons.emplace_back("a class that reads sound or an image with every text");
    }
  }
  if (plan.trainer != nullptr && plan.trainer->by_hand()) {
    reasons.push_back(phrase("the loop of {}, which its own command starts",
                             name(kTrainerCodeNames, plan.trainer->code)));
  } else if ((plan.trainer != nullptr || plan.beside != nullptr) && !trains_with_trl(plan)) {
    reasons.emplace_back("a trainer with other models beside the trained one, which is TRL's");
  }
  if (plan.trainer != nullptr && work.images.count > 0) {
    reasons.emplace_back(
        "images under TRL's trainers of answers (the Trainer's script takes them)");
  }
  if (!work.lora.sub_targets.empty()) reasons.emplace_back("adapters on parts of a projection");
  add_parallel(plan, reasons);
  if (starts_with_accelerate(plan)) add_hybrid_groups(plan, reasons);
  return reasons;
}

std::vector<Phrase> beyond_kit(const Plan& plan) {
  std::vector<Phrase> reasons = beyond_trainer(plan);
  const bool casts =
      plan.trainer != nullptr && (plan.trainer->trains_values() || !keeps_four_bits(plan));
  if (plan.workload.method == Method::qlora && casts) {
    reasons.emplace_back(
        "weights in four bits under TRL's trainers, which cast what lies beside them to fp32");
  }
  if (starts_with_accelerate(plan)) add_torch_engine(plan, reasons);
  return reasons;
}

}  // namespace zeroplan::tuner
