// A model's forward pass as `zeroplan trace` recorded it (zeroplan.graph/1, docs/trace.md): blocks
// of operations on tensors whose sizes are formulas in batch and sequence.
//
// Flow: families/traced_document.cpp reads the document into a TracedGraph and a Model;
// implementations/traced.cpp plays it on a Tape, which gives the same ModelGraph as forward code
// that was written by hand.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/dtype.hpp"
#include "model/transformer.hpp"

namespace zeroplan {

// constant + of_batch b + of_sequence s + of_both b s. Fractions stand for shares of tokens (those
// of one expert): the value is rounded up.
struct SizeFormula {
  double constant = 0.0, of_batch = 0.0, of_sequence = 0.0, of_both = 0.0;
  std::int64_t at(std::int64_t batch, std::int64_t sequence) const;
};

struct TracedTensor {
  std::vector<SizeFormula> shape;
  DType dtype = DType::bf16;
  bool of_model = true;  // has the dtype of the model's weights, whatever that is
};

// What an operation reads.
struct TracedOperand {
  enum class Kind : std::uint8_t { none, tensor, parameter, buffer, own_buffer, input };
  Kind kind = Kind::none;
  std::int32_t tensor = -1;  // of the block
  std::string name;          // of a parameter or an own buffer: relative to the call's prefix
};

struct TracedEvent {
  enum class Kind : std::uint8_t { enter, leave, drop, category, operation };
  Kind kind = Kind::operation;
  std::string name;          // of the module, the category or the operation
  std::int32_t tensor = -1;  // that a module is given by position, or returns; -1: none
  std::vector<std::int32_t> dropped;
  std::vector<TracedOperand> in;
  std::vector<std::int32_t> out;
  std::vector<TracedOperand> saves;  // what autograd kept, for operations without a formula here
  std::vector<std::int64_t> dims;
  double p = 0.0;           // a probability or an exponent
  std::int64_t step = 1;    // of a slice
  bool causal = false;      // attention
  bool grouped = false;     // attention: fewer heads of keys than of queries
  bool contiguous = false;  // a clone that makes its copy contiguous
  bool no_grad = false;
};

struct SlotUse {
  std::int32_t slot = -1, tensor = -1;
};

struct TracedBlock {
  std::string name;
  std::vector<TracedTensor> tensors;
  std::vector<std::int32_t> roots;  // of each tensor: the one whose storage it shares
  std::vector<TracedEvent> events;
  std::int32_t input = -1;  // from the block before; -1: none
  std::int32_t output = -1;
  std::vector<SlotUse> takes, gives;  // tensors of other blocks than the neighbour
  std::vector<std::int32_t> held;     // that the model's output holds
};

struct TracedCall {
  std::int32_t block = -1;
  std::string prefix;  // "model.layers.3."
  bool layer = false;  // of a list of modules: activation checkpointing goes by these
};

struct NamedTensor {
  std::string name;
  TracedTensor tensor;
};

struct TracedGraph {
  std::string source;             // "transformers 5.17.0", "my_model.py"
  std::string attention;          // attn_implementation; empty: the model's own code
  bool checkpoints = true;        // the class lets gradient_checkpointing_enable() be called
  bool recorded = false;          // made for a config.json, of which transformers builds the model
  Images images;                  // that it was traced with
  std::int64_t image_tokens = 0;  // that each of them takes of its sequence
  // Modules that make first hidden states, of which peft wants gradients beside checkpoints.
  std::vector<std::string> embeddings;
  std::int64_t batch = 0;  // the only one that its sizes are of; 0: of every batch
  std::vector<NamedTensor> inputs, buffers;
  std::int32_t slots = 0;
  std::vector<TracedBlock> blocks;
  std::vector<TracedCall> calls;  // in forward order
};

// A Model is a plain value that is copied freely, and names of operations live as long as the
// program (Operation::name): what was read is kept until its end, once for each different document.
// The name goes into Model::implementation_family.
std::string keep_traced_graph(TracedGraph graph, const std::string& document);
// The graph of a traced model; null for every other one.
const TracedGraph* traced_graph_of(const Model& model);
// Whether activation checkpoints can be switched on: of some of transformers' classes not.
bool can_checkpoint(const Model& model);
// The only micro-batch that the model's document is of; 0: it is of every one.
std::int64_t traced_batch_of(const Model& model);

// The message of a check (ZP_CHECK) that only such a document can break, without its place.
std::string failed_check(const std::logic_error& broken);

// The first event behind `from` at which a block leaves the module of that name.
std::size_t end_of_module(const TracedBlock& block, std::string_view name, std::size_t from);

// Whether an operation of that name stands in one of the blocks.
bool has_operation(const TracedGraph& graph, std::string_view name);

}  // namespace zeroplan
