#include "model/implementations/assembler.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>

#include "base/check.hpp"
#include "model/implementations/pipeline_ends.hpp"
#include "model/releases.hpp"

namespace zeroplan {

namespace {

constexpr std::array<std::string_view, kSlots> kSlotNames = {
    "cos", "sin", "mask", "window_mask", "local_cos", "local_sin", "inputs_embeds", "values"};

struct Range {
  std::size_t first = 0, last = 0;
};

// The parameters whose name begins with the prefix; a layer's stand together in torch's order.
Range parameters_of(const Model& model, const std::string& prefix, std::size_t from) {
  const auto matches = [&](const Parameter& p) {
    return p.name.compare(0, prefix.size(), prefix) == 0;
  };
  Range range{from, from};
  while (range.first < model.parameters.size() && !matches(model.parameters[range.first])) {
    ++range.first;
  }
  range.last = range.first;
  while (range.last < model.parameters.size() && matches(model.parameters[range.last])) {
    ++range.last;
  }
  return range;
}

bool same_parameters(
    const Model& model, Range a, std::size_t a_prefix, Range b, std::size_t b_prefix) {
  if (a.last - a.first != b.last - b.first) return false;
  for (std::size_t i = 0; i < a.last - a.first; ++i) {
    const Parameter& x = model.parameters[a.first + i];
    const Parameter& y = model.parameters[b.first + i];
    if (x.trainable != y.trainable || x.shape != y.shape) return false;
    if (std::string_view(x.name).substr(a_prefix) != std::string_view(y.name).substr(b_prefix)) {
      return false;
    }
  }
  return true;
}

bool trains(const Model& model, Range range) {
  for (std::size_t i = range.first; i < range.last; ++i) {
    if (model.parameters[i].trainable) return true;
  }
  return false;
}

std::string full_name(const std::string& prefix, const std::string& relative) {
  if (!relative.empty()) return prefix + relative;
  return prefix.empty() ? prefix : prefix.substr(0, prefix.size() - 1);
}

}  // namespace

GraphAssembler::GraphAssembler(const Model& model, const GraphOptions& options)
    : model_(model), options_(options) {
  graph_.outputs_held_in_backward = options.outputs_held_in_backward;
  graph_.checkpoint_reentrant = options.embedded || options.checkpoint_reentrant;
  graph_.checkpoints_inside_hooks = !options.embedded &&
                                    options.implementation == Implementation::hf &&
                                    options.transformers_act(ReleaseRule::checkpoints_inside_hooks);
  // input_ids, labels and attention_mask of the data collator, int64 each; the embedded runtime's
  // rows are full and need no mask.
  const std::int64_t tensors = options.embedded ? 2 : 3;
  graph_.batch = Bytes::of(detail::checked_product(
      tensors * width(DType::int64),
      detail::checked_product(options.micro_batch,
                              options.sequence_length / options.sequence_parallel)));
  for (const std::string_view name : kSlotNames) {
    SharedTensor shared;
    shared.name = name;
    graph_.shared.push_back(shared);
  }
}

void GraphAssembler::begin_part(const std::string& root, const GraphOptions& options) {
  root_ = root;
  options_ = options;
  given_.reset();
  gradient_flows_ = has_layers_ = false;
  graph_.outputs_held_in_backward = options.outputs_held_in_backward;
  known_calls_.clear();
  if (graph_.instances.empty()) return;
  graph_.dropped_before_backward = static_cast<std::int32_t>(graph_.instances.size());
  first_slot_ += add_slots(kSlots);
}

void GraphAssembler::add_buffers_of(std::string_view module, const std::vector<Bytes>& buffers) {
  const std::string inside = "." + std::string(module) + ".";
  const auto owner_of = [&](std::size_t parameter) {
    const std::string& name = model_.parameters[parameter].name;
    if (!name.starts_with(root_)) return std::string_view();
    const std::size_t at = name.find(inside);
    return at == std::string::npos ? std::string_view() : std::string_view(name).substr(0, at);
  };
  for (std::size_t p = 0; p < model_.parameters.size(); ++p) {
    const std::string_view owner = owner_of(p);
    const bool last = p + 1 == model_.parameters.size() || owner_of(p + 1) != owner;
    if (owner.empty() || !last) continue;
    for (const Bytes bytes : buffers) {
      graph_.registered.push_back({static_cast<std::int32_t>(p), bytes});
      graph_.buffers += bytes;
    }
  }
}

Block GraphAssembler::record(const std::string& name,
                             const std::string& prefix,
                             bool checkpoint,
                             const Forward& forward) const {
  Tape::Setup setup;
  setup.name = name;
  setup.model = &model_;
  setup.prefix = prefix;
  setup.dtype = options_.dtype;
  setup.input_dtype = given_;
  setup.autocast = options_.autocast;
  if (options_.lora) setup.trained_dtype = options_.lora->dtype;
  setup.input_requires_grad = gradient_flows_;
  setup.checkpoint = checkpoint;
  setup.checkpoint_reentrant = options_.checkpoint_reentrant;
  setup.checkpoint_offload = options_.checkpoint_offload;
  setup.checkpoint_ranks = options_.partitions_checkpoints ? options_.tensor_parallel : 1;
  setup.outputs_held_in_backward = options_.outputs_held_in_backward;
  setup.first_slot = first_slot_;
  setup.holds_input = options_.scores.holds_hidden && prefix != root_;  // of layers
  setup.lt_workspace_per_call = !options_.torch_acts(ReleaseRule::keeps_lt_workspace);
  setup.product_workspace = options_.product_workspace;
  setup.gpu = options_.gpu;
  return record_block(std::move(setup), forward);
}

std::int32_t GraphAssembler::push(Block block) {
  graph_.blocks.push_back(std::move(block));
  return static_cast<std::int32_t>(graph_.blocks.size()) - 1;
}

void GraphAssembler::instantiate(std::int32_t block_index,
                                 const std::string& prefix,
                                 bool checkpoint) {
  const Block& block = graph_.blocks[static_cast<std::size_t>(block_index)];
  BlockInstance instance;
  instance.block = block_index;
  instance.prefix = prefix;
  instance.checkpointed = checkpoint;
  // An earlier instance of the block has the same names at a constant distance.
  const auto earlier = std::find_if(
      graph_.instances.begin(), graph_.instances.end(), [&](const BlockInstance& other) {
        return other.block == block_index;
      });
  std::int32_t parameter_offset = 0, module_offset = 0;
  if (earlier != graph_.instances.end()) {
    instance.parameters = earlier->parameters;
    instance.modules = earlier->modules;
    if (!instance.parameters.empty()) {
      const Range range = parameters_of(model_, prefix, 0);
      const Range first = parameters_of(model_, earlier->prefix, 0);
      parameter_offset =
          static_cast<std::int32_t>(range.first) - static_cast<std::int32_t>(first.first);
    }
    const auto index_of = [&](const std::string& name) {
      const auto it = std::find_if(model_.modules.begin(),
                                   model_.modules.end(),
                                   [&](const Module& m) { return m.name == name; });
      return static_cast<std::int32_t>(it - model_.modules.begin());
    };
    module_offset = index_of(full_name(prefix, "")) - index_of(full_name(earlier->prefix, ""));
  }
  if (earlier == graph_.instances.end()) {
    for (const BlockParameter& parameter : block.parameters) {
      const std::string name = full_name(prefix, parameter.name);
      const auto it = std::find_if(model_.parameters.begin(),
                                   model_.parameters.end(),
                                   [&](const Parameter& p) { return p.name == name; });
      instance.parameters.push_back(static_cast<std::int32_t>(it - model_.parameters.begin()));
    }
    for (const BlockModule& module : block.modules) {
      const std::string name = full_name(prefix, module.name);
      const auto it = std::find_if(model_.modules.begin(),
                                   model_.modules.end(),
                                   [&](const Module& m) { return m.name == name; });
      instance.modules.push_back(
          it == model_.modules.end() ? -1 : static_cast<std::int32_t>(it - model_.modules.begin()));
    }
  }
  for (std::int32_t& parameter : instance.parameters) parameter += parameter_offset;
  for (std::int32_t& module : instance.modules) {
    if (module >= 0) module += module_offset;
  }
  graph_.instances.push_back(std::move(instance));
  gradient_flows_ = gradient_flows_ || block.output_gradient >= 0;
  if (!options_.embedded) given_ = block.output_dtype;
}

// On a stage without what is being added, the block that talks to the neighbour stands for all of
// it.
bool GraphAssembler::replaced_by_neighbour() {
  const StagePlace& place = options_.stage;
  if (has_layers_ ? place.is_last() : place.is_first()) return false;
  if (has_neighbour_) return true;
  has_neighbour_ = true;
  ZP_CHECK(hidden_.rank() > 0, "a pipeline of a model whose hidden states are not described");
  const TransferOptions transfer{options_.partitions_transfers ? options_.tensor_parallel : 1};
  const Bytes part = Bytes::of((hidden_.numel() * options_.dtype).count() / transfer.ranks);
  graph_.buffers += part;  // pipe_recv_buf, grad_layer (runtime/pipe/engine.py)
  const auto block = has_layers_
                         ? record("stage output",
                                  "",
                                  false,
                                  [&](Tape& t) { return send_forward(t, hidden_, transfer); })
                         : record("stage input", "", false, [&](Tape& t) {
                             const Tensor hidden = receive_forward(t, hidden_, transfer);
                             if (beside_) beside_(t);
                             return hidden;
                           });
  instantiate(push(block), "", false);
  return true;
}

void GraphAssembler::add(const std::string& name,
                         const std::string& prefix,
                         const Forward& forward) {
  if (replaced_by_neighbour()) return;
  instantiate(push(record(name, root_ + prefix, false, forward)), root_ + prefix, false);
}

void GraphAssembler::add_written(const std::string& prefix, const Written& written) {
  instantiate(push(written(prefix, false)), prefix, false);
}

void GraphAssembler::add_layers(const std::string& name,
                                const std::string& prefix,
                                std::int64_t count,
                                const Forward& forward) {
  const auto recorded = [&](const std::string& layer, bool checkpoint, Place) {
    return record(name, layer, checkpoint, forward);
  };
  add_each_layer(prefix, std::vector<Place>(static_cast<std::size_t>(count)), recorded);
}

void GraphAssembler::add_placed_layers(const std::string& name,
                                       const std::string& prefix,
                                       std::int64_t count,
                                       const PlacedForward& forward) {
  std::vector<Place> places(static_cast<std::size_t>(count));
  if (count > 0) places.front().first = places.back().last = true;
  const auto recorded = [&](const std::string& layer, bool checkpoint, Place place) {
    return record(name, layer, checkpoint, [&](Tape& t) { return forward(t, place); });
  };
  add_each_layer(prefix, places, recorded);
}

void GraphAssembler::add_layer_kinds(const std::string& name,
                                     const std::string& prefix,
                                     const std::vector<std::size_t>& kinds,
                                     const KindForward& forward) {
  std::vector<Place> places(kinds.size());
  for (std::size_t i = 0; i < kinds.size(); ++i) places[i].kind = kinds[i];
  const auto recorded = [&](const std::string& layer, bool checkpoint, Place place) {
    return record(name, layer, checkpoint, [&](Tape& t) { return forward(t, place.kind); });
  };
  add_each_layer(prefix, places, recorded);
}

void GraphAssembler::add_written_layers(const std::string& prefix,
                                        std::int64_t count,
                                        const Written& written) {
  const auto layer_block = [&](const std::string& layer, bool checkpoint, Place) {
    return written(layer, checkpoint);
  };
  add_each_layer(prefix, std::vector<Place>(static_cast<std::size_t>(count)), layer_block);
}

void GraphAssembler::add_each_layer(const std::string& prefix,
                                    const std::vector<Place>& places,
                                    const LayerBlock& layer_block) {
  struct Known {
    std::int32_t block;
    Range range;
    std::size_t prefix;
    bool flows;
    std::optional<DType> given;
    Place place;
  };
  std::vector<Known> known;
  const bool fms = options_.implementation == Implementation::fms;
  // fms-fsdp's selective checkpointing takes a share of the blocks: all of them by default. The
  // embedded runtime's is a block's own choice of what to keep.
  const bool asked =
      options_.checkpointing == ActivationCheckpointing::full ||
      ((fms || options_.embedded) && options_.checkpointing == ActivationCheckpointing::selective);
  const bool wanted = asked && checkpoints_;
  std::size_t from = 0;
  has_layers_ = true;
  has_neighbour_ = false;
  const auto first = static_cast<std::int32_t>(graph_.instances.size());
  for (const std::int64_t number : layers_of_stage(static_cast<std::int64_t>(places.size()))) {
    const auto i = static_cast<std::size_t>(number);
    const Place place = places[i];
    std::string layer = root_ + prefix;
    layer.append(std::to_string(i)).append(".");
    const Range range = parameters_of(model_, layer, from);
    // Where nothing wants a gradient a checkpoint keeps nothing and runs nothing again.
    const bool checkpoint = wanted && (gradient_flows_ || trains(model_, range));
    ZP_CHECK(range.first < model_.parameters.size(), "no parameters under " + layer);
    from = range.last < model_.parameters.size() ? range.last : 0;
    const auto same = std::find_if(known.begin(), known.end(), [&](const Known& k) {
      return k.flows == gradient_flows_ && k.given == given_ && k.place == place &&
             same_parameters(model_, k.range, k.prefix, range, layer.size());
    });
    std::int32_t block = -1;
    if (same != known.end()) {
      block = same->block;
    } else {
      const bool flows = gradient_flows_;
      block = push(layer_block(layer, checkpoint, place));
      known.push_back({block, range, layer.size(), flows, given_, place});
    }
    instantiate(block, layer, checkpoint);
  }
  end_stack(first);
}

std::int32_t GraphAssembler::add_slots(std::int32_t count) {
  const auto first = static_cast<std::int32_t>(graph_.shared.size());
  for (std::int32_t i = 0; i < count; ++i) {
    SharedTensor shared;
    shared.name = "tensor " + std::to_string(i);
    graph_.shared.push_back(std::move(shared));
  }
  return first - first_slot_;
}

void GraphAssembler::add_buffer(std::string_view module, Bytes bytes) {
  const std::string whole = root_ + std::string(module);
  graph_.buffers += bytes;
  std::int32_t behind = -1;
  for (std::size_t p = 0; p < model_.parameters.size(); ++p) {
    if (model_.parameters[p].name.starts_with(whole)) behind = static_cast<std::int32_t>(p);
  }
  if (behind >= 0) graph_.registered.push_back({behind, bytes});
}

std::size_t GraphAssembler::add_call(const Call& call, const Forward& forward) {
  const std::string prefix = root_ + call.prefix;
  const Range range = parameters_of(model_, prefix, 0);
  if (call.layer && !has_layers_) {
    has_layers_ = true;
    has_neighbour_ = false;
  }
  const bool asked = call.layer && options_.checkpointing == ActivationCheckpointing::full;
  const bool checkpoint = asked && (gradient_flows_ || trains(model_, range));
  const auto same =
      std::find_if(known_calls_.begin(), known_calls_.end(), [&](const KnownCall& known) {
        return known.kind == call.kind && known.flows == gradient_flows_ &&
               known.checkpoint == checkpoint;
      });
  std::int32_t block = -1;
  if (same != known_calls_.end()) {
    block = same->block;
  } else {
    const bool flows = gradient_flows_;
    block = push(record(call.name, prefix, checkpoint, forward));
    known_calls_.push_back({call.kind, flows, checkpoint, block});
  }
  instantiate(block, prefix, checkpoint);
  // What a frozen part gives to a later one has no gradient, whatever was before it.
  gradient_flows_ = graph_.blocks[static_cast<std::size_t>(block)].output_gradient >= 0;
  return static_cast<std::size_t>(block);
}

// Numbers of the layers that this stage has.
std::vector<std::int64_t> GraphAssembler::layers_of_stage(std::int64_t count) const {
  const StagePlace& place = options_.stage;
  const bool all = place.stages == 1;
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(all ? count : place.layers));
  std::iota(numbers.begin(), numbers.end(), all ? 0 : place.first_layer);
  return numbers;
}

