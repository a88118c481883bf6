// What one micro-batch makes the GPU do: operations with their cost, and tensors with their
// lifetimes, as PyTorch's eager mode and autograd would produce them. This is the only place that
// knows a tensor's size or an operation's cost: the analytic estimates sum it, the simulator plays
// it into its allocator replica, calibration fits it.
//
// A model is a sequence of blocks (embedding, decoder layers, head with loss). Blocks that are
// equal are built once and instantiated with the index of their parameters, so 80 layers cost no
// more than one. A block carries its event lists, one for each pass, in the order in which the CPU
// thread issues them; an allocation or release is an event between the operations around it.
//
// Who frees what at the boundary of two blocks A, B with tensor t = A(...), B(t):
//   forward         A allocates t; B releases it at its end, unless B saves it for backward;
//   backward        B allocates t's gradient; A releases it; a saved t is released by B's backward.
// A weight gradient is allocated by the backward pass and announced by a weight_gradient event;
// from then on it belongs to the engine (accumulate, bucket, partition), and so does its release.
//
// Bytes are what the tensors hold; the allocator rounds each storage up to 512 (summaries do too).
// Built by implementations/*.cpp through autograd.hpp; see build_graph in implementations.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/phrase.hpp"
#include "base/units.hpp"
#include "model/dtype.hpp"
#include "model/graph/kernel_call.hpp"
#include "model/memory_category.hpp"

