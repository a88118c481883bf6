// resolve(): scenario -> plan, in the order of the questions: what, where, how, with which knobs.
#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "model/families/freeze.hpp"
#include "model/families/hf_config.hpp"
#include "model/families/litgpt.hpp"
#include "model/families/megatron.hpp"
#include "model/graph/traced_graph.hpp"
#include "model/hardware/cluster.hpp"
#include "model/knobs/rules.hpp"
#include "model/plan/host_work.hpp"
#include "model/plan/resolver.hpp"
#include "model/plan/trainer.hpp"
#include "model/releases.hpp"

namespace zeroplan {

// --- Resolver
// ----------------------------------------------------------------------------------------

void Resolver::throw_problems() const {
  if (!problems.empty()) throw InputError(problems);
}

std::optional<std::int64_t> Resolver::integer(ScenarioKey key) const {
  const ExplicitValue* said = scenario.find(key);
  if (said == nullptr) return std::nullopt;
  return said->value.as_integer();
}

std::optional<bool> Resolver::boolean(ScenarioKey key) const {
  const ExplicitValue* said = scenario.find(key);
  if (said == nullptr) return std::nullopt;
  return said->value.as_boolean();
}

std::optional<std::string> Resolver::text(ScenarioKey key) const {
  const ExplicitValue* said = scenario.find(key);
  if (said == nullptr || !said->value.is_string()) return std::nullopt;
  return said->value.as_string();
}

Origin Resolver::origin(ScenarioKey key) const {
  const ExplicitValue* said = scenario.find(key);
  return said != nullptr ? said->origin : Origin{"command line", std::string(info(key).flag)};
}

ModelUse Resolver::model_use() const {
  ModelUse use = model_use_of(scenario, ExpertLayout::modules);
  use.transformers = plan.software.transformers;
  return use;
}

void Resolver::not_modelled(ScenarioKey key, const Phrase& what) {
  problem(origin(key),
          "something this version predicts",
          phrase("{}, which is not modelled yet", what));
}

ModelUse model_use_of(const Scenario& scenario, ExpertLayout experts) {
  ModelUse use{.experts = experts, .attention = ""};
  const ExplicitValue* attention = scenario.find(ScenarioKey::attention);
  if (attention != nullptr && attention->value.is_string()) {
    const std::string& said = attention->value.as_string();
    use.attention = said == "flash" ? "flash_attention_2" : said;
  }
  const ExplicitValue* code = scenario.find(ScenarioKey::implementation);
  if (code != nullptr && code->value.is_string()) {
    use.implementation = find(kImplementationNames, std::string_view(code->value.as_string()))
                             .value_or(Implementation::hf);
  }
  const ExplicitValue* engine = scenario.find(ScenarioKey::engine);
  use.embedded = engine != nullptr && engine->value.is_string() &&
                 engine->value.as_string() == name(kTrainingEngineNames, TrainingEngine::embedded);
  const ExplicitValue* sequence = scenario.find(ScenarioKey::sequence_length);
  if (sequence != nullptr && sequence->value.is_integer()) {
    use.sequence_length = sequence->value.as_integer();
  }
  const ExplicitValue* batch = scenario.find(ScenarioKey::micro_batch_size);
  if (batch != nullptr && batch->value.is_integer()) {
    use.micro_batch_size = batch->value.as_integer();
  }
  use.images = images_of(scenario);
  return use;
}

namespace {

// --- what and where
// ----------------------------------------------------------------------------------

Model load_model_of(const Scenario& scenario, const ModelUse& use) {
  const ExplicitValue* said = scenario.find(ScenarioKey::model);
  if (said == nullptr) {
    throw InputError({"command line",
                      "MODEL",
                      "a model: a name (llama-2-7b), a size (10B) or a path to config.json",
                      "nothing",
                      "zeroplan models lists the names"});
  }
  Model model = load_model(said->value, said->origin.file, said->origin.pointer, use);
  if (const ExplicitValue* frozen = scenario.find(ScenarioKey::freeze)) {
    freeze(model,
           frozen->value.as_string(),
           {.file = frozen->origin.file, .pointer = frozen->origin.pointer});
  }
  return model;
}

std::shared_ptr<const Model> load_model_of(const Scenario& scenario, ExpertLayout experts) {
  return std::make_shared<const Model>(load_model_of(scenario, model_use_of(scenario, experts)));
}

// The class of the plan's transformers, where it was recorded in several releases; a warning where
// the one that stands for it is newer.
void take_release(Resolver& r, const Prepared& prepared) {
  const Version release = prepared.class_of.value_or(r.plan.software.transformers);
  if (!r.plan.model->releases.contains(release)) {
    ModelUse use = r.model_use();
    use.transformers = release;
    r.plan.model = r.make(r.plan.model, "transformers " + to_string(release), [&] {
      return load_model_of(r.scenario, use);
    });
  }
  const Model& model = *r.plan.model;
  const Version& recorded = model.releases.recorded;
  if (std::pair(release.major, release.minor) >= std::pair(recorded.major, recorded.minor)) return;
  r.warn(
      phrase("{} is planned as transformers {} has it, which was recorded: what {} does "
             "otherwise is not in these numbers",
             model.architecture,
             to_string(recorded),
             to_string(release)));
}

// Beyond a window a recorded class is another, and with another attention.
bool is_for(const Model& model, const ModelUse& use) {
  if (!model.lengths.contains(use.sequence_length)) return false;
  const TracedGraph* traced = traced_graph_of(model);
  return traced == nullptr || !traced->recorded || use.attention.empty() ||
         use.attention.starts_with(traced->attention);
}

void require_cluster(const Scenario& scenario) {
  if (scenario.find(ScenarioKey::cluster) == nullptr) {
    throw InputError({"command line",
                      "CLUSTER",
                      "a cluster: NODESxGPUSxGPU (2x4xA800-80G) or a path to cluster.json",
                      "nothing",
                      "zeroplan gpus lists the GPUs"});
  }
}

void require_planned(Resolver& r) {
  const Model& model = *r.plan.model;
  if (model.planned) return;
  r.problem(r.origin(ScenarioKey::model),
            "a model whose memory and time are modelled",
            phrase("{} ({}): {}", model.model_type, model.architecture, model.not_planned_reason),
            how_to_trace(""));
}

// --- how
// ---------------------------------------------------------------------------------------------

template <typename Enum, std::size_t N>
Enum choice(Resolver& r,
            ScenarioKey key,
            const EnumNames<Enum, N>& names,
            Enum otherwise,
            const Phrase& assumption = "") {
  if (const auto said = r.text(key)) return *find(names, std::string_view(*said));
  if (!assumption.empty()) r.assume(assumption);
  return otherwise;
}

// transformers passes use_reentrant=True up to 4.x and False from 5.0 on (its pull request 43203).
bool runs_trl(const Plan& plan) {
  return plan.trainer != nullptr && plan.trainer->code == TrainerCode::trl;
}

bool default_reentrant(const Plan& plan) {
  const bool trl =
      runs_trl(plan) && plan.software.trl_acts(ReleaseRule::trl_checkpoints_without_reentrance);
  return !trl && !plan.software.transformers_act(ReleaseRule::checkpoints_without_reentrance);
}

// Composer's code describes llm-foundry's MPT, fms's IBM's LLaMA; both call fused attention alone.
void resolve_implementation(Resolver& r) {
  Implementation& implementation = r.plan.workload.implementation;
  implementation = choice(r, ScenarioKey::implementation, kImplementationNames, Implementation::hf);
  const std::string text(name(kImplementationNames, implementation));
  const std::string& type = r.plan.model->model_type;
  switch (implementation) {
    case Implementation::hf:
      return;
    case Implementation::composer:
    case Implementation::fms: {
      const std::string_view wanted = implementation == Implementation::fms ? "llama" : "mpt";
      if (type != wanted) {
        r.problem(r.origin(ScenarioKey::implementation),
                  phrase("a model of type {} under {}", wanted, text),
                  type);
      }
      if (r.text(ScenarioKey::attention) == "eager") {
        r.problem(
            r.origin(ScenarioKey::attention), phrase("flash or sdpa under {}", text), "eager");
      }
      return;
    }
    case Implementation::litgpt:
      if (!litgpt_has(*r.plan.model)) {
        r.problem(r.origin(ScenarioKey::implementation),
                  "a model of type llama, mistral, gpt_neox, falcon or phi under litgpt",
                  type);
      }
      if (r.text(ScenarioKey::attention) == "eager") {
        r.problem(
            r.origin(ScenarioKey::attention), phrase("flash or sdpa under {}", text), "eager");
      }
      return;
    case Implementation::megatron:
      if (!megatron_has(*r.plan.model)) {
        r.problem(r.origin(ScenarioKey::implementation),
                  "a model of type gpt2 or bloom under megatron",
                  type);
      }
      if (r.plan.workload.engine != TrainingEngine::deepspeed) {
        r.not_modelled(ScenarioKey::implementation, "Megatron's code under another engine");
      }
      if (const auto attention = r.text(ScenarioKey::attention);
          attention && *attention != "eager") {
        r.problem(r.origin(ScenarioKey::attention),
                  "eager under megatron: scores in memory, softmax in one kernel",
                  *attention);
      }
      if (const ExplicitValue* said = r.scenario.find(ScenarioKey::method);
          said != nullptr && !(said->value.is_string() && said->value.as_string() == "full")) {
        r.not_modelled(ScenarioKey::method, "adapters in Megatron's code");
      }
  }
}

// What the runtime computes (docs/contract.md section 1, `engine`): full training with Adam, by its
// own fused attention.
void check_embedded(Resolver& r) {
  const Workload& workload = r.plan.workload;
  if (workload.engine != TrainingEngine::embedded) return;
  const auto only = [&](ScenarioKey key, bool good, const char* expected, std::string_view got) {
    if (good) return;
    r.problem(r.origin(key), phrase("{} under engine embedded", expected), std::string(got));
  };
  only(ScenarioKey::implementation,
       workload.implementation == Implementation::hf,
       "no implementation but the runtime's own",
       name(kImplementationNames, workload.implementation));
  only(ScenarioKey::method,
       workload.method == Method::full,
       "full fine-tuning",
       name(kMethodNames, workload.method));
  only(ScenarioKey::optimizer,
       workload.optimizer == OptimizerName::adamw || workload.optimizer == OptimizerName::adam,
       "adamw or adam",
       name(kOptimizerNames, workload.optimizer));
  only(ScenarioKey::attention,
       workload.attention != Attention::eager,
       "flash or sdpa",
       name(kAttentionNames, workload.attention));
  only(ScenarioKey::tiled_mlp, !workload.tiled_mlp, "no tiled feed-forward", "true");
}

// litgpt's finetuning scripts checkpoint every block wherever they shard the model
// (FSDPStrategy(activation_checkpointing_policy={Block})), with torch's wrapper, which is not
// reentrant.
void resolve_checkpointing(Resolver& r) {
  Workload& workload = r.plan.workload;
  const bool litgpt = workload.implementation == Implementation::litgpt;
  // deepspeed.checkpointing is reentrant.
  const bool megatron = workload.implementation == Implementation::megatron;
  const bool embedded = workload.engine == TrainingEngine::embedded;  // recomputes whole blocks
  const bool trl = runs_trl(r.plan) && !trains_values(r.plan) &&
                   r.plan.software.trl_acts(ReleaseRule::trl_checkpoints_by_default);
  const bool offloads = r.text(ScenarioKey::activation_offload) == "cpu";
  const bool full = offloads || trl || (litgpt && workload.engine == TrainingEngine::fsdp);
  const std::string assumed =
      !full      ? "no activation checkpointing: the default"
      : offloads ? "full activation checkpointing: what is offloaded are its checkpoints"
      : trl      ? "full activation checkpointing: the default of TRL's trainers"
                 : "full activation checkpointing: the default of litgpt under FSDP";
  workload.activation_checkpointing =
      choice(r,
             ScenarioKey::activation_checkpointing,
             kActivationCheckpointingNames,
             full ? ActivationCheckpointing::full : ActivationCheckpointing::none,
             assumed);
  if (!can_checkpoint(*r.plan.model) &&
      workload.activation_checkpointing != ActivationCheckpointing::none) {
    r.problem(r.origin(ScenarioKey::activation_checkpointing),
              phrase("none: {} has no gradient checkpointing", r.plan.model->architecture),
              in_quotes(name(kActivationCheckpointingNames, workload.activation_checkpointing)));
  }
  if (trains_values(r.plan)) {
    // Its train() is its own and never calls gradient_checkpointing_enable().
    if (workload.activation_checkpointing != ActivationCheckpointing::none) {
      r.warn("PPOTrainer checkpoints nothing, whatever gradient_checkpointing says");
    }
    workload.activation_checkpointing = ActivationCheckpointing::none;
  }
  workload.checkpoint_reentrant =
      r.boolean(ScenarioKey::checkpoint_reentrant)
          .value_or(embedded || (!litgpt && (megatron || default_reentrant(r.plan))));
}

// TrainingArguments.use_cache is false since transformers 5 (training_args.py); until then the
// Trainer leaves the model's config as it is, and that says true. A loop that is written to train
// switches it off.
bool default_use_cache(Frontend frontend, const Software& software) {
  return frontend == Frontend::hf_trainer &&
         !software.transformers_act(ReleaseRule::trainer_drops_cache);
}

// PyTorch 2 takes lists of tensors on GPUs by itself (torch/optim/optimizer.py
// _default_to_fused_or_foreach); the Trainer may ask for one kernel.
OptimizerImplementation default_optimizer_implementation(const Plan& plan) {
  const bool asks =
      plan.workload.frontend == Frontend::hf_trainer && trainer_asks_for_fused(plan.software);
  if (asks) return OptimizerImplementation::fused;
  return plan.software.torch_acts(ReleaseRule::updates_lists_by_default)
             ? OptimizerImplementation::foreach
             : OptimizerImplementation::for_loop;
}

void resolve_allocator(Resolver& r) {
  Workload& workload = r.plan.workload;
  workload.expandable_segments = r.boolean(ScenarioKey::expandable_segments).value_or(false);
  if (!workload.expandable_segments) return;
  const Software& software = r.plan.software;
  const bool torch_allocates =
      workload.engine != TrainingEngine::embedded && !r.plan.cluster.gpu.is_cpu();
  if (torch_allocates && software.torch_acts(ReleaseRule::has_expandable_segments)) return;
  workload.expandable_segments = false;
  r.warn(torch_allocates ? phrase("expandable_segments has no effect: torch {} does not know it",
                                  to_string(software.torch))
                         : "expandable_segments has no effect: the embedded runtime has an "
                           "allocator of its own");
}

void resolve_training(Resolver& r) {
  Workload& workload = r.plan.workload;
  const bool known_engine =
      workload.engine == TrainingEngine::deepspeed || workload.engine == TrainingEngine::fsdp ||
      workload.engine == TrainingEngine::ddp || workload.engine == TrainingEngine::embedded;
  if (!known_engine) {
    r.not_modelled(ScenarioKey::engine,
                   phrase("engine {}", name(kTrainingEngineNames, workload.engine)));
  }
  resolve_implementation(r);
  resolve_method(r);
  workload.optimizer = choice(r, ScenarioKey::optimizer, kOptimizerNames, OptimizerName::adamw);
  workload.optimizer_implementation = choice(r,
                                             ScenarioKey::optimizer_implementation,
                                             kOptimizerImplementationNames,
                                             default_optimizer_implementation(r.plan));
  workload.fsdp_version = r.integer(ScenarioKey::fsdp_version).value_or(1);
  resolve_attention(r);
  resolve_checkpointing(r);
  workload.activation_offload =
      choice(r, ScenarioKey::activation_offload, kActivationOffloadNames, ActivationOffload::none);
  workload.loading = choice(r, ScenarioKey::loading, kLoadingNames, Loading::usual);
  workload.fused_loss = r.boolean(ScenarioKey::fused_loss).value_or(false);
  if (workload.fused_loss && trains_values(r.plan)) {
    // Its __init__ is its own, too: the Trainer's, which patches Liger in, never runs.
    r.warn("PPOTrainer has no fused loss, whatever use_liger_kernel says");
    workload.fused_loss = false;
  }
  workload.use_cache = r.boolean(ScenarioKey::use_cache)
                           .value_or(default_use_cache(workload.frontend, r.plan.software));
  resolve_tiled_mlp(r);
  resolve_allocator(r);
  workload.compile = r.boolean(ScenarioKey::compile).value_or(false);
  if (workload.compile) r.not_modelled(ScenarioKey::compile, "torch.compile");
  check_embedded(r);
}

void resolve_sequence(Resolver& r) {
  const std::int64_t longest = r.plan.model->shape.max_positions;
  if (const auto said = r.integer(ScenarioKey::sequence_length)) {
    r.plan.workload.sequence_length = *said;
    const bool learned = r.plan.model->shape.position == PositionKind::learned;
    if (longest > 0 && *said > longest) {
      const Phrase what =
          phrase("a sequence of {} tokens; the model has {} positions", *said, longest);
      if (learned) {
        r.problem(r.origin(ScenarioKey::sequence_length),
                  phrase("at most {} tokens, the model's learned positions", longest),
                  std::to_string(*said));
      } else {
        r.warn(what);
      }
    }
    return;
  }
  r.plan.workload.sequence_length =
      longest > 0 ? std::min(kUsualSequence, longest) : kUsualSequence;
  r.assume(phrase("sequence length {}: the default, min(2048, the model's longest)",
                  r.plan.workload.sequence_length));
}

void resolve_degrees(Resolver& r) {
  Workload& workload = r.plan.workload;
  Degrees& degrees = r.plan.degrees;
  const auto degree = [&](ScenarioKey key) { return r.integer(key).value_or(1); };
  degrees.tensor = workload.tensor_parallel =
      ranks_said(r, ScenarioKey::tensor_parallel, Knob::tensor_parallel_autotp_size);
  degrees.sequence = workload.sequence_parallel =
      ranks_said(r, ScenarioKey::sequence_parallel, Knob::sequence_parallel_size);
  degrees.pipeline = workload.pipeline_parallel = degree(ScenarioKey::pipeline_parallel);
  // The pipeline's engine holds them in its own buffers.
  if (degrees.pipeline > 1) workload.outputs_kept = false;
  degrees.world = r.plan.cluster.total_gpus();
  const std::int64_t inner = detail::checked_product(
      detail::checked_product(degrees.tensor, degrees.sequence), degrees.pipeline);
  degrees.data = std::max<std::int64_t>(1, degrees.world / inner);
  if (runs_autotp(r.plan)) degrees.autotp = degrees.tensor;
  if (degrees.world % inner != 0) {
    r.problem(r.origin(ScenarioKey::tensor_parallel),
              phrase("tensor x sequence x pipeline ranks that divide {} GPUs", degrees.world),
              std::to_string(inner));
  }
  check_model_parallel(r);
}

// What DeepSpeed would refuse or ignore is said, and the rest is predicted all the same: files from
// reports and papers are often incomplete.
void report_startup(Resolver& r) {
  RuleContext context;
  context.world_size = r.plan.degrees.world;
  context.tensor_parallel = r.plan.degrees.tensor / r.plan.degrees.autotp;
  context.sequence_parallel = r.plan.degrees.sequence;
  context.pipeline_parallel = r.plan.degrees.pipeline;
  context.deepspeed = r.plan.software.deepspeed;
  context.release = r.plan.software.deepspeed_release;
  for (const Finding& finding : startup_findings(r.plan.ds_config, context)) {
    r.warn(said_in_file(r.ds_config_file, finding));
  }
}

// The Trainer lets the outputs die before backward. In a loop by hand `outputs = engine(...)` keeps
// them until the next ones take their place (of other implementations no loop was seen to).
void take_outputs(Resolver& r) {
  Workload& workload = r.plan.workload;
  const bool by_hand = workload.frontend == Frontend::native;
  const bool of_hf = r.text(ScenarioKey::implementation).value_or("hf") == "hf";
  const std::optional<bool> held = r.boolean(ScenarioKey::outputs_held);
  const std::optional<bool> kept = r.boolean(ScenarioKey::outputs_kept);
  if (kept.value_or(false) && !held.value_or(true)) {
    r.problem(r.origin(ScenarioKey::outputs_held), "true beside outputs_kept", "false");
  }
  workload.outputs_held = held.value_or(by_hand || kept.value_or(false));
  workload.outputs_kept = kept.value_or(by_hand && !held && of_hf);
}

}  // namespace

Phrase said_in_file(const std::string& file, const Finding& finding) {
  Phrase text = phrase("{}: ", file);
  if (finding.pointer.empty()) {
    text += ": ";
  } else {
    text.append(phrase("/{}: ", finding.pointer.substr(1)));
  }
  if (finding.severity == Severity::error) text += "DeepSpeed will not start: ";
  return text +
         (finding.fix.empty() ? finding.message : phrase("{}; {}", finding.message, finding.fix));
}

MadeModels::Pointer MadeModels::of(const Pointer& of,
                                   const std::string& what,
                                   const std::function<Model()>& make) {
  constexpr std::size_t kMost = 64;
  const auto known = [&]() -> Pointer {
    for (const Entry& entry : entries_) {
      if (entry.of == of && entry.what == what) return entry.made;
    }
    return nullptr;
  };
  {
    const std::lock_guard lock(mutex_);
    if (Pointer found = known()) return found;
  }
  Pointer made = std::make_shared<const Model>(make());
  const std::lock_guard lock(mutex_);
  if (Pointer found = known()) return found;
  if (entries_.size() == kMost) entries_.clear();
  entries_.push_back({of, what, made});
  return made;
}

std::shared_ptr<const Model> Resolver::make(const std::shared_ptr<const Model>& of,
                                            const std::string& what,
                                            const std::function<Model()>& maker) {
  return made == nullptr ? std::make_shared<const Model>(maker()) : made->of(of, what, maker);
}

std::shared_ptr<const Model> Resolver::read(const Json& said,
                                            const std::string& file,
                                            const std::string& pointer) {
  const ModelUse use = model_use();
  const auto maker = [&] { return load_model(said, file, pointer, use); };
  if (use.images.count > 0) return std::make_shared<const Model>(maker());
  return make(nullptr,
              "read:" + file + " " + said.dump() + " " + use.attention + " " +
                  std::to_string(use.sequence_length) + " " + to_string(*use.transformers),
              maker);
}

Prepared prepare(const Scenario& scenario) {
  std::shared_ptr<const Model> model = load_model_of(scenario, ExpertLayout::modules);
  std::shared_ptr<const Model> fused;
  if (model->planned && model->shape.experts.experts > 0) {
    fused = load_model_of(scenario, ExpertLayout::fused);
  }
  require_cluster(scenario);
  std::shared_ptr<const Profile> profile = read_profile_of(scenario);
  std::shared_ptr<const Cluster> cluster = read_cluster_of(scenario, profile.get());
  return {.model = std::move(model),
          .model_with_fused_experts = std::move(fused),
          .cluster = std::move(cluster),
          .ds_config = nullptr,
          .profile = std::move(profile),
          .switched = {},
          .class_of = std::nullopt,
          .made = std::make_shared<MadeModels>()};
}

Plan resolve(const Scenario& scenario) { return resolve(scenario, prepare(scenario)); }

Plan resolve(const Scenario& scenario, const Prepared& prepared) {
  Resolver r{.scenario = scenario};
  r.made = prepared.made.get();
  r.plan.model = is_for(*prepared.model, model_use_of(scenario, {}))
                     ? prepared.model
                     : load_model_of(scenario, ExpertLayout::modules);
  r.plan.cluster = *prepared.cluster;
  take_profile(r, prepared);
  r.plan.id = r.text(ScenarioKey::id).value_or("");
  for (const ScenarioKeyInfo& row : kScenarioKeys) {
    r.plan.origins[static_cast<std::size_t>(row.key)] = r.origin(row.key);
  }
  require_planned(r);
  r.throw_problems();
  for (const Phrase& note : r.plan.model->notes) r.assume(note);
  for (const Phrase& sentence : r.plan.cluster.assumptions) r.assume(sentence);
  // Megatron-DeepSpeed has a loop of its own.
  const bool megatron = r.text(ScenarioKey::implementation) == "megatron";
  r.plan.workload.frontend = choice(
      r, ScenarioKey::frontend, kFrontendNames, megatron ? Frontend::native : Frontend::hf_trainer);
  if (megatron && r.plan.workload.frontend != Frontend::native) {
    r.problem(r.origin(ScenarioKey::frontend), "native under megatron", "hf-trainer");
  }
  take_outputs(r);
  r.plan.workload.gradients_held = r.boolean(ScenarioKey::gradients_held).value_or(false);
  r.plan.workload.engine =
      choice(r, ScenarioKey::engine, kTrainingEngineNames, TrainingEngine::deepspeed);
  r.plan.software.switched = prepared.switched;
  resolve_software(r);
  take_experts(r, prepared);
  take_release(r, prepared);
  const auto without_adapters = r.plan.model;
  resolve_trainer(r);
  resolve_evaluation(r);
  resolve_training(r);
  resolve_sequence(r);
  load_ds_config(r, prepared);
  resolve_degrees(r);
  resolve_sequence_parallel(r);
  r.plan.workload.freeze = r.text(ScenarioKey::freeze).value_or("");
  resolve_images(r);
  resolve_dataset(r);
  resolve_training_loop(r);
  check_ds_config(r, prepared);
  resolve_activation_offload(r);
  resolve_precision(r);
  resolve_batch(r);
  fill_ds_config(r);
  resolve_adapter_dtype(r);
  if (runs_deepspeed(r.plan.workload)) {
    require_stage_for_pipeline(r);
    if (r.problems.empty() && r.has_ds_config) report_startup(r);
  }
  r.throw_problems();
  join_value_model(r);
  r.throw_problems();
  r.plan.whole_model = r.plan.model;
  r.plan.tensor_model = r.plan.model;
  divide_model(r);
  r.plan.engine = engine_config(r.plan);
  r.plan.engine_parameters = engine_parameters(r.plan);
  resolve_muon(r);
  warn_of_release(r);
  resolve_torch_engine(r);
  resolve_host_threads(r);
  resolve_forced_reentrance(r);
  judge_generation(r);
  resolve_beside(r, without_adapters);
  r.throw_problems();
  warn_outside_profile(r);
  return std::move(r.plan);
}

std::vector<EngineParameter> engine_parameters(const Model& model, bool apart) {
  std::vector<EngineParameter> result;
  result.reserve(model.parameters.size());
  for (const Parameter& parameter : model.parameters) {
    // Megatron: get_params_for_weight_decay_optimization (megatron/optimizer/__init__.py).
    const bool keeps_apart = apart || model.implementation_family == "megatron";
    const bool no_decay = keeps_apart && parameter.shape.size() <= 1;
    result.push_back({parameter.numel, parameter.trainable, no_decay ? 1 : 0});
    result.back().rows = parameter.shape.empty() ? 1 : parameter.shape.front();
    result.back().matrix = parameter.shape.size() > 1;
    result.back().quantized = parameter.quantized;
    if (parameter.upcast) result.back().own_dtype = DType::fp32;
  }
  return result;
}

std::vector<EngineParameter> engine_parameters(const Plan& plan) {
  const bool in_file = plan.ds_config.text(Knob::optimizer_type).has_value();
  const bool by_trainer = plan.workload.frontend == Frontend::hf_trainer && !in_file;
  const bool by_openrlhf = plan.trainer != nullptr && plan.trainer->code == TrainerCode::openrlhf;
  std::vector<EngineParameter> result = engine_parameters(*plan.model, by_trainer || by_openrlhf);
  const Workload& workload = plan.workload;
  for (std::size_t i = 0; workload.method == Method::full && i < result.size(); ++i) {
    result[i].used = plan.model->parameters[i].reached;
  }
  if (runs_deepspeed(workload)) {
    // To DeepSpeed a weight in four bits is a frozen tensor of so many bytes; what its scales take
    // no engine sees (step_work.cpp).
    for (EngineParameter& parameter : result) {
      if (!parameter.quantized) continue;
      const std::int64_t bytes = four_bit_weight(parameter.numel).count();
      parameter.numel = Elements::of(ceil_div(bytes, width(dtype_of(workload.precision))));
    }
  }
  mark_muon(plan, result);
  // transformers trainer.py create_optimizer: register_module_override() of every nn.Embedding, by
  // the parameter, which DeepSpeed's optimizers are not given.
  const bool overrides = workload.optimizer == OptimizerName::adamw8bit &&
                         workload.frontend == Frontend::hf_trainer &&
                         is_torch_engine(workload.engine);
  for (const Module& module : plan.model->modules) {
    if (!overrides || !module.type.ends_with("Embedding")) continue;
    for (const int index : module.parameters) {
      EngineParameter& parameter = result[static_cast<std::size_t>(index)];
      parameter.wide_states = parameter.trainable;
    }
  }
  if (workload.method == Method::full || workload.lora.dtype == workload.precision) return result;
  for (std::size_t i = 0; i < result.size(); ++i) {
    // A value model beside the adapters has none.
    const bool value =
        plan.model->policy != nullptr && plan.model->parameters[i].name.starts_with(kValuePrefix);
    if (result[i].trainable && !value) result[i].own_dtype = dtype_of(workload.lora.dtype);
  }
  return result;
}

}  // namespace zeroplan