// Where variables of the model's forward() go that live until its layers have run; of the first
// layer's input where that layer does not save it: saved it outlives the variable.
void GraphAssembler::end_stack(std::int32_t first) {
  const std::int32_t last = static_cast<std::int32_t>(graph_.instances.size()) - 1;
  if (first == 0 || last < first) return;
  const auto i = static_cast<std::size_t>(first);
  const Block& inputs = graph_.block_of(graph_.instances[i - 1]);
  for (const SharedUse& use : inputs.shared) {
    const auto slot = static_cast<Slot>(use.slot - first_slot_);
    if (slot != Slot::embeddings) continue;
    graph_.shared[static_cast<std::size_t>(use.slot)].last_user = last;
  }
  if (!inputs.output_is_held) return;
  const BlockInstance& user = graph_.instances[i];
  const Block& block = graph_.block_of(user);
  const std::vector<Event>& events =
      block.of(user.checkpointed ? Pass::forward_no_grad : Pass::forward);
  const bool frees = std::any_of(events.begin(), events.end(), [&](const Event& event) {
    return event.kind == EventKind::release && event.index == block.input;
  });
  if (frees) graph_.held_inputs.push_back({first, last});
}

void GraphAssembler::link_shared() {
  for (std::size_t i = 0; i < graph_.instances.size(); ++i) {
    const auto instance = static_cast<std::int32_t>(i);
    for (const SharedUse& use : graph_.block_of(graph_.instances[i]).shared) {
      SharedTensor& shared = graph_.shared[static_cast<std::size_t>(use.slot)];
      if (use.produced && shared.producer < 0) {
        shared.producer = instance;
        shared.storage = use.storage;
      }
      shared.last_user = std::max(shared.last_user, instance);
      if (!use.produced && use.gradient >= 0) {
        shared.gradient_maker = instance;
        shared.gradient_storage = use.gradient;
      }
      // A checkpoint keeps every tensor argument.
      const bool kept = use.saved || (graph_.instances[i].checkpointed && !use.produced);
      if (kept && shared.first_saver < 0) shared.first_saver = instance;
    }
  }
}

ModelGraph GraphAssembler::take() {
  link_shared();
  return std::move(graph_);
}

}  // namespace zeroplan
