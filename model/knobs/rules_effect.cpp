// Rules about keys that do nothing here, and defaults that are not the same in every release; see
// rules.hpp.
#include <algorithm>
#include <array>

#include "model/knobs/rule_view.hpp"

namespace zeroplan::rules {
namespace {

// Read by nobody in the described releases on a torch that gathers into one tensor (1.13 and
// later).
constexpr std::array kUnread = {
    Knob::allgather_partitions, Knob::allgather_bucket_size, Knob::disable_allgather};

void key_without_effect(const View& view, Report& report) {
  for (const Knob knob : kUnread) {
    if (view.is_given(knob)) report.at(knob, {quoted(knob)});
  }
}

// Rules of their own say these.
bool has_its_own_rule(Knob knob) {
  constexpr std::array kOwn = {Knob::offload_optimizer_device,
                               Knob::offload_param_device,
                               Knob::offload_optimizer_ratio,
                               Knob::legacy_stage1,
                               Knob::allgather_partitions,
                               Knob::allgather_bucket_size};
  return std::find(kOwn.begin(), kOwn.end(), knob) != kOwn.end();
}

// Keys inside an offload section do nothing more when the whole section does nothing.
bool is_in_offload_section(const KnobRow& row) {
  return row.pointer.starts_with("/zero_optimization/offload_");
}

std::string acting_stages_text(StageSet stages) {
  std::string text;
  for (int stage = 0; stage <= 3; ++stage) {
    if (stages.contains(stage)) text += (text.empty() ? "" : ", ") + std::to_string(stage);
  }
  return text;
}

void key_at_other_stage(const View& view, Report& report) {
  if (view.config().is_auto(Knob::zero_stage)) return;
  const int stage = static_cast<int>(view.stage());
  for (const auto& [knob, value] : view.config().values()) {
    const KnobRow& row = knob_row(knob);
    if (row.stages.contains(stage) || view.config().is_auto(knob) || has_its_own_rule(knob) ||
        is_in_offload_section(row)) {
      continue;
    }
    // A default that is written out misleads nobody.
    if (value == to_value(view.default_of(knob))) continue;
    report.at(knob, {quoted(knob), std::to_string(stage), acting_stages_text(row.stages)});
  }
}

// Keys that act only where another key has a certain value.
struct Switch {
  Knob key;
  Knob needs;
  std::string_view value;
};
constexpr std::array kSwitches = {
    Switch{Knob::offload_optimizer_nvme_path, Knob::offload_optimizer_device, "nvme"},
    Switch{Knob::offload_optimizer_buffer_count, Knob::offload_optimizer_device, "nvme"},
    Switch{Knob::offload_optimizer_pipeline_read, Knob::offload_optimizer_device, "nvme"},
    Switch{Knob::offload_optimizer_pipeline_write, Knob::offload_optimizer_device, "nvme"},
    Switch{Knob::offload_optimizer_fast_init, Knob::offload_optimizer_device, "nvme"},
    Switch{Knob::offload_param_nvme_path, Knob::offload_param_device, "nvme"},
    Switch{Knob::offload_param_buffer_count, Knob::offload_param_device, "nvme"},
    Switch{Knob::offload_param_buffer_size, Knob::offload_param_device, "nvme"},
    Switch{Knob::offload_param_max_in_cpu, Knob::offload_param_device, "nvme"}};

void switched_off_key(const View& view, Report& report) {
  for (const Switch& row : kSwitches) {
    if (!view.is_given(row.key) || view.config().is_auto(row.needs)) continue;
    if (view.text(row.needs) == row.value) continue;
    if (view.config().value(row.key) == to_value(view.default_of(row.key))) continue;
    report.at(
        row.key,
        {quoted(row.key), std::string(pointer_of(row.needs).substr(1)), std::string(row.value)});
  }
}

// The release in which a default changed, finer than the four described ones.
struct ChangedDefault {
  Knob knob;
  std::string_view release;
};

void changed_default(const View& view, Report& report) {
  const bool offloads = view.stage() > 0 && view.text(Knob::offload_optimizer_device) == "cpu";
  const bool offloads_parameters =
      view.stage() == 3 && view.text(Knob::offload_param_device) == "cpu";
  const std::array rows = {
      std::pair{ChangedDefault{Knob::gradient_clipping, "0.19.3"}, true},
      std::pair{ChangedDefault{Knob::offload_optimizer_pin_memory, "0.19.5"}, offloads},
      std::pair{ChangedDefault{Knob::offload_param_pin_memory, "0.19.5"}, offloads_parameters}};
  for (const auto& [row, acts] : rows) {
    if (!acts || view.config().is_set(row.knob)) continue;
    const int stage = static_cast<int>(view.stage());
    report.at(row.knob,
              {quoted(row.knob),
               to_string(default_literal(row.knob, stage, DeepSpeedVersion::v0_12)),
               to_string(default_literal(row.knob, stage, kNewestDeepSpeed)),
               std::string(row.release)});
  }
}

constexpr std::array kEffectRules = {
    Rule{{.code = "key-without-effect",
          .severity = Severity::info,
          .use = RuleUse::advice,
          .summary = "no key is one that nothing reads any more",
          .cost = "none; time spent on tuning it is lost",
          .texts = {{"{0} does nothing in the described releases", "remove it"}},
          .source = "runtime/utils.py:all_gather_dp_groups"},
         key_without_effect},
    Rule{{.code = "key-at-other-stage",
          .severity = Severity::info,
          .use = RuleUse::advice,
          .summary = "keys act at the stage that is set",
          .cost = "the key does nothing; a stage that was left behind is often the real mistake",
          .texts = {{"{0} does nothing at stage {1}; it acts at stage {2}",
                     "remove it, or check the stage"}},
          .source = "runtime/engine.py:_configure_zero_optimizer"},
         key_at_other_stage},
    Rule{{.code = "switched-off-key",
          .severity = Severity::info,
          .use = RuleUse::advice,
          .summary = "keys for NVMe stand with the device nvme",
          .cost = "the key does nothing",
          .texts = {{"{0} acts only where {1} is {2}", "remove it, or set the device"}},
          .source = "runtime/zero/offload_config.py:OffloadDeviceEnum"},
         switched_off_key},
    Rule{{.code = "changed-default",
          .severity = Severity::info,
          .use = RuleUse::advice,
          .summary = "keys whose default changed are written out",
          .cost = "the same file trains differently after an upgrade of DeepSpeed",
          .texts = {{"{0} is not given: its default was {1} and is {2} since DeepSpeed {3}",
                     "write the value that is meant"}},
          .source = "runtime/constants.py:GRADIENT_CLIPPING_DEFAULT"},
         changed_default},
};

}  // namespace

std::span<const Rule> effect_rules() { return kEffectRules; }

}  // namespace zeroplan::rules
