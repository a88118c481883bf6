// Releases of DeepSpeed, torch and transformers that were installed together and tried
// (configs/software.json): one table for resolve(), for what a kit installs and for
// docs/software.md.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/phrase.hpp"
#include "model/hardware/hardware.hpp"
#include "model/plan/scenario.hpp"
#include "model/software.hpp"
#include "model/transformer.hpp"

namespace zeroplan {

struct SoftwareSet {
  std::string name;  // "current"
  Version deepspeed;
  Version torch;
  Version transformers;
  std::string accelerate;  // as pip writes it; empty: not part of what was tried
  std::string peft;
  std::string image;  // tag of pytorch/pytorch on Docker Hub with that torch; empty: none
  std::vector<ComputeCapability> kernels;  // what that torch was compiled for
  bool trains = false;                     // imported together, and trained a step
  std::string outcome;                     // what was trained, or what failed

  // Code for 8.0 runs on 8.9 too, but not on 9.0.
  bool has_kernels_for(const Gpu& gpu) const;
};

// Newest first.
std::span<const SoftwareSet> software_sets();

// Models whose code stands beside their weights and not in transformers.
struct OwnCode {
  std::string model_type;
  std::string architecture;        // empty: every one of the type
  std::vector<std::string> files;  // that the model's folder must have
  // "AutoConfig" -> "configuration_chatglm.ChatGLMConfig".
  std::vector<std::pair<std::string, std::string>> auto_map;
  Version last;         // the newest transformers of a set that it trained under
  std::string outcome;  // what was tried, and what failed
};

// Null for a model whose class is in transformers.
const OwnCode* own_code_of(const Model& model);

// The first transformers with the model's class; nullopt for its own code, and for classes that are
// in every release of the table.
std::optional<Version> first_transformers(const Model& model);

// Releases that run a plan.
struct SoftwareReleases {
  std::optional<Version> deepspeed;  // nullopt: a plan without DeepSpeed
  Version torch;
  Version transformers;
};

// Releases that people have or had together, oldest first: what `fit --compare-versions` compares.
std::span<const SoftwareReleases> compared_software();

// Why these do not train the model on the GPU, one sentence each; empty where nothing is known
// against them.
std::vector<Phrase> software_conflicts(const Model& model,
                                       const Gpu& gpu,
                                       const SoftwareReleases& releases);

// The TRL that is taken for a release of transformers where nobody says one: each asks for a
// transformers of its time (Requires-Dist of its METADATA).
Version usual_trl(const Version& transformers);

// The accelerate that was tried with it or, of the sets, with the nearest older one.
Version usual_accelerate(const Version& transformers);

// What the user said of releases.
struct SoftwareSaid {
  std::optional<Version> deepspeed;
  std::optional<Version> torch;
  std::optional<Version> transformers;
};

// Of the sets that train, one whose torch has kernels for the GPU, before one whose transformers
// loads the model; of these the newest that is not newer than what was said, and where all are
// newer the oldest. `gpu` null: any GPU.
const SoftwareSet& software_for(const Model& model, const Gpu* gpu, const SoftwareSaid& said);

// The origin of releases that a measurement does not state.
inline constexpr std::string_view kReportedOrigin = "reports";

// A measurement's scenario with the releases that count where its source states none: those of the
// table's set "reports", whose behaviour was fitted and validated. Plans of users take
// software_for() instead.
Scenario with_reported_software(Scenario scenario);

}  // namespace zeroplan
