#include "tuner/packages.hpp"

#include <algorithm>
#include <array>

#include "base/diagnostic.hpp"
#include "model/graph/traced_graph.hpp"
#include "model/implementations/hf_liger.hpp"
#include "model/implementations/implementations.hpp"
#include "model/plan/trainer.hpp"
#include "model/releases.hpp"
#include "model/step/graph_options.hpp"

namespace zeroplan::tuner {
namespace {

const Origin kPackages = {"packages", ""};

// Triton compiles for sm 8.0 and newer, flash-attn 2 is built for them.
constexpr ComputeCapability kOldestGpu = {8, 0};

// Whether the model's code is transformers', which packages change.
bool takes_packages(const Plan& plan) {
  const Workload& work = plan.workload;
  return work.implementation == Implementation::hf && work.engine != TrainingEngine::embedded &&
         work.pipeline_parallel == 1 && work.tensor_parallel == 1 && work.sequence_parallel == 1;
}

bool may_flash(const Scenario& scenario, const Plan& plan) {
  const bool decided = scenario.find(ScenarioKey::attention) != nullptr ||
                       plan.workload.precision == Precision::fp32;
  return !decided && !has_fused_attention(scenario, plan, plan.workload.attention) &&
         has_fused_attention(scenario, plan, Attention::flash);
}

// TRL's PPOTrainer and GKDTrainer have no fused loss.
bool reads_logits(const Plan& plan) {
  return plan.trainer != nullptr && (plan.trainer->trains_values() || plan.trainer->distils());
}

bool may_fuse_loss(const Scenario& scenario, const Plan& plan) {
  return scenario.find(ScenarioKey::fused_loss) == nullptr && hf::liger_has_loss(*plan.model) &&
         plan.workload.precision != Precision::fp32 && !reads_logits(plan);
}

template <LinearAttention Kernels>
bool may_compute_linear_attention(const Scenario& scenario, const Plan& plan) {
  return scenario.find(ScenarioKey::linear_attention) == nullptr &&
         kernels_of(*plan.model) == Kernels && plan.workload.precision != Precision::fp32;
}

struct PackageRow {
  bool Packages::*chosen;
  bool (*may)(const Scenario&, const Plan&);
  std::string_view name;  // as pip knows it
  ScenarioKey key;
  std::string_view value;
  std::string_view flag;
  const char* sentence;
};
constexpr std::array kPackageRows = {
    PackageRow{&Packages::flash_attention,
               may_flash,
               "flash-attn",
               ScenarioKey::attention,
               "flash",
               "--attention flash",
               "flash-attn is installed: assumed, for attention that keeps no scores (--attention "
               "flash)"},
    PackageRow{&Packages::fused_loss,
               may_fuse_loss,
               "liger-kernel",
               ScenarioKey::fused_loss,
               "",
               "--fused-loss true",
               "liger-kernel is installed: assumed, for a loss that never holds all logits "
               "(--fused-loss true)"},
    PackageRow{&Packages::linear_attention,
               may_compute_linear_attention<LinearAttention::fla>,
               "flash-linear-attention",
               ScenarioKey::linear_attention,
               "fla",
               "--linear-attention fla",
               "flash-linear-attention is installed: assumed, for its kernels of linear attention "
               "(--linear-attention fla)"},
    PackageRow{&Packages::state_space,
               may_compute_linear_attention<LinearAttention::mamba_ssm>,
               "mamba-ssm[causal-conv1d]",
               ScenarioKey::linear_attention,
               "mamba_ssm",
               "--linear-attention mamba_ssm",
               "mamba-ssm and causal-conv1d are installed: assumed, for their kernels of "
               "state-space layers (--linear-attention mamba_ssm)"},
};

// The key's value by which a scenario has the package.
Json value_of(const PackageRow& row) { return row.value.empty() ? Json(true) : Json(row.value); }

std::string joined(const Packages& packages,
                   std::string_view PackageRow::*part,
                   std::string_view between) {
  std::string text;
  for (const PackageRow& row : kPackageRows) {
    if (!(packages.*row.chosen)) continue;
    if (!text.empty()) text += between;
    text += row.*part;
  }
  return text;
}

}  // namespace

bool runs_packages(const Gpu& gpu) {
  return !gpu.is_cpu() && !(gpu.compute_capability < kOldestGpu);
}

bool may_expand_segments(const Plan& plan) {
  return !plan.workload.expandable_segments && !plan.engine.embedded &&
         !plan.cluster.gpu.is_cpu() &&
         plan.software.torch_acts(ReleaseRule::has_expandable_segments);
}

bool has_fused_attention(Scenario scenario, Plan plan, Attention attention) {
  const TracedGraph* traced = traced_graph_of(*plan.model);
  const bool other = traced != nullptr && !traced->attention.empty() &&
                     traced->attention != name(kAttentionNames, attention);
  if (other && !traced->recorded) return false;  // the class may have it: its document does not
  if (other) {
    scenario.set(ScenarioKey::attention, Json(name(kAttentionNames, attention)), kPackages);
    try {
      plan = resolve(scenario);
    } catch (const InputError&) {
      return false;
    }
    if (plan.workload.attention != attention) return false;
  }
  plan.workload.attention = attention;
  const ModelGraph graph = build_graph(*plan.model, graph_options(plan));
  return std::any_of(graph.blocks.begin(), graph.blocks.end(), [](const Block& block) {
    return !block.attentions.empty();
  });
}

std::vector<Packages> packages_to_try(const Scenario& scenario, const Plan& plan) {
  if (!takes_packages(plan) || !runs_packages(plan.cluster.gpu)) return {};
  std::vector<Packages> choices(1);
  for (const PackageRow& row : kPackageRows) {
    if (!row.may(scenario, plan)) continue;
    const std::size_t without = choices.size();
    for (std::size_t i = 0; i < without; ++i) {
      choices.push_back(choices[i]);
      choices.back().*row.chosen = true;
    }
  }
  choices.erase(choices.begin());
  const auto count = [](const Packages& packages) {
    return std::count_if(kPackageRows.begin(), kPackageRows.end(), [&](const PackageRow& row) {
      return packages.*row.chosen;
    });
  };
  std::stable_sort(choices.begin(), choices.end(), [&](const Packages& a, const Packages& b) {
    return count(a) < count(b);
  });
  return choices;
}

Scenario with_packages(Scenario scenario, const Packages& packages) {
  for (const PackageRow& row : kPackageRows) {
    if (packages.*row.chosen) scenario.set(row.key, value_of(row), kPackages);
  }
  return scenario;
}

Packages chosen_packages(const Scenario& scenario) {
  Packages chosen;
  for (const PackageRow& row : kPackageRows) {
    const ExplicitValue* said = scenario.find(row.key);
    chosen.*row.chosen =
        said != nullptr && said->origin.file == kPackages.file && said->value == value_of(row);
  }
  return chosen;
}

std::string names_of(const Packages& packages) { return joined(packages, &PackageRow::name, ", "); }

std::string flags_of(const Packages& packages) { return joined(packages, &PackageRow::flag, " "); }

std::vector<Phrase> sentences_of(const Packages& packages) {
  std::vector<Phrase> sentences;
  for (const PackageRow& row : kPackageRows) {
    if (packages.*row.chosen) sentences.emplace_back(row.sentence);
  }
  return sentences;
}

}  // namespace zeroplan::tuner