namespace zeroplan {

// What an operation's time depends on.
enum class OpKind {
  matmul,     // Operation::shape indexes Block::products
  attention,  // fused attention; Operation::shape indexes Block::attentions
  pointwise,  // streams its operands once
  reduction,  // mean, sum, norm statistics
  softmax,    // row-wise softmax and log-softmax, forward and backward
  norm,       // fused layer_norm
  copy,       // clone, contiguous, cat, dtype conversion
  gather,     // embedding and index reads
  scatter,    // embedding and index gradients (sort included)
  fill,       // zeros
  exchange,   // all-to-all between sequence-parallel ranks; traffic: what a rank sends and keeps
  tensor_reduce,   // all-reduce over the ranks of tensor parallelism; traffic: the tensor
  tensor_gather,   // all-gather over them; traffic: the whole tensor
  stage_transfer,  // between neighbouring pipeline stages; traffic: what a rank sends or receives
  host_copy,       // between GPU and pageable host memory
  view,            // host only: a dispatched call without a kernel
};
inline constexpr std::array<std::string_view, 16> kOpKindNames = {"matmul",
                                                                  "attention",
                                                                  "pointwise",
                                                                  "reduction",
                                                                  "softmax",
                                                                  "norm",
                                                                  "copy",
                                                                  "gather",
                                                                  "scatter",
                                                                  "fill",
                                                                  "exchange",
                                                                  "tensor_reduce",
                                                                  "tensor_gather",
                                                                  "stage_transfer",
                                                                  "host_copy",
                                                                  "view"};
constexpr std::string_view name(OpKind kind) {
  return kOpKindNames[static_cast<std::size_t>(kind)];
}

// batch times C[m, n] = A[m, k] B[k, n].
struct MatrixProduct {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  DType dtype = DType::bf16;
};

enum class SdpaBackend { flash, mem_efficient, math };

// One call of a fused attention kernel.
struct AttentionCall {
  std::int64_t batch = 1, heads = 0, kv_heads = 0, queries = 0, keys = 0, head_dim = 0;
  bool causal = false;
  bool backward = false;
  SdpaBackend backend = SdpaBackend::flash;
  DType dtype = DType::bf16;
  bool alibi = false;  // of the embedded runtime's kernel
};

// Executed floating-point operations: 2 m n k a product. Attention: two products forward, five
// backward (it recomputes the scores), of 2 heads queries keys head_dim each; a causal kernel skips
// half. Source: Dao 2023, arXiv:2307.08691, section 4.
Flops flops_of(const MatrixProduct& product);
Flops flops_of(const AttentionCall& call);

// Whose kernels run an operation, which decides on the workspace that they get.
enum class Library : std::uint8_t {
  own,       // PyTorch's, cuDNN's, CUTLASS'
  cublas,    // of matrix products
  cublaslt,  // of those with an epilogue that adds a vector
};

// One ATen operation as the dispatcher sees it.
struct Operation {
  std::string_view name;  // "mm"; static storage
  OpKind kind = OpKind::view;
  // Executed floating-point operations of tensor cores: 2 m n k a product; causal attention counts
  // the half it computes. Pointwise arithmetic is not counted.
  Flops flops;
  Bytes traffic;             // read and written by its kernels, each operand once per kernel
  std::int32_t kernels = 0;  // CUDA kernels launched
  std::int64_t times = 1;    // in a row, each with these numbers (Tape::InARow)
  std::int32_t shape = -1;   // index into Block::products or Block::attentions
  std::int32_t module = -1;  // index into Block::modules of the innermost module running it
  Library library = Library::own;
};

// A block of GPU memory: what views share.
struct Storage {
  Elements elements;
  DType dtype = DType::bf16;
  MemoryCategory category = MemoryCategory::activations;
  Bytes bytes;
};

// What the caching allocator counts for a storage: whole blocks of 512 bytes (kMinBlockSize,
// c10/cuda/CUDACachingAllocator.cpp).
constexpr Bytes allocated_bytes(const Storage& storage) {
  constexpr std::int64_t kGranularity = 512;
  return Bytes::of(round_up(storage.bytes.count(), kGranularity));
}

// A parameter's gradient. Complete: PyTorch's post-accumulate hook would fire now, and the storage
// is the engine's. A tied weight gets parts from several blocks: its first part comes with a
// storage and incomplete (autograd's input buffer keeps it), later parts are added into that
// storage and announced with storage -1, the last of them complete.
struct WeightGradient {
  std::int32_t parameter = -1;  // index into Block::parameters
  std::int32_t storage = -1;    // holds it; -1: the one announced before for this parameter
  bool complete = true;
};

enum class EventKind : std::uint8_t {
  module_enter,     // index into Block::modules. Backward: gradient of the module's output arrived
  module_exit,      // Backward: gradients of all its inputs are computed
  operation,        // index into Block::operations: the CPU issues it
  allocate,         // index into Block::storages
  release,          //
  save,             // autograd keeps a reference (the release follows in the backward pass)
  weight_gradient,  // index into Block::weight_gradients
  passes_beside,    // between logits and loss a trainer runs its other models; no index
};

struct Event {
  EventKind kind;
  std::int32_t index;
};

struct BlockModule {
  std::string name;  // relative to the instance's prefix: "self_attn.q_proj"; "" the block itself
};

struct BlockParameter {
  std::string name;  // relative to the prefix: "self_attn.q_proj.weight"
  Elements numel;
  bool trainable = true;
  bool quantized = false;  // stored in four bits
  bool autocast = false;   // read as autocast's copy in lower precision, which is not the graph's
};

// The passes over a block.
enum class Pass {
  forward,          // with autograd recording; ends with the saved tensors and the output alive
  forward_no_grad,  // first pass over a checkpointed block: ends with input and output alive
  drop_outputs,     // the model's output object dies: logits and caches it kept are released
  recompute,        // checkpointed block in backward: from the input to the saved tensors
  backward,         // from the gradient of the output to the gradient of the input
};
inline constexpr std::size_t kPassCount = 5;

// Does the pass belong to the forward phase? Recomputation runs in the backward phase.
constexpr bool in_forward_phase(Pass pass) {
  return pass == Pass::forward || pass == Pass::forward_no_grad;
}

// A tensor that several blocks use: rotary tables, masks, an encoder's output.
struct SharedUse {
  std::int32_t slot = -1;     // index into ModelGraph::shared
  std::int32_t storage = -1;  // this block's name for it
  bool produced = false;      // this block allocates it (else an earlier one did)
  bool saved = false;         // autograd keeps a reference from this block
  // Where a gradient flows back to the producer: the storage of their sum. The producer's backward
  // consumes it, the use that comes first in backward allocates it (-1: later uses add into it).
  std::int32_t gradient = -1;
};

struct Block {
  std::string name;  // "LlamaDecoderLayer"
  std::vector<BlockModule> modules;
  std::vector<BlockParameter> parameters;
  std::vector<Storage> storages;
  std::vector<Operation> operations;
  std::vector<KernelCall>
      calls;  // of each operation, in a block of the embedded runtime; else none
  std::vector<MatrixProduct> products;
  std::vector<AttentionCall> attentions;
  std::vector<WeightGradient> weight_gradients;
  std::vector<SharedUse> shared;
  std::array<std::vector<Event>, kPassCount> events;
  // Boundary storages, -1 where absent: allocated by the neighbour (input, output_gradient) or
  // handed to it (output, input_gradient).
  std::int32_t input = -1;
  std::int32_t output = -1;
  std::int32_t output_gradient = -1;
  std::int32_t input_gradient = -1;
  DType output_dtype = DType::bf16;  // of what was recorded
  bool saves_input = false;          // backward, not forward, releases the input
  bool output_is_held = false;       // by a variable of the model's forward() (HeldInput)

