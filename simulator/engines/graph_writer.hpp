// What one micro-batch makes the GPU do, as instructions: the graph's allocations, releases and
// operations. Modules that begin or end and gradients that are complete go to whoever writes the
// engine.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/graph/graph.hpp"
#include "model/plan/plan.hpp"
#include "model/step/kernel_workspaces.hpp"
#include "simulator/program_writer.hpp"
#include "simulator/task_table.hpp"

namespace zeroplan::simulator {

class GraphWriter {
 public:
  // All must outlive the writer.
  // `storages`: of which use all its tensors are; of_slot where it is the graph of the step.
  GraphWriter(const Plan& plan,
              const ModelGraph& graph,
              ProgramWriter& writer,
              TaskTable& tasks,
              Purpose storages = Purpose::of_slot);

  // The passes of a micro-batch in their order, without the death of outputs that a loop's variable
  // holds until the engine's backward() has returned (release_outputs()).
  const std::vector<PassStep>& passes() const { return passes_; }

  // The batch arrives; at the end it goes, and the loss.
  void begin_micro_batch();
  void release_loss();
  // Where the loop keeps them (Workload::outputs_kept) they go behind the next forward pass.
  void release_outputs();
  void end_micro_batch() { writer_.release(batch_slot_); }
  // The same process has them already.
  void take_workspaces(const GraphWriter& other) {
    in_forward_ = other.in_forward_;
    in_backward_ = other.in_backward_;
  }
  // The loop's variable has the outputs of the micro-batch before, whatever graph that had.
  void take_kept_outputs(const GraphWriter& other) {
    kept_slots_ = other.kept_slots_;
    has_kept_ = other.has_kept_;
  }

  // Where autograd adds the parts of a tied weight's gradient: the stream that its weight was made
  // on (input_buffer.cpp).
  void add_tied_parts_on(StreamId stream) { tied_stream_ = stream; }

  // One pass over one instance. on_module(event): module_enter, module_exit or passes_beside.
  // on_gradient(parameter, slot): complete, and the engine's from now on.
  template <typename OnModule, typename OnGradient>
  void write(const PassStep& pass, OnModule&& on_module, OnGradient&& on_gradient) {
    if (!in_forward_phase(pass.pass)) release_kept();
    const BlockInstance& instance = graph_.instances[static_cast<std::size_t>(pass.instance)];
    const Block& block = graph_.block_of(instance);
    writer_.set_label(labels_[static_cast<std::size_t>(pass.instance)]);
    const std::vector<Event>& events = block.of(pass.pass);
    std::size_t stretch = 0;
    for (std::size_t i = 0; i < events.size();) {
      if (!is_heard(events[i].kind)) {
        i = write_stretch(pass, i, stretch++);
        continue;
      }
      const Event& event = events[i++];
      if (event.kind != EventKind::weight_gradient) {
        on_module(event);
        continue;
      }
      const WeightGradient& gradient =
          block.weight_gradients[static_cast<std::size_t>(event.index)];
      const std::int32_t parameter =
          instance.parameters[static_cast<std::size_t>(gradient.parameter)];
      const SlotIndex slot = gradient_slot(pass, gradient, parameter);
      if (gradient.complete) on_gradient(parameter, slot);
    }
    graph_.free_behind(pass, [this](StorageId id) { writer_.release(slot_of(id)); });
  }

 private:
  SlotIndex slot_of(StorageId id) const {
    return instance_slots_[static_cast<std::size_t>(id.instance)] + id.storage;
  }
  // Events that the engine hears of.
  static bool is_heard(EventKind kind) {
    return kind == EventKind::module_enter || kind == EventKind::module_exit ||
           kind == EventKind::passes_beside || kind == EventKind::weight_gradient;
  }
  // A stretch of events that the engine does not hear of, the `number`-th of the pass: what one
  // instance of a block wrote is written again for all of them. Where it ends.
  std::size_t write_stretch(const PassStep& pass, std::size_t begin, std::size_t number);
  bool write_event(const PassStep& pass, const Event& event);
  std::span<const SlotIndex> slots_for(const Fragment& fragment, std::int32_t instance);
  void allocate(const PassStep& pass, const Storage& storage, std::int32_t index);
  void write_operation(const PassStep& pass, std::int32_t operation);
  SlotIndex gradient_slot(const PassStep& pass,
                          const WeightGradient& gradient,
                          std::int32_t parameter);
  void make_workspace(SlotIndex& slot, Bytes bytes);
  void keep_outputs();
  void release_kept();
  bool is_tied_sum(std::int32_t block, std::int32_t storage) const;

  const ModelGraph& graph_;
  ProgramWriter& writer_;
  TaskTable& tasks_;
  Purpose storages_;
  const KernelWorkspaces workspaces_;
  const bool takes_workspace_at_start_;  // the embedded runtime does
  std::vector<PassStep> passes_;
  std::vector<PassStep> outputs_;  // the passes of release_outputs(): what loops hold longest
  const bool keeps_outputs_;
  std::vector<SlotIndex> kept_slots_;  // of outputs of the micro-batch before
  bool has_kept_ = false;
  std::vector<SlotIndex> instance_slots_;  // first slot of each instance
  std::vector<std::int32_t> labels_;       // of each instance
  std::vector<std::array<std::vector<TaskIndex>, 2>> operation_tasks_;  // by block; [backward]
  std::vector<SlotIndex> partial_slots_;  // by parameter: a tied weight's gradient so far
  struct Stretch {
    Fragment fragment;
    std::size_t end = 0;  // of its events
  };
  using Stretches = std::vector<std::optional<Stretch>>;
  std::vector<std::array<Stretches, kPassCount>> stretches_;  // by block
  std::vector<std::vector<SlotIndex>> slots_;  // by instance, of its storages; -1: not asked for
  SlotIndex batch_slot_;
  // By block: the tied weights whose part is added to the one before in a new tensor, and that
  // tensor, which takes its place.
  struct TiedSum {
    std::int32_t parameter = -1;  // index into Block::parameters
    std::int32_t storage = -1;
  };
  static std::vector<TiedSum> tied_sums(const Block& block);
  std::vector<std::vector<TiedSum>> tied_sums_;
  StreamId tied_stream_ = kComputeStream;
  // The workspaces that a thread has by now; -1: not yet.
  struct ThreadWorkspaces {
    SlotIndex cublas = -1;
    SlotIndex lt = -1;
  };
  ThreadWorkspaces in_forward_, in_backward_;
};

}  // namespace zeroplan::simulator
