#include "tuner/kit/kit.hpp"

#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "base/diagnostic.hpp"
#include "base/embedded.hpp"
#include "base/written_names.hpp"
#include "foreign/form_settings.hpp"
#include "model/families/freeze.hpp"
#include "model/families/hf_config.hpp"
#include "model/families/traced_document.hpp"
#include "model/hardware/hostfile.hpp"
#include "model/plan/beside.hpp"
#include "model/plan/software_sets.hpp"
#include "model/plan/trainer.hpp"
#include "tuner/kit/forms.hpp"
#include "tuner/kit/kit_scope.hpp"
#include "tuner/kit/kit_template.hpp"
#include "tuner/kit/kit_values.hpp"
#include "tuner/kit/plan_page.hpp"

namespace zeroplan::tuner {
namespace {

// A file of the kit, and the one of configs/kit that it is made of.
struct Source {
  std::string_view path;
  std::string_view from;
  bool executable = false;
};

constexpr std::array kForContainers = {Source{"Dockerfile", "Dockerfile.in"},
                                       Source{"Dockerfile.dockerignore", "dockerignore"},
                                       Source{"docker-compose.yml", "docker-compose.yml.in"},
                                       Source{"OVERLAY.md", "OVERLAY.md.in"}};
constexpr std::array kOfDeepSpeed = {Source{"run.sh", "run.sh.in", true},
                                     Source{"job.sbatch", "job.sbatch.in"},
                                     Source{"train.py", "train.py", true},
                                     Source{"train_native.py", "train_native.py", true},
                                     Source{"train_bert.py", "train_bert.py", true},
                                     Source{"measure.py", "measure.py", true},
                                     Source{"common.py", "common.py"},
                                     Source{"samples.py", "samples.py"},
                                     Source{"native.py", "native.py"},
                                     Source{"measurement.py", "measurement.py"}};
constexpr std::array kOfTrl = {Source{"run.sh", "run.sh.in", true},
                               Source{"job.sbatch", "job.sbatch.in"},
                               Source{"train_trl.py", "train_trl.py", true},
                               Source{"common.py", "common.py"},
                               Source{"measurement.py", "measurement.py"}};
constexpr std::array kOfTrlByAccelerate = {Source{"run.sh", "run_accelerate.sh.in", true},
                                           Source{"job.sbatch", "job_accelerate.sbatch.in"},
                                           Source{"train_trl.py", "train_trl.py", true},
                                           Source{"common.py", "common.py"},
                                           Source{"measurement.py", "measurement.py"}};
constexpr std::array kOfPipeline = {Source{"run.sh", "run.sh.in", true},
                                    Source{"job.sbatch", "job.sbatch.in"},
                                    Source{"train_pipeline.py", "train_pipeline.py", true},
                                    Source{"pipeline.py", "pipeline.py"},
                                    Source{"weights.py", "weights.py"},
                                    Source{"common.py", "common.py"},
                                    Source{"samples.py", "samples.py"},
                                    Source{"native.py", "native.py"},
                                    Source{"measurement.py", "measurement.py"}};
constexpr std::array kOfAccelerate = {Source{"run.sh", "run_accelerate.sh.in", true},
                                      Source{"job.sbatch", "job_accelerate.sbatch.in"},
                                      Source{"train.py", "train.py", true},
                                      Source{"common.py", "common.py"},
                                      Source{"samples.py", "samples.py"},
                                      Source{"measurement.py", "measurement.py"}};
constexpr std::array kOfImages = {Source{"images.py", "images.py"}};

void add(std::span<const Source> sources, const KitValues& values, std::vector<KitFile>& files) {
  for (const Source& source : sources) {
    const std::string from(source.from);
    const Phrase text = from.ends_with(".in") ? filled_in(from, values)
                                              : Phrase(embedded_file("configs/kit/" + from));
    KitFile file{std::string(source.path), text, source.executable};
    if (source.path.ends_with(".md")) file.page = text;
    files.push_back(std::move(file));
  }
}

// The same plan for other tools, which take the model's folder and ds_config.json of the kit.
void add_forms(const Plan& plan,
               const OwnTraining& own,
               double learning_rate,
               std::vector<KitFile>& files) {
  for (const KitForm& form : kit_forms(plan)) {
    foreign::FormPlace place = kit_place(plan, form.path);
    place.learning_rate = learning_rate;
    if (own.form == form.form) place.kept = own.settings;
    files.push_back({std::string(form.path), write_form(plan, form.form, place).text});
  }
}

// Names of TrainingArguments that say how the run goes on beyond its first steps.
constexpr std::string_view kOfRun =
    "learning_rate|lr_scheduler_type|lr_scheduler_kwargs|warmup_ratio|warmup_steps|weight_decay|"
    "adam_beta1|adam_beta2|adam_epsilon|max_grad_norm|num_train_epochs|max_steps|seed|output_dir|"
    "save_total_limit|save_only_model|save_safetensors|data_seed|neftune_noise_alpha|"
    "label_smoothing_factor";

// What the scripts' Trainer is told and no plan has: the user's own, else what the method takes.
Json training_document(const Plan& plan, const OwnTraining& own) {
  Json run = Json::object({{"learning_rate", foreign::usual_learning_rate(plan)},
                           {"num_train_epochs", foreign::planned_epochs(plan)},
                           {"output_dir", "out"}});
  for (const foreign::FormSetting& setting : foreign::run_settings(plan))
    run[setting.name] = setting.value;
  for (const foreign::FormSetting& setting : own.settings) {
    const std::string name = setting.name == "lr_scheduler" ? "lr_scheduler_type" : setting.name;
    const bool of_run =
        !first_name(kOfRun, [&](std::string_view one) { return one == name; }).empty();
    if (of_run) run[name] = setting.value;
    const bool data =
        name == "data_path" || name == "train_file" || name == "dataset" || name == "dataset_name";
    const bool is_file =
        setting.value.is_string() && (setting.value.as_string().ends_with(".jsonl") ||
                                      setting.value.as_string().ends_with(".txt"));
    if (data && is_file) run["data"] = setting.value;
  }
  if (!own.data.empty()) run["data"] = own.data;
  if (!own.tokenizer.empty()) run["tokenizer"] = own.tokenizer;
  return run;
}

std::span<const Source> scripts_of(const Plan& plan) {
  const bool accelerate = starts_with_accelerate(plan);
  if (plan.trainer != nullptr && accelerate) return kOfTrlByAccelerate;
  if (plan.trainer != nullptr) return kOfTrl;
  if (accelerate) return kOfAccelerate;
  if (plan.workload.pipeline_parallel > 1) return kOfPipeline;
  return kOfDeepSpeed;
}

// A ds_config with a number for the learning rate says the one of the run.
void set_rate(const Json& run, Json& config) {
  Json* optimizer = config.find("optimizer");
  Json* parameters = optimizer == nullptr ? nullptr : optimizer->find("params");
  Json* rate = parameters == nullptr ? nullptr : parameters->find("lr");
  if (rate != nullptr && rate->is_number()) *rate = *run.find("learning_rate");
}

// A part of the document that a class with images was traced to; null for every other model.
const Json* of_document(const Json& model, std::string_view key) {
  return is_traced_document(model) ? model.find(key) : nullptr;
}

// With the classes that transformers takes from files beside it, where it has none of its own.
Json model_config(const Plan& plan, const Json& scenario) {
  const Json& model = *scenario.find("model");
  if (const Json* own = of_document(model, "config")) return *own;
  Json config = model.is_object() ? model : config_of_name(model.as_string());
  const OwnCode* code = own_code_of(*plan.whole_model);
  if (code == nullptr || config.find("auto_map") != nullptr) return config;
  Json map = Json::object();
  for (const auto& [name, place] : code->auto_map) map[name] = place;
  config["auto_map"] = map;
  return config;
}

// What was said of gkd's teacher; null for every other trainer.
const Json* teacher_of(const Json& scenario) {
  const Json& workload = *scenario.find("workload");
  if (const Json* teacher = workload.find("teacher")) return teacher;
  const Json* models = workload.find("models");
  for (std::size_t i = 0; models != nullptr && i < models->items().size(); ++i) {
    const Json& object = models->items()[i];
    const bool teaches = *object.find("role") == Json(name(kModelRoleNames, ModelRole::teacher));
    if (teaches) return object.find("model");
  }
  return nullptr;
}

// A hostfile cannot quote a name. Hosts that parse_hostfile() read are good ones.
void require_host_names(const Cluster& cluster) {
  for (const std::string& host : cluster.hosts) {
    if (is_host_name(host)) continue;
    throw InputError({"cluster", "/hosts", "names of hosts", in_quotes(host), ""});
  }
}

}  // namespace

std::vector<KitFile> make_kit(const Plan& plan,
                              const Json& scenario,
                              const StepResult& prediction,
                              const OwnTraining& own) {
  require_host_names(plan.cluster);
  std::vector<KitFile> files;
  const Json run = training_document(plan, own);
  Json planned = scenario;
  if (Json* config = planned.find("ds_config")) set_rate(run, *config);
  if (const std::string& said = plan.workload.freeze; !said.empty()) {
    planned["workload"]["freeze"] = frozen_modules(*plan.model, said);
  }
  Json config = emit(written_ds_config(plan));
  set_rate(run, config);
  files.push_back({"scenario.json", planned.dump(2) + "\n"});
  files.push_back({"ds_config.json", config.dump(2) + "\n"});
  const Json& said = *run.find("learning_rate");
  const double rate = said.is_number() ? said.as_number() : foreign::usual_learning_rate(plan);
  const Phrase page = plan_page(plan, prediction, rate, own.data);
  files.push_back({"PLAN.md", page, false, page});
  const bool scripts = plan.workload.engine != TrainingEngine::embedded && beyond_kit(plan).empty();
  if (!scripts && kit_forms(plan).empty()) return files;
  files.push_back({"model/config.json", model_config(plan, scenario).dump(2) + "\n"});
  if (distils(plan)) {
    const Json* teacher = teacher_of(scenario);
    if (teacher == nullptr) teacher = scenario.find("model");  // a copy of the student
    const Json sizes = teacher->is_object() ? *teacher : config_of_name(teacher->as_string());
    files.push_back({"teacher/config.json", sizes.dump(2) + "\n"});
  }
  if (const Json* images = of_document(*scenario.find("model"), "preprocessor_config")) {
    files.push_back({"model/preprocessor_config.json", images->dump(2) + "\n"});
  }
  add_forms(plan, own, rate, files);
  files.push_back({"requirements.txt", requirements_text(plan)});
  files.push_back({"hostfile", hostfile_text(plan.cluster)});
  files.push_back({".deepspeed_env", environment_text(plan)});
  if (scripts) {
    files.push_back({"training.json", run.dump(2) + "\n"});
    const KitValues values = kit_values(plan);
    add(scripts_of(plan), values, files);
    if (plan.workload.images.count > 0) add(kOfImages, values, files);
    add(kForContainers, values, files);
  }
  for (KitFile& file : files) file.path = kit_path(plan, file.path);
  return files;
}

}  // namespace zeroplan::tuner