  const std::vector<Event>& of(Pass pass) const { return events[static_cast<std::size_t>(pass)]; }
};

// A use of a block in the model, in forward order.
struct BlockInstance {
  std::int32_t block = -1;               // index into ModelGraph::blocks
  std::string prefix;                    // "model.layers.3."
  std::vector<std::int32_t> parameters;  // Model::parameters index of each Block::parameters
  std::vector<std::int32_t> modules;     // Model::modules index of each Block::modules, -1 unknown
  bool checkpointed = false;
};

// One pass over one instance.
struct PassStep {
  std::int32_t instance = -1;
  Pass pass = Pass::forward;
};
// A shared tensor lives from its producer's forward to the end of `last_user`'s forward, or, where
// some instance saves it, to the end of `first_saver`'s backward. Its gradient, if it has one,
// lives from the backward of `gradient_maker` to that of the producer, which releases it.
struct SharedTensor {
  std::string name;  // "cos"
  std::int32_t producer = -1, last_user = -1;
  std::int32_t first_saver = -1;  // -1: no instance keeps it for backward
  std::int32_t storage = -1;      // in the producer's block
  std::int32_t gradient_maker = -1, gradient_storage = -1;

  bool dies_after(const PassStep& step) const {
    if (producer < 0) return false;
    if (first_saver >= 0) return step.pass == Pass::backward && step.instance == first_saver;
    return (step.pass == Pass::forward || step.pass == Pass::forward_no_grad) &&
           step.instance == last_user;
  }
};

// A storage of a whole model: boundary storages are named by the instance that allocates them.
struct StorageId {
  std::int32_t instance = -1;
  std::int32_t storage = -1;
  auto operator<=>(const StorageId&) const = default;
};

// What the model's forward() holds in a variable (inputs_embeds) until its layers have run, so that
// the first layer does not free what it is given.
struct HeldInput {
  std::int32_t user = -1;  // the instance whose input it is
  std::int32_t last = -1;  // after whose forward pass it goes

