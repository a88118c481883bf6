// The passes of a Tape: what the frames around a block hold, and the engine that runs its nodes.
#include <algorithm>
#include <new>
#include <utility>

#include "base/check.hpp"
#include "model/graph/autograd.hpp"

namespace zeroplan {

// --- Tape: the passes ---

void Tape::begin(Pass pass) {
  pass_ = pass;
  grad_enabled_ = pass == Pass::forward || pass == Pass::recompute;
  category_ = MemoryCategory::activations;
}

// The forward code has returned: its variables are gone, the calling frame still has the input.
void Tape::finish(Tensor output) {
  ZP_CHECK(module_stack_.empty(), "every module must be left");
  output_ = std::move(output);
  if (pass_ == Pass::forward || pass_ == Pass::forward_no_grad) {
    block_.output = output_.storage_;
    block_.output_dtype = output_.dtype_;
    at(released_elsewhere_, block_.output) = true;
    for (const std::int32_t slot : frame_slots_) {
      const std::int32_t use = use_of(slot);
      if (at(block_.shared, use).storage != block_.output) continue;
      block_.output_is_held = true;
      block_.shared.erase(block_.shared.begin() + use);
    }
    frame_slots_.clear();
  }
  layer_frame_.clear();
  if (pass_ == Pass::forward_no_grad) output_ = Tensor();
  if (pass_ == Pass::forward) input_ = Tensor();
  // A checkpointed block's input lives until its backward is done, see backward().
}

// What the backward pass of the block does, with the frame that runs it: a reentrant checkpoint
// (CheckpointFunction.backward, torch/utils/checkpoint.py) holds its input, the recomputed output
// and the incoming gradient until it returns; a non-reentrant one holds its input.
void Tape::backward() {
  if (!setup_.outputs_held_in_backward) {
    pass_ = Pass::drop_outputs;
    held_.clear();
  }
  begin(Pass::backward);
  const bool reentrant = setup_.checkpoint && setup_.checkpoint_reentrant;
  if (setup_.checkpoint && !reentrant) write_recompute();
  std::vector<std::int32_t> roots = seed_shared_gradients();
  if (output_.node_ >= 0 && !shares_output()) {
    Tensor gradient;
    const std::int32_t root = output_.node_;
    const std::int32_t root_output = output_.output_;
    if (output_.numel() == 1_elements) {
      gradient = empty(output_.shape(), output_.dtype());
      launch({.name = "ones_like", .kind = OpKind::fill, .traffic = gradient.bytes()});
    } else {
      gradient.tape_ = this;
      gradient.dtype_ = output_.dtype_;
      gradient.shape_ = output_.shape().as_dense();
      gradient.storage_ = new_storage(output_.numel(), output_.dtype_, MemoryCategory::activations);
      retain(gradient.storage_);
      block_.output_gradient = gradient.storage_;
    }
    const Tensor frame_gradient = reentrant ? gradient : Tensor();
    if (!reentrant) output_ = Tensor();
    at(at(nodes_, root).buffer, root_output) = std::move(gradient);
    roots.push_back(root);
    run_nodes(roots);
    output_ = Tensor();
  } else if (!roots.empty()) {
    output_ = Tensor();
    run_nodes(roots);
  }
  // What no gradient has reached dies with the graph.
  for (Node& node : nodes_) {
    node.formula = nullptr;
    node.buffer.clear();
  }
  output_ = Tensor();
  input_ = Tensor();
  shared_outputs_.clear();
  if (setup_.outputs_held_in_backward) {
    pass_ = Pass::drop_outputs;
    held_.clear();
  }
}

// Early stop of a non-reentrant checkpoint (default on): the recomputation ends when the last saved
// tensor is packed. Inputs are packed before their operation runs, so that operation does not run.
void Tape::write_recompute() {
  std::vector<Event>& events = block_.events[static_cast<std::size_t>(Pass::recompute)];
  std::size_t end = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (events[i].kind == EventKind::save) end = i + 1;
  }
  events.resize(end);
  std::vector<bool> alive(block_.storages.size(), false), saved(block_.storages.size(), false);
  std::vector<std::int32_t> open_modules;
  for (const Event& event : events) {
    const auto i = static_cast<std::size_t>(event.index);
    if (event.kind == EventKind::allocate) alive[i] = true;
    if (event.kind == EventKind::release) alive[i] = false;
    if (event.kind == EventKind::save) saved[i] = true;
    if (event.kind == EventKind::module_enter) open_modules.push_back(event.index);
    if (event.kind == EventKind::module_exit) open_modules.pop_back();
  }
  for (std::size_t i = 0; i < alive.size(); ++i) {
    if (alive[i] && !saved[i]) {
      events.push_back({EventKind::release, static_cast<std::int32_t>(i)});
    }
  }
  // The exception unwinds the modules that were running.
  for (auto module = open_modules.rbegin(); module != open_modules.rend(); ++module) {
    events.push_back({EventKind::module_exit, *module});
  }
  // Shared tensors that were made again go with the rest of the frame.
  for (const SharedOutput& output : shared_outputs_) {
    const auto i = static_cast<std::size_t>(output.tensor.storage_);
    if (alive[i] && !saved[i]) released_elsewhere_[i] = true;
  }
  // Nothing of what came after exists; the output was never made.
  if (output_.storage_ >= 0) released_elsewhere_[static_cast<std::size_t>(output_.storage_)] = true;
}

