#include "simulator/engines/beside_writer.hpp"

#include <algorithm>
#include <utility>

#include "model/plan/trainer.hpp"
#include "model/step/rollout_memory.hpp"
#include "model/step/step_graph.hpp"

namespace zeroplan::simulator {

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
  runner->writer = std::make_unique<GraphWriter>(
      *pass.plan, runner->graph, writer_, *runner->tasks, Purpose::passes_beside);
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
  writer_.allocate(writer_.new_slot(),
                   share,
                   MemoryCategory::parameters,
                   kComputeStream,
                   Purpose::weights_beside);
}

bool BesideWriter::needs_two_steps() const {
  return is_ppo() || std::any_of(runners_.begin(), runners_.end(), [](const auto& runner) {
           return runner->weights && runs_zero3(*runner->plan);
         });
}

SlotIndex BesideWriter::take(Bytes bytes, MemoryCategory category) {
  const SlotIndex slot = writer_.new_slot();
  writer_.allocate(slot, bytes, category, kComputeStream, Purpose::loop_outputs);
  return slot;
}

void BesideWriter::drop(std::vector<SlotIndex>& slots) {
  for (const SlotIndex slot : slots) writer_.release(slot);
  slots.clear();
}

bool BesideWriter::is_ppo() const {
  return policy_.trainer != nullptr && policy_.trainer->trains_values();
}

bool BesideWriter::generates_before(int micro_step) const {
  return micro_step == 0 || distils(policy_);
}

bool BesideWriter::rolls_out() const { return is_ppo() && !asleep_; }

bool BesideWriter::generates() const {
  return generates_itself(policy_) && (rolls_out() || !is_ppo());
}

void BesideWriter::begin_step() {
  const TrainerSettings* trainer = policy_.trainer.get();
  if (trainer == nullptr || !trainer->generates()) return;
  if (is_ppo()) {
    if (rolls_out()) roll_out();
  } else if (trainer->generation.by == GenerationBy::trainer) {
    generate();
  } else if (trainer->generation.sleeps && !asleep_) {
    writer_.release(take(server_share(policy_), MemoryCategory::parameters));
    writer_.empty_cache();
  }
}

// The weights that it gathers, keys and values of each layer, logits of the last token.
void BesideWriter::generate() {
  if (!generation_) generation_ = generation_memory(policy_);
  const GenerationMemory& memory = *generation_;
  std::vector<SlotIndex> held;
  for (const Bytes weight : weights_for_generation(policy_)) {
    held.push_back(take(weight, MemoryCategory::parameters));
  }
  const std::int64_t tensors = 2 * std::max<std::int64_t>(1, policy_.model->shape.layers);
  for (std::int64_t i = 0; i < tensors; ++i) {
    held.push_back(take(memory.cache / tensors, MemoryCategory::activations));
  }
  held.push_back(take(memory.grown, MemoryCategory::activations));
  if (memory.forward > Bytes::zero()) {
    held.push_back(take(memory.forward, MemoryCategory::activations));
  }
  held.push_back(take(memory.logits, MemoryCategory::logits));
  drop(held);
}

// batch_generation: of each chunk the scores of every token, stacked when it is done; then all
// chunks in one tensor, which is there until the next rollout has its own. A program stays of a
// bounded size: chunks behind the first thousand leave their scores together.
void BesideWriter::roll_out() {
  constexpr std::int64_t kWrittenChunks = 1000;
  const RolloutLogits logits = rollout_logits(policy_);
  std::vector<SlotIndex> weights, chunks;
  for (const Bytes weight : weights_for_generation(policy_)) {
    weights.push_back(take(weight, MemoryCategory::parameters));
  }
  const RolloutCache cache = rollout_cache(policy_);
  const std::int64_t all = (logits.rows + logits.chunk - 1) / logits.chunk;
  const std::int64_t written = std::min(all, kWrittenChunks);
  for (std::int64_t chunk = 0; chunk < written; ++chunk) {
    std::vector<SlotIndex> held;
    for (std::int64_t i = 0; i < cache.tensors; ++i) {
      held.push_back(take(cache.tensor, MemoryCategory::activations));
    }
    for (std::int64_t i = 0; i < logits.tokens; ++i) {
      held.push_back(take(logits.token, MemoryCategory::logits));
    }
    chunks.push_back(take(logits.of_chunk(), MemoryCategory::logits));
    drop(held);
  }
  if (all > written) {
    chunks.push_back(take(logits.of_chunk() * (all - written), MemoryCategory::logits));
  }
  const SlotIndex padded = take(logits.all(), MemoryCategory::logits);
  drop(chunks);
  drop(weights);
  drop(logits_);
  logits_.push_back(padded);
}

