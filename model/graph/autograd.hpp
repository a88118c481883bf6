// A miniature of PyTorch's autograd that works on sizes: tensors have shape, strides, dtype and a
// reference-counted storage, but no values. Running a model's forward code on a Tape records the
// Block of graph.hpp: every operation, every allocation, and every release at the point where the
// last reference goes, be it a variable of the code or a saved tensor of a backward node.
//
// C++ handles stand for Python references: a `Tensor` variable that is reassigned or leaves its
// scope drops its reference as the Python variable would. A temporary lives to the end of its
// statement, so nest at most one call in another, as a Python argument lives until the call
// returns.
//
// Rules followed (PyTorch 2.6):
//  - a node saves what its formula names, and an input only if the derivative that reads it is
//    needed;
//  - a saved view keeps its whole storage;
//  - backward runs nodes by descending sequence number, a parameter's accumulation first of all;
//  - a node's incoming gradient and saved tensors die after its outputs exist;
//  - gradients that meet are added in place where the first one has no other owner and is no view,
//    which keeps its base (input_buffer.cpp, can_accumulate_inplace).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/graph/graph.hpp"
#include "model/graph/reduction_buffer.hpp"
#include "model/transformer.hpp"

namespace zeroplan {

class Tape;

// Sizes and strides, up to six dimensions. A dimension that there is not is a ZP_CHECK failure.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes);  // contiguous
  explicit Shape(const std::vector<std::int64_t>& sizes);

  int rank() const { return rank_; }
  std::int64_t size(int d) const { return sizes_[index(d)]; }  // negative d counts from the end
  std::int64_t stride(int d) const { return strides_[index(d)]; }
  Elements numel() const;
  bool contiguous() const;
  bool dense() const;  // non-overlapping and dense: some permutation of it is contiguous
  bool same_sizes(const Shape& other) const;

  Shape transposed(int a, int b) const;
  Shape with_size(int d, std::int64_t size) const;  // strides kept: a slice
  Shape stepped(int d, std::int64_t step) const;    // every step-th of dimension d
  Shape unsqueezed(int d) const;                    // d counts in the result
  Shape without(int d) const;
  Shape expanded(const Shape& to) const;  // stride 0 where a dimension grows
  Shape as_contiguous() const;            // same sizes
  Shape as_dense() const;                 // same sizes, stride order kept, no gaps
  // The strides of a view with these sizes, if there is one (computeStride of TensorUtils.cpp).
  bool viewable_as(const Shape& sizes, Shape& out) const;
  // Sizes of an elementwise result of two operands.
  static Shape broadcast(const Shape& a, const Shape& b);

 private:
  static constexpr int kMaxRank = 6;
  std::size_t index(int d) const {
    const int at = d < 0 ? d + rank_ : d;
    if (at < 0 || at >= rank_) no_dimension(d);
    return static_cast<std::size_t>(at);
  }
  [[noreturn]] void no_dimension(int d) const;
  void make_contiguous();
  std::array<std::int64_t, kMaxRank> sizes_{};
  std::array<std::int64_t, kMaxRank> strides_{};
  int rank_ = 0;
};

// A reference to a tensor. Parameters have no storage here: the engine owns them.
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor& other);
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor other) noexcept;
  ~Tensor();

  bool defined() const { return tape_ != nullptr; }
  const Shape& shape() const { return shape_; }
  std::int64_t size(int d) const { return shape_.size(d); }
  DType dtype() const { return dtype_; }
  Elements numel() const { return shape_.numel(); }
  Bytes bytes() const { return numel() * dtype_; }
  bool requires_grad() const { return node_ >= 0 || (parameter_ >= 0 && trainable_); }
  std::int32_t storage() const { return storage_; }
  std::int32_t parameter() const { return parameter_; }
  Tensor detached() const;  // the same storage without history

 private:
  friend class Tape;
  friend class Backward;
  friend void swap(Tensor& a, Tensor& b) noexcept;
  Tape* tape_ = nullptr;
  std::int32_t storage_ = -1;
  std::int32_t node_ = -1;       // grad_fn
  std::int32_t output_ = 0;      // which output of it
  std::int32_t parameter_ = -1;  // leaf: index into Block::parameters
  bool trainable_ = false;
  bool view_ = false;  // made by a view operation: its base lives with it
  DType dtype_ = DType::bf16;
  Shape shape_;
};

