#include "runtime/engine/rank_engine.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "model/engine/embedded.hpp"
#include "model/engine/optimizer_step.hpp"

namespace zeroplan::runtime {
namespace {

// Buffers by when a backward pass of a window makes them (simulator/engines/buffer_slots.cpp).
constexpr BufferLifetime kFirstBackward[] = {BufferLifetime::window,
                                             BufferLifetime::window_to_step};
constexpr BufferLifetime kBoundaryBackward[] = {BufferLifetime::boundary_backward,
                                                BufferLifetime::boundary_to_step};

Place place_of(BufferPlace place) {
  switch (place) {
    case BufferPlace::gpu:
      return Place::device;
    case BufferPlace::host_pinned:
      return Place::pinned;
    case BufferPlace::host_pageable:
      return Place::pageable;
    case BufferPlace::nvme:
      break;
  }
  return Place::file;
}

const EngineSetup& checked(const EngineSetup& setup) {
  const std::vector<Diagnostic> problems = not_embedded(setup.config, setup.parameters);
  if (!problems.empty()) throw InputError(problems);
  return setup;
}

}  // namespace

RankEngine::RankEngine(
    const EngineSetup& setup, Communicator& group, Device& device, Kernels& kernels, Memory& memory)
    : setup_(checked(setup)),
      config_(setup_.config),
      parameters_(setup_.parameters),
      groups_(group, config_),
      device_(device),
      memory_(memory),
      runner_(*setup_.graph, setup_.parameters.size(), kernels, memory, device, setup_.timeline),
      buffers_(engine_buffers(config_, parameters_)),
      held_(buffers_.size()),
      partition_(flat_partition(config_, parameters_)),
      reducer_(config_, parameters_),
      waiting_(parameters_.size()),
      transients_(memory),
      bucket_(config_, parameters_, reducer_.partition(), groups_.partition(), device, transients_),
      scaler_(setup_.loss_scaling),
      gathered_(parameters_.size()) {
  ZP_CHECK(parameters_.size() == setup_.model->parameters.size(), "a parameter for each parameter");
  if (config_.stage == 3) {
    coordinator_.emplace(make_fetch_model(*setup_.model, parameters_, config_), config_);
    walk_.emplace(*setup_.model, *setup_.graph);
  }
  hooks_.weights = [this](std::int32_t parameter) { return weights_of(parameter); };
  hooks_.gradient = [this](std::int32_t parameter, Buffer gradient) {
    take_gradient(parameter, std::move(gradient));
  };
  hooks_.module_event = [this](const PassStep& step, const Event& event) {
    if (!walk_) return;
    walk_->follow(step, event, [this](const ModuleStep& module) { module_step(module); });
  };
  enter_phase(Phase::init);
  registered_ = memory_.allocate(
      setup_.graph->buffers, MemoryCategory::parameters, Place::device, "the modules' buffers");
  open_swap_files();
  allocate_buffers(BufferLifetime::resident);
  make_swappers();
  drawing_ = std::make_unique<ThreadPool>(setup_.threads);
  make_weights();
  make_secondary_partitions();
  make_units();
  drawing_.reset();
  if (setup_.resumed) resume();
}

// The phase before ends when the device is done with it.
void RankEngine::enter_phase(Phase phase) {
  device_.synchronize();
  if (setup_.timeline != nullptr) setup_.timeline->phase(phase);
  clock_.enter(phase);
  memory_.begin(phase);
}

// --- buffers of the engine

std::size_t RankEngine::find(BufferName name, int index, std::string_view suffix) const {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].name == name && buffers_[i].index == index && buffers_[i].suffix == suffix) {
      return i;
    }
  }
  ZP_CHECK(false, "the engine has no buffer " + std::string(path_of(name)));
}

// Zero, padding included. Buckets are written before they are read, and a large one of a small
// model stays untouched where it is not needed.
Buffer RankEngine::allocate(const EngineBuffer& buffer) {
  const Place place = place_of(buffer.place);
  if (buffer.category == MemoryCategory::communication_buffers) {
    return memory_.allocate(buffer.bytes, buffer.category, place, path(buffer));
  }
  return memory_.allocate_zeroed(buffer.bytes, buffer.category, place, path(buffer));
}

void RankEngine::allocate_buffers(BufferLifetime lifetime) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const EngineBuffer& buffer = buffers_[i];
    if (buffer.lifetime != lifetime || held_[i]) continue;
    // Gradients, persistent weights and secondary partitions come one by one.
    if (buffer.name == BufferName::ds_secondary_tensor) continue;
    if (is_waiting_gradient(buffer) || is_unbuffered_gradient(buffer, config_)) continue;
    if (config_.stage == 3 && buffer.name == BufferName::persistent_parameters) continue;
    held_[i] = allocate(buffer);
  }
}

void RankEngine::release_buffers(BufferLifetime lifetime) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].name == BufferName::ds_secondary_tensor) continue;
    if (buffers_[i].lifetime == lifetime) held_[i].reset();
  }
}

