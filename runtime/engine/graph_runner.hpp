// One micro-batch on real memory: plays the passes of a ModelGraph whose blocks have kernel calls,
// makes and frees its tensors as the events say, and runs the calls. Weights come from the engine,
// finished gradients go to it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/graph/graph.hpp"
#include "runtime/engine/timeline.hpp"
#include "runtime/kernels/kernels.hpp"
#include "runtime/memory/memory.hpp"

namespace zeroplan::runtime {

// Token ids and labels of one micro-batch, each batch * sequence long; a label below 0 has no loss.
struct MicroBatch {
  std::span<const std::int64_t> ids;
  std::span<const std::int64_t> labels;
};

class GraphRunner {
 public:
  // What the engine does in a pass.
  struct Hooks {
    // The weights of a parameter; valid until the next module event.
    std::function<Operand(std::int32_t parameter)> weights;
    std::function<void(const PassStep&, const Event&)> module_event;
    // The gradient is complete and the engine's from now on.
    std::function<void(std::int32_t parameter, Buffer)> gradient;
  };

  // All must outlive the runner. Precondition: every block has a call for each operation.
  // timeline: where calls are recorded; may be null.
  GraphRunner(const ModelGraph& graph,
              std::size_t parameters,
              Kernels& kernels,
              Memory& memory,
              Device& device,
              Timeline* timeline = nullptr);
  ~GraphRunner();
  GraphRunner(const GraphRunner&) = delete;
  GraphRunner& operator=(const GraphRunner&) = delete;

  const std::vector<PassStep>& passes() const { return passes_; }

  void begin_micro_batch(const MicroBatch& batch);
  // loss_gradient: what the gradient of the loss is, 1 for the loss itself.
  void run(const PassStep& pass, const Hooks& hooks, double loss_gradient);
  // The mean loss of the micro-batch; after the forward passes, before release_loss().
  float loss() const;
  void release_loss();
  void end_micro_batch() { batch_.reset(); }
  // Everything that an interrupted micro-batch left.
  void clear();

 private:
  Buffer& buffer_of(std::int32_t instance, std::int32_t storage);
  Operand operand(const PassStep& pass, const KernelOperand& operand, const Hooks& hooks);
  Operand storage_operand(const PassStep& pass, const KernelOperand& operand);
  Operand gradient_operand(const PassStep& pass, std::int32_t parameter);
  void run_call(const PassStep& pass, std::int32_t index, const Hooks& hooks, double loss_gradient);
  void run_kernel(const PassStep& pass, const KernelCall& call);
  void announce(const PassStep& pass, const WeightGradient& gradient, const Hooks& hooks);

  const ModelGraph& graph_;
  Kernels& kernels_;
  Memory& memory_;
  Device& device_;
  Timeline* timeline_;
  std::vector<PassStep> passes_;
  std::vector<std::vector<Buffer>> storages_;  // by instance, then storage
  std::vector<StorageId> partial_;             // by parameter: a tied weight's gradient so far
  std::vector<Operand> operands_;              // scratch
  Buffer workspace_;                           // the kernels', from the first micro-batch on
  Buffer batch_;
  std::int64_t tokens_ = 0;
};

}  // namespace zeroplan::runtime
