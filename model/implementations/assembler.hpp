// Puts blocks together into a ModelGraph: records each distinct block once, finds the parameters
// and modules of every instance, and follows the tensors that several blocks share.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "model/graph/autograd.hpp"
#include "model/graph/graph.hpp"
#include "model/implementations/graph_options.hpp"

namespace zeroplan {

// Slots of ModelGraph::shared.
enum class Slot : std::int32_t {
  cos,
  sin,
  mask,
  window_mask,  // of layers with a sliding window
  local_cos,    // of layers whose positions turn by another base
  local_sin,
  embeddings,  // a variable of the model's forward() until its layers have run, no layer's
  values,      // of a value model, which the policy's loss reads
};
inline constexpr std::int32_t kSlots = 8;

class GraphAssembler {
 public:
  GraphAssembler(const Model& model, const GraphOptions& options);

  using Forward = std::function<Tensor(Tape&)>;
  // One block with its own forward code. In a pipeline those before the layers are the first
  // stage's, those behind them the last's; in their place other stages receive and send hidden
  // states (pipeline_ends.hpp).
  void add(const std::string& name, const std::string& prefix, const Forward& forward);
  // Layers prefix0. prefix1. ...: equal ones, by their parameters, share a block.
  void add_layers(const std::string& name,
                  const std::string& prefix,
                  std::int64_t count,
                  const Forward& forward);
  // The same where the ends of the stack do what others do not.
  struct Place {
    bool first = false, last = false;
    std::size_t kind = 0;  // of layers that take turns
    bool operator==(const Place&) const = default;
  };
  using PlacedForward = std::function<Tensor(Tape&, Place)>;
  void add_placed_layers(const std::string& name,
                         const std::string& prefix,
                         std::int64_t count,
                         const PlacedForward& forward);
  // The same where layers take turns: layer i runs the code of kinds[i].
  using KindForward = std::function<Tensor(Tape&, std::size_t kind)>;
  void add_layer_kinds(const std::string& name,
                       const std::string& prefix,
                       const std::vector<std::size_t>& kinds,
                       const KindForward& forward);
  // The model's code has no checkpoints, whatever is asked for.
  void without_checkpoints() { checkpoints_ = false; }
  // Blocks of the embedded runtime, which write themselves. `prefix` is the first instance's.
  using Written = std::function<Block(const std::string& prefix, bool checkpoint)>;
  void add_written(const std::string& prefix, const Written& written);
  void add_written_layers(const std::string& prefix, std::int64_t count, const Written& written);
  // The next block starts a stack of its own: it gets nothing from the block before.
  void begin_stack() {
    gradient_flows_ = false;
    given_.reset();
  }
  // One of two models of this graph: its parameters and modules stand under `root` ("policy.").
  // What it shares stays within it.
  void begin_part(const std::string& root, const GraphOptions& options);
  // The shape of what goes from block to block, and what a stage that receives it makes besides
  // (masks, tables of positions). Needed in a pipeline.
  void set_hidden(const Shape& shape, const std::function<void(Tape&)>& beside = {}) {
    hidden_ = shape;
    beside_ = beside;
  }
  // --- a traced model (traced.cpp), which brings its own slots, batch and blocks
  // So many slots behind those that there are: the first one's number within the part.
  std::int32_t add_slots(std::int32_t count);
  void set_batch(Bytes bytes) { graph_.batch = bytes; }
  struct Call {
    std::string name;
    std::string prefix;
    std::string kind;    // calls of one kind are equal: recorded once
    bool layer = false;  // a checkpoint, where those are asked for
  };
  // Returns the number of the block.
  std::size_t add_call(const Call& call, const Forward& forward);
  // Whether the gradient flows into the next block (false below the first trainable parameter).
  bool gradient_flows() const { return gradient_flows_; }
  void add_buffers(Bytes bytes) { graph_.buffers += bytes; }
  // A buffer of a module ("model.norm."), behind the last parameter of it and of those inside it.
  void add_buffer(std::string_view module, Bytes bytes);
  // Of every module of that name within a layer ("self_attn"), or of one of its children.
  void add_buffers_of(std::string_view module, const std::vector<Bytes>& buffers);
  // What a micro-batch's output takes: a pipeline keeps those of some earlier ones.
  void keep_outputs(Bytes output) { graph_.kept_outputs += output * options_.kept_outputs; }
  void assume(Phrase sentence) { graph_.assumptions.push_back(std::move(sentence)); }
  ModelGraph take();

 private:
  using LayerBlock = std::function<Block(const std::string& prefix, bool checkpoint, Place)>;
  void add_each_layer(const std::string& prefix,
                      const std::vector<Place>& places,
                      const LayerBlock& layer_block);
  Block record(const std::string& name,
               const std::string& prefix,
               bool checkpoint,
               const Forward& forward) const;
  std::int32_t push(Block block);
  void instantiate(std::int32_t block, const std::string& prefix, bool checkpoint);
  void link_shared();
  void end_stack(std::int32_t first);  // an instance, the first of the layers added last
  bool replaced_by_neighbour();
  std::vector<std::int64_t> layers_of_stage(std::int64_t count) const;

  const Model& model_;
  GraphOptions options_;
  std::string root_;
  std::int32_t first_slot_ = 0;
  ModelGraph graph_;
  bool gradient_flows_ = false;
  std::optional<DType> given_;  // the format in which the block before gave its output
  Shape hidden_;
  std::function<void(Tape&)> beside_;
  bool checkpoints_ = true;
  struct KnownCall {
    std::string kind;
    bool flows = false, checkpoint = false;
    std::int32_t block = -1;
  };
  std::vector<KnownCall> known_calls_;
  bool has_layers_ = false;
  bool has_neighbour_ = false;  // on the side of the layers where blocks are being added
};

}  // namespace zeroplan
