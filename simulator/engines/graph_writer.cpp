#include "simulator/engines/graph_writer.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "model/step/kernel_workspaces.hpp"

namespace zeroplan::simulator {

// Parts of a tied weight's gradient that do not fit in place meet in a new tensor: what
// accumulate_parameter (model/graph/autograd_backward.cpp) allocates, writes with one operation and
// lets go of before it announces the gradient.
std::vector<GraphWriter::TiedSum> GraphWriter::tied_sums(const Block& block) {
  std::vector<TiedSum> sums;
  const std::vector<Event>& events = block.of(Pass::backward);
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (events[i].kind != EventKind::weight_gradient) continue;
    const WeightGradient& gradient =
        block.weight_gradients[static_cast<std::size_t>(events[i].index)];
    if (gradient.storage >= 0) continue;
    std::size_t at = i;
    while (at > 0 && events[at - 1].kind == EventKind::release) --at;
    if (at < 2 || events[at - 1].kind != EventKind::operation) continue;
    if (events[at - 2].kind != EventKind::allocate) continue;
    sums.push_back({gradient.parameter, events[at - 2].index});
  }
  return sums;
}

GraphWriter::GraphWriter(const Plan& plan,
                         const ModelGraph& graph,
                         ProgramWriter& writer,
                         TaskTable& tasks,
                         Purpose storages)
    : graph_(graph),
      writer_(writer),
      tasks_(tasks),
      storages_(storages),
      workspaces_(kernel_workspaces(plan)),
      takes_workspace_at_start_(plan.workload.engine == TrainingEngine::embedded),
      passes_(micro_batch(graph)),
      keeps_outputs_(plan.workload.outputs_kept),
      operation_tasks_(graph.blocks.size()),
      partial_slots_(plan.engine_parameters.size(), -1),
      stretches_(graph.blocks.size()),
      slots_(graph.instances.size()),
      batch_slot_(writer.new_slots(SlotKind::batch, 1)) {
  for (const Block& block : graph.blocks) tied_sums_.push_back(tied_sums(block));
  for (const BlockInstance& instance : graph.instances) {
    const Block& block = graph.block_of(instance);
    const auto count = static_cast<std::int32_t>(block.storages.size());
    const auto index = static_cast<std::int32_t>(instance_slots_.size());
    instance_slots_.push_back(storages == Purpose::of_slot
                                  ? writer.new_slots(SlotKind::storage, count, index)
                                  : writer.new_slots(count));
    labels_.push_back(writer.add_label(instance.prefix.empty() ? block.name : instance.prefix));
  }
  const auto held = std::find_if(passes_.rbegin(), passes_.rend(), [](const PassStep& pass) {
                      return pass.pass != Pass::drop_outputs;
                    }).base();
  outputs_.assign(held, passes_.end());
  passes_.erase(held, passes_.end());
}

void GraphWriter::begin_micro_batch() {
  if (takes_workspace_at_start_) make_workspace(in_forward_.cublas, workspaces_.forward);
  writer_.allocate(batch_slot_, graph_.batch, MemoryCategory::activations, kComputeStream);
}

void GraphWriter::release_loss() {
  const auto last = static_cast<std::int32_t>(graph_.instances.size()) - 1;
  writer_.release(slot_of({last, graph_.block_of(graph_.instances.back()).output}));
}

void GraphWriter::release_outputs() {
  if (keeps_outputs_) return keep_outputs();
  for (const PassStep& pass : outputs_) {
    write(
        pass, [](const Event&) {}, [](std::int32_t, SlotIndex) {});
  }
}

// The outputs leave their slots to those of the next micro-batch.
void GraphWriter::keep_outputs() {
  std::size_t count = 0;
  for (const PassStep& pass : outputs_) {
    for (const Event& event :
         graph_.block_of(graph_.instances[static_cast<std::size_t>(pass.instance)]).of(pass.pass)) {
      if (event.kind != EventKind::release) continue;
      if (count == kept_slots_.size()) kept_slots_.push_back(writer_.new_slot());
      writer_.move(slot_of(resolve(graph_, pass.instance, event.index)), kept_slots_[count++]);
    }
  }
  has_kept_ = true;
}

void GraphWriter::release_kept() {
  if (!std::exchange(has_kept_, false)) return;
  for (const SlotIndex slot : kept_slots_) writer_.release(slot);
}

// Kept for ever. cuBLAS asks when a thread's first product runs, which has its result by then
// (CublasHandlePool.cpp getCurrentCUDABlasHandle); recomputation runs on autograd's thread.
void GraphWriter::make_workspace(SlotIndex& slot, Bytes bytes) {
  if (slot >= 0 || bytes == Bytes::zero()) return;
  slot = writer_.new_slot();
  writer_.allocate(
      slot, bytes, MemoryCategory::temporaries, kComputeStream, Purpose::kernel_workspace);
}

bool GraphWriter::is_tied_sum(std::int32_t block, std::int32_t storage) const {
  const std::vector<TiedSum>& sums = tied_sums_[static_cast<std::size_t>(block)];
  return std::any_of(
      sums.begin(), sums.end(), [=](const TiedSum& sum) { return sum.storage == storage; });
}