  // Whether the release of this instance's input does not happen in a pass.
  bool keeps(const PassStep& step) const {
    return step.instance == user && in_forward_phase(step.pass);
  }
  bool goes_after(const PassStep& step) const {
    return step.instance == last && in_forward_phase(step.pass);
  }
};

// A buffer that a module registers: it comes to the GPU behind this parameter, the last of the
// module and its children (nn.Module._apply).
struct RegisteredBuffer {
  std::int32_t behind = -1;
  Bytes bytes;
};

struct ModelGraph {
  std::vector<Block> blocks;
  std::vector<BlockInstance> instances;
  std::vector<SharedTensor> shared;
  std::vector<HeldInput> held_inputs;  // of each stack of layers, at most one
  Bytes batch;                         // token ids, labels and mask, alive through the micro-batch
  Bytes buffers;  // registered buffers of the modules on the GPU (causal masks), alive always
  std::vector<RegisteredBuffer> registered;  // those of them whose place is known, in its order
  Bytes
      kept_outputs;  // of earlier micro-batches, which a pipeline's last stage holds in its buffers
  bool outputs_held_in_backward = false;  // the output object outlives backward (native loops)
  // Where it does: of so many first instances it goes before (of a value model, whose values alone
  // are kept).
  std::int32_t dropped_before_backward = 0;
  // Otherwise a recomputation runs inside the backward of the block, and ends at its last saved
  // tensor (torch/utils/checkpoint.py).
  bool checkpoint_reentrant = true;
  // What is checkpointed is a layer's forward(), not its __call__(): hooks of the layer do not run
  // again.
  bool checkpoints_inside_hooks = false;
  std::vector<Phrase> assumptions;  // what was assumed while building, one sentence each

  const Block& block_of(const BlockInstance& instance) const {
    return blocks[static_cast<std::size_t>(instance.block)];
  }
  const Storage& storage(StorageId id) const {
    return block_of(instances[static_cast<std::size_t>(id.instance)])
        .storages[static_cast<std::size_t>(id.storage)];
  }
  StorageId storage_of(const HeldInput& held) const {
    const std::int32_t producer = held.user - 1;
    return {producer, block_of(instances[static_cast<std::size_t>(producer)]).output};
  }
  // Whether a storage's release in a pass does not happen.
  bool keeps(const PassStep& step, std::int32_t released) const {
    return std::any_of(held_inputs.begin(), held_inputs.end(), [&](const HeldInput& held) {
      return held.keeps(step) &&
             block_of(instances[static_cast<std::size_t>(step.instance)]).input == released;
    });
  }
  // free(StorageId): what goes behind a pass, which no event of its block says.
  template <typename Free>
  void free_behind(const PassStep& step, Free&& free) const {
    for (const SharedTensor& tensor : shared) {
      if (tensor.dies_after(step)) free(StorageId{tensor.producer, tensor.storage});
    }
    for (const HeldInput& held : held_inputs) {
      if (held.goes_after(step)) free(storage_of(held));
    }
  }
};

// Elements of the parameters that the instance reads as autocast's copies; those of the whole
// graph, each parameter once.
Elements autocast_copies(const ModelGraph& graph, const BlockInstance& instance);
Elements autocast_copies(const ModelGraph& graph);

StorageId resolve(const ModelGraph& graph, std::int32_t instance, std::int32_t storage);

// The passes of a micro-batch in order: forward, the output object's end (before or after
// backward), then backward with its recomputations.
std::vector<PassStep> micro_batch(const ModelGraph& graph);

// The order in which it completes its gradients, as indices of Model::parameters.
std::vector<std::int32_t> gradient_order(const ModelGraph& graph);

// Plays one pass of a block into a sink that has
//   void module_enter(int), module_exit(int), operation(const Operation&),
//   void allocate(int storage, const Storage&), release(int storage, const Storage&),
//   void saved(int storage), weight_gradient(const WeightGradient&), and perhaps passes_beside().
template <typename Sink>
void play(const Block& block, Pass pass, Sink&& sink) {
  for (const Event& event : block.of(pass)) {
    const auto index = static_cast<std::size_t>(event.index);
    switch (event.kind) {
      case EventKind::module_enter:
        sink.module_enter(event.index);
        break;
      case EventKind::module_exit:
        sink.module_exit(event.index);
        break;
      case EventKind::operation:
        sink.operation(block.operations[index]);
        break;
      case EventKind::allocate:
        sink.allocate(event.index, block.storages[index]);
        break;
      case EventKind::release:
        sink.release(event.index, block.storages[index]);
        break;
      case EventKind::save:
        sink.saved(event.index);
        break;
      case EventKind::weight_gradient:
        sink.weight_gradient(block.weight_gradients[index]);
        break;
      case EventKind::passes_beside:
        if constexpr (requires { sink.passes_beside(); }) sink.passes_beside();
        break;
    }
  }
}

namespace detail {

// Gives the events of one step their place in the whole model.
template <typename Sink>
struct StepSink {
  const ModelGraph& graph;
  const PassStep& step;
  Sink& sink;

