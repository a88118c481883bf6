// The parts of resolve(): one object that is carried through them. Internal to model/resolve*.cpp.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.hpp"
#include "model/plan/beside.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan {

// Models that plans of one question made of others: with adapters, in four bits, frozen, joined.
// Safe to use from several threads.
class MadeModels {
 public:
  using Pointer = std::shared_ptr<const Model>;
  // `what` says all that the result depends on beside `of`.
  Pointer of(const Pointer& of, const std::string& what, const std::function<Model()>& make);

 private:
  struct Entry {
    Pointer of;
    std::string what;
    Pointer made;
  };
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

struct Resolver {
  const Scenario& scenario;
  Plan plan;
  std::vector<Diagnostic> problems;
  bool has_ds_config = false;                // the user gave one
  std::string ds_config_file = "ds_config";  // for messages
  bool ds_config_is_file = false;            // the user's own, as it stands
  bool ds_config_mixes = false;              // it switches bf16 or fp16 on
  MadeModels* made = nullptr;                // of the question that this plan is one of

  std::shared_ptr<const Model> make(const std::shared_ptr<const Model>& of,
                                    const std::string& what,
                                    const std::function<Model()>& maker);

  // A model that a scenario says beside its own, read once for all plans of a question.
  std::shared_ptr<const Model> read(const Json& said,
                                    const std::string& file,
                                    const std::string& pointer);

  // Sentences of one line, whatever the names in them hold.
  void assume(const Phrase& sentence) { plan.assumptions.push_back(printable_values(sentence)); }
  void warn(const Phrase& sentence) { plan.warnings.push_back(printable_values(sentence)); }
  void problem(const Origin& origin, Phrase expected, Phrase got, Phrase hint = "") {
    problems.push_back(
        {origin.file, origin.pointer, std::move(expected), std::move(got), std::move(hint)});
  }
  // Something that is read and not predicted yet.
  void not_modelled(ScenarioKey key, const Phrase& what);
  void throw_problems() const;

  std::optional<std::int64_t> integer(ScenarioKey key) const;
  std::optional<bool> boolean(ScenarioKey key) const;
  std::optional<std::string> text(ScenarioKey key) const;
  Origin origin(ScenarioKey key) const;  // of what was said; the flag where nothing was
  ModelUse model_use()
      const;  // of a model by the code of the plan's transformers, once that is known
};

// What a finding says of the user's ds_config.json, which stands in `file`.
Phrase said_in_file(const std::string& file, const Finding& finding);

// resolve_profile.cpp: coefficients of a profile, and a plan outside what it has seen.
void take_profile(Resolver& resolver, const Prepared& prepared);
void warn_outside_profile(Resolver& resolver);

// resolve_software.cpp: the releases, said or tried together; the layout of the model's experts in
// them, which replaces plan.model.
void resolve_software(Resolver& resolver);
// Of what its release is known to do and no prediction counts.
void warn_of_release(Resolver& resolver);
void take_experts(Resolver& resolver, const Prepared& prepared);

// resolve_attention.cpp: which code computes attention.
void resolve_attention(Resolver& resolver);

// resolve_images.cpp: images beside the text.
Images images_of(const Scenario& scenario);  // throws InputError
void resolve_images(Resolver& resolver);

// resolve_dataset.cpp: the samples of a run and their lengths.
void resolve_dataset(Resolver& resolver);

// resolve_method.cpp: full fine-tuning or adapters; replaces plan.model.
void resolve_method(Resolver& resolver);

// resolve_adapters.cpp: in which format adapters are kept and computed with.
void resolve_adapter_dtype(Resolver& resolver);

// resolve_ds_config.cpp: the file, precision, batch sizes, `auto`.
void load_ds_config(Resolver& resolver, const Prepared& prepared);
// What it and its absence mean.
void check_ds_config(Resolver& resolver, const Prepared& prepared);
// How many ranks share a sequence, as the scenario and the ds_config say it.
std::int64_t ranks_said(Resolver& resolver, ScenarioKey key, Knob knob);
// Ranks of a secondary partition (hpZ) at stage 3, at most those there are; a problem where they do
// not divide them (utils/groups.py _create_zero_param_parallel_group).
std::int64_t check_secondary_partitions(Resolver& resolver,
                                        const std::string& file,
                                        const DsConfig& config);
void resolve_precision(Resolver& resolver);
void resolve_batch(Resolver& resolver);
void fill_ds_config(Resolver& resolver);

// resolve_activations.cpp: what tiles or offloads activations and what shares a sequence.
void resolve_tiled_mlp(Resolver& resolver);
void resolve_activation_offload(Resolver& resolver);
void resolve_sequence_parallel(Resolver& resolver);

// resolve_model_parallel.cpp: ranks that share a model. divide_model() replaces plan.model.
// DeepSpeed's AutoTP cuts the layers of a Hugging Face class. Precondition: degrees.tensor is read.
bool runs_autotp(const Plan& plan);
void check_model_parallel(Resolver& resolver);
void require_stage_for_pipeline(Resolver& resolver);
void divide_model(Resolver& resolver);

// resolve_trainer.cpp: the trainer of several models, before the model is divided; the models
// beside the trained one, once its engine is known. `base`: the trained model without adapters.
void resolve_trainer(Resolver& resolver);
// After the engine is known: TRL checkpoints reentrantly with adapters at stage 3.
void resolve_forced_reentrance(Resolver& resolver);
// The same time: a warning where TRL refuses GRPO's batch.
void judge_generation(Resolver& resolver);
void resolve_evaluation(Resolver& resolver);
// resolve_training_loop.cpp: what the loop does beside its steps, after the dataset and the
// evaluation.
void resolve_training_loop(Resolver& resolver);
void resolve_beside(Resolver& resolver, const std::shared_ptr<const Model>& base);

// resolve_value_model.cpp: PPO's critic, which the policy's engine trains; replaces plan.model by
// both. The critic or the reward model: the class that scores tokens of what was said for it.
void join_value_model(Resolver& resolver);
std::shared_ptr<const Model> scoring_model(Resolver& resolver, ModelRole role);
bool trains_values(const Plan& plan);

// resolve_muon.cpp: which parameters Muon updates, once the engine is known; refusals.
void mark_muon(const Plan& plan, std::vector<EngineParameter>& parameters);
void resolve_muon(Resolver& resolver);

// resolve_torch_engines.cpp: the format that a checkpoint's config names.
DType checkpoint_dtype(const Model& model, DType otherwise);
// FSDP and DDP take a part of the ds_config.
void resolve_torch_engine(Resolver& resolver);
// Whether FSDP reduces in every micro-step where nobody says: a loop by hand, without no_sync.
bool reduces_by_default(const Workload& workload);

// engine_from_plan.cpp: what the engine policies take.
DType dtype_of(Precision precision);
EngineConfig engine_config(const Plan& plan);

}  // namespace zeroplan
