#include "model/plan/software_sets.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/embedded.hpp"
#include "base/json.hpp"

namespace zeroplan {
namespace {

// DeepSpeed from a release on needs a torch.
struct TorchNeeded {
  Version deepspeed;
  Version torch;
  std::string why;
};

// A class whose forward pass ends in an error of its own.
struct StoppingClass {
  std::string model_type;
  Version since;
  std::string outcome;
};

struct SoftwareTable {
  std::vector<SoftwareSet> sets;
  std::vector<TorchNeeded> torch_needed;
  std::vector<std::pair<std::string, Version>> first;  // by model type
  std::vector<StoppingClass> stopping;
  std::vector<OwnCode> own_code;
  std::vector<SoftwareReleases> compared;
  std::vector<std::pair<Version, Version>> trl;  // from a transformers on, the newest first
};

// Our own file: anything unexpected is a programmer's error.
const Json& member(const Json& object, std::string_view key) {
  const Json* found = object.find(key);
  ZP_CHECK(found != nullptr, "configs/software.json lacks " + std::string(key));
  return *found;
}

std::string text_or_empty(const Json& object, std::string_view key) {
  const Json* found = object.find(key);
  return found == nullptr ? std::string() : found->as_string();
}

Version version_of(const Json& value) {
  const auto version = parse_version(value.as_string());
  ZP_CHECK(version.has_value(), "configs/software.json has no release " + value.as_string());
  return *version;
}

SoftwareSet read_set(const Json& object) {
  SoftwareSet set;
  set.name = member(object, "name").as_string();
  set.deepspeed = version_of(member(object, "deepspeed"));
  set.torch = version_of(member(object, "torch"));
  set.transformers = version_of(member(object, "transformers"));
  set.accelerate = text_or_empty(object, "accelerate");
  set.peft = text_or_empty(object, "peft");
  set.image = text_or_empty(object, "image");
  for (const Json& kernel : member(object, "kernels").items()) {
    const int number = static_cast<int>(kernel.as_integer());
    set.kernels.push_back({number / 10, number % 10});
  }
  set.trains = member(object, "trains").as_boolean();
  set.outcome = member(object, "outcome").as_string();
  return set;
}

OwnCode read_own_code(const std::string& type, const Json& object) {
  OwnCode code;
  code.model_type = type;
  code.architecture = text_or_empty(object, "architecture");
  for (const Json& file : member(object, "files").items()) code.files.push_back(file.as_string());
  for (const auto& [name, place] : member(object, "auto_map").members()) {
    code.auto_map.emplace_back(name, place.as_string());
  }
  code.last = version_of(member(object, "last"));
  code.outcome = member(object, "outcome").as_string();
  return code;
}

SoftwareTable read_table() {
  constexpr const char* kFile = "configs/software.json";
  const Json root = parse_json(embedded_file(kFile), kFile).root;
  SoftwareTable table;
  for (const Json& set : member(root, "sets").items()) table.sets.push_back(read_set(set));
  for (const Json& row : member(root, "torch_needed").items()) {
    table.torch_needed.push_back({version_of(member(row, "deepspeed")),
                                  version_of(member(row, "torch")),
                                  member(row, "why").as_string()});
  }
  for (const auto& [type, release] : member(member(root, "classes"), "first").members()) {
    table.first.emplace_back(type, version_of(release));
  }
  for (const auto& [type, stop] : member(member(root, "classes"), "stopping").members()) {
    table.stopping.push_back(
        {type, version_of(member(stop, "since")), member(stop, "outcome").as_string()});
  }
  for (const auto& [type, code] : member(root, "own_code").members()) {
    table.own_code.push_back(read_own_code(type, code));
  }
  for (const Json& row : member(root, "compared").items()) {
    table.compared.push_back({version_of(member(row, "deepspeed")),
                              version_of(member(row, "torch")),
                              version_of(member(row, "transformers"))});
  }
  for (const Json& row : member(root, "trl").items()) {
    table.trl.emplace_back(version_of(member(row, "transformers")), version_of(member(row, "trl")));
  }
  return table;
}

const SoftwareTable& table() {
  static const SoftwareTable read = read_table();
  return read;
}

const SoftwareSet& reported_set() {
  const auto& sets = table().sets;
  const auto found = std::find_if(
      sets.begin(), sets.end(), [](const SoftwareSet& set) { return set.name == "reports"; });
  ZP_CHECK(found != sets.end(), "configs/software.json has no set of reports");
  return *found;
}

// Null where it runs.
const StoppingClass* stopping_class(const Model& model, const Version& transformers) {
  for (const StoppingClass& stop : table().stopping) {
    if (stop.model_type == model.model_type && transformers >= stop.since) return &stop;
  }
  return nullptr;
}

bool loads(const SoftwareSet& set, const Model& model) {
  if (const OwnCode* code = own_code_of(model)) return set.transformers <= code->last;
  const auto first = first_transformers(model);
  if (first && set.transformers < *first) return false;
  return stopping_class(model, set.transformers) == nullptr;
}

// "0.16" means every patch of it, and so does 0.16.2: patches of one release go together.
bool not_newer(const Version& set, const std::optional<Version>& said) {
  if (!said) return true;
  return std::pair(set.major, set.minor) <= std::pair(said->major, said->minor);
}

// All releases of transformers 5 go with the others of their days.
bool not_newer_transformers(const Version& set, const std::optional<Version>& said) {
  return not_newer(set, said) || (set.major == 5 && said->major == 5);
}

bool not_newer(const SoftwareSet& set, const SoftwareSaid& said) {
  return not_newer(set.deepspeed, said.deepspeed) && not_newer(set.torch, said.torch) &&
         not_newer_transformers(set.transformers, said.transformers);
}

}  // namespace

bool SoftwareSet::has_kernels_for(const Gpu& gpu) const {
  if (gpu.is_cpu()) return true;
  const ComputeCapability& capability = gpu.compute_capability;
  return std::any_of(kernels.begin(), kernels.end(), [&](const ComputeCapability& kernel) {
    return kernel.major == capability.major && kernel.minor <= capability.minor;
  });
}

std::span<const SoftwareSet> software_sets() { return table().sets; }

std::span<const SoftwareReleases> compared_software() { return table().compared; }

const OwnCode* own_code_of(const Model& model) {
  for (const OwnCode& code : table().own_code) {
    if (code.model_type != model.model_type) continue;
    if (code.architecture.empty() || code.architecture == model.architecture) return &code;
  }
  return nullptr;
}

std::optional<Version> first_transformers(const Model& model) {
  if (own_code_of(model) != nullptr) return std::nullopt;
  for (const auto& [type, release] : table().first) {
    if (type == model.model_type) return release;
  }
  return std::nullopt;
}

Version usual_trl(const Version& transformers) {
  for (const auto& [since, trl] : table().trl) {
    if (transformers >= since) return trl;
  }
  return table().trl.back().second;
}

Version usual_accelerate(const Version& transformers) {
  std::optional<Version> oldest;
  for (const SoftwareSet& set : table().sets) {
    const auto release = parse_version(set.accelerate);
    if (!release) continue;
    if (transformers >= set.transformers) return *release;
    oldest = release;
  }
  ZP_CHECK(oldest.has_value(), "configs/software.json has no accelerate");
  return *oldest;
}

std::vector<Phrase> software_conflicts(const Model& model,
                                       const Gpu& gpu,
                                       const SoftwareReleases& releases) {
  std::vector<Phrase> conflicts;
  const Phrase transformers = phrase("transformers {}", to_string(releases.transformers));
  for (const TorchNeeded& row : table().torch_needed) {
    if (!releases.deepspeed || *releases.deepspeed < row.deepspeed) continue;
    if (releases.torch >= row.torch) continue;
    conflicts.push_back(phrase("DeepSpeed {} needs torch {} or newer: {}",
                               to_string(*releases.deepspeed),
                               to_string(row.torch),
                               row.why));
  }
  for (const SoftwareSet& set : table().sets) {
    const bool same =
        set.torch.major == releases.torch.major && set.torch.minor == releases.torch.minor;
    if (!same || set.has_kernels_for(gpu)) continue;
    conflicts.push_back(phrase("torch {} of the package index has no kernels for {}",
                               to_string(releases.torch),
                               gpu.name));
    break;
  }
  const OwnCode* code = own_code_of(model);
  if (code != nullptr && releases.transformers > code->last) {
    conflicts.push_back(phrase("{} is newer than {}, with which {}'s own code was tried last: {}",
                               transformers,
                               to_string(code->last),
                               model.architecture,
                               code->outcome));
  }
  if (const StoppingClass* stop = stopping_class(model, releases.transformers)) {
    conflicts.push_back(phrase("{} does not train {}, releases before {} do: {}",
                               transformers,
                               model.architecture,
                               to_string(stop->since),
                               stop->outcome));
  }
  const auto first = first_transformers(model);
  if (first && releases.transformers < *first) {
    conflicts.push_back(phrase("{} does not know {}: {} is the first that does",
                               transformers,
                               model.model_type,
                               to_string(*first)));
  }
  return conflicts;
}

const SoftwareSet& software_for(const Model& model, const Gpu* gpu, const SoftwareSaid& said) {
  const SoftwareSet* best = nullptr;
  int most = 0;
  for (const SoftwareSet& set : table().sets) {
    if (!set.trains) continue;
    // A release of transformers that was said stands whatever the set's knows.
    const int met = (gpu == nullptr || set.has_kernels_for(*gpu) ? 2 : 0) +
                    (said.transformers || loads(set, model) ? 1 : 0);
    // Of equal ones the newest that is not newer than what was said, and without one the oldest.
    const bool as_good = met == most && best != nullptr && !not_newer(*best, said);
    if (best != nullptr && met <= most && !as_good) continue;
    most = met;
    best = &set;
  }
  ZP_CHECK(best != nullptr, "configs/software.json has no set that trains");
  return *best;
}

Scenario with_reported_software(Scenario scenario) {
  const SoftwareSet& set = reported_set();
  const auto add = [&](ScenarioKey key, const Version& version) {
    if (scenario.find(key) != nullptr) return;
    scenario.set(key,
                 Json(to_string(version)),
                 {std::string(kReportedOrigin), std::string(info(key).pointer)});
  };
  add(ScenarioKey::deepspeed_version, set.deepspeed);
  add(ScenarioKey::torch_version, set.torch);
  add(ScenarioKey::transformers_version, set.transformers);
  return scenario;
}

}  // namespace zeroplan
