#include "cli/training_setup.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "cli/interrupt.hpp"
#include "cli/run_fingerprint.hpp"
#include "cli/table.hpp"
#include "model/hardware/cluster.hpp"
#include "runtime/cuda/hardware.hpp"

namespace zeroplan::cli {
namespace {

constexpr int kMeasuredSteps = 10;
constexpr std::int64_t kMostSteps = 1'000'000'000;

double real_knob(const Plan& plan, Knob knob, double otherwise) {
  return plan.ds_config.real(knob).value_or(otherwise);
}

// torch.optim.AdamW's defaults where the ds_config says nothing; the learning rate is one at which
// a model that starts from random weights learns.
runtime::AdamWOptions adamw_of(const Plan& plan) {
  runtime::AdamWOptions options;
  options.learning_rate = real_knob(plan, Knob::optimizer_lr, 1e-3);
  options.epsilon = real_knob(plan, Knob::optimizer_eps, options.epsilon);
  options.weight_decay = real_knob(plan, Knob::optimizer_weight_decay, options.weight_decay);
  const Json* betas = plan.ds_config.json(Knob::optimizer_betas);
  const auto is_number = [](const Json& beta) { return beta.is_number(); };
  if (betas != nullptr && betas->items().size() == 2 &&
      std::all_of(betas->items().begin(), betas->items().end(), is_number)) {
    options.beta1 = betas->items()[0].as_number();
    options.beta2 = betas->items()[1].as_number();
  }
  return options;
}

std::uint64_t seed_of(const Arguments& arguments) {
  return static_cast<std::uint64_t>(arguments.integer("seed", 0).value_or(0));
}

// Random tokens are the same in every step: what is learned is learned by heart.
std::int64_t rows_of_step(const Plan& plan) {
  return plan.workload.micro_batch_size * plan.workload.gradient_accumulation_steps *
         plan.engine.data_parallel_ranks;
}

[[noreturn]] void no_loss_scaling(const char* key, Phrase expected, Phrase got) {
  throw InputError(Diagnostic{"ds_config",
                              std::string("/fp16/") + key,
                              std::move(expected),
                              std::move(got),
                              "the loss of fp16 cannot be scaled by that"});
}

// DeepSpeed scales the loss of fp16 alone; 0 means dynamic (runtime/precision_config.py). Throws
// InputError for what no scale follows from, which is a warning to who does not train.
runtime::LossScaling loss_scaling_of(const Plan& plan) {
  runtime::LossScaling scaling;
  if (plan.workload.precision != Precision::fp16) return scaling;
  const DsConfig& config = plan.ds_config;
  const double fixed = config.real(Knob::fp16_loss_scale).value_or(0.0);
  scaling.dynamic = fixed == 0.0;
  scaling.initial = fixed;
  if (!scaling.dynamic) return scaling;
  constexpr std::int64_t kLeastPower = -1022;  // of a double
  constexpr std::int64_t kMostPower = 1023;
  const auto power = config.integer(Knob::fp16_initial_scale_power).value_or(16);
  if (power < kLeastPower || power > kMostPower) {
    no_loss_scaling("initial_scale_power",
                    phrase("an integer between {} and {}", kLeastPower, kMostPower),
                    std::to_string(power));
  }
  scaling.initial = std::ldexp(1.0, static_cast<int>(power));
  scaling.window = config.integer(Knob::fp16_loss_scale_window).value_or(scaling.window);
  if (scaling.window < 1) {
    no_loss_scaling("loss_scale_window",
                    phrase("an integer of at least {}", 1),
                    std::to_string(scaling.window));
  }
  scaling.hysteresis = config.integer(Knob::fp16_hysteresis).value_or(scaling.hysteresis);
  scaling.smallest = config.real(Knob::fp16_min_loss_scale).value_or(scaling.smallest);
  if (!(scaling.smallest > 0.0)) {
    no_loss_scaling("min_loss_scale", "a number above 0", fmt::format("{}", scaling.smallest));
  }
  return scaling;
}

}  // namespace

// What each rank's device has; a rank that needs more ends the run.
Bytes device_memory(const Arguments& arguments) {
  const auto said = arguments.text("device-memory");
  if (!said) return Bytes::infinite();
  ClusterFlagInfo size{};
  size.flag = "--device-memory";
  size.kind = ClusterFlagInfo::Kind::bytes;
  return Bytes::nearest(parse_cluster_flag(size, *said).as_number());
}

std::unique_ptr<runtime::TokenSource> data_of(const Plan& plan, const Arguments& arguments) {
  const std::uint64_t seed = seed_of(arguments);
  const std::int64_t vocabulary = plan.model->shape.vocabulary;
  const auto file = arguments.text("data");
  auto data = file ? runtime::token_file(*file, plan.workload.sequence_length, vocabulary)
                   : runtime::random_tokens(seed, vocabulary, rows_of_step(plan));
  if (!plan.model->architecture.ends_with("ForMaskedLM")) return data;
  constexpr std::int64_t kBertMask = 103;  // [MASK] of BERT's vocabularies
  return runtime::masked_tokens(std::move(data), seed, std::min(kBertMask, vocabulary - 1));
}

// Where offload to NVMe goes, and the `aio` section; DeepSpeed's defaults where it is silent
// (runtime/swap_tensor/constants.py).
runtime::SwapSetup swap_of(const Plan& plan) {
  const DsConfig& config = plan.ds_config;
  runtime::SwapSetup swap;
  swap.optimizer_folder = config.text(Knob::offload_optimizer_nvme_path).value_or("");
  swap.parameter_folder = config.text(Knob::offload_param_nvme_path).value_or("");
  swap.io.block = plan.engine.aio_block_size;
  swap.io.threads = plan.engine.aio_parallelism;
  swap.io.queue_depth =
      static_cast<int>(config.integer(Knob::aio_queue_depth).value_or(swap.io.queue_depth));
  swap.io.single_submit = config.boolean(Knob::aio_single_submit).value_or(swap.io.single_submit);
  swap.io.overlap_events =
      config.boolean(Knob::aio_overlap_events).value_or(swap.io.overlap_events);
  return swap;
}

runtime::TrainingSetup setup_of(const EmbeddedRun& run,
                                const Arguments& arguments,
                                const ModelGraph& graph) {
  const Plan& plan = run.plan;
  runtime::TrainingSetup setup;
  setup.model = plan.model.get();
  setup.graph = &graph;
  setup.parameters = plan.engine_parameters;
  setup.config = plan.engine;
  setup.adamw = adamw_of(plan);
  setup.micro_batch = plan.workload.micro_batch_size;
  setup.sequence = plan.workload.sequence_length;
  setup.seed = seed_of(arguments);
  setup.loss_scaling = loss_scaling_of(plan);
  setup.swap = swap_of(plan);
  if (const auto weights = arguments.text("weights")) {
    setup.weights = runtime::open_weights(*weights, *plan.model);
  }
  setup.curve = curve_of(run, arguments, setup);
  if (const auto folder = arguments.text("resume")) {
    runtime::Checkpoint checkpoint = runtime::open_checkpoint(*folder, *plan.model);
    if (!arguments.has("allow-changes")) {
      runtime::require_same_curve(checkpoint, setup.curve, *folder);
    } else if (checkpoint.progress.curve != setup.curve) {
      checkpoint.progress.run.clear();  // a branch: --keep removes nothing of the run before
    }
    runtime::resume(setup, std::move(checkpoint));
  }
  setup.predicted_peak = run.predicted.gpu.peak_allocated;
  setup.kernels = runtime::cpu_kernels;
  if (run.on_gpus()) {
    setup.hardware = runtime::cuda::hardware({.ranks = plan.engine.data_parallel_ranks,
                                              .local_rank = run.group.local_rank,
                                              .processes = run.group.ranks > 1});
  }
  return setup;
}

runtime::TrainingOptions options_of(const EmbeddedRun& run,
                                    const Arguments& arguments,
                                    std::ostream& log) {
  runtime::TrainingOptions options;
  options.steps =
      static_cast<int>(arguments.integer("steps", 1, kMostSteps).value_or(kMeasuredSteps));
  const int cores = hardware_threads();
  const bool processes = run.group.ranks > 1;
  const int here = processes ? run.group.local_ranks : run.plan.engine.data_parallel_ranks;
  options.threads_per_rank = std::max(1, cores / here);
  options.progress = [&log](int step, double loss) {
    log << "step " << step << ": loss " << fixed_text(loss, 6) << "\n";
  };
  options.save = arguments.text("save").value_or("");
  options.save_every = static_cast<int>(arguments.integer("save-every", 1, kMostSteps).value_or(0));
  options.keep = arguments.integer("keep", 1).value_or(0);
  options.capacity = device_memory(arguments);
  options.trace = arguments.has("trace");
  options.stop = [] { return interrupted().has_value(); };
  return options;
}

}  // namespace zeroplan::cli