// What a node's backward formula sees: incoming gradients, and which of its inputs want one.
class Backward {
 public:
  Tape& tape;
  const Tensor& gradient(std::size_t output = 0) const;
  std::size_t outputs() const { return gradients_.size(); }
  bool needs(std::size_t input) const;
  void give(std::size_t input, Tensor gradient);

 private:
  friend class Tape;
  explicit Backward(Tape& t) : tape(t) {}
  std::int32_t node_ = -1;
  std::vector<Tensor> gradients_;
  std::vector<Tensor> results_;
};
using BackwardFormula = std::function<void(Backward&)>;

// Records one block: record_block runs its forward code, once under no_grad and once with autograd
// where it is checkpointed, and then the backward pass.
class Tape {
 public:
  struct Setup {
    std::string name;
    const Model* model = nullptr;
    std::string prefix;         // of the first instance, for parameter names
    DType dtype = DType::bf16;  // of weights and, without autocast, activations
    // Of the parameters that train, where it is another one: adapters beside a frozen model.
    std::optional<DType> trained_dtype;
    std::optional<DType> input_dtype;  // where it is not `dtype`
    // The forward code runs under torch.autocast with this dtype (aten_autocast.hpp).
    std::optional<DType> autocast;
    bool input_requires_grad = true;
    bool checkpoint = false;
    bool checkpoint_reentrant = true;
    bool checkpoint_offload = false;
    std::int64_t checkpoint_ranks = 1;  // each keeps its part of a checkpoint
    bool outputs_held_in_backward = false;
    bool holds_input = false;     // output_hidden_states: the output object keeps a layer's input
    std::int32_t first_slot = 0;  // of ModelGraph::shared: stacks beside each other have their own
    // Some releases allocate cublasLt's workspace anew for every call with an epilogue.
    bool lt_workspace_per_call = true;
    // What every other product allocates and frees; zero where cuBLAS' workspace is kept.
    Bytes product_workspace = Bytes::zero();
    ReductionGpu gpu;  // what sums over rows take beside their result
  };
  explicit Tape(Setup setup);
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // --- what the forward code is given ---
  // The block's input, from the block before: in the format that this one gave it in.
  Tensor input(const Shape& shape) {
    return input(shape, setup_.input_dtype.value_or(setup_.dtype));
  }
  Tensor input(const Shape& shape, DType dtype);
  // The calling frame has bound its variable to something else: the input lives on only in what
  // refers to it here.
  void forget_input();
  // The calling frame has let go of another tensor, which goes where nothing here refers to it.
  void forget(const Tensor& tensor);
  // A tensor that an earlier block shared under a slot of ModelGraph::shared.
  Tensor shared(std::int32_t slot, const Shape& shape, DType dtype);
  void share(std::int32_t slot, const Tensor& tensor);
  // A variable of the model's forward() refers to the tensor until its layers have run. It may be
  // what the block returns; else it stands in a slot.
  void hold_in_frame(std::int32_t slot, const Tensor& tensor);
  // The same where gradients flow back. Each call of the first is a use with a gradient of its own;
  // `first_in_backward` says that no later block uses the tensor. The block may return what it
  // shares as its output: then no gradient comes from the next block.
  Tensor shared_with_gradient(std::int32_t slot,
                              const Shape& shape,
                              DType dtype,
                              bool first_in_backward);
  void share_with_gradient(std::int32_t slot, const Tensor& tensor);
  // The same number in every stack, for what one gives to the other.
  std::int32_t slot_of_all(std::int32_t slot) const { return slot - setup_.first_slot; }
  // The parameter `prefix + name` of the model; undefined where the model has none of that name.
  Tensor parameter(std::string_view name);
  // A constant that lives as long as the model (a registered buffer): no storage of the graph.
  Tensor buffer(const Shape& shape, DType dtype);
  // Several blocks use this parameter: whether this block's part of the gradient comes first, last,
  // and whether it is added in place to what came before.
  struct Tie {
    bool first = true, last = true;  // in backward
    bool in_place = false;
  };
  void tie(const Tensor& parameter, const Tie& tie);
  // requires_grad_() on a tensor without history: gradients are computed up to it.
  void require_grad(Tensor& tensor);
  // The parameter `name` of the module that runs: parameter("self_attn.q_proj." + name).
  Tensor module_parameter(std::string_view name);
  // Whether `module.name`, relative to the module that runs, is a parameter of the model.
  bool has_parameter(std::string_view module, std::string_view name) const;
  // Whether the parameter is stored in four bits: it is read with aten::linear_4bit.
  bool is_quantized(const Tensor& parameter) const;
  // A variable of the layer's forward() refers to the tensor until that returns.
  void hold_in_layer(const Tensor& tensor) { layer_frame_.push_back(tensor.detached()); }
  // The model's output object keeps a reference (logits, caches).
  void hold(const Tensor& tensor);
  DType dtype() const { return setup_.dtype; }
  // The dtype of autocast where it is on: in the forward code, not in formulas of backward.
  std::optional<DType> autocast() const {
    return pass_ == Pass::backward || inside_operation_ ? std::nullopt : setup_.autocast;
  }
  // Autocast's copy of a parameter: the engine holds it (BlockParameter::autocast). `formula`
  // brings its gradient back in the parameter's own dtype (aten_autocast.hpp).
  Tensor autocast_copy(const Tensor& parameter, DType dtype, BackwardFormula formula);
  // What one dispatched operation is composed of runs without autocast (ExcludeDispatchKeyGuard of
  // autocast_mode.h).
  class InsideOperation {
   public:
    explicit InsideOperation(Tape& t) : flag_(t.inside_operation_), before_(flag_) { flag_ = true; }
    ~InsideOperation() { flag_ = before_; }
    InsideOperation(const InsideOperation&) = delete;
    InsideOperation& operator=(const InsideOperation&) = delete;

