// The ds_config part of resolve(): reading it, number format, batch identity, `auto`.
#include <algorithm>

#include <fmt/format.h>

#include "base/written_names.hpp"
#include "model/graph/traced_graph.hpp"
#include "model/plan/batch.hpp"
#include "model/plan/frontend_hf.hpp"
#include "model/plan/release_pairs.hpp"
#include "model/plan/resolver.hpp"

namespace zeroplan {
namespace {

// Two explicit values that disagree: the Trainer raises, a native script follows ds_config.json.
template <typename T>
T agreed(Resolver& r, ScenarioKey key, Knob knob, const T& said, const T& in_file) {
  if (said == in_file) return said;
  const Phrase got = phrase("{} in {} against {} in {}",
                            Json(in_file).dump(),
                            r.ds_config_file,
                            Json(said).dump(),
                            r.origin(key).pointer);
  if (r.plan.workload.frontend == Frontend::hf_trainer) {
    r.problem({r.ds_config_file, std::string(pointer_of(knob))},
              phrase("the same value as {}", r.origin(key).pointer),
              got,
              "write \"auto\" in the file and keep the value in one place");
  } else {
    r.warn(phrase("{}: {}; ds_config.json counts in a native script", pointer_of(knob), got));
  }
  return in_file;
}

// A native engine runs in fp32 unless a section says otherwise (runtime/engine.py); under the
// Trainer a file that is silent follows the Trainer's arguments.
std::optional<Precision> precision_of_file(const DsConfig& config, Frontend frontend) {
  if (config.boolean(Knob::fp16_enabled).value_or(false)) return Precision::fp16;
  if (config.boolean(Knob::bf16_enabled).value_or(false)) return Precision::bf16;
  const bool fp16_off = config.boolean(Knob::fp16_enabled) == false;
  const bool bf16_off = config.boolean(Knob::bf16_enabled) == false;
  const bool native = frontend == Frontend::native;
  if (native ? fp16_off || bf16_off : fp16_off && bf16_off) return Precision::fp32;
  return std::nullopt;
}

// The optimizer that the file names runs, whatever else was said (runtime/engine.py
// _configure_basic_optimizer; the Trainer leaves the choice to the file, too).
void resolve_optimizer(Resolver& r) {
  const auto in_file = r.plan.ds_config.text(Knob::optimizer_type);
  if (!in_file) return;
  const std::string lower = folded(*in_file, "");
  const auto said = r.text(ScenarioKey::optimizer);
  if (said && *said != lower) {
    r.warn("/optimizer/type " + *in_file + " in " + r.ds_config_file + " counts, not " +
           r.origin(ScenarioKey::optimizer).pointer + " " + *said);
  }
  if (const auto known = find(kOptimizerNames, std::string_view(lower))) {
    r.plan.workload.optimizer = *known;
  }
}

// Keys that were read and change nothing here although they may change the run.
void report_unmodelled(Resolver& r) {
  std::string keys;
  for (const auto& [knob, value] : r.plan.ds_config.values()) {
    const KnobRow& row = knob_row(knob);
    const bool acts = row.affects.gpu_memory || row.affects.host_memory || row.affects.time;
    if (row.modelled || !acts) continue;
    keys += (keys.empty() ? "" : ", ") + std::string(row.pointer);
  }
  if (!keys.empty())
    r.warn(phrase("without influence on the prediction, because not modelled: {}", keys));
}

void check_both_on(Resolver& r) {
  const DsConfig& config = r.plan.ds_config;
  if (config.boolean(Knob::fp16_enabled).value_or(false) &&
      config.boolean(Knob::bf16_enabled).value_or(false)) {
    r.problem({r.ds_config_file, std::string(pointer_of(Knob::fp16_enabled))},
              "at most one of fp16.enabled and bf16.enabled true",
              "both true",
              "switch one of them off");
  }
}

// Both cut stage 3's weights into groups; what DeepSpeed does of the two is described by nobody.
void check_groupings(Resolver& r) {
  const DsConfig& config = r.plan.ds_config;
  const bool stage3 = config.integer(Knob::zero_stage) == 3;
  if (!runs_deepspeed(r.plan.workload) || !stage3) return;
  const std::int64_t secondary_partitions = check_secondary_partitions(r, r.ds_config_file, config);
  const bool shards = config.integer(Knob::mics_shard_size).value_or(-1) > 0;
  if (!shards || secondary_partitions <= 1) return;
  r.problem({r.ds_config_file, std::string(pointer_of(Knob::zero_hpz_partition_size))},
            "1 with mics_shard_size: both together are not modelled",
            std::to_string(secondary_partitions),
            "drop one of them");
}

// What DeepSpeed computes for a batch key that nobody gave is bounded as what is given.
void check_filled(Resolver& r, ScenarioKey key, const char* what, std::int64_t value) {
  const std::int64_t most = info(key).max;
  if (value <= most) return;
  r.problem({r.ds_config_file, std::string(pointer_of(Knob::train_batch_size))},
            phrase("at most {} {} for each rank", most, what),
            std::to_string(value));
}

// Keys that were said as flags, without a file.
bool is_of_flags(const ExplicitValue& ds_config) {
  return ds_config.origin.file == "command line" && ds_config.origin.pointer.empty();
}

bool has_no_format(const Resolver& r) {
  const DsConfig& config = r.plan.ds_config;
  const ExplicitValue* said = r.scenario.find(ScenarioKey::ds_config);
  return said != nullptr && !is_of_flags(*said) && !is_torch_engine(r.plan.workload.engine) &&
         !config.is_set(Knob::fp16_enabled) && !config.is_set(Knob::bf16_enabled);
}

// A native file that has neither section: DeepSpeed asks nothing else (runtime/config.py
// get_bfloat16_config).
bool runs_in_fp32(const Resolver& r) {
  return r.plan.workload.frontend == Frontend::native && has_no_format(r) &&
         r.scenario.find(ScenarioKey::precision) == nullptr;
}

}  // namespace

// The file's key is what DeepSpeed counts samples by (runtime/config.py DeepSpeedConfig.__init__,
// runtime/engine.py _configure_tensor_parallel_states).
std::int64_t ranks_said(Resolver& r, ScenarioKey key, Knob knob) {
  const auto said = r.integer(key);
  auto in_file = runs_deepspeed(r.plan.workload) ? r.plan.ds_config.integer(knob) : std::nullopt;
  if (in_file == 0) in_file = 1;  // autotp_size: off
  if (said && in_file && *said != *in_file) {
    r.problem({r.ds_config_file, std::string(pointer_of(knob))},
              phrase("the same value as {}", r.origin(key).pointer),
              phrase("{}, and {} there", *in_file, *said),
              "keep one of them");
  }
  return said.value_or(in_file.value_or(1));
}

std::int64_t check_secondary_partitions(Resolver& r,
                                        const std::string& file,
                                        const DsConfig& config) {
  const std::int64_t ranks = r.plan.degrees.partition();
  const std::int64_t size =
      std::min(config.integer(Knob::zero_hpz_partition_size).value_or(1), ranks);
  if (size > 1 && ranks % size != 0) {
    r.problem({file, std::string(pointer_of(Knob::zero_hpz_partition_size))},
              phrase("a size that divides the {} ranks, or DeepSpeed stops", ranks),
              std::to_string(size),
              "set it to the GPUs of one node");
  }
  return size;
}

void load_ds_config(Resolver& r, const Prepared& prepared) {
  const ExplicitValue* said = r.scenario.find(ScenarioKey::ds_config);
  r.has_ds_config = said != nullptr || prepared.ds_config != nullptr;
  if (prepared.ds_config != nullptr) {
    r.plan.ds_config = *prepared.ds_config;
    r.ds_config_file = "ds_config";
  } else if (said != nullptr) {
    r.ds_config_file =
        said->value.is_string() ? said->value.as_string() : said->origin.file + ":ds_config";
    r.plan.ds_config = read_ds_config_of(*said);
  }
}

void check_ds_config(Resolver& r, const Prepared& prepared) {
  const ExplicitValue* said = r.scenario.find(ScenarioKey::ds_config);
  const bool is_given = prepared.ds_config == nullptr;
  if (is_given && said != nullptr) {
    for (const Finding& note : r.plan.ds_config.notes()) {
      if (note.severity == Severity::info) continue;
      r.warn(said_in_file(r.ds_config_file, note));
    }
    // The stage is then the one of no file at all.
    const bool of_flags = is_of_flags(*said);
    r.ds_config_is_file = !of_flags && (said->value.is_string() || said->origin.pointer.empty());
    const bool deepspeed = runs_deepspeed(r.plan.workload);
    const bool has_stage = r.plan.ds_config.is_set(Knob::zero_stage);
    if (of_flags && deepspeed && !has_stage) {
      r.plan.ds_config.set(Knob::zero_stage, std::int64_t{3});
      r.assume("ZeRO stage 3: no ds_config was given");
    }
    // FSDP shards fully where nobody says otherwise.
    if (r.plan.workload.engine == TrainingEngine::fsdp && !has_stage) {
      r.plan.ds_config.set(Knob::zero_stage, std::int64_t{3});
      r.assume("full sharding: no stage was given");
    }
    const bool embedded = r.plan.workload.engine == TrainingEngine::embedded;
    if (embedded && r.plan.ds_config.is_set(Knob::scheduler_type)) {
      r.warn(phrase("{}: {}: the embedded runtime keeps the optimizer's lr and has no schedulers",
                    r.ds_config_file,
                    pointer_of(Knob::scheduler_type)));
    }
  } else if (is_given) {
    const TrainingEngine engine = r.plan.workload.engine;
    const bool whole = engine == TrainingEngine::ddp;
    r.plan.ds_config.set(Knob::zero_stage, std::int64_t{whole ? 0 : 3});
    if (!whole) {
      r.assume(engine == TrainingEngine::fsdp ? "full sharding: no ds_config was given"
                                              : "ZeRO stage 3: no ds_config was given");
    }
  }
  check_both_on(r);
  check_groupings(r);
  resolve_optimizer(r);
  if (runs_deepspeed(r.plan.workload)) report_unmodelled(r);
}

DsConfig read_ds_config_of(const ExplicitValue& said) {
  if (said.value.is_string()) return read_ds_config(said.value.as_string());
  JsonDocument document;
  document.file = said.origin.file;
  document.root = said.value;
  return parse_ds_config(document);
}

void say_precision(const Plan& plan, DsConfig& config) {
  const bool silent = !config.is_set(Knob::fp16_enabled) && !config.is_set(Knob::bf16_enabled);
  if (plan.workload.precision != Precision::fp32 || !silent) return;
  config.set(Knob::bf16_enabled, false);
  config.set(Knob::fp16_enabled, false);
}

void resolve_precision(Resolver& r) {
  const auto said = r.text(ScenarioKey::precision);
  const auto in_file = precision_of_file(r.plan.ds_config, r.plan.workload.frontend);
  r.ds_config_mixes = in_file && in_file != Precision::fp32;
  const bool gpu_has_bf16 = r.plan.cluster.gpu.bf16_supported;
  Precision& precision = r.plan.workload.precision;
  if (runs_in_fp32(r)) {
    precision = Precision::fp32;
    r.assume("precision fp32: the native ds_config has neither an fp16 nor a bf16 section");
    return;
  }
  if (said && in_file) {
    const std::string file_text(name(kPrecisionNames, *in_file));
    agreed(r, ScenarioKey::precision, Knob::bf16_enabled, *said, file_text);
    precision = *in_file;
  } else if (said) {
    precision = *find(kPrecisionNames, std::string_view(*said));
  } else if (in_file) {
    precision = *in_file;
  } else {
    precision = gpu_has_bf16 ? Precision::bf16 : Precision::fp16;
    // accelerate adds the section of the Trainer's argument (utils/dataclasses.py
    // DeepSpeedPlugin.set_mixed_precision).
    r.assume(Phrase("precision ") + std::string(name(kPrecisionNames, precision)) +
             (!gpu_has_bf16 ? ": the GPU has no bf16"
              : r.ds_config_is_file && has_no_format(r)
                  ? ": assumed of the Trainer, whose --bf16 accelerate adds to a "
                    "ds_config without a section"
                  : ": the default"));
  }
  if (precision == Precision::bf16 && !gpu_has_bf16) {
    r.warn(phrase("{} has no bf16 arithmetic: matrix products run at the speed of fp32 or slower",
                  r.plan.cluster.gpu.name));
  }
}

// `in_file`: the file's value of the knob, in the unit of the key.
std::optional<std::int64_t> said_or_in_file(Resolver& r,
                                            ScenarioKey key,
                                            Knob knob,
                                            std::optional<std::int64_t> in_file) {
  const auto said = r.integer(key);
  if (said && in_file) return agreed(r, key, knob, *said, *in_file);
  return said ? said : in_file;
}

// Samples of an optimizer step, said or in the file, which counts AutoTP's ranks too.
std::optional<std::int64_t> samples_a_step(Resolver& r) {
  auto in_file = r.plan.ds_config.integer(Knob::train_batch_size);
  const std::int64_t times = r.plan.degrees.autotp;
  if (in_file && *in_file % times != 0) {
    r.problem({r.ds_config_file, std::string(pointer_of(Knob::train_batch_size))},
              phrase("a multiple of the {} ranks of AutoTP, which DeepSpeed counts", times),
              std::to_string(*in_file));
  }
  if (in_file) in_file = *in_file / times;
  return said_or_in_file(r, ScenarioKey::global_batch_size, Knob::train_batch_size, in_file);
}

void resolve_batch(Resolver& r) {
  const DsConfig& config = r.plan.ds_config;
  Workload& workload = r.plan.workload;
  const std::int64_t ranks = r.plan.degrees.data;
  const auto pick = [&](ScenarioKey key, Knob knob) {
    return said_or_in_file(r, key, knob, config.integer(knob));
  };
  const auto total = samples_a_step(r);
  auto micro = pick(ScenarioKey::micro_batch_size, Knob::train_micro_batch_size_per_gpu);
  auto steps = pick(ScenarioKey::gradient_accumulation_steps, Knob::gradient_accumulation_steps);
  // DeepSpeed fills what is missing by whole-number division and then checks the product
  // (runtime/config.py _set_batch_related_parameters, _batch_assertion).
  const bool in_file = config.integer(Knob::train_batch_size).has_value();
  if (total && in_file && !micro && !steps) steps = 1;
  const std::int64_t only = traced_batch_of(*r.plan.model);
  if (!micro && !(total && steps)) {
    micro = only > 0 ? only : kDefaultMicroBatch;
    r.assume(only > 0
                 ? phrase("micro-batch {}: the class loops over its images, and was traced with it",
                          only)
                 : phrase("micro-batch 1: the default"));
  }
  using detail::checked_product;
  if (total && !steps) steps = *total / checked_product(*micro, ranks);
  if (total && !micro) micro = *total / checked_product(*steps, ranks);
  if (!steps && r.plan.degrees.pipeline > 1) {
    // With fewer a pipeline waits more than it works: Huang et al. 2018, arXiv:1811.06965,
    // section 2.3.
    steps = 4 * r.plan.degrees.pipeline;
    r.assume("4 micro-batches for each pipeline stage: unspecified");
  } else if (!steps) {
    steps = 1;
    r.assume("no gradient accumulation: the default");
  }
  workload.micro_batch_size = *micro;
  workload.gradient_accumulation_steps = *steps;
  check_filled(r, ScenarioKey::micro_batch_size, "sequences in a micro-batch", *micro);
  if (only > 0 && *micro != only) {
    r.problem(
        r.origin(ScenarioKey::micro_batch_size),
        phrase("{}, with which the model was traced: its class loops over the images of a batch",
               only),
        std::to_string(*micro),
        phrase("zeroplan trace --micro-batch-size {}", *micro));
  }
  check_filled(r, ScenarioKey::gradient_accumulation_steps, "micro-batches", *steps);
  const std::int64_t product = checked_product(checked_product(*micro, *steps), ranks);
  if (total && product != *total) {
    const Origin file{r.ds_config_file, std::string(pointer_of(Knob::train_batch_size))};
    r.problem(in_file ? file : r.origin(ScenarioKey::global_batch_size),
              phrase("micro-batch x accumulation x data-parallel ranks = {}",
                     fmt::format("{} x {} x {} = {}", *micro, *steps, ranks, product)),
              std::to_string(*total),
              in_file ? "write \"auto\", or leave train_batch_size out"
                      : phrase("a multiple of {}", *micro * ranks));
  }
}

void fill_ds_config(Resolver& r) {
  Plan& plan = r.plan;
  DsConfig& config = plan.ds_config;
  if (!config.is_set(Knob::zero_stage)) config.set(Knob::zero_stage, std::int64_t{0});
  TrainerArguments arguments;
  arguments.runs = plan.workload.frontend == Frontend::hf_trainer;
  arguments.micro_batch_size = plan.workload.micro_batch_size;
  arguments.gradient_accumulation_steps = plan.workload.gradient_accumulation_steps;
  arguments.data_parallel_ranks = plan.degrees.counted();
  arguments.hidden_size = plan.model->shape.hidden;
  arguments.stage = static_cast<int>(config.integer(Knob::zero_stage).value_or(0));
  arguments.precision = plan.workload.precision;
  arguments.pipeline_stages = plan.degrees.pipeline;
  if (plan.workload.engine == TrainingEngine::deepspeed &&
      plan.workload.frontend == Frontend::hf_trainer && arguments.stage == 3 &&
      config.is_auto(Knob::stage3_prefetch_bucket_size) &&
      stops_at_fraction(
          plan.software.deepspeed_release, plan.software.transformers, arguments.hidden_size)) {
    const double filled = 0.9 * static_cast<double>(arguments.hidden_size) *
                          static_cast<double>(arguments.hidden_size);
    r.problem({r.ds_config_file, std::string(pointer_of(Knob::stage3_prefetch_bucket_size))},
              phrase("a whole number: DeepSpeed {} refuses {:.1f}, which transformers {} fills in",
                     to_string(plan.software.deepspeed_release),
                     filled,
                     to_string(plan.software.transformers)),
              "\"auto\"",
              phrase("write {:.0f}, or transformers 4.45 or newer, or DeepSpeed 0.14", filled));
  }
  for (const std::string& pointer : fill_auto(config, arguments)) {
    r.problem({r.ds_config_file, pointer},
              "a number, because the model's config has no hidden size for \"auto\"",
              "\"auto\"");
  }
  if (plan.degrees.sequence > 1) {
    config.set(Knob::sequence_parallel_size, plan.degrees.sequence);
  }
  if (plan.degrees.autotp > 1) {
    config.set(Knob::tensor_parallel_autotp_size, plan.degrees.autotp);
  }
  config.set(Knob::train_micro_batch_size_per_gpu, plan.workload.micro_batch_size);
  config.set(Knob::gradient_accumulation_steps, plan.workload.gradient_accumulation_steps);
  config.set(
      Knob::train_batch_size,
      detail::checked_product(detail::checked_product(plan.workload.micro_batch_size,
                                                      plan.workload.gradient_accumulation_steps),
                              plan.degrees.counted()));
  if (plan.workload.precision == Precision::bf16 || config.is_set(Knob::bf16_enabled)) {
    config.set(Knob::bf16_enabled, plan.workload.precision == Precision::bf16);
  }
  if (plan.workload.precision == Precision::fp16 || config.is_set(Knob::fp16_enabled)) {
    config.set(Knob::fp16_enabled, plan.workload.precision == Precision::fp16);
  }
}

}  // namespace zeroplan
