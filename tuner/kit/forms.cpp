#include "tuner/kit/forms.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/check.hpp"
#include "foreign/form_settings.hpp"
#include "foreign/settings.hpp"
#include "model/plan/trainer.hpp"
#include "model/releases.hpp"
#include "tuner/kit/form_launch.hpp"
#include "tuner/kit/kit_scope.hpp"
#include "tuner/kit/kit_template.hpp"
#include "tuner/kit/kit_values.hpp"

namespace zeroplan::tuner {
namespace {

bool is_encoder(const Plan& plan) { return plan.model->shape.kind == ModelKind::encoder; }

Phrase adapters_text(const LoraSettings& lora) {
  std::string targets;
  for (const std::string& target : lora.targets) targets += (targets.empty() ? "" : ", ") + target;
  return phrase("rank {}, dropout {}, on {}", lora.rank, lora.dropout, targets);
}

// What transformers' example scripts have no argument for.
void add_notes_of_scripts(const Plan& plan, std::vector<Phrase>& notes) {
  const Workload& work = plan.workload;
  if (work.attention != Attention::sdpa) {
    notes.push_back(
        phrase("attention {}: the script hands attn_implementation to "
               "from_pretrained()",
               name(kAttentionNames, work.attention)));
  }
  if (work.method == Method::full) return;
  notes.push_back(phrase("adapters: the script makes them by peft, {}", adapters_text(work.lora)));
  if (work.method == Method::qlora) {
    notes.emplace_back(
        "weights in four bits: the script hands quantization_config to from_pretrained()");
  }
}

// What a launcher's configuration leaves to the script.
void add_notes_of_accelerate(const Plan& plan, std::vector<Phrase>& notes) {
  const Workload& work = plan.workload;
  notes.push_back(phrase(
      "the model, sequences of {} tokens, micro-batch {}, accumulation {}, {}, attention {}, "
      "checkpointing {}, optimizer {}: the script's own arguments",
      work.sequence_length,
      work.micro_batch_size,
      work.gradient_accumulation_steps,
      name(kMethodNames, work.method),
      name(kAttentionNames, work.attention),
      name(kActivationCheckpointingNames, work.activation_checkpointing),
      name(kOptimizerNames, work.optimizer)));
}

void add_notes_of_optimizer(const Plan& plan, std::vector<Phrase>& notes) {
  const Workload& work = plan.workload;
  if (runs_deepspeed(work) && plan.ds_config.is_set(Knob::optimizer_type)) return;
  if (work.optimizer == OptimizerName::adam) {
    notes.emplace_back("optimizer adam: the Trainer has AdamW, which needs the same memory");
  }
  const bool loops = work.optimizer_implementation == OptimizerImplementation::for_loop;
  if (loops && is_torch_engine(work.engine)) {
    notes.emplace_back("optimizer-implementation for-loop: the Trainer has no argument for it");
  }
}

void add_notes_of_memory(const Plan& plan, foreign::Form form, std::vector<Phrase>& notes) {
  const Workload& work = plan.workload;
  const bool half = work.method == Method::full && work.precision != Precision::fp32 &&
                    is_torch_engine(work.engine) && !mixes_precision(plan);
  // TRL's dtype and axolotl's bf16 say it, and from newer releases on the checkpoint does.
  const bool stays = form == foreign::Form::llama_factory ||
                     (form == foreign::Form::trainer &&
                      !plan.software.transformers_act(ReleaseRule::loads_as_stored));
  if (half && stays) {
    notes.push_back(phrase("weights and optimizer states all in {}: the Trainer keeps fp32",
                           name(kPrecisionNames, work.precision)));
  }
  const bool loads_on_host =
      work.method == Method::qlora && work.engine == TrainingEngine::fsdp && !plan.loads_whole;
  // Under FSDP2 axolotl loads on the host of the first rank.
  if (loads_on_host && (form != foreign::Form::axolotl || plan.fsdp.version == 1)) {
    notes.emplace_back(
        "load-device cpu: the tool loads all four-bit weights on each GPU before it shards them");
  }
  const bool builds = runs_zero3(plan) && work.loading == Loading::every_rank;
  if (builds) {
    notes.emplace_back("loading every-rank: under the Trainer from_pretrained enters zero.Init");
  }
  if (work.tiled_mlp && form != foreign::Form::axolotl) {
    notes.emplace_back("tiled-mlp: the script applies DeepSpeed's TiledMLP");
  }
  const bool max = work.dataset && work.dataset->padding == Padding::max;
  if (max && form != foreign::Form::axolotl) {
    notes.push_back(
        phrase("samples padded to {} tokens: the tool pads to the longest of a "
               "micro-batch",
               work.sequence_length));
  }
  if (plan.trainer != nullptr && plan.trainer->prompt_length > 0) {
    notes.push_back(phrase("prompts of {} tokens: the data decide", plan.trainer->prompt_length));
  }
  if (work.dataset && work.dataset->padding == Padding::packed && form == foreign::Form::trainer) {
    notes.emplace_back("packed samples: run_clm.py packs, other scripts may not");
  }
}

std::vector<Phrase> notes_of(const Plan& plan, foreign::Form form) {
  std::vector<Phrase> notes;
  if (form == foreign::Form::accelerate) {
    add_notes_of_accelerate(plan, notes);
    return notes;
  }
  if (foreign::is_own_command(form)) return notes;
  if (form == foreign::Form::trainer) add_notes_of_scripts(plan, notes);
  add_notes_of_optimizer(plan, notes);
  add_notes_of_memory(plan, form, notes);
  return notes;
}

// A comment of lines that people read without scrolling; `end` stands where a line goes on. A line
// break of the text, which may quote a user's file, ends no comment.
std::string comment(std::string text, std::string_view end) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' '; }, ' ');
  constexpr std::size_t kWidth = 100;
  std::string lines = "# ";
  std::size_t begin = 0;  // of the line
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t space = std::min(text.find(' ', at), text.size());
    if (lines.size() - begin + (space - at) > kWidth && lines.size() - begin > 4) {
      if (end.empty()) lines.pop_back();  // the space behind the last word
      lines += std::string(end) + "\n";
      begin = lines.size();
      lines += "#   ";
    }
    lines += text.substr(at, space - at) + (space < text.size() ? " " : "");
    at = space + 1;
  }
  return lines + "\n";
}

