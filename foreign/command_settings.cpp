#include "foreign/command_settings.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "base/written_names.hpp"
#include "foreign/form_settings.hpp"
#include "foreign/setting_table.hpp"
#include "foreign/setting_values.hpp"
#include "model/plan/trainer.hpp"

namespace zeroplan::foreign {
namespace {

// Names that end so say on how many GPUs Ray starts the policy and the models beside it.
constexpr std::string_view kNodes = "num_nodes";
constexpr std::string_view kGpus = "num_gpus_per_node";

class OwnCommand {
 public:
  OwnCommand(const Plan& plan, Form form, const FormPlace& place)
      : plan_(plan),
        trainer_(*plan.trainer),
        form_(form),
        tool_(form == Form::verl ? Tool::verl : Tool::openrlhf),
        own_(place.kept),
        parts_(parts_of(plan, form, place)) {
    std::erase_if(own_, [](const FormSetting& one) {
      return one.name == "openrlhf" || one.name == "script" || one.name.starts_with('$');
    });
    if (form == Form::verl) return;
    for (FormSetting& one : own_) {  // a flag, as it was read
      if (one.value == Json("true")) one.value = Json();
    }
  }

  FormSettings settings() {
    parts_["method"]["rank"] =
        plan_.workload.method == Method::full ? std::int64_t{0} : plan_.workload.lora.rank;
    form_ == Form::verl ? add_verl() : add_openrlhf();
    add_generation();
    if (plan_.workload.fused_loss) parts_["trainer"]["liger"] = true;
    for (const std::string_view one : written_names(name(kFormNames, form_))) put(one);
    // Hydra takes a key that its configuration does not have behind pluses alone.
    for (FormSetting& own : own_) {
      if (form_ == Form::verl && row_of(own) == nullptr) own.name = "++" + own.name;
    }
    put_gpus();
    return std::move(own_);
  }

 private:
  bool by_rewards() const { return trainer_.kind == TrainerKind::grpo; }
  std::int64_t global_batch() const {
    const Workload& work = plan_.workload;
    return work.micro_batch_size * work.gradient_accumulation_steps * plan_.degrees.data;
  }
  std::int64_t completion() const { return trainer_.generation.completion_length; }

  // A flag without a value is on.
  static Json value_of(const FormSetting& setting) {
    return setting.value.is_null() ? Json(true) : setting.value;
  }
  const SettingRow* row_of(const FormSetting& setting) const {
    return find_row(setting.name, tool_);
  }
  FormSettings::iterator own_of(std::string_view is) {
    return std::find_if(own_.begin(), own_.end(), [&](const FormSetting& setting) {
      const SettingRow* row = row_of(setting);
      return row != nullptr && row->is == is;
    });
  }
  // One row of so many tokens is a micro-batch, whatever the batch is.
  bool is_dynamic(std::string_view is) {
    const auto said = own_of(is);
    return said != own_.end() && is_on(value_of(*said));
  }

  void add_openrlhf() {
    const EngineConfig& engine = plan_.engine;
    Json config = Json::object({{"stage", std::int64_t{engine.stage}},
                                {"dtype", name(kPrecisionNames, plan_.workload.precision)}});
    config["adam_offload"] = engine.offload_optimizer.device != OffloadDevice::none;
    config["zpg"] = plan_.ds_config.integer(Knob::zero_hpz_partition_size).value_or(1);
    config["overlap_comm"] = plan_.ds_config.boolean(Knob::overlap_comm).value_or(false);
    config["tensor_parallel"] = plan_.degrees.tensor;
    if (is_dynamic("ds_config.dynamic_batch")) {
      config["dynamic_tokens"] = plan_.workload.sequence_length;
      parts_.erase("sequence_length");
    } else {
      config["micro_batch"] = plan_.workload.micro_batch_size;
      config["batch"] = global_batch();
    }
    parts_["ds_config"] = config;
    const bool in_parts = own_of("trainer.prompt_tokens") != own_.end();
    if (!in_parts) return;
    parts_.erase("sequence_length");
    parts_["trainer"]["prompt_tokens"] = plan_.workload.sequence_length - completion();
  }

  void add_verl() {
    const FsdpConfig& fsdp = plan_.fsdp;
    Json& trainer = parts_["trainer"];
    trainer["strategy"] = fsdp.version == 2 ? "fsdp2" : "fsdp";
    trainer["reshards"] = fsdp.sharding == Sharding::full;
    trainer["offloads"] = fsdp.offload;
    const bool grouped = fsdp.shard_ranks > 1 && fsdp.shard_ranks < fsdp.ranks;
    trainer["group"] = grouped ? std::int64_t{fsdp.shard_ranks} : std::int64_t{-1};
    if (is_dynamic("trainer.dynamic_batch")) {
      trainer["dynamic_tokens"] = plan_.workload.sequence_length;
      parts_.erase("micro_batch_size");
      return;
    }
    trainer["mini_batch"] =
        global_batch() / std::max<std::int64_t>(1, trainer_.generation.completions);
    trainer["prompt_tokens"] = plan_.workload.sequence_length - completion();
  }

