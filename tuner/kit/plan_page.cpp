#include "tuner/kit/plan_page.hpp"

#include <fmt/format.h>

#include "tuner/kit/kit_values.hpp"
#include "tuner/kit/quoting.hpp"

namespace zeroplan {
namespace {

std::string offload_text(const EngineConfig& engine) {
  const auto device = [](OffloadDevice where) {
    return where == OffloadDevice::cpu ? "CPU" : where == OffloadDevice::nvme ? "NVMe" : "";
  };
  std::string text;
  if (engine.offload_optimizer.device != OffloadDevice::none) {
    text += fmt::format(", optimizer on {}", device(engine.offload_optimizer.device));
  }
  if (engine.offload_parameter.device != OffloadDevice::none) {
    text += fmt::format(", parameters on {}", device(engine.offload_parameter.device));
  }
  return text;
}

void head(const Plan& plan, const StepResult& result, std::string& page) {
  const Workload& work = plan.workload;
  page += fmt::format("# {} on {} nodes of {} {}\n\n",
                      markdown_text(plan.whole_model->name),
                      plan.cluster.nodes,
                      plan.cluster.gpus_per_node(),
                      markdown_text(plan.cluster.gpu.name));
  page += fmt::format(
      "ZeRO-{}{}; {} tokens, micro-batch {}, accumulation {}, {}, activation checkpointing {}.\n\n",
      plan.engine.stage,
      offload_text(plan.engine),
      work.sequence_length,
      work.micro_batch_size,
      work.gradient_accumulation_steps,
      name(kPrecisionNames, work.precision),
      name(kActivationCheckpointingNames, work.activation_checkpointing));
  page += fmt::format("{}: probability {:.3f} that it fits.\n\n",
                      result.fits ? "It fits" : "It does not fit",
                      result.fit_probability);
}

void memory(const StepResult& result, std::string& page) {
  page += "## Predicted\n\n| | predicted | available |\n|---|---|---|\n";
  page += fmt::format("| GPU memory, peak (nvidia-smi) | {:.1f} GiB | {:.1f} GiB |\n",
                      result.gpu.peak_total.gib(),
                      result.gpu.capacity.gib());
  page +=
      fmt::format("| of it allocated by torch, 90 % interval | {:.1f} GiB ({:.1f} to {:.1f}) | |\n",
                  result.gpu.peak_allocated.gib(),
                  result.peak_allocated_interval.low.gib(),
                  result.peak_allocated_interval.high.gib());
  page += fmt::format("| host memory a node, peak | {:.1f} GiB | {:.1f} GiB |\n",
                      result.host.peak.gib(),
                      result.host.capacity.gib());
  if (result.nvme > Bytes::zero()) {
    page += fmt::format("| NVMe a node | {:.1f} GiB | |\n", result.nvme.gib());
  }
  const StepTime& step = result.step;
  page += fmt::format("| step, 90 % interval | {:.3g} s ({:.3g} to {:.3g}) | |\n",
                      step.total.seconds(),
                      result.step_interval.low.seconds(),
                      result.step_interval.high.seconds());
  page += fmt::format("| forward, backward, optimizer | {:.3g} s, {:.3g} s, {:.3g} s | |\n",
                      step.forward.seconds(),
                      step.backward.seconds(),
                      step.optimizer.seconds());
  page += fmt::format("| speed | {:.0f} tokens/s a GPU, {:.1f} % of its peak, bound by {} | |\n\n",
                      step.tokens_per_second_per_gpu,
                      step.mfu * 100.0,
                      name(kBoundNames, step.bound));
  page += fmt::format("At the peak, which is in {}:\n\n| | GiB |\n|---|---|\n",
                      name(kPhaseNames, result.gpu.peak_phase));
  for (std::size_t i = 0; i < kMemoryCategoryCount; ++i) {
    const Bytes bytes = result.gpu.breakdown_at_peak[i];
    if (bytes == Bytes::zero()) continue;
    page += fmt::format("| {} | {:.2f} |\n", kMemoryCategoryNames[i], bytes.gib());
  }
}

void start(const Plan& plan, std::string& page) {
  page += "\n## Start\n\n";
  if (plan.workload.engine == TrainingEngine::embedded) {
    page +=
        "`zeroplan verify --scenario scenario.json` trains it and sets what was predicted beside "
        "what "
        "is measured.\n";
    return;
  }
  if (plan.workload.engine != TrainingEngine::deepspeed) {
    page +=
        fmt::format("The engine is {}: ds_config.json and scenario.json are what was planned.\n",
                    name(kTrainingEngineNames, plan.workload.engine));
    return;
  }
  page +=
      "Put the model's weights and config.json into model/ (a config.json alone starts from "
      "random\n"
      "weights, for a test of memory and speed). ";
  if (plan.cluster.nodes > 1 && plan.cluster.hosts.empty()) {
    page += "Write your hosts' names into hostfile. ";
  }
  page +=
      "Then one of:\n\n```\n"
      "./run.sh --steps 20                 # deepspeed launcher\n"
      "./run.sh torchrun --steps 20        # torchrun\n"
      "sbatch job.sbatch --steps 20        # Slurm\n";
  if (plan.workload.frontend == Frontend::hf_trainer &&
      plan.model->shape.kind != ModelKind::encoder) {
    page += "accelerate launch --config_file accelerate.yaml train.py --steps 20\n";
    page += llamafactory_line(plan.cluster) + "\n";
  }
  page += "```\n\n";
  if (plan.workload.sequence_parallel > 1) {
    page +=
        "The plan splits sequences over ranks (Ulysses). The scripts of this folder do not: they "
        "need\nDeepSpeed's UlyssesSPAttentionHF and its data loader around the model first.\n\n";
  }
  page +=
      "Containers on several hosts: OVERLAY.md. Before: `zeroplan doctor --scenario "
      "scenario.json --hostfile hostfile`\nlooks for what makes runs hang, fail or crawl.\n";
}

void check(std::string& page) {
  page +=
      "\n## Check\n\nThe scripts append what they measured to measurements.jsonl:\n\n```\n"
      "zeroplan validate measurements.jsonl          # prediction against measurement\n"
      "./measure.py scenarios.jsonl --ranks N        # many configurations, a scenario a line, "
      "each in its own processes\n"
      "zeroplan verify --scenario scenario.json      # zeroplan's own runtime trains it on this "
      "machine's ranks\n"
      "```\n";
}

void list(std::string_view title, const std::vector<std::string>& sentences, std::string& page) {
  if (sentences.empty()) return;
  page += fmt::format("\n## {}\n\n", title);
  for (const std::string& sentence : sentences)
    page += fmt::format("- {}\n", markdown_text(sentence));
}

}  // namespace

std::string plan_page(const Plan& plan, const StepResult& prediction) {
  std::string page;
  head(plan, prediction, page);
  memory(prediction, page);
  start(plan, page);
  if (plan.workload.engine == TrainingEngine::deepspeed) check(page);
  list("Assumed", prediction.assumptions, page);
  list("Warnings", prediction.warnings, page);
  return page;
}

}  // namespace zeroplan
