#include "simulator/engines/deepspeed_writer.hpp"

#include <algorithm>

#include "model/check.hpp"
#include "model/engine/optimizer_step.hpp"
#include "model/engine/swapping.hpp"
#include "model/implementations/embedded_memory.hpp"
#include "model/predict/generation.hpp"
#include "model/predict/run_phases.hpp"

namespace zeroplan {
namespace {

// Buffers by when a backward pass of a window makes them.
constexpr BufferLifetime kAnyBackward[] = {BufferLifetime::backward};
constexpr BufferLifetime kFirstBackward[] = {BufferLifetime::window,
                                             BufferLifetime::window_to_step};
constexpr BufferLifetime kBoundaryBackward[] = {BufferLifetime::boundary_backward,
                                                BufferLifetime::boundary_to_step};

constexpr BufferLifetime kConsumedByStep[] = {BufferLifetime::window_to_step,
                                              BufferLifetime::boundary_to_step,
                                              BufferLifetime::after_boundary};

// Alive at once: as many as the pipeline's stage has, or as the played step has micro-batches.
std::size_t played_micro_batches(const Plan& plan, const EngineConfig& config) {
  if (plan.stages.empty()) return 1;
  return static_cast<std::size_t>(
      std::min<std::int64_t>(live_micro_batches(plan), config.gradient_accumulation_steps));
}

// Of each parameter the leaf module around it, -1 where there is none; empty without leaf modules.
std::vector<ModuleIndex> leaves_by_parameter(const FetchModel& model) {
  const std::vector<ModuleIndex> around = leaves_around(model);
  if (around.empty()) return {};
  std::vector<ModuleIndex> leaf_of(model.parameters.size(), -1);
  for (std::size_t m = 0; m < around.size(); ++m) {
    if (around[m] < 0) continue;
    for (const ParameterIndex p : model.modules[m].parameters) {
      leaf_of[static_cast<std::size_t>(p)] = around[m];
    }
  }
  return leaf_of;
}

}  // namespace

bool waits_before_micro_steps(const Plan& plan) {
  return plan.stages.empty() &&
         plan.ds_config.boolean(Knob::timers_throughput_enabled).value_or(true) &&
         plan.ds_config.boolean(Knob::timers_throughput_synchronized).value_or(true);
}

DeepSpeedWriter::DeepSpeedWriter(const Plan& plan,
                                 const StepWork& work,
                                 std::span<const ModelGraph> varied,
                                 const EngineConfig& config)
    : plan_(plan),
      work_(work),
      config_(config),
      writer_(rank_.program),
      tasks_(plan, writer_),
      graphs_(plan, work.graph, varied, writer_, tasks_, played_micro_batches(plan, config)),
      communicators_(plan.layout(), writer_),
      buffers_(engine_buffers(config, plan.engine_parameters)),
      reducer_(config, plan.engine_parameters) {
  writer_.add_stream("compute");
  if (tasks_.on_cpu_ranks()) {
    rank_.expandable_segments = true;  // nothing is kept in segments
    communicators_.run_in_line();
  } else if (config_.embedded) {
    rank_.arena_segment = Bytes::of(kEmbeddedSegment);
  }
  // The embedded runtime frees memory in the order of its host thread; its CPU ranks have no
  // streams.
  const bool overlaps =
      config_.overlap_comm && config_.stage > 0 && !config_.pipeline && !config_.embedded;
  if (overlaps) reduce_ = writer_.add_stream("reduce");
  if (overlaps && config_.stage == 3) gather_ = writer_.add_stream("gather");
  for (const EngineParameter& parameter : plan.engine_parameters) elements_ += parameter.numel;
  const auto parameters = static_cast<std::int32_t>(plan.engine_parameters.size());
  const auto slots_of_parameters = [&](std::vector<SlotIndex>& slots, SlotKind kind) {
    const SlotIndex first = writer_.new_slots(kind, parameters);
    for (std::int32_t p = 0; p < parameters; ++p) slots.push_back(first + p);
  };
  slots_of_parameters(waiting_slots_, SlotKind::waiting_gradient);
  waits_.resize(plan.engine_parameters.size(), false);
  outside_slots_.resize(plan.engine_parameters.size(), -1);
  buffer_slots_.reserve(buffers_.size());
  const auto buffers = static_cast<std::int32_t>(buffers_.size());
  const SlotIndex first_buffer = writer_.new_slots(SlotKind::engine_buffer, buffers);
  for (std::int32_t i = 0; i < buffers; ++i) buffer_slots_.push_back(first_buffer + i);
  buffer_held_.resize(buffers_.size(), false);
  keeps_gradients_ = std::any_of(buffers_.begin(), buffers_.end(), is_kept_gradient);
  reduce_queue_ = writer_.new_queue();
  if (config_.stage != 3) return;
  if (config_.offload_optimizer.device == OffloadDevice::nvme) {
    nvme_.read = writer_.add_stream("NVMe read");
    nvme_.written = writer_.add_stream("NVMe write");
  }
  fetches_.emplace(
      plan, config_, writer_, tasks_, communicators_, gather_, FetchWriter::Of::trained);
  if (config_.offload_parameter.device == OffloadDevice::nvme) {
    nvme_.weights_written = writer_.add_stream("NVMe write weights");
  }
  const FetchModel fetched = fetch_model(plan);
  leaf_of_ = leaves_by_parameter(fetched);
  coordinator_.emplace(fetched, config_);
  walk_.emplace(*plan.model, work.graph, !config_.embedded && misses_ends_of_recomputed(config_));
}

// --- the run

RankProgram DeepSpeedWriter::write() {
  if (plan_.beside != nullptr) beside_.emplace(plan_, writer_, communicators_);
  write_initialisation();
  // Stage 3 records its trace in the first step, of the trained model and of those beside it; the
  // second is the first with persistent weights resident (fetch_step.hpp). Elsewhere optimizer
  // states appear in the first.
  const std::size_t first_steps =
      std::max<std::size_t>(config_.stage == 3 || (beside_ && beside_->needs_two_steps()) ? 2 : 1,
                            steps_of_varied(graphs_.varied(), config_.gradient_accumulation_steps));
  for (std::size_t i = 0; i < first_steps; ++i) {
    rank_.first_steps.push_back(write_step(i == 0, graphs_.varied() > 0));
  }
  graphs_.select(0);
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
  if (plan_.beside != nullptr) beside_.emplace(plan_, writer_, communicators_);
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

StepSections DeepSpeedWriter::write_step(bool first, bool varies) {
  StepSections step;
  if (!plan_.stages.empty()) {
    step.micro_steps.push_back({write_pipeline(), 1});
    step.optimizer = write_optimizer_step(first);
    return step;
  }
  write_micro_steps(config_.gradient_accumulation_steps,
                    varies ? graphs_.varied() : 1,
                    step.micro_steps,
                    [&](int micro_step) {
                      if (varies) graphs_.select_next_varied();
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
  if (beside_ && micro_step == 0) {
    begin_step_beside();
    if (beside_->rolls_out()) write_passes_beside(PassMoment::rollout);
  }
  write_passes_beside(PassMoment::before_forward);
  if (coordinator_) {
    coordinator_->begin_micro_step(log_);
    write_fetches();
  }
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
  if (coordinator_) {
    walk_->leave(FetchPass::backward, [&](const ModuleStep& step) { module_step(step); });
    coordinator_->end_backward(log_);
    write_fetches();
  }
  finish_backward(micro_step);
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
    finish_backward(micro_step_);
    graph().release_outputs();
    graph().end_micro_batch();
  }
  return writer_.since(begin);
}

void DeepSpeedWriter::begin_backward(int micro_step) {
  micro_step_ = micro_step;
  buffers_ready_ = false;
  owned_ready_ = false;
  backward_began_ = false;
  reducer_.begin_backward(micro_step);
}

// Generation gathers the weights without the hooks of stage 3, which are put back behind it,
// without a trace (TRL models/utils.py add_hooks).
void DeepSpeedWriter::begin_step_beside() {
  beside_->begin_step();
  if (!coordinator_ || !beside_->generates()) return;
  coordinator_->invalidate(log_);
  write_fetches();
}

// A trainer's forward passes without gradients. Those over the trained model's own weights run
// under its coordinator, which takes each for the beginning of a step (parameter_offload.py
// _start_of_forward_hook: reset_step).
void DeepSpeedWriter::write_passes_beside(PassMoment moment) {
  if (!beside_) return;
  OwnEngine own;
  if (coordinator_) {
    const auto on_module = [this](const ModuleStep& step) { module_step(step); };
    if (moment == PassMoment::after_forward) walk_->leave(FetchPass::forward, on_module);
    fetches_->begin_pass(Pass::forward_no_grad);
    own.begin = [this, moment] {
      // PPO calls the value model and the policy inside of the wrapper, whose hook never fires.
      if (moment == PassMoment::rollout) return;
      coordinator_->begin_micro_step(log_);
      write_fetches();
    };
    own.step = on_module;
  }
  beside_->write_passes(moment, graph(), own);
}

// What the step of a group finds and makes. Stages 1 and 2 drop the gradients once the last group's
// are cast (stage_1_and_2.py step: averaged_gradients[i] = None); the optimizer makes a group's
// states when it steps that group for the first time.
void DeepSpeedWriter::prepare_group(int group) {
  const bool zero12 = optimizer_wrapper(config_) == OptimizerWrapper::zero12;
  if (zero12 && !config_.embedded && group + 1 == groups_) {
    for (const BufferLifetime lifetime : kConsumedByStep) release_buffers(lifetime);
  }
  if (!makes_states_) return;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const EngineBuffer& buffer = buffers_[i];
    const bool its = buffer.index < 0 || buffer.index == group;
    if (buffer.lifetime == BufferLifetime::first_step_on && its &&
        buffer.place == BufferPlace::gpu && !buffer_held_[i]) {
      allocate_buffer(i);
    }
  }
}

Section DeepSpeedWriter::write_optimizer_step(bool first) {
  const std::size_t begin = writer_.position();
  writer_.set_label(-1);
  // What the pass left gathered goes before anything is made (stage3.py step:
  // _partition_all_parameters); it counts for the backward pass.
  if (coordinator_) {
    coordinator_->begin_optimizer_step(log_);
    write_fetches();
  }
  writer_.mark(Phase::step);
  release_buffers(BufferLifetime::between_steps);
  actions_.clear();
  optimizer_step(config_, plan_.engine_parameters, /*overflowed=*/false, actions_);
  allocate_buffers(BufferLifetime::step);
  makes_states_ = first;
  write_actions(actions_);
  if (first) allocate_buffers(BufferLifetime::first_step_on);
  makes_states_ = false;
  release_transients();
  for (const BufferLifetime lifetime : kConsumedByStep) release_buffers(lifetime);
  release_buffers(BufferLifetime::step);
  // zero_grad(set_to_none=True), except where they are zeroed and kept.
  if (!keeps_gradients_) release_waiting_gradients();
  allocate_buffers(BufferLifetime::between_steps);
  if (coordinator_) {
    coordinator_->end_optimizer_step(log_);
    write_fetches();
    fetches_->drop_secondary_partitions();
  }
  if (beside_) beside_->end_step();
  // The loop reads the loss before it goes on.
  writer_.host_wait_device();
  writer_.issue(tasks_.host("step", tasks_.host_costs().step), kComputeStream);
  return writer_.since(begin);
}

// --- a pass over a block

void DeepSpeedWriter::write_pass(const PassStep& pass) {
  const auto on_module = [&](const ModuleStep& step) { module_step(step); };
  const bool turns = !in_forward_phase(pass.pass) && pass.pass != Pass::drop_outputs;
  if (turns && !backward_began_) {
    backward_began_ = true;
    if (coordinator_) {
      walk_->leave(FetchPass::forward, on_module);
      coordinator_->begin_backward(log_);
      write_fetches();
    }
    writer_.mark(Phase::backward);
    if (keeps_gradients_) release_waiting_gradients();
    if (makes_buckets_before_backward(config_)) make_buckets();
  }
  graph().write(
      pass,
      [&](const Event& event) {
        if (walk_) walk_->follow(pass, event, on_module);
      },
      [&](std::int32_t parameter, SlotIndex slot) { take_gradient(parameter, slot); });
  if (fetches_ && pass.pass == Pass::backward) {
    fetches_->release_saved_weights(work_.graph.instances[static_cast<std::size_t>(pass.instance)]);
  }
}

void DeepSpeedWriter::module_step(const ModuleStep& step) {
  if (step.enters) coordinator_->enter(step.module, step.pass, log_);
  if (!step.enters) coordinator_->exit(step.module, step.pass, log_);
  write_fetches();
  const bool leaf_ends =
      !step.enters && step.pass == FetchPass::backward && !of_leaf_.empty() &&
      leaf_of_[static_cast<std::size_t>(of_leaf_.front().parameter)] == step.module;
  if (leaf_ends) take_gradients_of_leaf();
}

// --- buffers of the engine

// Gradients, persistent weights and hpZ's secondary partitions are followed one by one.
bool DeepSpeedWriter::is_followed(const EngineBuffer& buffer) const {
  return is_waiting_gradient(buffer) || is_outside_bucket(buffer) || is_kept_gradient(buffer) ||
         (config_.stage == 3 && buffer.name == BufferName::persistent_parameters) ||
         buffer.name == BufferName::ds_secondary_tensor;
}

void DeepSpeedWriter::allocate_buffers(BufferLifetime lifetime) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const EngineBuffer& buffer = buffers_[i];
    if (buffer.place != BufferPlace::gpu || buffer.lifetime != lifetime || buffer_held_[i])
      continue;
    if (buffer.made_by_flush && !owned_ready_) continue;
    if (!is_followed(buffer)) allocate_buffer(i);
  }
}