   private:
    bool& flag_;
    bool before_;
  };
  // What is recorded while it lives happens `times` in a row, as in a loop over equal parts of a
  // sequence: operations count so often, theirs of backward too, and what autograd keeps of one
  // part it keeps of each. A tensor that no node saved is there once: a part's goes before the
  // next part's comes. Left out: what the parts keep comes together, and goes together, so that
  // no moment between two parts shows less than there is.
  class InARow {
   public:
    InARow(Tape& t, std::int64_t times) : times_(t.times_), before_(times_) { times_ = times; }
    ~InARow() { times_ = before_; }
    InARow(const InARow&) = delete;
    InARow& operator=(const InARow&) = delete;

   private:
    std::int64_t& times_;
    std::int64_t before_;
  };
  bool lt_workspace_per_call() const { return setup_.lt_workspace_per_call; }
  const ReductionGpu& reduction_gpu() const { return setup_.gpu; }

  bool grad_enabled() const { return grad_enabled_; }
  bool trains(std::initializer_list<const Tensor*> inputs) const;

  // --- what operations are made of ---
  Tensor empty(const Shape& shape, DType dtype);
  Tensor empty(const Shape& shape, DType dtype, MemoryCategory category);
  Tensor alias(const Tensor& base, const Shape& shape, std::string_view name);  // a dispatched view
  struct Launch {
    std::string_view name;
    OpKind kind = OpKind::pointwise;
    Bytes traffic = Bytes::zero();
    std::int32_t kernels = 1;
    std::optional<Library> library = {};  // cublas for a matrix product, else own
  };
  void launch(const Launch& launch);
  // With a workspace of its own while it runs, where the release does that.
  void launch(const Launch& launch, const MatrixProduct& product);
  void launch(const Launch& launch, const AttentionCall& call);
  // A reference for a node's formula; counts as saved.
  Tensor save(const Tensor& tensor);
  // Makes `outputs` the outputs of a node with these inputs.
  void record(const std::vector<Tensor*>& outputs,
              const std::vector<const Tensor*>& inputs,
              BackwardFormula formula);

  // Here the trainer runs its other models, before the loss reads what they returned.
  void run_passes_beside() { emit(EventKind::passes_beside, -1); }

  // --- modules ---
  std::int32_t enter(std::string_view name, Tensor& input);  // relative to the enclosing module
  std::int32_t enter(std::string_view name);
  Tensor leave(std::int32_t module, Tensor output);

