#include "model/predict/gather_timeline.hpp"

#include <algorithm>

#include "model/engine/fetch_coordinator.hpp"
#include "model/engine/partition.hpp"
#include "model/plan/trainer.hpp"
#include "model/step/generation.hpp"
#include "model/step/kept_weights.hpp"
#include "model/step/module_walk.hpp"
#include "model/step/outside_passes.hpp"

namespace zeroplan {
namespace {

// Each gather or load brings this rank's parts of its parameters.
void count_brought(const FetchLog& log,
                   const FetchEvent& event,
                   std::vector<std::int32_t>& brought) {
  if (event.kind == FetchEventKind::load) ++brought[static_cast<std::size_t>(event.subject)];
  if (event.kind != FetchEventKind::collective) return;
  for (const ParameterIndex p : log.parameters_of(event)) ++brought[static_cast<std::size_t>(p)];
}

// Follows the bytes behind the gathered weights through a log.
class Fold {
 public:
  explicit Fold(GatherTimeline& timeline) : timeline_(timeline) {}

  void set_pass(std::size_t step, bool forward) {
    step_ = step;
    forward_ = forward;
    note();
  }
  void operation_ran() { ran_ = true; }
  void read(FetchLog& log) {
    for (const FetchEvent& event : log.events) read(log, event);
    log.clear();
  }
  LiveElements now() const { return now_; }

 private:
  void read(const FetchLog& log, const FetchEvent& event) {
    GatherTotals& totals = forward_ ? timeline_.forward : timeline_.backward;
    switch (event.kind) {
      case FetchEventKind::micro_step:
        now_ = {event.elements, event.buffer};
        break;
      case FetchEventKind::fetch:
      case FetchEventKind::prefetch:
        now_.parameters += event.elements;
        totals.gathered += event.elements;
        ahead_ = event.kind == FetchEventKind::prefetch;
        break;
      case FetchEventKind::collective:
        now_.buffers += event.elements;
        totals.collective_elements += event.elements;
        ++totals.collectives;
        timeline_.messages.push_back({static_cast<std::int32_t>(step_),
                                      event.elements,
                                      event.group,
                                      ahead_,
                                      !ran_ && !ahead_,
                                      static_cast<std::int32_t>(timeline_.parameters.size()),
                                      event.count});
        for (const ParameterIndex p : log.parameters_of(event)) timeline_.parameters.push_back(p);
        count_brought(log, event, timeline_.brought);
        break;
      case FetchEventKind::load:
        now_.buffers += event.elements;
        count_brought(log, event, timeline_.brought);
        break;
      case FetchEventKind::copy:
        now_.buffers += event.elements;
        totals.copied += event.elements;
        break;
      case FetchEventKind::bucket_done:
        now_.buffers -= event.elements;
        break;
      case FetchEventKind::release:
        now_.parameters -= event.elements;
        now_.buffers -= event.buffer;
        break;
      default:
        break;
    }
    note();
  }
  void note() {
    if (step_ >= timeline_.peaks.size()) return;
    LiveElements& peak = timeline_.peaks[step_];
    peak.parameters = std::max(peak.parameters, now_.parameters);
    peak.buffers = std::max(peak.buffers, now_.buffers);
  }

  GatherTimeline& timeline_;
  LiveElements now_;
  std::size_t step_ = 0;
  bool forward_ = true;
  bool ahead_ = false;
  bool ran_ = false;  // an operation of the micro-step
};

void add_log(const FetchLog& log, Fingerprint& print) {
  for (const FetchEvent& event : log.events) {
    for (const std::int64_t word : {static_cast<std::int64_t>(event.kind),
                                    static_cast<std::int64_t>(event.pass),
                                    static_cast<std::int64_t>(event.stream),
                                    static_cast<std::int64_t>(event.op),
                                    static_cast<std::int64_t>(event.asynchronous),
                                    static_cast<std::int64_t>(event.secondary),
                                    static_cast<std::int64_t>(event.subject),
                                    static_cast<std::int64_t>(event.group),
                                    event.elements.count()}) {
      print.add(static_cast<std::uint64_t>(word));
    }
    for (const ParameterIndex p : log.parameters_of(event)) {
      print.add(static_cast<std::uint64_t>(p));
    }
  }
}

bool launches(const Block& block, const Event& event) {
  return event.kind == EventKind::operation &&
         block.operations[static_cast<std::size_t>(event.index)].kernels > 0;
}

// Drives the coordinator through micro-steps and folds its log.
class Driver {
 public:
  Driver(const Plan& plan, const ModelGraph& graph, FetchCoordinator& coordinator)
      : graph_(graph), walk_(*plan.model, graph), coordinator_(coordinator) {}

  void micro_step(Fold* fold) { run(fold, nullptr); }
  // Every event of it joins `print`.
  void micro_step(Fingerprint& print) { run(nullptr, &print); }

  // brought: by parameter, what the step gathers.
  void optimizer_step(std::vector<std::int32_t>& brought) {
    coordinator_.begin_optimizer_step(log_);
    coordinator_.end_optimizer_step(log_);
    for (const FetchEvent& event : log_.events) count_brought(log_, event, brought);
    log_.clear();
  }

