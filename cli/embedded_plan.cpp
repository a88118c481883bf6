#include "cli/embedded_plan.hpp"

#include <algorithm>
#include <ostream>
#include <utility>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "base/parallel_for.hpp"
#include "cli/language/translation.hpp"
#include "cli/rank_end.hpp"
#include "cli/said_gpus.hpp"
#include "model/engine/embedded.hpp"
#include "model/hardware/known_hardware.hpp"
#include "simulator/simulate.hpp"

namespace zeroplan::cli {
namespace {

constexpr std::int64_t kMostEmbeddedRanks = 64;  // threads of one process

// The GPUs that train; none: CPU ranks do. A cluster of CPU ranks is one.
runtime::cuda::Gpus gpus_of(const Arguments& arguments, const Scenario& scenario) {
  if (!arguments.text("device") && scenario.find(ScenarioKey::cluster) != nullptr &&
      prepare(scenario).cluster->gpu.name == cpu_rank().name) {
    return {};
  }
  return said_gpus(arguments, "trains on CPU ranks");
}

// CPU ranks of this machine; the name of the first GPU, which all are taken for.
Json cluster_of(std::int64_t ranks,
                const runtime::ProcessGroup& group,
                const runtime::cuda::Gpus& gpus) {
  const bool processes = group.ranks > 1 && ranks % group.local_ranks == 0;
  const std::int64_t here = processes ? group.local_ranks : ranks;
  if (gpus.found.empty()) {
    // The threads that the ranks will share, whatever is assumed of a machine without GPU.
    return Json::object(
        {{"nodes", 1},
         {"gpus_per_node", ranks},
         {"gpu", "cpu"},
         {"cpu_cores", hardware_threads() * std::max<std::int64_t>(1, ranks / here)}});
  }
  const runtime::cuda::Gpu& gpu = gpus.found.front();
  const auto known = find_gpu(gpu.name, here);
  const std::string nodes = std::to_string(ranks / here) + "x" + std::to_string(here) + "x";
  if (known) return Json(nodes + known->gpu.name);
  return Json::object(
      {{"nodes", ranks / here},
       {"gpus_per_node", here},
       {"gpu", Json::object({{"name", gpu.name}, {"memory_bytes", gpu.memory.count()}})}});
}

std::int64_t ranks_of(const Arguments& arguments,
                      const Scenario& scenario,
                      const runtime::ProcessGroup& group) {
  const auto said = arguments.integer("ranks", 1);
  if (group.ranks > 1) {
    if (!said || *said == group.ranks) return group.ranks;
    throw InputError({kCommandLine,
                      "--ranks",
                      std::to_string(group.ranks) + ", as many as " +
                          std::string(name(runtime::kLauncherNames, group.launcher)) + " started",
                      std::to_string(*said),
                      "leave --ranks out: every process is a rank"});
  }
  if (said) {
    if (*said <= kMostEmbeddedRanks) return *said;
    throw InputError({kCommandLine,
                      "--ranks",
                      phrase("at most {} ranks", kMostEmbeddedRanks),
                      std::to_string(*said),
                      ""});
  }
  if (scenario.find(ScenarioKey::cluster) == nullptr) return 1;
  const std::int64_t gpus = prepare(scenario).cluster->total_gpus();
  return std::min(gpus, kMostEmbeddedRanks);
}

}  // namespace

int hardware_threads() { return static_cast<int>(machine_threads()); }

bool EmbeddedRun::shares_gpu() const {
  const auto ranks = static_cast<std::size_t>(plan.engine.data_parallel_ranks);
  return on_gpus() && group.ranks <= 1 && ranks > gpus.found.size();
}

std::string EmbeddedRun::device_text() const {
  const std::string ranks = std::to_string(plan.engine.data_parallel_ranks);
  if (!on_gpus()) return ranks + " CPU ranks";
  const std::string& name = gpus.found.front().name;
  return shares_gpu() ? ranks + " ranks that share " + name : ranks + " " + name;
}

namespace {

EmbeddedRun planned_run(const Arguments& arguments) {
  EmbeddedRun run;
  run.group = runtime::process_group(runtime::process_environment());
  Scenario scenario = scenario_of(arguments);
  run.gpus = gpus_of(arguments, scenario);
  const std::int64_t ranks = ranks_of(arguments, scenario, run.group);
  run.cluster = cluster_of(ranks, run.group, run.gpus);
  scenario.set(ScenarioKey::cluster, run.cluster, {kCommandLine, "--ranks"});
  scenario.set(ScenarioKey::engine, Json("embedded"), {kCommandLine, "--engine"});
  run.plan = resolve(scenario);
  run.said = std::move(scenario);
  const std::vector<Diagnostic> problems =
      not_embedded(run.plan.engine, run.plan.engine_parameters);
  if (!problems.empty()) throw InputError(problems);
  run.predicted = simulator::simulate(run.plan);
  return run;
}

}  // namespace

EmbeddedRun embedded_run(const Arguments& arguments) {
  try {
    return planned_run(arguments);
  } catch (const std::exception& error) {
    tell_of_no_input(error, arguments);
    throw;
  }
}

void print_warnings(const EmbeddedRun& run, const Arguments& arguments, std::ostream& log) {
  if (run.group.rank != 0) return;
  const Translation words(arguments.language);
  for (const Phrase& sentence : run.predicted.warnings) {
    log << words.text("warning: " + sentence + "\n");
  }
}

Json warnings_json(const EmbeddedRun& run) {
  Json list = Json::array();
  for (const Phrase& sentence : run.predicted.warnings) list.push_back(sentence.english());
  return list;
}

}  // namespace zeroplan::cli