bool Tape::shares_output() const {
  return std::any_of(block_.shared.begin(), block_.shared.end(), [&](const SharedUse& use) {
    return use.produced && use.gradient >= 0 && use.storage == output_.storage_;
  });
}

// What the uses in later blocks have summed up stands in the buffers of the nodes that made the
// shared tensors before any node of this block runs.
std::vector<std::int32_t> Tape::seed_shared_gradients() {
  std::vector<std::int32_t> roots;
  for (const SharedOutput& output : shared_outputs_) {
    const Tensor& tensor = output.tensor;
    Tensor gradient;
    gradient.tape_ = this;
    gradient.dtype_ = tensor.dtype_;
    gradient.shape_ = tensor.shape_.as_dense();
    gradient.storage_ = new_storage(tensor.numel(), tensor.dtype_, MemoryCategory::activations);
    retain(gradient.storage_);
    at(block_.shared, output.use).gradient = gradient.storage_;
    at(at(nodes_, tensor.node_).buffer, tensor.output_) = std::move(gradient);
    roots.push_back(tensor.node_);
  }
  // A reentrant checkpoint holds the recomputed outputs until its backward is done.
  if (!setup_.checkpoint || !setup_.checkpoint_reentrant) shared_outputs_.clear();
  return roots;
}

void Tape::count_dependencies(const std::vector<std::int32_t>& roots) {
  std::vector<bool> seen(nodes_.size(), false);
  std::vector<std::int32_t> stack = roots;
  for (const std::int32_t root : roots) seen[static_cast<std::size_t>(root)] = true;
  while (!stack.empty()) {
    const Node& node = nodes_[static_cast<std::size_t>(stack.back())];
    stack.pop_back();
    for (const Edge& edge : node.inputs) {
      if (edge.parameter >= 0) ++uses_[static_cast<std::size_t>(edge.parameter)];
      if (edge.node < 0) continue;
      ++nodes_[static_cast<std::size_t>(edge.node)].dependencies;
      if (!seen[static_cast<std::size_t>(edge.node)]) {
        seen[static_cast<std::size_t>(edge.node)] = true;
        stack.push_back(edge.node);
      }
    }
  }
}

void Tape::run_nodes(const std::vector<std::int32_t>& roots) {
  count_dependencies(roots);
  std::vector<std::int32_t> ready;
  for (const std::int32_t root : roots) {
    if (nodes_[static_cast<std::size_t>(root)].dependencies == 0) ready.push_back(root);
  }
  std::make_heap(ready.begin(), ready.end());
  while (!ready.empty()) {
    // The engine's queue is ordered by sequence number (engine.h, CompareNodeTaskTime).
    std::pop_heap(ready.begin(), ready.end());
    const std::int32_t index = ready.back();
    ready.pop_back();
    run_node(index, ready);
  }
  module_stack_.clear();
}

