// The resolved scenario document: every workload key explicit, so that resolving it again changes
// nothing.
#include "model/families/hf_config.hpp"
#include "model/hardware/cluster.hpp"
#include "model/plan/beside.hpp"
#include "model/plan/resolver.hpp"
#include "model/plan/trainer.hpp"
#include "model/plan/workload_document.hpp"

namespace zeroplan {
namespace {

Json method_json(const Workload& workload) {
  if (workload.method == Method::full) return Json("full");
  Json targets = Json::array();
  for (const std::string& target : workload.lora.targets) targets.push_back(target);
  Json settings = Json::object({{"rank", workload.lora.rank}, {"targets", targets}});
  if (!workload.lora.sub_targets.empty()) {
    Json parts = Json::array();
    for (const std::string& part : workload.lora.sub_targets) parts.push_back(part);
    settings["sub_targets"] = parts;
  }
  settings["dtype"] = name(kPrecisionNames, workload.lora.dtype);
  settings["dropout"] = workload.lora.dropout;
  settings["autocast"] = workload.lora.autocast;
  if (workload.lora.upcast != Upcast::none || workload.method == Method::qlora) {
    settings["upcast"] = name(kUpcastNames, workload.lora.upcast);
  }
  if (workload.method == Method::qlora) {
    settings["quant"] = name(kFourBitCodeNames, workload.lora.weights.code);
    settings["double_quant"] = workload.lora.weights.double_quant;
  }
  return Json::object({{std::string(name(kMethodNames, workload.method)), settings}});
}

Json dataset_json(const Dataset& dataset) {
  Json object = Json::object();
  if (dataset.samples > 0) object["samples"] = dataset.samples;
  object["epochs"] = dataset.epochs;
  if (dataset.mean_tokens) object["mean_tokens"] = *dataset.mean_tokens;
  if (dataset.tokens_sd) object["tokens_sd"] = *dataset.tokens_sd;
  if (!dataset.lengths.empty()) {
    Json lengths = Json::array();
    for (const std::int64_t tokens : dataset.lengths) lengths.push_back(tokens);
    object["lengths"] = lengths;
  }
  if (dataset.longer != LongSamples::cut)
    object["longer"] = name(kLongSamplesNames, dataset.longer);
  object["padding"] = name(kPaddingNames, dataset.padding);
  if (dataset.pad_to_multiple_of > 1) object["pad_to_multiple_of"] = dataset.pad_to_multiple_of;
  return object;
}

void add_loop(const TrainingLoop& loop, Json& workload) {
  if (loop.save) workload["save_steps"] = to_string(*loop.save);
  if (loop.evaluate) workload["eval_steps"] = to_string(*loop.evaluate);
  if (loop.log) workload["logging_steps"] = to_string(*loop.log);
  if (loop.dataloader_workers) workload["dataloader_num_workers"] = *loop.dataloader_workers;
  if (loop.mtbf) workload["mtbf"] = *loop.mtbf;
}

Json workload_json(const Workload& workload) {
  Json object = Json::object(
      {{"sequence_length", workload.sequence_length},
       {"micro_batch_size", workload.micro_batch_size},
       {"gradient_accumulation_steps", workload.gradient_accumulation_steps},
       {"method", method_json(workload)},
       {"precision", name(kPrecisionNames, workload.precision)},
       {"optimizer", name(kOptimizerNames, workload.optimizer)},
       {"attention", name(kAttentionNames, workload.attention)},
       {"activation_checkpointing",
        name(kActivationCheckpointingNames, workload.activation_checkpointing)},
       {"checkpoint_reentrant", workload.checkpoint_reentrant},
       {"activation_offload", name(kActivationOffloadNames, workload.activation_offload)},
       {"engine", name(kTrainingEngineNames, workload.engine)},
       {"frontend", name(kFrontendNames, workload.frontend)},
       {"implementation", name(kImplementationNames, workload.implementation)},
       {"fused_loss", workload.fused_loss},
       {"tiled_mlp", workload.tiled_mlp},
       {"compile", workload.compile},
       {"use_cache", workload.use_cache},
       {"outputs_held", workload.outputs_held},
       {"optimizer_implementation",
        name(kOptimizerImplementationNames, workload.optimizer_implementation)},
       {"fsdp_version", workload.fsdp_version},
       {"pipeline_parallel", workload.pipeline_parallel},
       {"tensor_parallel", workload.tensor_parallel},
       {"sequence_parallel", workload.sequence_parallel}});
  if (!workload.freeze.empty()) object["freeze"] = workload.freeze;
  if (workload.images.count > 0) {
    object["images"] = workload.images.count;
    object["image_size"] = fmt::format("{}x{}", workload.images.width, workload.images.height);
  }
  if (workload.linear_attention != LinearAttention::torch) {
    object["linear_attention"] = name(kLinearAttentionNames, workload.linear_attention);
  }
  if (workload.outputs_kept) object["outputs_kept"] = true;
  if (workload.gradients_held) object["gradients_held"] = true;
  if (workload.engine == TrainingEngine::fsdp &&
      workload.sync_each_batch != reduces_by_default(workload)) {
    object["sync_each_batch"] = workload.sync_each_batch;
  }
  if (workload.expandable_segments) object["expandable_segments"] = true;
  if (workload.omp_num_threads > 0) object["omp_num_threads"] = workload.omp_num_threads;
  if (workload.dataset) object["dataset"] = dataset_json(*workload.dataset);
  return object;
}

// What a torch engine's weights are kept in; under FSDP the Trainer's mixed precision makes them
// fp32, so that 16 bits mean that there is none.
Json weights_json(const Plan& plan) {
  const bool fsdp = plan.workload.engine == TrainingEngine::fsdp;
  const DType dtype = fsdp ? plan.fsdp.storage_dtype : plan.ddp.weight_dtype;
  const bool pure = fsdp && dtype == DType::bf16 && plan.workload.method == Method::full &&
                    plan.workload.frontend == Frontend::hf_trainer;
  return Json(pure ? "pure-bf16" : name(dtype));
}

Json trainer_json(const TrainerSettings& trainer) {
  Json settings = Json::object();
  if (trainer.has_others()) settings["beta"] = trainer.beta;
  if (!trainer.by_trl()) settings["code"] = name(kTrainerCodeNames, trainer.code);
  if (trainer.prompt_length > 0) settings["prompt_length"] = trainer.prompt_length;
  if (trainer.trains_values()) {
    settings["completion_length"] = trainer.generation.completion_length;
    settings["rollout_rows"] = trainer.rollout.rows;
    settings["epochs"] = trainer.rollout.epochs;
    settings["mini_batches"] = trainer.rollout.mini_batches;
    settings["gathers_model"] = trainer.generation.gathers_model;
  } else if (trainer.distils()) {
    settings["lmbda"] = trainer.lmbda;
    settings["completion_length"] = trainer.generation.completion_length;
  } else if (trainer.generates()) {
    const GenerationSettings& generation = trainer.generation;
    settings["completion_length"] = generation.completion_length;
    settings["completions"] = generation.completions;
    if (generation.batches > 0) settings["generation_batches"] = generation.batches;
    settings["generation"] = name(kGenerationByNames, generation.by);
    settings["gathers_model"] = generation.gathers_model;
    if (generation.by == GenerationBy::colocated) {
      settings["memory_share"] = generation.memory_share;
      settings["sleeps"] = generation.sleeps;
      settings["generation_tensor_parallel"] = generation.tensor_parallel;
    }
  } else if (trainer.has_others()) {
    settings["precompute_reference"] = trainer.precompute_reference;
    if (trainer.kind == TrainerKind::kto) {
      settings["compares_mismatched"] = trainer.compares_mismatched;
    }
  }
  return Json::object({{std::string(name(kTrainerKindNames, trainer.kind)), settings}});
}

Json evaluation_json(const EvaluationSettings& evaluation) {
  Json settings = Json::object({{"batch_size", evaluation.batch_size}});
  if (evaluation.accumulation_steps > 0) {
    settings["accumulation_steps"] = evaluation.accumulation_steps;
  }
  if (evaluation.samples > 0) settings["samples"] = evaluation.samples;
  return Json::object({{evaluation.keeps_logits ? "logits" : "loss", settings}});
}

// What was said of each, with its placement; the reference that a trainer makes by itself, too.
Json models_json(const BesideModels& beside, const Scenario& scenario) {
  const ExplicitValue* said = scenario.find(ScenarioKey::models);
  const std::size_t given = said == nullptr ? 0 : said->value.items().size();
  const std::size_t made = beside.models.size() - given;
  Json list = Json::array();
  for (std::size_t i = 0; i < beside.models.size(); ++i) {
    Json object = i < made ? Json::object() : said->value.items()[i - made];
    object["role"] = name(kModelRoleNames, beside.models[i].role);
    object["placement"] = name(kPlacementNames, beside.models[i].placement);
    list.push_back(std::move(object));
  }
  return list;
}

// A name or a size stays as it was said; a path becomes the config itself, so that the document
// stands alone.
Json model_json(const Scenario& scenario, ScenarioKey key) {
  const ExplicitValue* said = scenario.find(key);
  if (!said->value.is_string()) return said->value;
  const auto config = config_of_path(said->value.as_string(), said->origin.file);
  return config ? *config : said->value;
}

// What is read of a profile, without the tables behind it: the document stands alone.
Json profile_json(const Profile& profile) {
  Json document = Json::object();
  for (const char* key : {"schema", "name", "date", "provenance", "values", "range", "validated"}) {
    if (const Json* found = profile.document.find(key)) document[key] = *found;
  }
  return document;
}

}  // namespace

InputError with_origins(const InputError& error, const Plan& plan) {
  std::vector<Diagnostic> diagnostics = error.diagnostics();
  for (Diagnostic& diagnostic : diagnostics) {
    if (!diagnostic.file.empty()) continue;
    for (const ScenarioKeyInfo& row : kScenarioKeys) {
      if (row.pointer != diagnostic.pointer) continue;
      const Origin& origin = plan.origins[static_cast<std::size_t>(row.key)];
      diagnostic.file = origin.file;
      diagnostic.pointer = origin.pointer;
      break;
    }
  }
  return InputError(std::move(diagnostics));
}

DsConfig written_ds_config(const Plan& plan) {
  return in_style(plan.ds_config,
                  plan.workload.frontend == Frontend::hf_trainer ? ConfigStyle::hf_trainer
                                                                 : ConfigStyle::native);
}

Json workload_document(const Plan& plan) {
  Json workload = workload_json(plan.workload);
  if (is_torch_engine(plan.workload.engine)) workload["weights_dtype"] = weights_json(plan);
  const bool waits =
      plan.workload.method == Method::qlora && plan.workload.engine == TrainingEngine::fsdp;
  if (waits) workload["load_device"] = plan.loads_whole ? "gpu" : "cpu";
  if (plan.workload.loading != Loading::usual)
    workload["loading"] = name(kLoadingNames, plan.workload.loading);
  add_loop(plan.loop, workload);
  if (plan.trainer != nullptr) workload["trainer"] = trainer_json(*plan.trainer);
  if (plan.evaluation != nullptr) workload["evaluation"] = evaluation_json(*plan.evaluation);
  return workload;
}

Json scenario_document(const Plan& plan, const Scenario& scenario) {
  Json document = Json::object();
  if (!plan.id.empty()) document["id"] = plan.id;
  document["model"] = model_json(scenario, ScenarioKey::model);
  document["cluster"] = to_json(plan.cluster);
  if (plan.profile != nullptr) document["profile"] = profile_json(*plan.profile);
  document["workload"] = workload_document(plan);
  if (scenario.find(ScenarioKey::teacher) != nullptr) {
    document["workload"]["teacher"] = model_json(scenario, ScenarioKey::teacher);
  } else if (plan.beside != nullptr && !plan.beside->models.empty()) {
    document["workload"]["models"] = models_json(*plan.beside, scenario);
  }
  document["software"] = Json::object({{"deepspeed", to_string(plan.software.deepspeed_release)},
                                       {"torch", to_string(plan.software.torch)},
                                       {"transformers", to_string(plan.software.transformers)}});
  if (plan.trainer != nullptr && !plan.trainer->by_hand())
    document["software"]["trl"] = to_string(plan.software.trl);
  if (scenario.find(ScenarioKey::accelerate_version) != nullptr) {
    document["software"]["accelerate"] = to_string(plan.software.accelerate);
  }
  document["ds_config"] = emit(plan.ds_config);
  return document;
}

}  // namespace zeroplan
