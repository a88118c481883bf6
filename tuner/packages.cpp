#include "tuner/packages.hpp"

#include <algorithm>

#include "model/implementations/hf_liger.hpp"
#include "model/implementations/implementations.hpp"
#include "model/plan/trainer.hpp"
#include "model/predict/graph_options.hpp"
#include "model/releases.hpp"

namespace zeroplan {
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
  return !decided && !has_fused_attention(plan, plan.workload.attention) &&
         has_fused_attention(plan, Attention::flash);
}

// TRL's PPOTrainer has no fused loss.
bool is_ppo(const Plan& plan) { return plan.trainer != nullptr && plan.trainer->trains_values(); }

bool may_fuse_loss(const Scenario& scenario, const Plan& plan) {
  return scenario.find(ScenarioKey::fused_loss) == nullptr && hf::liger_patches(*plan.model) &&
         plan.workload.precision != Precision::fp32 && !is_ppo(plan);
}

std::string joined(const Packages& packages,
                   std::string_view of_attention,
                   std::string_view of_loss,
                   std::string_view between) {
  if (packages.flash_attention && packages.fused_loss) {
    return std::string(of_attention) + std::string(between) + std::string(of_loss);
  }
  return std::string(packages.fused_loss ? of_loss : of_attention);
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

bool has_fused_attention(Plan plan, Attention attention) {
  plan.workload.attention = attention;
  const ModelGraph graph = build_graph(*plan.model, graph_options(plan));
  return std::any_of(graph.blocks.begin(), graph.blocks.end(), [](const Block& block) {
    return !block.attentions.empty();
  });
}

std::vector<Packages> packages_to_try(const Scenario& scenario, const Plan& plan) {
  if (!takes_packages(plan) || !runs_packages(plan.cluster.gpu)) return {};
  const bool flash = may_flash(scenario, plan);
  const bool loss = may_fuse_loss(scenario, plan);
  std::vector<Packages> choices;
  if (flash) choices.push_back({.flash_attention = true});
  if (loss) choices.push_back({.fused_loss = true});
  if (flash && loss) choices.push_back({.fused_loss = true, .flash_attention = true});
  return choices;
}

Scenario with_packages(Scenario scenario, const Packages& packages) {
  if (packages.fused_loss) scenario.set(ScenarioKey::fused_loss, Json(true), kPackages);
  if (packages.flash_attention) {
    scenario.set(ScenarioKey::attention, Json(name(kAttentionNames, Attention::flash)), kPackages);
  }
  return scenario;
}

Packages chosen_packages(const Scenario& scenario) {
  const auto chosen = [&](ScenarioKey key) {
    const ExplicitValue* said = scenario.find(key);
    return said != nullptr && said->origin.file == kPackages.file;
  };
  return {chosen(ScenarioKey::fused_loss), chosen(ScenarioKey::attention)};
}

std::string names_of(const Packages& packages) {
  return joined(packages, "flash-attn", "liger-kernel", ", ");
}

std::string flags_of(const Packages& packages) {
  return joined(packages, "--attention flash", "--fused-loss true", " ");
}

std::vector<Phrase> sentences_of(const Packages& packages) {
  std::vector<Phrase> sentences;
  if (packages.flash_attention) {
    sentences.emplace_back(
        "flash-attn is installed: assumed, for attention that keeps no scores (--attention flash)");
  }
  if (packages.fused_loss) {
    sentences.emplace_back(
        "liger-kernel is installed: assumed, for a loss that never holds all logits (--fused-loss "
        "true)");
  }
  return sentences;
}

}  // namespace zeroplan