void Tape::run_node(std::int32_t index, std::vector<std::int32_t>& ready) {
  Node& node = nodes_[static_cast<std::size_t>(index)];
  const InARow row(*this, node.times);
  category_ = node.category;
  module_stack_.clear();
  if (node.module >= 0) module_stack_.push_back(node.module);
  const auto first_new = static_cast<std::int32_t>(block_.storages.size());
  Backward context(*this);
  context.node_ = index;
  context.gradients_ = std::move(node.buffer);
  context.results_.resize(node.inputs.size());
  const bool any = std::any_of(context.gradients_.begin(),
                               context.gradients_.end(),
                               [](const Tensor& t) { return t.defined(); });
  if (any) node.formula(context);
  context.gradients_.clear();
  node.formula = nullptr;  // releases the saved tensors
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const Edge& edge = node.inputs[i];
    Tensor& result = context.results_[i];
    if (result.defined() && result.storage_ >= first_new) {
      block_.storages[static_cast<std::size_t>(result.storage_)].category = edge.category;
    }
    accumulate(edge, std::move(result), ready);
  }
}

void Tape::accumulate(const Edge& edge, Tensor gradient, std::vector<std::int32_t>& ready) {
  if (edge.parameter >= 0) return accumulate_parameter(edge.parameter, std::move(gradient));
  if (edge.node < 0) return;
  Node& next = at(nodes_, edge.node);
  Tensor& buffer = at(next.buffer, edge.output);
  if (gradient.defined()) {
    buffer = buffer.defined() ? add_gradients(std::move(buffer), std::move(gradient))
                              : std::move(gradient);
  }
  if (--next.dependencies == 0) {
    ready.push_back(edge.node);
    std::push_heap(ready.begin(), ready.end());
  }
}

// InputBuffer::accumulate (torch/csrc/autograd/input_buffer.cpp). Both die here, as in torch.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
Tensor Tape::add_gradients(Tensor old, Tensor more) {
  const Bytes traffic = old.bytes() + old.bytes() + more.bytes();
  const bool alone = at(references_, old.storage_) == 1 && !old.view_;
  if (alone && old.shape().dense()) {
    launch({.name = "add_", .traffic = traffic});
    return old;
  }
  Tensor sum = empty(Shape::broadcast(old.shape(), more.shape()),
                     old.dtype(),
                     block_.storages[static_cast<std::size_t>(old.storage_)].category);
  launch({.name = "add", .traffic = traffic});
  return sum;
}

// AccumulateGrad (accumulate_grad.h): the first gradient is taken over as it is where nobody else
// holds it and its layout is the parameter's; the engine empties .grad between micro-steps.
void Tape::accumulate_parameter(std::int32_t parameter, Tensor gradient) {
  const auto p = static_cast<std::size_t>(parameter);
  Tensor& buffer = parameter_gradients_[p];
  if (gradient.defined()) {
    buffer = buffer.defined() ? add_gradients(std::move(buffer), std::move(gradient))
                              : std::move(gradient);
  }
  if (--uses_[p] > 0) return;
  Tensor result = std::move(buffer);
  if (!result.defined()) return;
  const Tie& tied = tied_[p];
  if (!tied.first) {
    // The sum takes the place of the part that came before, which dies with this one.
    const Tensor sum =
        tied.in_place
            ? Tensor()
            : empty(result.shape().as_contiguous(), result.dtype(), MemoryCategory::gradients);
    launch({.name = tied.in_place ? "add_" : "add", .traffic = result.bytes() * 3});
    result = Tensor();
  } else if (!result.shape().contiguous() || at(references_, result.storage_) > 1) {
    Tensor copy = empty(result.shape().as_contiguous(), result.dtype(), MemoryCategory::gradients);
    launch({.name = "clone", .kind = OpKind::copy, .traffic = copy.bytes() * 2});
    result = std::move(copy);
  }
  if (result.defined()) at(released_elsewhere_, result.storage_) = true;
  const auto index = static_cast<std::int32_t>(block_.weight_gradients.size());
  block_.weight_gradients.push_back({parameter, result.storage_, tied.last});
  emit(EventKind::weight_gradient, index);
}

