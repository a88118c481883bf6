#include "tuner/kit/plan_page.hpp"

#include <fmt/format.h>

#include "base/quoting.hpp"
#include "foreign/form_settings.hpp"
#include "model/plan/software_sets.hpp"
#include "model/plan/trainer.hpp"
#include "model/predict/checkpoint.hpp"
#include "model/predict/verdict.hpp"
#include "tuner/kit/form_launch.hpp"
#include "tuner/kit/forms.hpp"
#include "tuner/kit/kit_scope.hpp"
#include "tuner/kit/kit_values.hpp"
#include "tuner/kit/trainer_line.hpp"

namespace zeroplan::tuner {
namespace {

std::string gib(Bytes bytes) { return fmt::format("{:.1f} GiB", bytes.gib()); }
std::string seconds(Seconds time) { return fmt::format("{:.3g} s", time.seconds()); }

// Empty where nothing is offloaded.
Phrase offload_text(const EngineConfig& engine) {
  const auto device = [](OffloadDevice where) {
    return std::string(where == OffloadDevice::cpu ? "CPU" : "NVMe");
  };
  const bool optimizer = engine.offload_optimizer.device != OffloadDevice::none;
  const bool parameters = engine.offload_parameter.device != OffloadDevice::none;
  Phrase text;
  if (optimizer) text.append(phrase("optimizer on {}", device(engine.offload_optimizer.device)));
  if (optimizer && parameters) text += ", ";
  if (parameters) text.append(phrase("parameters on {}", device(engine.offload_parameter.device)));
  return text;
}

void head(const Plan& plan, const StepResult& result, Phrase& page) {
  const Workload& work = plan.workload;
  page.append(phrase("# {} on {} nodes of {} {}\n\n",
                     markdown_text(plan.whole_model->name),
                     plan.cluster.nodes,
                     plan.cluster.gpus_per_node(),
                     markdown_text(plan.cluster.gpu.name)));
  const Phrase offload = offload_text(plan.engine);
  page.append(engine_text(plan));
  if (!offload.empty()) page.append(phrase(", {}", offload));
  page.append(
      phrase("; {} tokens, micro-batch {}, accumulation {}, {}, activation checkpointing {}.\n\n",
             work.sequence_length,
             work.micro_batch_size,
             work.gradient_accumulation_steps,
             name(kPrecisionNames, work.precision),
             name(kActivationCheckpointingNames, work.activation_checkpointing)));
  page += result.fits ? "It fits" : "It does not fit";
  page.append(condition_text(result));
  page.append(phrase(": probability {:.3f} that it fits.\n\n", result.fit_probability));
}

// Of the two kinds that the kit's scripts write.
void checkpoint(const Plan& plan, Phrase& page) {
  const auto made = predict_checkpoint(plan);
  if (!made) return;
  page.append(phrase("| a checkpoint on disk, the model alone | {}, {} | |\n",
                     gib(made->native.total()),
                     made->model ? gib(made->model->total()) : "-"));
}

// What a node has to have of host memory, or has.
Phrase host_column(const Plan& plan, const StepResult& result) {
  if (result.host_condition) {
    return phrase("unspecified: have {}; usual: {}",
                  gib(result.host_condition->enough),
                  gib(result.host.capacity));
  }
  const bool stated = plan.cluster.node.host_memory.confidence != Confidence::assumed;
  return stated ? Phrase(gib(result.host.capacity))
                : phrase("unspecified; usual: {}", gib(result.host.capacity));
}

void memory(const Plan& plan, const StepResult& result, Phrase& page) {
  page += "## Predicted\n\n| | predicted | available |\n|---|---|---|\n";
  page.append(phrase("| GPU memory, peak (nvidia-smi) | {} | {} |\n",
                     gib(result.gpu.peak_total),
                     gib(result.gpu.capacity)));
  page.append(phrase("| of it allocated by torch, 90 % interval | {} ({:.1f} to {:.1f}) | |\n",
                     gib(result.gpu.peak_allocated),
                     result.peak_allocated_interval.low.gib(),
                     result.peak_allocated_interval.high.gib()));
  page.append(phrase("| host memory a node, peak | {} | {} |\n",
                     gib(result.host.peak),
                     host_column(plan, result)));
  if (result.nvme > Bytes::zero()) {
    page.append(phrase("| NVMe a node | {} | |\n", gib(result.nvme)));
  }
  checkpoint(plan, page);
  const StepTime& step = result.step;
  page.append(phrase("| step, 90 % interval | {} ({:.3g} to {:.3g}) | |\n",
                     seconds(step.total),
                     result.step_interval.low.seconds(),
                     result.step_interval.high.seconds()));
  page.append(phrase("| forward, backward, optimizer | {}, {}, {} | |\n",
                     seconds(step.forward),
                     seconds(step.backward),
                     seconds(step.optimizer)));
  page.append(phrase("| speed | {:.0f} tokens/s a GPU, {} of its peak, bound by {} | |\n\n",
                     step.tokens_per_second_per_gpu,
                     fmt::format("{:.1f} %", step.mfu * 100.0),
                     name(kBoundNames, step.bound)));
  page.append(phrase("At the peak, which is in {}:\n\n| | GiB |\n|---|---|\n",
                     name(kPhaseNames, result.gpu.peak_phase)));
  for (std::size_t i = 0; i < kMemoryCategoryCount; ++i) {
    const Bytes bytes = result.gpu.breakdown_at_peak[i];
    if (bytes == Bytes::zero()) continue;
    page.append(phrase("| {} | {:.2f} |\n", kMemoryCategoryNames[i], bytes.gib()));
  }
}

// The files of the kit that other tools read.
void other_tools(const Plan& plan, Phrase& page) {
  const std::vector<KitForm> forms = kit_forms(plan);
  if (forms.empty()) return;
  page +=
      "\n## Under other tools\n\nThe same plan in the files of other tools, which lack your data; "
      "what such a file cannot say stands at its top:\n\n```\n";
  for (const KitForm& form : forms) {
    page.append(phrase("{}\n", start_line(plan, form.form, kit_place(plan, form.path))));
  }
  page += "```\n";
  if (plan.cluster.nodes > 1) page += "\nOn each host, with NODE_RANK=0 on the first.\n";
}

// Plans that no script of ours trains.
bool explains_why_not(const Plan& plan, Phrase& page) {
  if (plan.workload.engine == TrainingEngine::embedded) {
    page +=
        "`zeroplan verify --scenario scenario.json` trains it and sets what was predicted beside "
        "what is measured.\n";
    return true;
  }
  const std::vector<Phrase> reasons = beyond_kit(plan);
  if (reasons.empty()) return false;
  page += "This folder has no script, because the scripts of zeroplan lack:\n\n";
  for (const Phrase& reason : reasons) page.append(phrase("- {}\n", reason));
  other_tools(plan, page);
  page.append(
      phrase("\n{} and ds_config.json are what was planned, for a program that does this; what "
             "else it sets:\n\n```\n",
             kit_forms(plan).empty() ? "scenario.json" : "kit/scenario.json"));
  page.append(trainer_lines(plan));
  page += "```\n";
  return true;
}

void weights(const Plan& plan, Phrase& page) {
  const OwnCode* code = own_code_of(*plan.whole_model);
  if (code == nullptr) {
    page +=
        "Put the model's weights and config.json into kit/model/; a config.json alone starts from "
        "random weights.\n";
  } else {
    std::string files;
    for (const std::string& file : code->files) files += (files.empty() ? "" : ", ") + file;
    page.append(phrase(
        "Put the model's weights, its repository's own config.json (the one here has sizes alone) "
        "and {} into kit/model/.\n"
        "That code runs on your machine (trust_remote_code): read it first.\n",
        files));
  }
  if (distils(plan)) {
    page += "Put the teacher's weights and config.json into kit/teacher/.\n";
  }
  page += "Install what the plan counts on: `pip install -r kit/requirements.txt`\n";
}

// What launchers that reach other hosts need.
void several_hosts(const Plan& plan, Phrase& page) {
  if (plan.cluster.nodes <= 1) return;
  page += "\n## Several hosts\n\n";
  if (plan.cluster.hosts.empty()) page += "- Write your hosts' names into kit/hostfile.\n";
  page +=
      "- This folder, the model, the data and Python's environment lie at the same path on every "
      "host (a shared file system, or a copy on each).\n";
  if (plan.workload.engine == TrainingEngine::deepspeed) {
    page +=
        "- The deepspeed launcher reaches the hosts by ssh without a password: `ssh-keygen -t "
        "ed25519`, then `ssh-copy-id HOST` for each of kit/hostfile, the first one too.\n"
        "- Check: `ssh HOST hostname` asks nothing.\n"
        "- Without ssh: `./run.sh torchrun`, started on each host.\n";
  }
}

// Whom DeepSpeed's PipeDataParallelTopology makes a stage of: neighbouring ranks.
void stages(const Plan& plan, Phrase& page) {
  if (plan.stages.empty()) return;
  const auto count = static_cast<std::int64_t>(plan.stages.size());
  const std::int64_t ranks = plan.cluster.total_gpus() / count;
  page += "\n## Pipeline\n\n| stage | ranks | layers | ends |\n|---|---|---|---|\n";
  for (std::int64_t i = 0; i < count; ++i) {
    const LayerRange& range = plan.stages[static_cast<std::size_t>(i)];
    page.append(phrase("| {} | {} to {} | {} to {} | {}|\n",
                       i,
                       i * ranks,
                       (i + 1) * ranks - 1,
                       range.first,
                       range.first + range.count - 1,
                       i == 0           ? "embedding "
                       : i + 1 == count ? "norm, head "
                                        : ""));
  }
  page.append(phrase(
      "\n- The Trainer starts no pipelines: train_pipeline.py makes the model's layers a "
      "deepspeed.pipe.PipelineModule.\n"
      "- A step is one engine.train_batch(): {} micro-batches behind each other through the "
      "stages, then one update.\n"
      "- Ranks of a stage are data-parallel, and all stages of one read the same samples.\n"
      "- Each stage reads its own layers of model/; --save writes the whole model for "
      "from_pretrained(), a file a stage, to a folder that all hosts share.\n"
      "- Sequences are packed, all of one length, without padding: masks and position tables are "
      "made once a stage.\n",
      plan.workload.gradient_accumulation_steps));
}

void images(const Plan& plan, Phrase& page) {
  const Images& images = plan.workload.images;
  if (images.count == 0) return;
  page.append(phrase(
      "\nEach row of --data FILE.jsonl is a sequence: \"images\" names {} files, which are made "
      "{}x{}, and in \"text\" the processor's own mark stands where each belongs. --tokenizer DIR "
      "names the folder of that processor. Without --data pictures are blank.\n",
      images.count,
      images.width,
      images.height));
}

// How long it runs and what it leaves.
void run_of(const Plan& plan, double learning_rate, const std::string& data, Phrase& page) {
  const auto save = predict_checkpoint(plan);
  const bool saves = plan.loop.save && plan.loop.save->unit != Every::Unit::never;
  const std::string rate = fmt::format("{}", learning_rate);
  page.append(
      data.empty()
          ? phrase("\nWith --data FILE and without --steps it trains the epochs of "
                   "kit/training.json, which has the learning rate ({}), the schedule and the "
                   "folder that it writes to.\n",
                   rate)
          : phrase("\nWithout --steps it trains the epochs of kit/training.json on {}, which that "
                   "file names beside the learning rate ({}), the schedule and the folder that it "
                   "writes to; --data FILE trains on another.\n",
                   data,
                   rate));
  page.append(
      saves ? phrase("Checkpoints are saved: {}.\n", to_string(*plan.loop.save))
            : phrase("Nothing is saved while it trains (`save_strategy: no`): --save saves the "
                     "model at the end, save_strategy in kit/training.json more often.\n"));
  if (save && saves) {
    page.append(phrase("Each takes {} on disk.\n", gib(save->native.total())));
  }
}

void start(const Plan& plan, double learning_rate, const std::string& data, Phrase& page) {
  page += "\n## Start\n\n";
  if (explains_why_not(plan, page)) return;
  weights(plan, page);
  page += "Then one of:\n\n```\n";
  if (starts_with_accelerate(plan)) {
    page +=
        "./run.sh --steps 20                 # accelerate launch\n"
        "sbatch kit/job.sbatch --steps 20    # Slurm\n```\n";
  } else {
    page.append(phrase("./run.sh --steps 20                 # {}\n", "deepspeed launcher"));
    page +=
        "./run.sh torchrun --steps 20        # torchrun\n"
        "sbatch kit/job.sbatch --steps 20    # Slurm\n";
    if (plan.workload.frontend == Frontend::hf_trainer &&
        plan.model->shape.kind != ModelKind::encoder) {
      page.append(
          phrase("{} --steps 20\n",
                 start_line(plan, foreign::Form::accelerate, kit_place(plan, "accelerate.yaml"))));
    }
    page += "```\n";
  }
  run_of(plan, learning_rate, data, page);
  images(plan, page);
  page += "\nA script of your own is told the same by:\n\n```\n";
  page.append(trainer_lines(plan));
  page += "```\n";
  other_tools(plan, page);
  stages(plan, page);
  several_hosts(plan, page);
  page +=
      "\nContainers on several hosts: kit/OVERLAY.md.\n"
      "Before: `zeroplan doctor --scenario kit/scenario.json --hostfile kit/hostfile` looks for "
      "what "
      "makes "
      "runs hang, fail or crawl.\n";
}

void check(const Plan& plan, Phrase& page) {
  page +=
      "\n## Check\n\nThe scripts append what they measured to measurements.jsonl:\n\n```\n"
      "zeroplan validate measurements.jsonl          # prediction against measurement\n";
  if (!starts_with_accelerate(plan) && plan.stages.empty()) {
    page +=
        "kit/measure.py scenarios.jsonl --ranks N      # many configurations, a scenario a line, "
        "each in its own processes\n"
        "zeroplan verify --scenario kit/scenario.json  # zeroplan's own runtime trains it on this "
        "machine's ranks\n";
  }
  page += "```\n";
}

// A sentence as markdown_text() makes its English; in another language its values are escaped.
Phrase markdown_phrase(const Phrase& sentence) {
  const auto within = [](std::string_view value) {
    const std::string text = markdown_text("x" + std::string(value) + "x");
    return text.substr(1, text.size() - 2);
  };
  const Phrase escaped = sentence.with_values(within);
  const std::string english = markdown_text(sentence.english());
  return escaped == english ? escaped : Phrase(english);
}

void list(const char* title, const std::vector<Phrase>& sentences, Phrase& page) {
  if (sentences.empty()) return;
  page += title;
  for (const Phrase& sentence : sentences) {
    page.append(phrase("- {}\n", markdown_phrase(sentence)));
  }
}

}  // namespace

Phrase plan_page(const Plan& plan,
                 const StepResult& prediction,
                 double learning_rate,
                 const std::string& data) {
  Phrase page;
  head(plan, prediction, page);
  memory(plan, prediction, page);
  start(plan, learning_rate, data, page);
  if (plan.workload.engine != TrainingEngine::embedded && beyond_kit(plan).empty()) {
    check(plan, page);
  }
  list("\n## Assumed\n\n", prediction.assumptions, page);
  list("\n## Warnings\n\n", prediction.warnings, page);
  return page;
}

}  // namespace zeroplan::tuner
