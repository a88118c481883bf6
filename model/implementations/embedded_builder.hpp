// Writes a Block of the embedded runtime from its calls: the forward pass in order, then the
// backward pass, each call with its operands and inside its module. Everything else follows: what
// is allocated before which call and released after which, what the forward pass leaves for the
// backward one, what a recomputation has to run again, and when a weight's gradient is complete.
//
// Rules, for each pass over the block:
//  - a storage exists from the first call that writes it to the last that uses it;
//  - what the backward pass reads and has not written itself is saved by the forward pass;
//  - an input is released by the forward pass unless it is saved or the block is checkpointed;
//  - a checkpointed block keeps its input. `selective` also keeps what is marked Keep::selective
//    (the results of matrix products and of attention); norms and activation functions run again;
//  - a recomputation leaves out calls that nothing saved depends on, and modules without calls;
//  - a gradient is announced after the last call that writes it; one that the forward pass finishes
//    at the beginning of the backward pass, when engines look for gradients.
// What the calls cost: kernel_cost.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/graph/graph.hpp"
#include "model/implementations/graph_options.hpp"
#include "model/transformer.hpp"

namespace zeroplan::embedded {

// Whether selective checkpointing keeps a tensor.
enum class Keep { no, selective };

class BlockBuilder {
 public:
  struct Setup {
    std::string name;    // "LlamaDecoderLayer"
    std::string prefix;  // of the first instance, for parameter names
    const Model* model = nullptr;
    const GraphOptions* options = nullptr;
    bool checkpoint = false;
  };
  explicit BlockBuilder(Setup setup);

  // --- sizes ---
  const TransformerShape& shape() const { return setup_.model->shape; }
  std::int64_t batch() const { return setup_.options->micro_batch; }
  std::int64_t sequence() const { return setup_.options->sequence_length; }
  std::int64_t rows() const { return batch() * sequence(); }
  bool fused_loss() const { return setup_.options->fused_loss; }
  // Of a chunk of the fused loss.
  std::int64_t loss_rows() const;

  // --- tensors ---
  KernelOperand input(std::int64_t elements);
  KernelOperand tensor(std::int64_t elements, Keep keep = Keep::no);
  KernelOperand logits(std::int64_t elements);
  KernelOperand statistic(std::int64_t elements, Keep keep = Keep::no);  // fp32
  KernelOperand workspace(std::int64_t elements);                        // fp32
  KernelOperand loss();
  static KernelOperand ids() { return {KernelOperand::From::ids, -1}; }
  static KernelOperand labels() { return {KernelOperand::From::labels, -1}; }
  // A parameter of the module that runs, or of the block where the name says more; none where the
  // model has none of that name.
  KernelOperand parameter(std::string_view name);
  KernelOperand parameter_of_block(std::string_view name);
  const std::vector<std::int64_t>& shape_of(KernelOperand parameter) const;
  // Where the gradient of a parameter goes.
  KernelOperand gradient_of(KernelOperand parameter);
  // Several blocks use this parameter: whether this block's part of the gradient comes first and
  // last in the backward pass. A part that is not the first is added to what came before.
  struct Tie {
    bool first = true, last = true;
  };
  void tie(KernelOperand parameter, const Tie& tie);

  // --- the calls ---
  // Runs inside the module from here to the end of the scope, which opens inside others.
  class Scope {
   public:
    explicit Scope(BlockBuilder& builder) : builder_(builder) {}
    ~Scope() { builder_.leave(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    BlockBuilder& builder_;
  };
  [[nodiscard]] Scope module(std::string_view name);  // "": the block's own module
  // Batch, sequence and rows are filled in where they are 0.
  void run(KernelCall call);
  void set_output(KernelOperand output);
  // Ends the forward pass; the gradient of the output, which a loss does not have.
  KernelOperand begin_backward();
  void set_input_gradient(KernelOperand gradient);

  Block take();

 private:
  struct Step {
    EventKind kind;  // module_enter, module_exit, operation
    std::int32_t index;
  };
  struct Walk;
  std::int32_t new_storage(std::int64_t elements, DType dtype, MemoryCategory category, Keep keep);
  std::vector<Step>& steps() { return in_backward_ ? backward_ : forward_; }
  void leave() noexcept;
  std::int32_t storage_of(const KernelOperand& operand) const;
  void mark_saved();
  std::vector<Step> needed_again(const std::vector<bool>& kept) const;
  void write_pass(Pass pass, const Walk& walk);
  bool writes_gradient(const Step& step, std::int32_t parameter) const;
  void announce(std::int32_t parameter);
  void announce_forward_gradients();
  void announce_gradients(std::size_t step);
  std::vector<std::int32_t> last_uses(const std::vector<Step>& steps) const;

  Setup setup_;
  Block block_;
  std::vector<const Parameter*> parameters_;     // of the model, by Block::parameters
  std::vector<std::int32_t> gradient_storages_;  // by parameter, -1: none or an earlier block's
  std::vector<Tie> ties_;                        // by parameter
  std::vector<Keep> keeps_;                      // by storage
  std::vector<bool> saved_;                      // by storage: the backward pass reads it
  std::vector<std::int32_t> open_modules_;
  std::vector<Step> forward_, backward_;
  bool in_backward_ = false;
  bool misses_event_ = false;  // there was no memory for it
};

}  // namespace zeroplan::embedded