// The checkpoint's first tensor, or this rank's part of it, goes to the host before the block runs,
// or is copied, and the frame that called the block drops its own reference after it; backward
// brings it back first and gathers the parts (torch/utils/checkpoint.py CheckpointFunction as
// ArcticTraining's monkey_patch_checkpoint_function_with_cpu_offload replaces it, DeepSpeed's
// runtime/activation_checkpointing/checkpointing.py with cpu_checkpointing, partition_activations).
void Tape::put_input_away() {
  if (block_.input < 0) return;
  const Storage input = block_.storages[static_cast<std::size_t>(block_.input)];
  const std::int64_t ranks = setup_.checkpoint_ranks;
  const Elements part_elements = Elements::of(ceil_div(input.elements.count(), ranks));
  const Bytes part_bytes = part_elements * input.dtype;
  const auto operation = [&](std::string_view name, OpKind kind, Bytes traffic) {
    module_stack_.clear();
    return Event{EventKind::operation,
                 add_operation({.name = name, .kind = kind, .traffic = traffic})};
  };
  auto& forward = block_.events[static_cast<std::size_t>(Pass::forward_no_grad)];
  auto& again = block_.events[static_cast<std::size_t>(Pass::recompute)];
  std::vector<Event> before, back{{EventKind::allocate, block_.input}};
  if (setup_.checkpoint_offload) {
    before.push_back(operation("copy to host", OpKind::host_copy, part_bytes));
    back.push_back(operation("copy to device", OpKind::host_copy, part_bytes));
    if (ranks > 1) back.push_back(operation("all_gather", OpKind::tensor_gather, input.bytes));
  } else {
    const std::int32_t part = new_storage(part_elements, input.dtype, MemoryCategory::activations);
    before.push_back({EventKind::allocate, part});
    before.push_back(operation("clone", OpKind::copy, part_bytes * 2));
    back.push_back(operation("all_gather", OpKind::tensor_gather, input.bytes));
    back.push_back({EventKind::release, part});
  }
  forward.insert(forward.begin(), before.begin(), before.end());
  forward.push_back({EventKind::release, block_.input});
  again.insert(again.begin(), back.begin(), back.end());
}

// What forward makes and backward releases, autograd has kept.
void Tape::keep_all_in_a_row() {
  std::vector<bool> counted(block_.storages.size(), false);
  for (const Pass pass : {Pass::forward, Pass::recompute}) {
    for (const Event& event : block_.of(pass)) {
      if (event.kind == EventKind::allocate) counted[static_cast<std::size_t>(event.index)] = true;
    }
  }
  for (const Event& event : block_.of(Pass::backward)) {
    const auto i = static_cast<std::size_t>(event.index);
    if (event.kind != EventKind::release || !counted[i]) continue;
    block_.storages[i].elements = block_.storages[i].elements * storage_times_[i];
    block_.storages[i].bytes = block_.storages[i].bytes * storage_times_[i];
  }
}

Block Tape::take() {
  if (misses_event_) throw std::bad_alloc();
  keep_all_in_a_row();
  recording_ = false;
  return std::move(block_);
}

Block record_block(Tape::Setup setup, const std::function<Tensor(Tape&)>& forward) {
  const bool checkpoint = setup.checkpoint;
  const bool put_away = setup.checkpoint_offload || setup.checkpoint_ranks > 1;
  Tape tape(std::move(setup));
  if (checkpoint) {
    tape.begin(Pass::forward_no_grad);
    tape.finish(forward(tape));
  }
  tape.begin(checkpoint ? Pass::recompute : Pass::forward);
  tape.finish(forward(tape));
  tape.backward();
  if (checkpoint && put_away) tape.put_input_away();
  return tape.take();
}

}  // namespace zeroplan