// What a flush makes comes on its stream (stage_1_and_2.py reduce_ipg_grads).
void DeepSpeedWriter::allocate_buffer(std::size_t i) {
  const EngineBuffer& buffer = buffers_[i];
  const StreamId stream = buffer.made_by_flush ? reduce_ : kComputeStream;
  writer_.allocate(buffer_slots_[i], buffer.bytes, buffer.category, stream);
  // A bucket is larger than what goes into it where the model is small; the rest of its pages are
  // never touched.
  const bool bucket = buffer.category == MemoryCategory::communication_buffers;
  tasks_.touch(bucket ? std::min(buffer.bytes, elements_ * buffer.dtype) : buffer.bytes);
  buffer_held_[i] = true;
}

void DeepSpeedWriter::make_buckets() {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (is_reduce_bucket(buffers_[i]) && !buffer_held_[i]) allocate_buffer(i);
  }
}

void DeepSpeedWriter::release_buffers(BufferLifetime lifetime) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].lifetime != lifetime || !buffer_held_[i]) continue;
    writer_.release(buffer_slots_[i]);
    buffer_held_[i] = false;
  }
}

// The engine's hooks make them when the first gradient is complete.
void DeepSpeedWriter::begin_backward_buffers(int micro_step) {
  if (buffers_ready_) return;
  buffers_ready_ = true;
  allocate_backward_buffers(micro_step);
}

