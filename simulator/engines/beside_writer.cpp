#include "simulator/engines/beside_writer.hpp"

#include <algorithm>
#include <utility>

#include "model/plan/trainer.hpp"
#include "model/predict/generation.hpp"
#include "model/predict/run_phases.hpp"
#include "model/predict/step_work.hpp"

namespace zeroplan {

BesideWriter::BesideWriter(const Plan& policy, ProgramWriter& writer, Communicators& communicators)
    : policy_(policy), writer_(writer), communicators_(communicators) {
  if (policy.beside == nullptr) return;
  for (const InferencePass& pass : policy.beside->passes) runner_of(pass);
}

BesideWriter::Runner& BesideWriter::runner_of(const InferencePass& pass) {
  for (const auto& runner : runners_) {
    if (runner->plan == pass.plan) return *runner;
  }
  auto runner = std::make_unique<Runner>();
  runner->plan = pass.plan;
  runner->own_weights = pass.model < 0;
  runner->graph = step_graph(*pass.plan);
  runner->tasks = std::make_unique<TaskTable>(*pass.plan, writer_);
  runner->writer =
      std::make_unique<GraphWriter>(*pass.plan, runner->graph, writer_, *runner->tasks);
  if (!runner->own_weights) {
    runner->weights = std::make_unique<FrozenWeights>(
        *pass.plan, runner->graph, writer_, *runner->tasks, communicators_);
  }
  const std::size_t parameters = pass.plan->engine_parameters.size();
  if (pass.plan->workload.engine == TrainingEngine::ddp && pass.plan->ddp.autocasts()) {
    for (std::size_t p = 0; p < parameters; ++p) runner->casts.push_back(writer_.new_slot());
  }
  runner->cast.resize(parameters, false);
  runners_.push_back(std::move(runner));
  return *runners_.back();
}

void BesideWriter::hold_weights() {
  for (const auto& runner : runners_) {
    if (runner->weights) runner->weights->hold();
  }
  const bool server = policy_.trainer != nullptr && !policy_.trainer->generation.sleeps;
  const Bytes share = server ? server_share(policy_) : Bytes::zero();
  if (share == Bytes::zero()) return;
  writer_.allocate(writer_.new_slot(), share, MemoryCategory::parameters, kComputeStream);
}

bool BesideWriter::records() const {
  return std::any_of(runners_.begin(), runners_.end(), [](const auto& runner) {
    return runner->weights && runner->plan->engine.stage == 3 &&
           runs_deepspeed(runner->plan->workload);
  });
}

void BesideWriter::begin_step() {
  const TrainerSettings* trainer = policy_.trainer.get();
  if (trainer == nullptr || !trainer->generates()) return;
  std::vector<SlotIndex> held;
  const auto take = [&](Bytes bytes, MemoryCategory category) {
    if (bytes == Bytes::zero()) return;
    held.push_back(writer_.new_slot());
    writer_.allocate(held.back(), bytes, category, kComputeStream);
  };
  if (trainer->generation.by == GenerationBy::trainer) {
    const GenerationMemory memory = generation_memory(policy_);
    for (const Bytes weight : weights_for_generation(policy_)) {
      take(weight, MemoryCategory::parameters);
    }
    const std::int64_t tensors = 2 * std::max<std::int64_t>(1, policy_.model->shape.layers);
    for (std::int64_t i = 0; i < tensors; ++i) {  // keys and values of each layer
      take(memory.cache / tensors, MemoryCategory::activations);
    }
    take(memory.grown, MemoryCategory::activations);
    take(memory.logits, MemoryCategory::logits);
  } else if (trainer->generation.sleeps && !asleep_) {
    take(server_share(policy_), MemoryCategory::parameters);
  }
  for (const SlotIndex slot : held) writer_.release(slot);
  if (!held.empty() && trainer->generation.by == GenerationBy::colocated) writer_.empty_cache();
}

void BesideWriter::write_passes(PassMoment moment, GraphWriter& trained, const OwnEngine& own) {
  if (policy_.beside == nullptr) return;
  for (const InferencePass& pass : policy_.beside->passes) {
    if (pass.moment != moment) continue;
    Runner& runner = runner_of(pass);
    runner.writer->take_workspaces(trained);
    write_pass(runner, own);
    trained.take_workspaces(*runner.writer);
  }
}

// A weight in fp32 that autocast reads is cast once and kept until autocast ends, which is with the
// pass over the model (aten/src/ATen/autocast_mode.cpp cached_cast; accelerate wraps the model's
// forward).
void BesideWriter::cast_weights(Runner& runner, const PassStep& pass) {
  if (runner.casts.empty()) return;
  const BlockInstance& instance = runner.graph.instances[static_cast<std::size_t>(pass.instance)];
  const Block& block = runner.graph.block_of(instance);
  const DdpConfig& config = runner.plan->ddp;
  for (std::size_t i = 0; i < block.parameters.size(); ++i) {
    const auto p = static_cast<std::size_t>(instance.parameters[i]);
    if (!block.parameters[i].autocast || runner.cast[p]) continue;
    runner.cast[p] = true;
    const Bytes copy = runner.plan->engine_parameters[p].numel * config.compute_dtype;
    writer_.allocate(runner.casts[p], copy, MemoryCategory::parameters, kComputeStream);
    writer_.issue(runner.tasks->kernel("cast weight", copy * 3), kComputeStream);
  }
}

// Its outputs go when the trainer's function has what it wants of them.
void BesideWriter::write_pass(Runner& runner, const OwnEngine& own) {
  const bool fetches = runner.own_weights && own.begin;
  std::optional<ModuleWalk> walk;
  if (fetches) {
    walk.emplace(*runner.plan->model, runner.graph);
    own.begin();
  }
  if (runner.weights) runner.weights->begin_forward();
  const auto on_event = [&](const PassStep& pass, const Event& event) {
    if (walk) walk->follow(pass, event, own.step);
    if (runner.weights) runner.weights->follow(pass, event);
  };
  const std::vector<PassStep>& passes = runner.writer->passes();
  for (const PassStep& pass : passes) {
    if (!in_forward_phase(pass.pass)) break;
    if (runner.weights) runner.weights->begin_block(pass);
    cast_weights(runner, pass);
    runner.writer->write(
        pass, [&](const Event& event) { on_event(pass, event); }, [](std::int32_t, SlotIndex) {});
    if (runner.weights) runner.weights->end_block();
  }
  if (walk) walk->leave(FetchPass::forward, own.step);
  if (runner.weights) runner.weights->end_forward();
  for (std::size_t p = 0; p < runner.casts.size(); ++p) {
    if (runner.cast[p]) writer_.release(runner.casts[p]);
    runner.cast[p] = false;
  }
  for (const PassStep& pass : passes) {
    if (pass.pass != Pass::drop_outputs) continue;
    runner.writer->write(
        pass, [](const Event&) {}, [](std::int32_t, SlotIndex) {});
  }
  runner.writer->release_loss();
}

}  // namespace zeroplan