  // Completions are the plan's; vLLM's engines take all GPUs where they share them.
  void add_generation() {
    if (!by_rewards()) {
      parts_.erase("trainer");
      return;
    }
    Json& trainer = parts_["trainer"];
    trainer["completion_length"] = completion();
    const bool shared = trainer_.generation.by == GenerationBy::colocated;
    if (!shared) return;
    const std::int64_t tensor = std::max<std::int64_t>(1, trainer_.generation.tensor_parallel);
    trainer["engines"] = std::max<std::int64_t>(1, plan_.cluster.total_gpus() / tensor);
  }

  // The names of a command that trains by rewards begin with the model's role, "actor."; OpenRLHF's
  // have dots from 0.10.2 on, and nobody mixes them.
  std::string spelled(const SettingRow& row) const {
    const bool flat = form_ == Form::openrlhf && !own_.empty() &&
                      std::none_of(own_.begin(), own_.end(), [](const FormSetting& setting) {
                        return setting.name.find('.') != std::string::npos;
                      });
    const std::string_view role = by_rewards() ? "actor." : "model.";
    const std::string_view other = by_rewards() ? "model." : "actor.";
    std::string best;
    int most = -1;
    first_name(row.names, [&](std::string_view name) {
      const bool dotted = name.find('.') != std::string_view::npos;
      const int points = (dotted != flat ? 4 : 0) + (name.starts_with(role)    ? 2
                                                     : name.starts_with(other) ? -8
                                                                               : 0);
      if (points > most) {
        most = points;
        best = std::string(row.under) + std::string(name);
      }
      return false;
    });
    return best;
  }

  // OpenRLHF's flags have no value, and are not there where they are off; verl's keys have one.
  std::optional<Json> argument(const Json& value) const {
    if (!value.is_boolean() || form_ == Form::verl) return value;
    return value.as_boolean() ? std::optional(Json()) : std::nullopt;
  }

  void put(std::string_view name) {
    const SettingRow& row = *find_row(name, tool_);
    const Json* part = part_at(parts_, row.is);
    if (part == nullptr) return;  // the user's own stays
    const auto said = own_of(row.is);
    const bool is_said = said != own_.end();
    if (is_said && read_value(*row_of(*said), value_of(*said)) == *part) return;
    std::string spelling = is_said ? said->name : spelled(row);
    std::optional<Json> value = written_value(is_said ? *row_of(*said) : row, part);
    if (!value && is_said) {  // another of its names has a word for it
      value = written_value(row, part);
      if (value) spelling = spelled(row);
    }
    const Json usual = row.usual != nullptr ? *row.usual : Json(false);
    if (!is_said && value == usual) return;
    if (value) value = argument(*value);
    if (!value) {
      if (is_said) own_.erase(said);
      return;
    }
    if (!is_said) return own_.push_back({spelling, std::move(*value)});
    *said = {spelling, std::move(*value)};
  }

  void put_gpus() {
    if (!starts_by_ray(plan_)) return;
    const bool verl = form_ == Form::verl;
    const Json nodes(plan_.cluster.nodes), gpus(plan_.cluster.gpus_per_node());
    for (FormSetting& own : own_) {
      if (own.name.ends_with(kNodes)) own.value = nodes;
      if (own.name.ends_with(kGpus)) own.value = gpus;
    }
    own_.push_back({verl ? "trainer.nnodes" : "actor.num_nodes", nodes});
    own_.push_back({verl ? "trainer.n_gpus_per_node" : "actor.num_gpus_per_node", gpus});
  }

  const Plan& plan_;
  const TrainerSettings& trainer_;
  Form form_;
  Tool tool_;
  FormSettings own_;
  Json parts_;
};

}  // namespace

bool starts_by_ray(const Plan& plan) { return plan.trainer->kind == TrainerKind::grpo; }

std::string module_of_command(const Plan& plan) {
  if (plan.trainer->code == TrainerCode::verl) return "verl.trainer.main_ppo";
  const TrainerKind kind = plan.trainer->kind;
  return std::string("openrlhf.cli.train_") + (kind == TrainerKind::sft   ? "sft"
                                               : kind == TrainerKind::dpo ? "dpo"
                                                                          : "ppo_ray");
}

std::string command_words(const Plan& plan,
                          Form form,
                          const FormPlace& place,
                          const std::string& separator) {
  const FormSettings settings = OwnCommand(plan, form, place).settings();
  return form == Form::verl ? override_words(settings, separator)
                            : argument_words(settings, separator);
}

}  // namespace zeroplan::foreign
