#include "model/predict/beside_memory.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "model/engine/fetch_coordinator.hpp"
#include "model/engine/partition.hpp"
#include "model/plan/trainer.hpp"
#include "model/predict/window_moment.hpp"
#include "model/step/generation.hpp"
#include "model/step/kernel_workspaces.hpp"
#include "model/step/module_walk.hpp"
#include "model/step/outside_passes.hpp"
#include "model/step/rollout_memory.hpp"
#include "model/step/step_graph.hpp"

namespace zeroplan {
namespace {

Bytes in_blocks(Bytes bytes) {
  constexpr std::int64_t kBlock = 512;  // kMinBlockSize, c10/cuda/CUDACachingAllocator.cpp
  return Bytes::of(round_up(bytes.count(), kBlock));
}

// The most elements that stand gathered during a forward pass, persistent ones included: the second
// pass of the model's own coordinator, which has a trace by then.
Elements most_gathered(const Plan& plan, const ModelGraph& graph) {
  FetchCoordinator coordinator(fetch_model(plan), plan.engine);
  ModuleWalk walk(*plan.model, graph);
  FetchLog log;
  Elements most;
  const auto note = [&] {
    most = std::max(most, coordinator.allocated());
    log.clear();
  };
  const auto on_module = [&](const ModuleStep& step) {
    if (step.enters) coordinator.enter(step.module, step.pass, log);
    if (!step.enters) coordinator.exit(step.module, step.pass, log);
    note();
  };
  for (int pass = 0; pass < 2; ++pass) {
    coordinator.begin_micro_step(log);
    note();
    for (const PassStep& step : micro_batch(graph)) {
      if (!in_forward_phase(step.pass)) break;
      const BlockInstance& instance = graph.instances[static_cast<std::size_t>(step.instance)];
      for (const Event& event : graph.block_of(instance).of(step.pass)) {
        walk.follow(step, event, on_module);
      }
    }
    walk.leave(FetchPass::forward, on_module);
  }
  return most;
}

// Of the weights that a coordinator gathers once and keeps.
Elements persistent_elements(const Plan& plan) {
  Elements elements;
  for (const EngineParameter& parameter : plan.engine_parameters) {
    if (parameter.numel < plan.engine.stage3.parameter_persistence_threshold) {
      elements += parameter.numel;
    }
  }
  return elements;
}

// The two largest blocks and the root, which FSDP gathers.
Bytes gathered_units(const Plan& plan) {
  Bytes root, largest;
  for (const FsdpUnit& unit : fsdp_units(plan.fsdp, plan.engine_parameters, plan.wrapped_block)) {
    const Bytes bytes = gathered_bytes(plan.fsdp, unit);
    if (unit.block < 0) root += bytes;
    if (unit.block >= 0) largest = std::max(largest, bytes);
  }
  return root + largest * 2;
}

// Those of the micro-batch before: its outputs until this one's are there, its probabilities until
// the step has its own. Those of this one while the optimizer steps.
void add_loop_variables(const Plan& policy, GpuMemory& gpu) {
  const LoopVariables variables = loop_variables(policy);
  const auto phase = [&](Phase which) -> Bytes& {
    return at(gpu.by_phase[static_cast<std::size_t>(which)], MemoryCategory::logits);
  };
  phase(Phase::step) += variables.sum();
  if (!any_finds_variables(policy)) return;
  phase(Phase::forward) += variables.sum();
  phase(Phase::backward) += variables.probabilities;
}

CategoryBytes larger(const CategoryBytes& a, const CategoryBytes& b) {
  return sum(a) < sum(b) ? b : a;
}

}  // namespace

BesideWeights weights_between_passes(const Plan& model) {
  BesideWeights weights;
  if (model.workload.engine == TrainingEngine::fsdp) {
    for (const FsdpUnit& unit :
         fsdp_units(model.fsdp, model.engine_parameters, model.wrapped_block)) {
      weights.gpu += in_blocks(stored_bytes(model.fsdp, unit));
    }
    return weights;
  }
  const bool offloaded =
      runs_zero3(model) && model.engine.offload_parameter.device != OffloadDevice::none;
  const Elements persistent = model.engine.stage3.parameter_persistence_threshold;
  for (const EngineParameter& parameter : model.engine_parameters) {
    if (!runs_zero3(model)) {
      const DType dtype =
          runs_deepspeed(model.workload) ? model.engine.model_dtype : model.ddp.weight_dtype;
      weights.gpu += in_blocks(parameter.numel * dtype);
      continue;
    }
    const Bytes part = partitioned_numel(parameter.numel, partition_ranks(model.engine)) *
                       model.engine.model_dtype;
    (offloaded ? weights.host : weights.gpu) += in_blocks(part);
    // Gathered by the first pass and never released (ds_persist).
    if (parameter.numel < persistent) {
      weights.gpu += in_blocks(parameter.numel * model.engine.model_dtype);
    }
  }
  return weights;
}

CategoryBytes inference_results(const Plan& plan) {
  CategoryBytes results{};
  for (const ActivationStep& step : activation_timeline(step_graph(plan)).steps) {
    results = step.entry;
    if (!in_forward_phase(step.pass.pass)) return results;
  }
  return results;
}

CategoryBytes inference_rise(const Plan& plan) {
  const ModelGraph graph = step_graph(plan);
  CategoryBytes peak{};
  for (const ActivationStep& step : activation_timeline(graph).steps) {
    if (!in_forward_phase(step.pass.pass)) break;
    CategoryBytes bytes = step.entry;
    add(bytes, step.before_gradients.without);
    peak = larger(peak, bytes);
  }
  if (runs_zero3(plan)) {
    const Elements gathered = most_gathered(plan, graph) - persistent_elements(plan);
    at(peak, MemoryCategory::parameters) +=
        std::max(Elements::zero(), gathered) * plan.engine.model_dtype;
  }
  if (plan.workload.engine == TrainingEngine::fsdp)
    at(peak, MemoryCategory::parameters) += gathered_units(plan);
  if (plan.workload.engine == TrainingEngine::ddp && plan.ddp.autocasts()) {
    at(peak, MemoryCategory::parameters) += autocast_copies(graph) * plan.ddp.compute_dtype;
  }
  return peak;
}

BesideMemory beside_memory(const Plan& policy) {
  BesideMemory memory;
  if (policy.beside == nullptr) return memory;
  const TrainerSettings* trainer = policy.trainer.get();
  if (trainer != nullptr && trainer->generates()) {
    CategoryBytes generation{};
    if (trainer->trains_values()) memory.logits = rollout_logits(policy).all();
    if (trainer->generation.by == GenerationBy::trainer) {
      at(generation, MemoryCategory::activations) = generation_memory(policy).sum();
    } else if (trainer->generation.sleeps) {
      at(generation, MemoryCategory::parameters) = server_share(policy);
    } else {
      memory.gpu += server_share(policy);
    }
    memory.before_forward = generation;
  }
  for (const BesideModel& model : policy.beside->models) {
    if (!has_own_weights(model.placement)) continue;
    const BesideWeights weights = weights_between_passes(*model.plan);
    memory.gpu += weights.gpu;
    memory.host += weights.host;
  }
  for (const InferencePass& pass : policy.beside->passes) {
    if (pass.moment == PassMoment::in_loss) {
      memory.in_loss = larger(memory.in_loss, inference_rise(*pass.plan));
      add(memory.results, inference_results(*pass.plan));
      continue;
    }
    CategoryBytes& rise =
        pass.moment == PassMoment::after_forward ? memory.after_forward : memory.before_forward;
    rise = larger(rise, inference_rise(*pass.plan));
  }
  return memory;
}

void add_beside(const Plan& policy,
                const StepWork& work,
                const BesideMemory& beside,
                GpuMemory& gpu) {
  const auto phase = [&](Phase which) -> CategoryBytes& {
    return gpu.by_phase[static_cast<std::size_t>(which)];
  };
  for (CategoryBytes& bytes : gpu.by_phase) {
    at(bytes, MemoryCategory::parameters) += beside.gpu;
    at(bytes, MemoryCategory::logits) += beside.logits;
  }
  gpu.static_allocated += beside.gpu + beside.logits;
  // The engine's part of the forward phase, with the activations of the moment.
  CategoryBytes moment = phase(Phase::forward);
  for (const MemoryCategory category :
       {MemoryCategory::activations, MemoryCategory::logits, MemoryCategory::temporaries}) {
    at(moment, category) = Bytes::zero();
  }
  // What stage 3 has gathered for the trained model's forward pass is gone by then.
  for (const MemoryCategory category :
       {MemoryCategory::parameters, MemoryCategory::communication_buffers}) {
    at(moment, category) = std::min(at(moment, category), at(phase(Phase::step), category));
  }
  at(moment, MemoryCategory::logits) = beside.logits;
  at(moment, MemoryCategory::temporaries) = kept_workspaces(policy, work.graph);
  at(moment, MemoryCategory::activations) = work.graph.batch;
  CategoryBytes before = moment;
  add(before, beside.before_forward);
  const auto& steps = work.activations.steps;
  const auto turn = std::find_if(steps.begin(), steps.end(), [](const ActivationStep& step) {
    return !in_forward_phase(step.pass.pass);
  });
  if (const auto& loss = work.activations.loss) {
    CategoryBytes passes = moment;
    add(moment, loss->peak);
    add(moment, beside.results);
    add(passes, loss->before);
    add(passes, beside.in_loss);
    keep_larger(phase(Phase::forward), passes);
  } else if (turn != steps.end()) {
    add(moment, turn->entry);
  }
  add(moment, beside.after_forward);
  if (policy.trainer != nullptr && policy.trainer->trains_values()) {
    add_loop_variables(policy, gpu);
  }
  keep_larger(phase(Phase::forward), before);
  keep_larger(phase(Phase::forward), moment);
}

}  // namespace zeroplan