// When the first gradient of a backward pass is complete.
void RankEngine::begin_backward_buffers() {
  if (buffers_ready_) return;
  buffers_ready_ = true;
  allocate_buffers(BufferLifetime::first_backward_on);
  for (const BufferLifetime lifetime : kFirstBackward) allocate_buffers(lifetime);
  allocate_buffers(BufferLifetime::backward);
  if (micro_step_ > 0) allocate_buffers(BufferLifetime::later_backward);
  if (!at_boundary()) return;
  for (const BufferLifetime lifetime : kBoundaryBackward) allocate_buffers(lifetime);
}

// The window's sum is handed over to the step: the same storage under another name.
void RankEngine::end_backward_buffers() {
  release_buffers(BufferLifetime::backward);
  release_buffers(BufferLifetime::later_backward);
  if (!at_boundary()) return;
  release_buffers(BufferLifetime::boundary_backward);
  for (const HandedBuffer& handed : handed_buffers(buffers_)) {
    if (held_[handed.window] && !held_[handed.kept]) {
      held_[handed.kept] = std::move(held_[handed.window]);
    }
  }
  release_buffers(BufferLifetime::window);
  allocate_buffers(BufferLifetime::after_boundary);
}

Operand RankEngine::weights_of(std::int32_t parameter) const {
  const auto p = static_cast<std::size_t>(parameter);
  std::byte* data = weights_[p];
  if (config_.stage == 3) {
    if (gathered_[p].data != nullptr) data = gathered_[p].data;
    ZP_CHECK(gathered_[p].data != nullptr || partition_ranks(config_) == 1,
             "a weight is used that was not gathered: " + setup_.model->parameters[p].name);
  }
  return {data, parameters_[p].numel, config_.model_dtype};
}

// --- a step

StepOutcome RankEngine::step(std::span<const MicroBatch> batches) {
  ZP_CHECK(static_cast<int>(batches.size()) == config_.gradient_accumulation_steps,
           "a step has all its micro-batches");
  StepOutcome outcome;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    micro_step(batches[i], static_cast<int>(i));
    outcome.loss += loss_ / static_cast<double>(batches.size());
  }
  if (coordinator_) {
    coordinator_->begin_optimizer_step(log_);
    carry_out_fetches();
  }
  enter_phase(Phase::step);
  release_buffers(BufferLifetime::between_steps);
  squares_ = 0.0;
  next_gather_ = 0;
  step_gradients_.clear();
  outcome.skipped = overflowed();
  actions_.clear();
  optimizer_step(config_, parameters_, outcome.skipped, actions_);
  allocate_buffers(BufferLifetime::step);
  if (!outcome.skipped) {
    make_moments();
    ++updates_;
  }
  carry_out(actions_);
  finish_swapping();
  outcome.gradient_norm = gradient_norm();
  transients_.clear();
  (void)device_.take(Scalar::group_squares);
  for (const BufferLifetime lifetime : {BufferLifetime::window_to_step,
                                        BufferLifetime::boundary_to_step,
                                        BufferLifetime::after_boundary,
                                        BufferLifetime::step}) {
    release_buffers(lifetime);
  }
  for (Buffer& gradient : waiting_) gradient.reset();
  scaler_.update(outcome.skipped);
  if (outcome.skipped) return outcome;
  allocate_buffers(BufferLifetime::between_steps);
  if (coordinator_) {
    coordinator_->end_optimizer_step(log_);
    carry_out_fetches();
    drop_secondary_partitions();
  }
  return outcome;
}

void RankEngine::micro_step(const MicroBatch& batch, int index) {
  micro_step_ = index;
  buffers_ready_ = false;
  backward_began_ = false;
  enter_phase(Phase::forward);
  runner_.begin_micro_batch(batch);
  if (coordinator_) {
    coordinator_->begin_micro_step(log_);
    carry_out_fetches();
  }
  reducer_.begin_backward(index);
  for (const PassStep& pass : runner_.passes()) run_pass(pass);
  runner_.release_loss();
  if (coordinator_) {
    walk_->leave(FetchPass::backward, [this](const ModuleStep& step) { module_step(step); });
  }
  finish_backward();
  if (coordinator_) {
    coordinator_->end_backward(log_);
    carry_out_fetches();
  }
  runner_.end_micro_batch();
}

void RankEngine::run_pass(const PassStep& pass) {
  const bool turns = !in_forward_phase(pass.pass) && pass.pass != Pass::drop_outputs;
  if (turns && !backward_began_) {
    backward_began_ = true;
    loss_ = static_cast<double>(runner_.loss());
    if (coordinator_) {
      walk_->leave(FetchPass::forward, [this](const ModuleStep& step) { module_step(step); });
      coordinator_->begin_backward(log_);
      carry_out_fetches();
    }
    enter_phase(Phase::backward);
  }
  runner_.run(pass, hooks_, scaler_.scale() / config_.gradient_accumulation_steps);
}

}  // namespace zeroplan::runtime
