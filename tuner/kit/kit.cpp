#include "tuner/kit/kit.hpp"

#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "model/diagnostic.hpp"
#include "model/embedded.hpp"
#include "model/families/hf_config.hpp"
#include "model/hardware/hostfile.hpp"
#include "model/plan/software_sets.hpp"
#include "tuner/kit/forms.hpp"
#include "tuner/kit/kit_scope.hpp"
#include "tuner/kit/kit_template.hpp"
#include "tuner/kit/kit_values.hpp"
#include "tuner/kit/plan_page.hpp"

namespace zeroplan {
namespace {

// A file of the kit, and the one of configs/kit that it is made of.
struct Source {
  std::string_view path;
  std::string_view from;
  bool executable = false;
};

constexpr std::array kForContainers = {Source{"Dockerfile", "Dockerfile.in"},
                                       Source{".dockerignore", "dockerignore"},
                                       Source{"docker-compose.yml", "docker-compose.yml.in"},
                                       Source{"OVERLAY.md", "OVERLAY.md.in"}};
constexpr std::array kOfDeepSpeed = {Source{"run.sh", "run.sh.in", true},
                                     Source{"job.sbatch", "job.sbatch.in"},
                                     Source{"train.py", "train.py", true},
                                     Source{"train_native.py", "train_native.py", true},
                                     Source{"train_bert.py", "train_bert.py", true},
                                     Source{"measure.py", "measure.py", true},
                                     Source{"common.py", "common.py"},
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
                                    Source{"native.py", "native.py"},
                                    Source{"measurement.py", "measurement.py"}};
constexpr std::array kOfAccelerate = {Source{"run.sh", "run_accelerate.sh.in", true},
                                      Source{"job.sbatch", "job_accelerate.sbatch.in"},
                                      Source{"train.py", "train.py", true},
                                      Source{"common.py", "common.py"},
                                      Source{"measurement.py", "measurement.py"}};

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
void add_forms(const Plan& plan, std::vector<KitFile>& files) {
  for (const KitForm& form : kit_forms(plan)) {
    files.push_back(
        {std::string(form.path), write_form(plan, form.form, kit_place(form.path)).text});
  }
}

std::span<const Source> scripts_of(const Plan& plan) {
  const bool accelerate = starts_with_accelerate(plan);
  if (plan.trainer != nullptr && accelerate) return kOfTrlByAccelerate;
  if (plan.trainer != nullptr) return kOfTrl;
  if (accelerate) return kOfAccelerate;
  if (plan.workload.pipeline_parallel > 1) return kOfPipeline;
  return kOfDeepSpeed;
}

// With the classes that transformers takes from files beside it, where it has none of its own.
Json model_config(const Plan& plan, const Json& scenario) {
  const Json& model = *scenario.find("model");
  Json config = model.is_object() ? model : config_of_name(model.as_string());
  const OwnCode* code = own_code_of(*plan.whole_model);
  if (code == nullptr || config.find("auto_map") != nullptr) return config;
  Json map = Json::object();
  for (const auto& [name, place] : code->auto_map) map[name] = place;
  config["auto_map"] = map;
  return config;
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
                              const StepResult& prediction) {
  require_host_names(plan.cluster);
  std::vector<KitFile> files;
  files.push_back({"scenario.json", scenario.dump(2) + "\n"});
  files.push_back({"ds_config.json", emit(written_ds_config(plan)).dump(2) + "\n"});
  const Phrase page = plan_page(plan, prediction);
  files.push_back({"PLAN.md", page, false, page});
  const bool scripts = plan.workload.engine != TrainingEngine::embedded && beyond_kit(plan).empty();
  if (!scripts && kit_forms(plan).empty()) return files;
  files.push_back({"model/config.json", model_config(plan, scenario).dump(2) + "\n"});
  add_forms(plan, files);
  files.push_back({"requirements.txt", requirements_text(plan)});
  files.push_back({"hostfile", hostfile_text(plan.cluster)});
  files.push_back({".deepspeed_env", environment_text(plan)});
  if (!scripts) return files;
  const KitValues values = kit_values(plan);
  add(scripts_of(plan), values, files);
  add(kForContainers, values, files);
  return files;
}

}  // namespace zeroplan