// Comments at the top; sh and YAML have the same mark.
std::string head(const Plan& plan, const WrittenForm& form) {
  const Software& software = plan.software;
  std::string text = fmt::format(
      "# Planned by zeroplan for {}x{}x{}: {}, torch {}, transformers {}{}.\n",
      plan.cluster.nodes,
      plan.cluster.gpus_per_node(),
      plan.cluster.gpu.name,
      engine_text(plan).english(),
      to_string(software.torch),
      to_string(software.transformers),
      runs_deepspeed(plan.workload) ? ", DeepSpeed " + to_string(software.deepspeed_release) : "");
  if (!form.start.empty()) text += comment("Start: " + form.start, "\\");
  for (const std::string& note : form.notes) text += comment("Not said here: " + note, "");
  return text;
}

std::string accelerate_text(const Plan& plan, const foreign::FormPlace& place) {
  KitValues values = kit_values(plan);
  values["DS_CONFIG"] = foreign::yaml_lines({{"deepspeed_config_file", place.ds_config}});
  return filled_in(starts_with_accelerate(plan) ? "accelerate_torch.yaml.in" : "accelerate.yaml.in",
                   values);
}

// The user's own over what no plan has; what the plan has stays.
foreign::FormSettings with_kept(foreign::FormSettings settings, const foreign::FormSettings& kept) {
  for (const foreign::FormSetting& own : kept) {
    const auto same = [&](const foreign::FormSetting& setting) { return setting.name == own.name; };
    const auto found = std::find_if(settings.begin(), settings.end(), same);
    if (found == settings.end()) {
      settings.push_back({own.name, own.value});
    } else if (!found->planned) {
      *found = {own.name, own.value};
    }
  }
  return settings;
}

// Keys of zero_optimization that OpenRLHF's arguments set (get_train_ds_config).
constexpr std::string_view kOfOpenrlhf =
    "stage|offload_optimizer/device|offload_optimizer/pin_memory|offload_param/device|"
    "zero_hpz_partition_size|overlap_comm|contiguous_gradients|reduce_scatter";

// Reasons why the command cannot say the plan.
std::vector<Phrase> beyond_command(const Plan& plan, foreign::Form form) {
  const std::string_view code = name(foreign::kFormNames, form);
  const bool same = plan.trainer != nullptr && name(kTrainerCodeNames, plan.trainer->code) == code;
  if (!same) return {phrase("another loop than {}'s: --from reads its commands", code)};
  std::vector<Phrase> reasons;
  if (form == foreign::Form::verl) return reasons;
  const EngineConfig& engine = plan.engine;
  if (engine.offload_parameter.device != OffloadDevice::none) {
    reasons.emplace_back("weights in host memory, for which OpenRLHF has no argument");
  }
  if (engine.offload_optimizer.device == OffloadDevice::nvme) {
    reasons.emplace_back("optimizer states on NVMe, for which OpenRLHF has no argument");
  }
  constexpr std::string_view kSection = "/zero_optimization/";
  for (const auto& [knob, value] : plan.ds_config.values()) {
    const std::string_view pointer = pointer_of(knob);
    if (!pointer.starts_with(kSection)) continue;
    if (foreign::is_named_in(kOfOpenrlhf, pointer.substr(kSection.size()))) continue;
    if (value == default_value(knob, engine.stage, plan.software.deepspeed_release)) continue;
    reasons.push_back(phrase("{}, for which OpenRLHF has no argument", pointer));
  }
  return reasons;
}

}  // namespace