// What the rank owns of the first bucket that has some is copied into it.
void DeepSpeedWriter::make_owned_storage() {
  if (owned_ready_) return;
  owned_ready_ = true;
  allocate_backward_buffers(micro_step_);
}

// Those that are there already stay.
void DeepSpeedWriter::allocate_backward_buffers(int micro_step) {
  const bool boundary = micro_step == config_.gradient_accumulation_steps - 1;
  allocate_buffers(BufferLifetime::first_backward_on);
  for (const BufferLifetime lifetime : kFirstBackward) allocate_buffers(lifetime);
  for (const BufferLifetime lifetime : kAnyBackward) allocate_buffers(lifetime);
  if (micro_step > 0) allocate_buffers(BufferLifetime::later_backward);
  if (!boundary) return;
  for (const BufferLifetime lifetime : kBoundaryBackward) allocate_buffers(lifetime);
}

void DeepSpeedWriter::end_backward_buffers(int micro_step) {
  for (const BufferLifetime lifetime : kAnyBackward) release_buffers(lifetime);
  release_buffers(BufferLifetime::later_backward);
  if (micro_step != config_.gradient_accumulation_steps - 1) return;
  release_buffers(BufferLifetime::boundary_backward);
  release_buffers(BufferLifetime::window);
  allocate_buffers(BufferLifetime::after_boundary);
}

}  // namespace zeroplan