  void module_enter(int module) { sink.module_enter(step, module); }
  void module_exit(int module) { sink.module_exit(step, module); }
  void operation(const Operation& operation) { sink.operation(step, operation); }
  void allocate(int storage, const Storage& what) {
    sink.allocate(resolve(graph, step.instance, storage), what);
  }
  void release(int storage, const Storage& what) {
    if (graph.keeps(step, storage)) return;
    sink.release(resolve(graph, step.instance, storage), what);
  }
  void saved(int) {}
  void weight_gradient(const WeightGradient& gradient) { sink.weight_gradient(step, gradient); }
};

}  // namespace detail

// Plays a whole micro-batch into a sink that has
//   void begin(const PassStep&), module_enter(const PassStep&, int), module_exit(const PassStep&,
//   int), operation(const PassStep&, const Operation&), allocate(StorageId, const Storage&),
//   release(StorageId, const Storage&), weight_gradient(const PassStep&, const WeightGradient&).
// Everything but complete weight gradients is released by the end, the loss last.
template <typename Sink>
void play_micro_batch(const ModelGraph& graph, Sink&& sink) {
  for (const PassStep& step : micro_batch(graph)) {
    sink.begin(step);
    const BlockInstance& instance = graph.instances[static_cast<std::size_t>(step.instance)];
    play(graph.block_of(instance),
         step.pass,
         detail::StepSink<std::remove_reference_t<Sink>>{graph, step, sink});
    graph.free_behind(step, [&](StorageId id) { sink.release(id, graph.storage(id)); });
  }
  const auto last = static_cast<std::int32_t>(graph.instances.size()) - 1;
  const StorageId loss{last, graph.block_of(graph.instances.back()).output};
  sink.release(loss, graph.storage(loss));
}

using CategoryBytes = std::array<Bytes, kMemoryCategoryCount>;

struct Peak {
  Bytes total;
  CategoryBytes by_category{};
};

// The memory of one block, each storage rounded up to the allocator's 512 bytes.
struct BlockMemory {
  Bytes input, output;  // boundary tensors; both excluded from saved
  bool saves_input = false;
  Bytes saved;  // alive after forward for backward alone, without input, output and shared tensors
  CategoryBytes saved_by_category{};  // with held
  Bytes held;  // alive after forward only because the output object holds them
  // Peaks above what is alive at entry of the pass (forward: input; recompute: input and incoming
  // gradient; backward: input, saved tensors, incoming gradient), without weight gradients.
  Peak forward, forward_no_grad, recompute, backward;
  // Alive after recompute above its entry: the saved tensors and, reentrant, the output again.
  Bytes recomputed;
  Bytes weight_gradients;         // all of them
  Bytes largest_weight_gradient;  // alone
  // Backward peak above its entry if every weight gradient stays alive, or if each dies at once.
  Bytes backward_keeping_weight_gradients, backward_dropping_weight_gradients;
};
BlockMemory summarize(const Block& block);
// The bytes of a micro-batch's outputs, which live until the loop lets them go.
Bytes bytes_of_outputs(const ModelGraph& graph);

// The cost of one pass of a block.
struct PassCost {
  Flops matmul, attention;
  std::array<Bytes, kOpKindNames.size()> traffic{};  // by OpKind
  std::int64_t kernels = 0;                          // launched on the GPU
  std::int64_t operations = 0;                       // ATen operations with at least one kernel
  std::int64_t dispatched = 0;                       // views included: what costs the CPU
};
PassCost cost(const Block& block, Pass pass);

}  // namespace zeroplan
