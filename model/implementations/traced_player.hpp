// One block of a traced document, played on a Tape.
#pragma once

#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.hpp"
#include "model/graph/autograd.hpp"
#include "model/graph/traced_graph.hpp"
#include "model/implementations/hf_common.hpp"
#include "model/implementations/traced_values.hpp"

namespace zeroplan {

// A tensor that goes from block to block, as the block that made it left it.
struct Passed {
  Shape shape;
  DType dtype = DType::bf16;
  bool gradient = false;
  std::int32_t last_user = -1;  // call that uses the gradient first in backward
};

// One call of a block, with what is known only at its place.
struct CallPlace {
  std::size_t call = 0;
  std::optional<Passed> input;
  std::map<std::int32_t, Passed> taken;   // by slot of the document
  std::map<std::string, Tape::Tie> ties;  // by name relative to the prefix
};

// The tensors that a block left, by slot; the output under -1.
using Left = std::map<std::int32_t, Passed>;

// From here on a block multiplies with the vocabulary's matrix and makes a loss of the logits.
bool is_logits(const TracedEvent& e);

// The error of a document whose tensors are not what an operation asks for: a precondition of the
// code that plays it (ZP_CHECK), which only a document that somebody wrote can break.
InputError refused(const std::string& where, const std::logic_error& broken);

class TracedPlayer {
 public:
  TracedPlayer(Tape& tape,
               const hf::Context& context,
               const TracedGraph& graph,
               const TracedBlock& block,
               const CallPlace& place,
               std::int32_t first_slot)
      : t_(tape),
        c_(context),
        block_(block),
        place_(place),
        first_slot_(first_slot),
        values_(tape, context, graph, block) {}

  Tensor play(Left& left);

  // Plays the operations that a later stage of a pipeline repeats beside the hidden states that it
  // receives: those whose results depend on no parameter.
  void play_beside(Left& left);

 private:
  struct Open {
    std::string name;
    std::int32_t scope = -1;  // -1: no events for it
    std::int32_t tensor = -1;
    Tensor outside;
  };

  void begin();
  bool is_made_again(const TracedEvent& e);

  // Plays one event, or a layer with an adapter; returns the last event that was played.
  std::size_t event(std::size_t i);

  // Whether a trainer, or Liger, computes what it needs from the hidden states in code of its own.
  bool has_other_loss() const;

  // The rest of the last block by that code: at `i` the class enters its head, which multiplies the
  // hidden states with the vocabulary's matrix, or scores them, and makes a loss of the result.
  // Returns the last event.
  std::size_t other_loss(std::size_t i);
  [[noreturn]] void no_head() const;

  // The module's name within the one that runs; empty where it is not inside it.
  std::string_view inside(std::string_view module) const;
  void enter(const TracedEvent& e);
  void leave(const TracedEvent& e);
  void drop(const TracedEvent& e);

  // Storages that the program lets go of where other code runs in the place of those events.
  void drop_within(std::size_t first, std::size_t end);
  void tie(const TracedEvent& e);
  void operation(const TracedEvent& e);
  [[noreturn]] void wrong_size(const TracedEvent& e) const;

  // A reshape that had to copy at the sizes that were traced, which are of several sequences: heads
  // of one alone need no copy.
  bool is_reshape(std::size_t i) const;
  std::size_t reshape(std::size_t i);

  // mamba_ssm's kernels in place of what the module that runs does from here on; without them only
  // the parameters are named, as the class does in its arguments. Returns the last event played.
  std::size_t split_scan(std::size_t i);

  // A feed-forward by tiles of the sequence, in the place of what the class does in it.
  std::size_t tiled(std::size_t i);

  // A layer whose class calls no F.linear (Falcon's), and which four-bit weights replace by
  // another.
  bool is_four_bit_matmul(std::size_t i) const;

  // A linear layer as the wrapped module runs it: peft's, its own operation and the adapter's
  // beside it, or one of four-bit weights.
  std::size_t whole_layer(std::size_t i);

  // A tensor of a storage that goes on to other blocks: never a parameter's, never the input's.
  Tensor own(const Tensor& tensor);
  Tensor end(Left& left);
  void give(Left& left);

  // Without autograd, as in the first pass over a checkpoint, nothing is known of gradients.
  void note(Left& left, std::int32_t slot, const Tensor& tensor);

  Tape& t_;
  const hf::Context& c_;
  const TracedBlock& block_;
  const CallPlace& place_;
  std::int32_t first_slot_;
  TracedValues values_;
  std::vector<Open> open_;
};

}  // namespace zeroplan
