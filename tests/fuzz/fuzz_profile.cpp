// Profiles of machines: what is read is within its bounds, is written and read back the same, and
// its figures of the machine make a cluster that is read.
#include <cmath>

#include "model/cost/profile.hpp"
#include "model/hardware/cluster.hpp"
#include "tests/fuzz/fuzz_support.hpp"

namespace fuzz = zeroplan::fuzz;

namespace {

using zeroplan::Json;
using zeroplan::Profile;

constexpr std::string_view kProvenance = "measured: by a fuzzer";

// The profile as `profile` and `calibrate` write one.
Json written(const Profile& profile) {
  Json values = Json::array();
  for (const zeroplan::CoefficientValue& one : profile.coefficients) {
    const zeroplan::CoefficientInfo& about = info(one.id);
    values.push_back(zeroplan::value_json(
        about.name, one.value, about.unit, one.relative_sd, kProvenance, one.gpu_key_prefix));
  }
  for (const zeroplan::MachineValue& one : profile.machine) {
    values.push_back(zeroplan::value_json(
        one.figure->name, one.value, one.figure->unit, one.relative_sd, kProvenance));
  }
  return Json::object({{"schema", "zeroplan.profile/1"},
                       {"name", profile.name},
                       {"date", profile.date},
                       {"provenance", profile.provenance},
                       {"values", std::move(values)}});
}

void check_bounds(const Profile& profile) {
  for (const zeroplan::CoefficientValue& one : profile.coefficients) {
    const zeroplan::CoefficientInfo& about = info(one.id);
    fuzz::require(one.value >= about.low && one.value <= about.high, "a coefficient out of bounds");
    fuzz::require(one.relative_sd >= 0.0, "a negative spread");
  }
  for (const zeroplan::MachineValue& one : profile.machine) {
    fuzz::require(one.value >= one.figure->low && one.value <= one.figure->high,
                  "a figure of the machine out of bounds");
    fuzz::require(one.relative_sd >= 0.0, "a negative spread");
  }
  for (const zeroplan::SeenRange& one : profile.range) {
    fuzz::require(std::isfinite(one.low) && std::isfinite(one.high) && one.low <= one.high,
                  "a range that no plan can lie in");
  }
}

void check_same(const Profile& profile, const Profile& again) {
  fuzz::require(again.name == profile.name && again.date == profile.date &&
                    again.provenance == profile.provenance,
                "the profile's texts read differently");
  fuzz::require(again.coefficients.size() == profile.coefficients.size() &&
                    again.machine.size() == profile.machine.size(),
                "values were lost");
  for (std::size_t i = 0; i < profile.coefficients.size(); ++i) {
    const auto& one = profile.coefficients[i];
    const auto& other = again.coefficients[i];
    fuzz::require(one.id == other.id && one.gpu_key_prefix == other.gpu_key_prefix &&
                      one.value == other.value && one.relative_sd == other.relative_sd,
                  "a coefficient reads differently");
  }
  for (std::size_t i = 0; i < profile.machine.size(); ++i) {
    fuzz::require(again.machine[i].figure == profile.machine[i].figure &&
                      again.machine[i].value == profile.machine[i].value,
                  "a figure of the machine reads differently");
  }
}

// What an owner said of the machine, and a profile beside it.
void check_cluster(const Profile& profile) {
  static const Json said = to_json(zeroplan::parse_cluster_text("2x4xA100-80G"));
  std::vector<std::string> taken;
  const Json cluster = zeroplan::with_machine_figures(said, profile, taken);
  zeroplan::parse_cluster(cluster, "cluster.json", "");
  std::vector<std::string> twice;
  const Json again = zeroplan::with_machine_figures(cluster, profile, twice);
  fuzz::require(again == cluster, "taking a profile twice changes the cluster");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::reads([&] {
    const Json root = zeroplan::parse_json(fuzz::text_of(data, size), "profile.json").root;
    if (root.is_string()) return;  // a path: a fuzzer would read whatever it finds
    const Profile profile = zeroplan::parse_profile(root, "profile.json", "");
    check_bounds(profile);
    check_same(profile, zeroplan::parse_profile(written(profile), "written.json", ""));
    check_cluster(profile);
  });
  return 0;
}
