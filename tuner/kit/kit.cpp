#include "tuner/kit/kit.hpp"

#include <array>
#include <string_view>

#include "model/diagnostic.hpp"
#include "model/embedded.hpp"
#include "model/families/hf_config.hpp"
#include "model/hardware/hostfile.hpp"
#include "tuner/kit/kit_template.hpp"
#include "tuner/kit/kit_values.hpp"
#include "tuner/kit/plan_page.hpp"

namespace zeroplan {
namespace {

struct Template {
  std::string_view path;
  bool executable = false;
};
constexpr std::array kTemplates = {Template{"run.sh", true},
                                   Template{"job.sbatch"},
                                   Template{"accelerate.yaml"},
                                   Template{"llamafactory.yaml"},
                                   Template{"Dockerfile"},
                                   Template{"docker-compose.yml"},
                                   Template{"OVERLAY.md"}};
constexpr std::array kScripts = {Template{"train.py", true},
                                 Template{"train_native.py", true},
                                 Template{"train_bert.py", true},
                                 Template{"measure.py", true},
                                 Template{"common.py"},
                                 Template{"native.py"},
                                 Template{"measurement.py"}};

Json model_config(const Json& scenario) {
  const Json& model = *scenario.find("model");
  return model.is_object() ? model : config_of_name(model.as_string());
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
  files.push_back({"PLAN.md", plan_page(plan, prediction)});
  if (plan.workload.engine != TrainingEngine::deepspeed) return files;
  files.push_back({"model/config.json", model_config(scenario).dump(2) + "\n"});
  files.push_back({"hostfile", hostfile_text(plan.cluster)});
  files.push_back({".deepspeed_env", environment_text(plan)});
  const KitValues values = kit_values(plan);
  for (const Template& file : kTemplates) {
    files.push_back({std::string(file.path),
                     filled_in(std::string(file.path) + ".in", values),
                     file.executable});
  }
  for (const Template& file : kScripts) {
    files.push_back({std::string(file.path),
                     std::string(embedded_file("configs/kit/" + std::string(file.path))),
                     file.executable});
  }
  return files;
}

}  // namespace zeroplan