void BesideWriter::hold_outputs() {
  const LoopVariables variables = loop_variables(policy_);
  while (outputs_.size() < variables.outputs.size()) outputs_.push_back(writer_.new_slot());
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    writer_.allocate(outputs_[i],
                     variables.outputs[i],
                     MemoryCategory::logits,
                     kComputeStream,
                     Purpose::loop_outputs);
  }
  holds_outputs_ = true;
}

void BesideWriter::drop_outputs() {
  if (!holds_outputs_) return;
  for (const SlotIndex slot : outputs_) writer_.release(slot);
  holds_outputs_ = false;
}

// prob_dist, and the entropy: torch.logsumexp(logits) - sum(prob_dist * logits).
void BesideWriter::measure() {
  const Bytes bytes = loop_variables(policy_).probabilities;
  if (made_ < 0) {
    made_ = writer_.new_slot();
    probabilities_ = writer_.new_slot();
  }
  writer_.allocate(made_, bytes, MemoryCategory::logits, kComputeStream, Purpose::loop_outputs);
  if (holds_probabilities_) writer_.release(probabilities_);
  writer_.move(made_, probabilities_);
  holds_probabilities_ = true;
  writer_.release(take(bytes, MemoryCategory::logits));
  writer_.release(take(bytes, MemoryCategory::logits));
}

// What ends a mini-batch: `del` of all of them, and torch.cuda.empty_cache().
void BesideWriter::drop_variables() {
  drop_outputs();
  if (holds_probabilities_) writer_.release(probabilities_);
  holds_probabilities_ = false;
  writer_.empty_cache();
}

void BesideWriter::end_forward() {
  if (is_ppo()) drop_outputs();
  if (!distils(policy_)) return;
  writer_.empty_cache();
  for (Runner* runner : returned_) drop_results(*runner);
  returned_.clear();
}

void BesideWriter::end_backward(int micro_step, bool steps) {
  if (!is_ppo()) return;
  hold_outputs();
  if (steps) return;
  measure();
  if (!finds_variables(policy_, micro_step + 1)) drop_variables();
}

void BesideWriter::end_step() {
  if (!is_ppo()) return;
  measure();
  drop_variables();
}

void BesideWriter::write_passes(PassMoment moment, GraphWriter& trained, const OwnEngine& own) {
  if (policy_.beside == nullptr) return;
  if (moment == PassMoment::rollout && !rolls_out()) return;
  for (const InferencePass& pass : policy_.beside->passes) {
    if (pass.moment != moment) continue;
    if (moment == PassMoment::rollout) writer_.empty_cache();
    Runner& runner = runner_of(pass);
    runner.writer->take_workspaces(trained);
    write_pass(runner, own);
    trained.take_workspaces(*runner.writer);
  }
  if (moment == PassMoment::rollout) writer_.empty_cache();
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
    writer_.allocate(
        runner.casts[p], copy, MemoryCategory::parameters, kComputeStream, Purpose::cast_weight);
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
  if (distils(policy_)) {
    returned_.push_back(&runner);
  } else {
    drop_results(runner);
  }
}

void BesideWriter::drop_results(Runner& runner) {
  for (const PassStep& pass : runner.writer->passes()) {
    if (pass.pass != Pass::drop_outputs) continue;
    runner.writer->write(
        pass, [](const Event&) {}, [](std::int32_t, SlotIndex) {});
  }
  runner.writer->release_loss();
}

}  // namespace zeroplan::simulator