  // Category of what is allocated from now on (logits in the head).
  void set_category(MemoryCategory category) { category_ = category; }
  MemoryCategory category() const { return category_; }

 private:
  friend class Tensor;
  friend class Backward;
  struct Edge {
    std::int32_t node = -1, output = 0, parameter = -1;
    MemoryCategory category = MemoryCategory::activations;
  };
  struct Node {
    std::vector<Edge> inputs;
    BackwardFormula formula;
    std::vector<Tensor> buffer;  // incoming gradients, by output
    std::int32_t dependencies = 0;
    std::int32_t module = -1;
    std::int64_t times = 1;  // InARow
    MemoryCategory category = MemoryCategory::activations;
    std::int32_t first_storage = 0;
  };
  struct SharedOutput {  // of this block, waiting for the gradient of its uses
    std::int32_t use = -1;
    Tensor tensor;
  };
  // items[i]. What a tensor carries may be no index: constants and parameters have no storage here,
  // and what is not a parameter has no number among them.
  template <typename Items>
  static decltype(auto) at(Items& items, std::int64_t i) {
    if (i < 0 || i >= std::ssize(items)) no_element(i, std::ssize(items));
    return items[static_cast<std::size_t>(i)];
  }
  [[noreturn]] static void no_element(std::int64_t i, std::int64_t count);
  std::int32_t find_parameter(std::string_view name) const;  // in Model::parameters
  std::string relative_to_module(std::string_view name) const;
  void retain(std::int32_t storage);
  void drop(std::int32_t storage) noexcept;
  void emit(EventKind kind, std::int32_t index);
  std::int32_t new_storage(Elements elements, DType dtype, MemoryCategory category);
  std::int32_t add_operation(const Launch& launch);
  void begin(Pass pass);
  void finish(Tensor output);
  void backward();
  std::int32_t use_of(std::int32_t slot) const;  // index into Block::shared, -1: none
  bool shares_output() const;
  std::vector<std::int32_t> seed_shared_gradients();
  void run_nodes(const std::vector<std::int32_t>& roots);
  void run_node(std::int32_t index, std::vector<std::int32_t>& ready);
  void accumulate(const Edge& edge, Tensor gradient, std::vector<std::int32_t>& ready);
  Tensor add_gradients(Tensor old, Tensor more);
  void accumulate_parameter(std::int32_t parameter, Tensor gradient);
  void count_dependencies(const std::vector<std::int32_t>& roots);
  void write_recompute();
  void put_input_away();
  void keep_all_in_a_row();
  Block take();
  friend Block record_block(Tape::Setup setup, const std::function<Tensor(Tape&)>& forward);

  Setup setup_;
  Block block_;
  std::size_t first_parameter_ = 0;       // of the prefix in Model::parameters
  std::vector<std::int32_t> references_;  // by storage
  std::vector<std::int32_t> frame_slots_;
  std::vector<Tensor> layer_frame_;
  std::vector<bool> released_elsewhere_;  // by storage: its last reference writes no event
  std::vector<Node> nodes_;
  std::vector<Tie> tied_;
  std::vector<std::int32_t> uses_;           // by parameter: gradients still to come
  std::vector<Tensor> parameter_gradients_;  // by parameter: input buffer of its accumulation
  std::vector<std::int32_t> module_stack_;
  std::vector<Tensor> held_;
  std::vector<SharedOutput> shared_outputs_;
  Tensor input_;  // the calling frame's reference
  Tensor output_;
  Pass pass_ = Pass::forward;
  MemoryCategory category_ = MemoryCategory::activations;
  bool grad_enabled_ = true;
  bool inside_operation_ = false;
  std::int64_t times_ = 1;                   // InARow
  std::vector<std::int64_t> storage_times_;  // by storage
  bool recording_ = true;      // false while the tape is taken apart: references die without events
  bool misses_event_ = false;  // there was no memory for it
};

// The block whose forward code is `forward`, which calls Tape::input where it has one and returns
// the output (a scalar loss for the last block).
Block record_block(Tape::Setup setup, const std::function<Tensor(Tape&)>& forward);

}  // namespace zeroplan
