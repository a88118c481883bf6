// What a profile changes of a plan: its coefficients, the figures of the machine, and a warning
// where the plan lies outside what a fit has seen.
#include <algorithm>

#include <fmt/format.h>

#include "base/check.hpp"
#include "model/cost/profile.hpp"
#include "model/hardware/cluster.hpp"
#include "model/plan/resolver.hpp"

namespace zeroplan {
namespace {

// Figures that came from the profile are measured, not stated.
template <typename T>
void mark(Quantity<T>& quantity, const Profile& profile, const MachineValue& measured) {
  quantity.confidence = Confidence::measured;
  quantity.relative_sd = measured.relative_sd;
  quantity.source = fmt::format("profile {}", profile.name);
}

void mark_taken(Node& node, const Profile& profile, const std::vector<std::string>& taken) {
  for (const MachineValue& measured : profile.machine) {
    const std::string_view name = measured.figure->name;
    if (std::find(taken.begin(), taken.end(), name) == taken.end()) continue;
    if (name == "host_memory_bytes") mark(node.host_memory, profile, measured);
    if (name == "host_memory_bandwidth") mark(node.host_memory_bandwidth, profile, measured);
    if (name == "cpu_cores") mark(node.cpu_cores, profile, measured);
    if (name == "pcie_bandwidth") mark(node.pcie_bandwidth, profile, measured);
    if (!node.nvme) continue;
    if (name == "nvme_read_bandwidth") mark(node.nvme->read_bandwidth, profile, measured);
    if (name == "nvme_write_bandwidth") mark(node.nvme->write_bandwidth, profile, measured);
    if (name == "nvme_capacity_bytes") mark(node.nvme->capacity, profile, measured);
  }
}

// Profiles that were measured before torch's passes had coefficients of their own give them Adam's
// share of the memory's rate, which stands for all CPUs' work there.
void take_passes(const Profile& profile, Coefficients& coefficients) {
  const auto measured = [&](Coefficient id) {
    return std::any_of(profile.coefficients.begin(),
                       profile.coefficients.end(),
                       [&](const CoefficientValue& value) { return value.id == id; });
  };
  if (measured(Coefficient::host_pass_dram_efficiency)) return;
  if (!measured(Coefficient::cpu_adam_dram_efficiency)) return;
  coefficients.set(Coefficient::host_pass_dram_efficiency,
                   coefficients[Coefficient::cpu_adam_dram_efficiency]);
}

struct Named {
  const char* what;
  double value;
};

std::string short_number(double value) {
  if (value >= 1e9) return fmt::format("{:.3g} B", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.3g} M", value / 1e6);
  return fmt::format("{:.6g}", value);
}

}  // namespace

std::shared_ptr<const Profile> read_profile_of(const Scenario& scenario) {
  const ExplicitValue* said = scenario.find(ScenarioKey::profile);
  if (said == nullptr) return nullptr;
  return std::make_shared<const Profile>(
      parse_profile(said->value, said->origin.file, said->origin.pointer));
}

std::shared_ptr<const Cluster> read_cluster_of(const Scenario& scenario, const Profile* profile) {
  const ExplicitValue* said = scenario.find(ScenarioKey::cluster);
  ZP_CHECK(said != nullptr, "a cluster of a scenario without one");
  const Origin& origin = said->origin;
  if (profile == nullptr || profile->machine.empty()) {
    return std::make_shared<const Cluster>(parse_cluster(said->value, origin.file, origin.pointer));
  }
  std::vector<std::string> taken;
  const Json document = with_machine_figures(
      cluster_document(said->value, origin.file, origin.pointer), *profile, taken);
  Cluster cluster = parse_cluster(document, origin.file, origin.pointer);
  mark_taken(cluster.node, *profile, taken);
  return std::make_shared<const Cluster>(std::move(cluster));
}

void take_profile(Resolver& r, const Prepared& prepared) {
  r.plan.profile = prepared.profile != nullptr ? prepared.profile : read_profile_of(r.scenario);
  const std::string& gpu = r.plan.cluster.gpu.key;
  if (r.plan.profile == nullptr) {
    r.plan.coefficients = Coefficients(gpu);
    return;
  }
  const Profile& profile = *r.plan.profile;
  r.plan.coefficients = Coefficients(gpu, profile.coefficients);
  take_passes(profile, r.plan.coefficients);
  if (!has_figures(profile)) return;
  r.assume(
      phrase("profile {}{}: {} coefficients and {} figures of the machine instead of the "
             "built-in ones",
             profile.name.empty() ? "without a name" : printable(profile.name),
             profile.date.empty() ? "" : phrase(" of {}", printable(profile.date)),
             profile.coefficients.size(),
             profile.machine.size()));
}

void warn_outside_profile(Resolver& r) {
  if (r.plan.profile == nullptr) return;
  const Profile& profile = *r.plan.profile;
  const auto warn = [&](const Phrase& what) {
    r.warn(phrase("outside the range of profile {}: {}", printable(profile.name), what));
  };
  const Named quantities[] = {
      {"parameters", static_cast<double>(count_parameters(*r.plan.model).total.count())},
      {"sequence_length", static_cast<double>(r.plan.workload.sequence_length)},
      {"tokens_per_micro_batch",
       static_cast<double>(r.plan.workload.sequence_length) *
           static_cast<double>(r.plan.workload.micro_batch_size)},
      {"gpus", static_cast<double>(r.plan.degrees.world)}};
  for (const SeenRange& seen : profile.range) {
    for (const Named& quantity : quantities) {
      if (seen.what != quantity.what) continue;
      if (quantity.value >= seen.low && quantity.value <= seen.high) continue;
      warn(phrase("{} {}, fitted on {} to {}",
                  quantity.what,
                  short_number(quantity.value),
                  short_number(seen.low),
                  short_number(seen.high)));
    }
  }
  const std::string& gpu = r.plan.cluster.gpu.key;
  if (!profile.gpus.empty() &&
      std::find(profile.gpus.begin(), profile.gpus.end(), gpu) == profile.gpus.end()) {
    std::string known;
    for (const std::string& each : profile.gpus) known += (known.empty() ? "" : ", ") + each;
    warn(phrase("GPU {}, fitted on {}", gpu, printable(known)));
  }
}

}  // namespace zeroplan
