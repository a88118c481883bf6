#include "evidence/accuracy.hpp"

#include <algorithm>
#include <string_view>

#include "base/embedded.hpp"
#include "model/plan/trainer.hpp"

namespace zeroplan::evidence {
namespace {

// The row of `kind`, else the last one, which is of all; none of no rows.
std::optional<KnownErrors> errors_of(const std::vector<KnownErrors>& rows,
                                     const std::string& kind) {
  if (rows.empty()) return std::nullopt;
  const auto row = std::find_if(
      rows.begin(), rows.end(), [&](const KnownErrors& one) { return one.kind == kind; });
  return row == rows.end() ? rows.back() : *row;
}

KnownErrors errors_in(std::string_view table, const std::string& kind) {
  const std::string file = "configs/accuracy/" + std::string(table) + ".json";
  const Json list = parse_json(embedded_file(file), file).root;
  std::vector<KnownErrors> rows;
  for (const Json& row : list.items()) rows.push_back(known_errors(row));
  return *errors_of(rows, kind);
}

}  // namespace

std::string strategy_of(const Plan& plan) {
  switch (plan.workload.engine) {
    case TrainingEngine::ddp:
      return "DDP";
    case TrainingEngine::fsdp:
      if (plan.fsdp.sharding == Sharding::no_shard) return "FSDP no shard";
      if (plan.fsdp.shard_ranks < plan.fsdp.ranks) return "FSDP hybrid";
      return plan.fsdp.sharding == Sharding::full ? "FSDP full shard" : "FSDP shard-grad-op";
    default:
      break;
  }
  std::string text = "ZeRO-" + std::to_string(plan.engine.stage);
  const auto offload = [&](const char* what, OffloadDevice device) {
    if (device == OffloadDevice::none) return;
    text += std::string(", ") + what + " on " + (device == OffloadDevice::cpu ? "CPU" : "NVMe");
  };
  offload("optimizer", plan.engine.offload_optimizer.device);
  offload("parameters", plan.engine.offload_parameter.device);
  return text;
}

std::string rehearsed_kind_of(const Plan& plan) {
  // Loops of their own are no kind of the rehearsals that are kept.
  if (plan.trainer != nullptr && plan.trainer->by_hand()) {
    return std::string(name(kTrainerCodeNames, plan.trainer->code));
  }
  if (plan.trainer != nullptr && plan.trainer->kind != TrainerKind::sft) {
    if (plan.trainer->distils()) return "GKD (TRL)";
    return plan.trainer->kind == TrainerKind::ppo ? "PPO (TRL)" : "DPO, KTO and GRPO (TRL)";
  }
  return plan.workload.method != Method::full ? "LoRA and QLoRA" : strategy_of(plan);
}

Accuracy accuracy_of(const Plan& plan) {
  const std::string kind = strategy_of(plan);
  const Profile* const own = plan.profile.get();
  return {errors_in("rehearsed", rehearsed_kind_of(plan)),
          errors_in("memory", kind),
          errors_in("time", kind),
          own ? errors_of(own->validated_memory, kind) : std::nullopt,
          own ? errors_of(own->validated_time, kind) : std::nullopt};
}

}  // namespace zeroplan::evidence
