#include "simulator/engines/deepspeed_writer.hpp"

#include <algorithm>

#include "model/engine/optimizer_step.hpp"
#include "model/implementations/embedded_memory.hpp"
#include "model/plan/trainer.hpp"
#include "model/step/generation.hpp"
#include "simulator/engines/deepspeed_initialisation.hpp"

namespace zeroplan::simulator {
namespace {

// Alive at once: as many as the pipeline's stage has, or as the played step has micro-batches.
std::size_t played_micro_batches(const Plan& plan, const EngineConfig& config) {
  if (plan.stages.empty()) return 1;
  return static_cast<std::size_t>(
      std::min<std::int64_t>(live_micro_batches(plan), config.gradient_accumulation_steps));
}

}  // namespace

bool waits_before_micro_steps(const Plan& plan) {
  return plan.stages.empty() &&
         plan.ds_config.boolean(Knob::timers_throughput_enabled).value_or(true) &&
         plan.ds_config.boolean(Knob::timers_throughput_synchronized).value_or(true);
}

DeepSpeedWriter::DeepSpeedWriter(const Plan& plan,
                                 const ModelGraph& graph,
                                 const VariedGraphs& varied,
                                 const EngineConfig& config)
    : plan_(plan),
      model_graph_(graph),
      config_(config),
      writer_(rank_.program),
      tasks_(plan, writer_),
      graphs_(plan, graph, varied, writer_, tasks_, played_micro_batches(plan, config)),
      communicators_(plan.layout(), writer_),
      streams_(make_streams()),
      reducer_(config, plan.engine_parameters),
      gradients_(config_, plan.engine_parameters.size(), writer_, tasks_, streams_.reduce),
      buffers_(config_, plan.engine_parameters, writer_, tasks_, streams_.reduce),
      transients_(writer_, tasks_),
      reduce_queue_(writer_.new_queue()) {
  if (tasks_.on_cpu_ranks()) {
    rank_.expandable_segments = true;  // nothing is kept in segments
    communicators_.run_in_line();
  } else if (config_.embedded) {
    rank_.arena_segment = Bytes::of(kEmbeddedSegment);
  }
  if (config_.stage != 3) return;
  if (config_.offload_optimizer.device == OffloadDevice::nvme) {
    swap_.emplace(config_, writer_, tasks_);
  }
  const FetchModel model = fetch_model(plan);
  leaves_ = LeafGradients(model);
  fetches_.emplace(plan,
                   graph,
                   model,
                   config_,
                   writer_,
                   tasks_,
                   communicators_,
                   streams_.gather,
                   [this](ModuleIndex module) {
                     for (const int p : leaves_.end_of(module)) reduce_gradient(p);
                   });
}

// The embedded runtime frees memory in the order of its host thread; its CPU ranks have no streams.
DeepSpeedWriter::Streams DeepSpeedWriter::make_streams() {
  Streams streams;
  writer_.add_stream("compute");
  const bool overlaps =
      config_.overlap_comm && config_.stage > 0 && !config_.pipeline && !config_.embedded;
  if (overlaps) streams.reduce = writer_.add_stream("reduce");
  if (overlaps && config_.stage == 3) streams.gather = writer_.add_stream("gather");
  return streams;
}

// --- the run

void DeepSpeedWriter::write_initialisation() {
  if (plan_.beside != nullptr) beside_.emplace(plan_, writer_, communicators_);
  const std::size_t begin = writer_.position();
  // TRL's trainers prepare them before they train; OpenRLHF's strategy.prepare() the trained model
  // first (train_dpo.py).
  const bool trained_first =
      plan_.trainer != nullptr && plan_.trainer->code == TrainerCode::openrlhf;
  if (beside_ && !trained_first) {
    writer_.mark(Phase::load);
    beside_->hold_weights();
  }
  ModuleFetches* fetches = fetches_ ? &*fetches_ : nullptr;
  DeepSpeedInitialisation(plan_, model_graph_, config_, writer_, buffers_, fetches).write();
  if (beside_ && trained_first) beside_->hold_weights();
  rank_.initialisation = writer_.since(begin);
}

RankProgram DeepSpeedWriter::write() {
  write_initialisation();
  // Stage 3 records its trace in the first step, of the trained model and of those beside it; the
  // second is the first with persistent weights resident (fetch_step.hpp). Elsewhere optimizer
  // states appear in the first.
  const std::size_t first_steps =
      std::max<std::size_t>(config_.stage == 3 || (beside_ && beside_->needs_two_steps()) ? 2 : 1,
                            graphs_.varied_steps());
  for (std::size_t i = 0; i < first_steps; ++i) {
    rank_.first_steps.push_back(write_step(i == 0));
    // Those that follow are about as long.
    if (i == 0) rank_.program.code.reserve(writer_.position() * (first_steps + 2));
  }
  if (beside_) beside_->keep_asleep();
  rank_.steady = write_step(false);
  // Of the communicators, the one whose members' programs may differ: partitions cut through
  // parameters in stages 1 and 2 alone. Ulysses' and tensor-parallel peers are taken to keep up.
  if (optimizer_wrapper(config_) == OptimizerWrapper::zero12) {
    rank_.program.shared_stream =
        communicators_.known_stream(communicators_.group_of(partition_ranks(config_)));
  }
  return std::move(rank_);
}

RankProgram DeepSpeedWriter::write_steady_step() {
  write_initialisation();
  for (int step = 0; step < (config_.stage == 3 ? 2 : 1); ++step) {
    const int last = config_.gradient_accumulation_steps - 1;
    if (last > 0) write_micro_step(0);
    write_micro_step(last);
    write_optimizer_step(/*first=*/step == 0);
  }
  rank_.steady = write_step(/*first=*/false);
  return std::move(rank_);
}

StepSections DeepSpeedWriter::write_step(bool first) {
  StepSections step;
  if (!plan_.stages.empty()) {
    step.micro_steps.push_back({write_pipeline(), 1});
    step.optimizer = write_optimizer_step(first);
    return step;
  }
  step.micro_steps = graphs_.write_step(
      rank_.first_steps.size(), config_.gradient_accumulation_steps, writer_, [&](int micro_step) {
        return write_micro_step(micro_step);
      });
  step.optimizer = write_optimizer_step(first);
  return step;
}

Section DeepSpeedWriter::write_micro_step(int micro_step) {
  const std::size_t begin = writer_.position();
  begin_backward(micro_step);
  writer_.set_label(-1);
  if (waits_before_micro_steps(plan_)) writer_.host_wait_device();
  writer_.mark(Phase::forward);
  writer_.issue(tasks_.host("micro-step", tasks_.host_costs().micro_step), kComputeStream);
  graph().begin_micro_batch();
  if (beside_ && beside_->generates_before(micro_step)) {
    begin_step_beside();
    if (beside_->rolls_out()) write_passes_beside(PassMoment::rollout);
  }
  write_passes_beside(PassMoment::before_forward);
  if (fetches_) fetches_->begin_micro_step();
  bool ran_forward = false;
  for (std::size_t i = 0; i < graph().passes().size(); ++i) {
    if (!ran_forward && !in_forward_phase(graph().passes()[i].pass)) {
      ran_forward = true;
      if (beside_) beside_->end_forward();
      write_passes_beside(PassMoment::after_forward);
    }
    if (fetches_) fetches_->begin_pass(graph().passes()[i].pass);
    write_pass(graph().passes()[i]);
  }
  graph().release_loss();
  if (fetches_) fetches_->leave_backward();
  finish_backward();
  if (fetches_) {
    fetches_->end_backward();
    fetches_->end_graph();
  }
  graph().release_outputs();
  graph().end_micro_batch();
  if (beside_) {
    beside_->end_backward(micro_step, micro_step + 1 == config_.gradient_accumulation_steps);
  }
  return writer_.since(begin);
}

// Forward and backward passes of a stage's micro-batches in the pipeline's order, each micro-batch
// in the buffer that is free.
Section DeepSpeedWriter::write_pipeline() {
  const std::size_t begin = writer_.position();
  const auto stages = static_cast<std::int64_t>(plan_.stages.size());
  for (const PipelineSlot& slot :
       pipeline_slots(config_.gradient_accumulation_steps, stages, plan_.stage)) {
    graphs_.select(static_cast<std::size_t>(slot.micro_batch));
    writer_.set_label(-1);
    const std::vector<PassStep>& passes = graph().passes();
    const auto turn = std::find_if(passes.begin(), passes.end(), [](const PassStep& pass) {
      return !in_forward_phase(pass.pass) && pass.pass != Pass::drop_outputs;
    });
    if (slot.forward) {
      writer_.mark(Phase::forward);
      graph().begin_micro_batch();
      for (auto pass = passes.begin(); pass != turn; ++pass) write_pass(*pass);
      continue;
    }
    begin_backward(static_cast<int>(slot.micro_batch));
    for (auto pass = turn; pass != passes.end(); ++pass) write_pass(*pass);
    graph().release_loss();
    finish_backward();
    graph().release_outputs();
    graph().end_micro_batch();
  }
  return writer_.since(begin);
}

void DeepSpeedWriter::begin_backward(int micro_step) {
  buffers_.begin_micro_step(micro_step);
  backward_began_ = false;
  reducer_.begin_backward(micro_step);
}

// Generation gathers the weights without the hooks of stage 3, which are put back behind it,
// without a trace (TRL models/utils.py add_hooks).
void DeepSpeedWriter::begin_step_beside() {
  beside_->begin_step();
  if (fetches_ && beside_->generates()) fetches_->invalidate();
}

// A trainer's forward passes without gradients. Those over the trained model's own weights run
// under its coordinator, which takes each for the beginning of a step (parameter_offload.py
// _start_of_forward_hook: reset_step).
void DeepSpeedWriter::write_passes_beside(PassMoment moment) {
  if (!beside_) return;
  OwnEngine own;
  if (fetches_) {
    const bool behind = moment == PassMoment::after_forward || moment == PassMoment::in_loss;
    if (behind) fetches_->leave_forward();
    fetches_->begin_pass(std::nullopt);
    own.begin = [this, moment] {
      // PPO calls the value model and the policy inside of the wrapper, whose hook never fires.
      if (moment != PassMoment::rollout) fetches_->begin_micro_step();
    };
    own.step = [this](const ModuleStep& step) { fetches_->fire(step); };
  }
  beside_->write_passes(moment, graph(), own);
}

Section DeepSpeedWriter::write_optimizer_step(bool first) {
  const std::size_t begin = writer_.position();
  writer_.set_label(-1);
  // What the pass left gathered goes before anything is made (stage3.py step:
  // _partition_all_parameters); it counts for the backward pass.
  if (fetches_) fetches_->begin_optimizer_step();
  writer_.mark(Phase::step);
  buffers_.begin_step(first);
  actions_.clear();
  optimizer_step(config_, plan_.engine_parameters, /*overflowed=*/false, actions_);
  write_actions(actions_);
  buffers_.end_groups();
  transients_.release_all();
  buffers_.release_consumed();
  buffers_.release(BufferLifetime::step);
  // zero_grad(set_to_none=True), except where they are zeroed and kept.
  if (!buffers_.keeps_gradients()) gradients_.release_waiting();
  buffers_.allocate(BufferLifetime::between_steps);
  if (fetches_) fetches_->end_optimizer_step();
  if (beside_) beside_->end_step();
  // The loop reads the loss before it goes on.
  writer_.host_wait_device();
  writer_.issue(tasks_.host("step", tasks_.host_costs().step), kComputeStream);
  return writer_.since(begin);
}

// --- a pass over a block

void DeepSpeedWriter::write_pass(const PassStep& pass) {
  const bool turns = !in_forward_phase(pass.pass) && pass.pass != Pass::drop_outputs;
  if (turns && !backward_began_) {
    backward_began_ = true;
    if (fetches_) fetches_->begin_backward();
    writer_.mark(Phase::backward);
    if (buffers_.keeps_gradients()) gradients_.release_waiting();
    if (makes_buckets_before_backward(config_)) buffers_.make_buckets();
  }
  graph().write(
      pass,
      [&](const Event& event) {
        if (event.kind == EventKind::passes_beside) write_passes_beside(PassMoment::in_loss);
        if (fetches_) fetches_->follow(pass, event);
      },
      [&](std::int32_t parameter, SlotIndex slot) { take_gradient(parameter, slot); });
  if (fetches_ && pass.pass == Pass::backward) {
    fetches_->release_saved_weights(
        model_graph_.instances[static_cast<std::size_t>(pass.instance)]);
  }
}

// --- from a finished gradient to the engine's buckets

void DeepSpeedWriter::take_gradient(std::int32_t parameter, SlotIndex slot) {
  if (fetches_) fetches_->release_saved_weight(parameter);  // its node has run
  gradients_.take(parameter, slot);
  if (!leaves_.take(parameter)) reduce_gradient(parameter);
}

void DeepSpeedWriter::reduce_gradient(std::int32_t parameter) {
  buffers_.begin_backward();
  actions_.clear();
  reducer_.gradient_ready(parameter, actions_);
  write_actions(actions_);
}

void DeepSpeedWriter::finish_backward() {
  writer_.set_label(-1);
  for (const int parameter : leaves_.rest()) reduce_gradient(parameter);
  buffers_.begin_backward();
  actions_.clear();
  reducer_.end_backward(actions_);
  write_actions(actions_);
  buffers_.make_owned();  // also where nothing was reduced
  transients_.release_all();
  buffers_.end_backward();
}

}  // namespace zeroplan::simulator
