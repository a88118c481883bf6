#include "evidence/accuracy.hpp"

#include <string_view>

#include "base/embedded.hpp"
#include "model/plan/trainer.hpp"

namespace zeroplan::evidence {
namespace {

// The row of `kind`, else the last one, which is of all.
KnownErrors errors_of(std::string_view table, const std::string& kind) {
  const std::string file = "configs/accuracy/" + std::string(table) + ".json";
  static const auto read = [](const Json& row) {
    return KnownErrors{row.find("kind")->as_string(),
                       row.find("rows")->as_integer(),
                       row.find("median_abs_error")->as_number(),
                       row.find("p95_abs_error")->as_number()};
  };
  const Json rows = parse_json(embedded_file(file), file).root;
  for (const Json& row : rows.items()) {
    if (row.find("kind")->as_string() == kind) return read(row);
  }
  return read(rows.items().back());
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
  if (plan.trainer != nullptr && plan.trainer->kind != TrainerKind::sft) {
    if (plan.trainer->distils()) return "GKD (TRL)";
    return plan.trainer->kind == TrainerKind::ppo ? "PPO (TRL)" : "DPO, KTO and GRPO (TRL)";
  }
  return plan.workload.method != Method::full ? "LoRA and QLoRA" : strategy_of(plan);
}

Accuracy accuracy_of(const Plan& plan) {
  return {errors_of("rehearsed", rehearsed_kind_of(plan)),
          errors_of("memory", strategy_of(plan)),
          errors_of("time", strategy_of(plan))};
}

Json to_json(const KnownErrors& errors) {
  return Json::object({{"kind", errors.kind},
                       {"rows", errors.rows},
                       {"median_abs_error", errors.median},
                       {"p95_abs_error", errors.p95}});
}

}  // namespace zeroplan::evidence