bool names_ds_config(const Plan& plan, foreign::Form form) {
  return plan.workload.engine == TrainingEngine::deepspeed && !foreign::is_own_command(form);
}

std::vector<Phrase> beyond_form(const Plan& plan, foreign::Form form) {
  if (plan.workload.engine == TrainingEngine::embedded) return {"zeroplan's own runtime"};
  if (foreign::is_own_command(form)) return beyond_command(plan, form);
  std::vector<Phrase> reasons = beyond_trainer(plan);
  if (plan.workload.pipeline_parallel > 1) {
    reasons.emplace_back("pipeline stages, which no Trainer starts");
  }
  if (form == foreign::Form::accelerate) return reasons;
  if (plan.workload.frontend == Frontend::native) {
    reasons.emplace_back("a loop of one's own: these tools train by transformers' Trainer");
  }
  const bool by_trl =
      form == foreign::Form::trl || form == foreign::Form::shell || form == foreign::Form::sbatch;
  if (plan.workload.images.count > 0) {
    reasons.emplace_back("images, which each tool reads from data of its own (a kit's train.py)");
  }
  if (plan.trainer != nullptr && !by_trl && !plan.trainer->by_hand()) {
    reasons.emplace_back("a trainer with other models beside the trained one, which is TRL's");
  }
  if (plan.trainer != nullptr && plan.trainer->trains_values()) {
    reasons.emplace_back("ppo, for which TRL has a class and no command");
  }
  if (distils(plan)) {
    reasons.emplace_back("gkd, for which TRL has a class and no command");
  }
  if (is_encoder(plan) && form != foreign::Form::trainer) {
    reasons.emplace_back("an encoder: these tools train decoders");
  }
  const FsdpConfig& fsdp = plan.fsdp;
  const bool hybrid = plan.workload.engine == TrainingEngine::fsdp && fsdp.shard_ranks > 1 &&
                      fsdp.shard_ranks < fsdp.ranks;
  if (hybrid && fsdp.version == 2) reasons.emplace_back("fully_shard within groups of ranks");
  return reasons;
}

std::vector<KitForm> kit_forms(const Plan& plan) {
  constexpr std::array kForms = {KitForm{foreign::Form::accelerate, "accelerate.yaml"},
                                 KitForm{foreign::Form::llama_factory, "llamafactory.yaml"},
                                 KitForm{foreign::Form::axolotl, "axolotl.yaml"},
                                 KitForm{foreign::Form::trl, "trl.yaml"},
                                 KitForm{foreign::Form::trainer, "trainer.json"},
                                 KitForm{foreign::Form::openrlhf, "openrlhf.sh"},
                                 KitForm{foreign::Form::verl, "verl.sh"}};
  // JSON has no comments: what run_clm.py cannot be told would stand nowhere.
  const bool silent = plan.workload.method != Method::full;
  std::vector<KitForm> forms;
  for (const KitForm& form : kForms) {
    if (form.form == foreign::Form::trainer && silent) continue;
    // A loop of one's own under FSDP or DDP need not be accelerate's.
    const bool own_loop =
        plan.workload.frontend == Frontend::native && starts_with_accelerate(plan);
    if (own_loop) continue;
    if (beyond_form(plan, form.form).empty()) forms.push_back(form);
  }
  return forms;
}

foreign::FormPlace kit_place(const Plan& plan, std::string_view path) {
  return {.file = kit_path(plan, path),
          .ds_config = "ds_config.json",
          .model = "kit/model",
          .script = kit_path(plan, script_of(plan))};
}

WrittenForm write_form(const Plan& plan, foreign::Form form, const foreign::FormPlace& place) {
  ZP_CHECK(beyond_form(plan, form).empty(), "a form that cannot say the plan");
  WrittenForm written;
  written.notes = notes_of(plan, form);
  written.notes.insert(written.notes.end(), place.notes.begin(), place.notes.end());
  written.start = start_line(plan, form, place);
  if (form == foreign::Form::shell || form == foreign::Form::sbatch) {
    written.executable = true;
    const std::string directives = form == foreign::Form::sbatch ? sbatch_directives(plan) : "";
    written.text =
        "#!/usr/bin/env bash\n" + directives + head(plan, written) +
        (form == foreign::Form::sbatch ? sbatch_body(plan, place) : shell_body(plan, place));
    return written;
  }
  if (foreign::is_own_command(form)) {
    written.executable = true;
    written.text = "#!/usr/bin/env bash\n" + head(plan, written) + own_command(plan, form, place);
    return written;
  }
  if (form == foreign::Form::accelerate) {
    written.text = "---\n" + head(plan, written) + accelerate_text(plan, place);
    return written;
  }
  const foreign::FormSettings settings =
      with_kept(foreign::settings_of(plan, form, place), place.kept);
  written.text = place.file.ends_with(".json")
                     ? foreign::json_text(settings)
                     : "---\n" + head(plan, written) + foreign::yaml_lines(settings);
  return written;
}

}  // namespace zeroplan::tuner