 private:
  void run(Fold* fold, Fingerprint* print) {
    const auto drain = [&](Fold* to) {
      if (print != nullptr) add_log(log_, *print);
      if (to != nullptr) to->read(log_);
      log_.clear();
    };
    coordinator_.begin_micro_step(log_);
    drain(fold);
    const auto on_module = [&](const ModuleStep& step) {
      if (step.enters) coordinator_.enter(step.module, step.pass, log_);
      if (!step.enters) coordinator_.exit(step.module, step.pass, log_);
      drain(fold);
    };
    bool backward = false;
    const std::vector<PassStep> passes = micro_batch(graph_);
    for (std::size_t i = 0; i < passes.size(); ++i) {
      const PassStep& pass = passes[i];
      if (pass.pass == Pass::drop_outputs) continue;
      if (!in_forward_phase(pass.pass) && !backward) {
        walk_.leave(FetchPass::forward, on_module);
        backward = true;
        coordinator_.begin_backward(log_);
        drain(fold);
      }
      if (fold != nullptr) fold->set_pass(i, !backward);
      const BlockInstance& instance = graph_.instances[static_cast<std::size_t>(pass.instance)];
      for (const Event& event : graph_.block_of(instance).of(pass.pass)) {
        walk_.follow(pass, event, on_module);
        if (fold != nullptr && launches(graph_.block_of(instance), event)) fold->operation_ran();
      }
    }
    walk_.leave(FetchPass::backward, on_module);
    coordinator_.end_backward(log_);
    drain(fold);
  }

  const ModelGraph& graph_;
  ModuleWalk walk_;
  FetchCoordinator& coordinator_;
  FetchLog log_;
};

}  // namespace

GatherTimeline gather_timeline(const Plan& plan, const ModelGraph& graph, int micro_step) {
  const FetchModel model = fetch_model(plan);
  FetchCoordinator coordinator(model, plan.engine);
  GatherTimeline timeline;
  timeline.peaks.resize(micro_batch(graph).size());
  timeline.brought.resize(model.parameters.size());
  timeline.brought_in_step.resize(model.parameters.size());
  Driver driver(plan, graph, coordinator);
  Fold fold(timeline);
  driver.micro_step(nullptr);  // records the trace
  driver.optimizer_step(timeline.brought_in_step);
  for (int before = 0; before < micro_step; ++before) driver.micro_step(nullptr);
  // A step that begins with a generation has no trace until its first micro-step is over.
  if (generates_itself(plan) && plan.workload.gradient_accumulation_steps == 1) {
    FetchLog log;
    coordinator.invalidate(log);
  }
  driver.micro_step(&fold);
  timeline.after = fold.now();
  return timeline;
}

Fingerprint gathers_fingerprint(const Plan& plan, const ModelGraph& graph) {
  const FetchModel model = fetch_model(plan);
  FetchCoordinator coordinator(model, plan.engine);
  Driver driver(plan, graph, coordinator);
  std::vector<std::int32_t> brought(model.parameters.size());
  driver.micro_step(nullptr);  // records the trace
  driver.optimizer_step(brought);
  Fingerprint print;
  for (int micro_step = 0; micro_step < 3; ++micro_step) driver.micro_step(print);
  return print;
}

FrozenWeightsHeld frozen_weights_held(const Plan& plan) {
  const Workload& workload = plan.workload;
  if (workload.engine != TrainingEngine::deepspeed || plan.engine.stage != 3) return {};
  const bool reentrant = checkpoints_reentrantly(plan);
  const bool four_bits = workload.method == Method::qlora;
  const bool by_release = FetchCoordinator::holds_recomputed_weights(plan.engine);
  if (!four_bits && !(reentrant && by_release)) return {};
  if (four_bits && reentrant && !by_release) return {};
  const std::vector<int> blocks = wrapped_blocks(*plan.model);
  Elements frozen;
  for (std::size_t p = 0; p < plan.engine_parameters.size(); ++p) {
    const EngineParameter& parameter = plan.engine_parameters[p];
    const bool stays = parameter.numel < plan.engine.stage3.parameter_persistence_threshold;
    if (!reentrant && !parameter.quantized) continue;  // by products of bitsandbytes alone
    if (blocks[p] >= 0 && !parameter.trainable && !stays) frozen += parameter.numel;
  }
  // Weights that max_live_parameters lets stay gathered anyway are kept by nobody.
  if (!reentrant && frozen <= plan.engine.stage3.max_live_parameters) return {};
  FrozenWeightsHeld held{frozen * plan.engine.model_dtype};
  held.by_products = !reentrant;
  held.spared_by_release = by_release && (four_bits || forces_reentrance(plan));
  held.spared_by_setting = four_bits ? !reentrant : !forces_reentrance(plan);
  return held;
}

SwapPoolUse swap_pool_use(const Plan& plan, const ModelGraph& graph, const EngineConfig& config) {
  const FetchModel model = fetch_model(plan);
  if (model.on_drive.empty()) return {};
  FetchCoordinator coordinator(model, config);
  Driver driver(plan, graph, coordinator);
  std::vector<std::int32_t> brought(model.parameters.size());
  const int micro_steps = std::min(3, config.gradient_accumulation_steps);
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < micro_steps; ++i) driver.micro_step(nullptr);
    driver.optimizer_step(brought);
  }
  SwapPoolUse use = coordinator.swap_pool();
  for (std::size_t p = 0; p < model.parameters.size(); ++p) {
    if (!model.on_drive[p]) continue;
    const Elements part = partitioned_numel(model.parameters[p].numel, partition_ranks(config));
    use.largest = std::max(use.largest, part);
  }
  return use;
}

std::optional<int> enough_swap_buffers(const Plan& plan, const ModelGraph& graph, int least) {
  constexpr int kTries = 16;
  EngineConfig config = plan.engine;
  config.offload_parameter.buffer_count = least;
  for (int i = 0; i < kTries; ++i) {
    const SwapPoolUse use = swap_pool_use(plan, graph, config);
    if (use.twice) return std::nullopt;
    if (!use.short_of) return config.offload_parameter.buffer_count;
    config.offload_parameter.buffer_count =
        std::max(config.offload_parameter.buffer_count + 1, use.most);
  }
  return std::nullopt;
}

}  // namespace zeroplan