// A first product makes a workspace, which no later one does: such a stretch is not kept.
std::size_t GraphWriter::write_stretch(const PassStep& pass,
                                       std::size_t begin,
                                       std::size_t number) {
  const BlockInstance& instance = graph_.instances[static_cast<std::size_t>(pass.instance)];
  const Block& block = graph_.block_of(instance);
  Stretches& known =
      stretches_[static_cast<std::size_t>(instance.block)][static_cast<std::size_t>(pass.pass)];
  if (number >= known.size()) known.resize(number + 1);
  std::optional<Stretch>& stretch = known[number];
  const bool is_usual = !graph_.keeps(pass, block.input);
  if (is_usual && stretch) {
    writer_.write(stretch->fragment, slots_for(stretch->fragment, pass.instance));
    return stretch->end;
  }
  const std::size_t position = writer_.position();
  const std::int32_t slots = writer_.program().slots;
  const std::vector<Event>& events = block.of(pass.pass);
  std::vector<std::int32_t> storages;  // of the slots that are taken and let go of, in turn
  std::size_t end = begin;
  for (; end < events.size() && !is_heard(events[end].kind); ++end) {
    if (write_event(pass, events[end])) storages.push_back(events[end].index);
  }
  if (is_usual && writer_.program().slots == slots) {
    stretch = Stretch{writer_.fragment_since(position, storages), end};
  }
  return end;
}

// Whether it takes or lets go of the slot of its storage.
bool GraphWriter::write_event(const PassStep& pass, const Event& event) {
  const BlockInstance& instance = graph_.instances[static_cast<std::size_t>(pass.instance)];
  switch (event.kind) {
    case EventKind::operation:
      write_operation(pass, event.index);
      return false;
    case EventKind::allocate:
      allocate(pass,
               graph_.block_of(instance).storages[static_cast<std::size_t>(event.index)],
               event.index);
      return true;
    case EventKind::release:
      if (pass.pass == Pass::backward && is_tied_sum(instance.block, event.index)) return false;
      if (graph_.keeps(pass, event.index)) return false;
      writer_.release(slot_of(resolve(graph_, pass.instance, event.index)));
      return true;
    case EventKind::save:
    case EventKind::module_enter:
    case EventKind::module_exit:
    case EventKind::weight_gradient:
    case EventKind::passes_beside:
      return false;
  }
  return false;
}

std::span<const SlotIndex> GraphWriter::slots_for(const Fragment& fragment, std::int32_t instance) {
  std::vector<SlotIndex>& slots = slots_[static_cast<std::size_t>(instance)];
  const Block& block = graph_.block_of(graph_.instances[static_cast<std::size_t>(instance)]);
  slots.resize(block.storages.size(), -1);
  for (const std::int32_t storage : fragment.slots()) {
    SlotIndex& slot = slots[static_cast<std::size_t>(storage)];
    if (slot < 0) slot = slot_of(resolve(graph_, instance, storage));
  }
  return slots;
}

void GraphWriter::allocate(const PassStep& pass, const Storage& storage, std::int32_t index) {
  const std::int32_t block = graph_.instances[static_cast<std::size_t>(pass.instance)].block;
  const bool tied = pass.pass == Pass::backward && is_tied_sum(block, index);
  writer_.allocate(slot_of(resolve(graph_, pass.instance, index)),
                   storage.bytes,
                   storage.category,
                   tied ? tied_stream_ : kComputeStream,
                   storages_);
  tasks_.touch(storage.bytes);
}

void GraphWriter::write_operation(const PassStep& pass, std::int32_t operation) {
  const std::int32_t index = graph_.instances[static_cast<std::size_t>(pass.instance)].block;
  const Block& block = graph_.blocks[static_cast<std::size_t>(index)];
  std::vector<TaskIndex>& known =
      operation_tasks_[static_cast<std::size_t>(index)][pass.pass == Pass::backward ? 1 : 0];
  if (known.empty()) known.resize(block.operations.size(), -1);
  TaskIndex& task = known[static_cast<std::size_t>(operation)];
  const Operation& what = block.operations[static_cast<std::size_t>(operation)];
  if (task < 0) task = tasks_.operation(block, what, pass.pass);
  if (what.library != Library::own) {
    const bool forward = in_forward_phase(pass.pass);
    ThreadWorkspaces& thread = forward ? in_forward_ : in_backward_;
    make_workspace(thread.cublas, forward ? workspaces_.forward : workspaces_.backward);
    if (what.library == Library::cublaslt) make_workspace(thread.lt, workspaces_.lt);
  }
  writer_.issue(task, kComputeStream);
  // Copies from and to pageable memory block the host (CUDA API synchronization behavior).
  if (what.kind == OpKind::host_copy) writer_.host_wait_stream(kComputeStream);
}

// Where a tied weight gets its gradient in parts, the sum takes the first part's slot.
SlotIndex GraphWriter::gradient_slot(const PassStep& pass,
                                     const WeightGradient& gradient,
                                     std::int32_t parameter) {
  SlotIndex& partial = partial_slots_[static_cast<std::size_t>(parameter)];
  if (gradient.storage >= 0) {
    partial = slot_of(resolve(graph_, pass.instance, gradient.storage));
    return partial;
  }
  const std::int32_t block = graph_.instances[static_cast<std::size_t>(pass.instance)].block;
  for (const TiedSum& sum : tied_sums_[static_cast<std::size_t>(block)]) {
    if (sum.parameter != gradient.parameter) continue;
    ZP_CHECK(partial >= 0, "a part of a tied gradient that no other part came before");
    writer_.release(partial);
    writer_.move(slot_of(resolve(graph_, pass.instance, sum.storage)), partial);
  }
  return partial;
}

}  // namespace zeroplan::simulator
