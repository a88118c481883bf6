#include "model/families/traced_document.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/described.hpp"
#include "base/diagnostic.hpp"
#include "model/families/traced_block_reader.hpp"
#include "model/families/traced_slots.hpp"

namespace zeroplan {
namespace {

constexpr std::string_view kSchema = "zeroplan.graph/1";

// --- modules and their parameters

class ModuleReader {
 public:
  ModuleReader(TracedReader& reader, Model& model) : reader_(reader), model_(model) {}

  void read(const Json& modules, const std::string& pointer) {
    std::size_t i = 0;
    for (const Json& row : modules.items()) {
      module(row, pointer + "/" + std::to_string(i++));
      if (reader_.full()) return;
    }
  }

 private:
  void module(const Json& row, const std::string& at) {
    const std::string name = reader_.text(row, "name", at);
    const std::string type = reader_.text(row, "type", at);
    if (model_.modules.empty() != name.empty()) {
      reader_.problem(at + "/name",
                      "\"\" for the first module, the model itself, and for no other",
                      in_quotes(name));
      return;
    }
    Module module;
    module.name = name;
    module.type = type;
    if (!model_.modules.empty()) module.parent = parent_of(name);
    if (!modules_.emplace(name, static_cast<int>(model_.modules.size())).second) {
      reader_.problem(at + "/name", "each module once", in_quotes(name));
    }
    if (const Json* parameters = row.find("parameters")) {
      for (const auto& [key, value] : parameters->members()) {
        const int index = parameter(
            name.empty() ? key : name + "." + key, value, at + "/parameters/" + pointer_token(key));
        if (index >= 0) module.parameters.push_back(index);
      }
    }
    model_.modules.push_back(std::move(module));
  }

  // The module around it; modules in between that are missing are passed over.
  int parent_of(const std::string& name) const {
    std::string_view around = name;
    while (true) {
      const std::size_t dot = around.rfind('.');
      around = dot == std::string_view::npos ? std::string_view() : around.substr(0, dot);
      const auto found = modules_.find(std::string(around));
      if (found != modules_.end()) return found->second;
      if (around.empty()) return 0;
    }
  }

  // A shape, an object with one, or the name of the parameter that it is tied to.
  int parameter(const std::string& name, const Json& value, const std::string& at) {
    if (value.is_string()) {
      const auto found = parameters_.find(value.as_string());
      if (found != parameters_.end()) return found->second;
      reader_.problem(at, "the name of a parameter that stands before it", described(value));
      return -1;
    }
    Parameter parameter;
    parameter.name = name;
    const Json* shape = &value;
    std::string shape_at = at;
    if (value.is_object()) {
      shape = value.find("shape");
      shape_at += "/shape";
      parameter.trainable = reader_.flag(value, "trainable", at, true);
    }
    if (shape == nullptr || !shape->is_array()) {
      reader_.problem(shape_at,
                      "the sizes of a parameter",
                      shape == nullptr ? "no such key" : described(*shape));
      return -1;
    }
    Elements count = 1_elements;
    for (const Json& size : shape->items()) {
      constexpr std::int64_t kMost = std::int64_t{1} << 40;
      if (!size.is_integer() || size.as_integer() < 1 || size.as_integer() > kMost) {
        reader_.problem(shape_at, "whole numbers from 1 to 2^40", described(size));
        return -1;
      }
      parameter.shape.push_back(size.as_integer());
      count = count * size.as_integer();
    }
    parameter.numel = count;
    parameters_[name] = static_cast<int>(model_.parameters.size());
    model_.parameters.push_back(std::move(parameter));
    return parameters_[name];
  }

  TracedReader& reader_;
  Model& model_;
  std::unordered_map<std::string, int> modules_, parameters_;
};

// --- what fits together

class Checker {
 public:
  Checker(TracedReader& reader, const Model& model, const TracedGraph& graph)
      : reader_(reader), graph_(graph) {
    for (std::size_t i = 0; i < model.parameters.size(); ++i) {
      shapes_[model.parameters[i].name] = &model.parameters[i].shape;
    }
    for (const NamedTensor& buffer : graph.buffers) names_.insert_or_assign("b" + buffer.name, 0);
    for (const NamedTensor& input : graph.inputs) names_.insert_or_assign("i" + input.name, 0);
  }

  void check() {
    std::vector<bool> given(static_cast<std::size_t>(graph_.slots), false);
    for (std::size_t i = 0; i < graph_.calls.size(); ++i) {
      if (reader_.full()) return;
      const std::string at = "/calls/" + std::to_string(i);
      const TracedBlock& block = block_of(i);
      const bool last = i + 1 == graph_.calls.size();
      for (const SlotUse& use : block.takes) {
        if (!given[static_cast<std::size_t>(use.slot)]) {
          reader_.problem(at, "slots that an earlier call gives", phrase("slot {}", use.slot));
        }
      }
      for (const SlotUse& use : block.gives) {
        given[static_cast<std::size_t>(use.slot)] = true;
      }
      if (i == 0 && block.input >= 0)
        reader_.problem(at, "a first block without an input", "one with an input");
      if (!last && block_of(i + 1).input < 0 && !gives_output(block)) {
        reader_.problem(
            at, "an output that the next block takes, or that has a slot", "one that nobody takes");
      }
      operands(i, at);
    }
    const TracedBlock& head = block_of(graph_.calls.size() - 1);
    const bool scalar =
        head.output >= 0 && head.tensors[static_cast<std::size_t>(head.output)].shape.empty();
    if (!scalar)
      reader_.problem("/calls", "a last block that returns a loss, a tensor without sizes", "none");
  }

 private:
  const TracedBlock& block_of(std::size_t call) const {
    return graph_.blocks[static_cast<std::size_t>(graph_.calls[call].block)];
  }

  static bool gives_output(const TracedBlock& block) {
    return std::any_of(block.gives.begin(), block.gives.end(), [&](const SlotUse& use) {
      return block.roots[static_cast<std::size_t>(use.tensor)] ==
             block.roots[static_cast<std::size_t>(block.output)];
    });
  }

  void known_as(const std::string& sort, const std::string& name, const std::string& at) {
    if (names_.count(sort + name) != 0) return;
    reader_.problem(
        at, sort == "b" ? "buffers of the document" : "inputs of the document", in_quotes(name));
  }

  // Parameters of a block that is called several times have the same sizes each time.
  void operands(std::size_t call, const std::string& at) {
    const TracedBlock& block = block_of(call);
    const std::string& prefix = graph_.calls[call].prefix;
    auto& known = seen_[graph_.calls[call].block];
    for (const TracedEvent& event : block.events) {
      for (const TracedOperand& operand : event.in) {
        if (operand.kind == TracedOperand::Kind::buffer) known_as("b", operand.name, at);
        if (operand.kind == TracedOperand::Kind::own_buffer) {
          known_as("b", prefix + operand.name, at);
        }
        if (operand.kind == TracedOperand::Kind::input) known_as("i", operand.name, at);
        if (operand.kind != TracedOperand::Kind::parameter) continue;
        const auto found = shapes_.find(prefix + operand.name);
        if (found == shapes_.end()) {
          reader_.problem(
              at, "parameters of the document's modules", in_quotes(prefix + operand.name));
          return;
        }
        const auto [place, is_new] = known.emplace(operand.name, found->second);
        if (!is_new && *place->second != *found->second) {
          reader_.problem(at,
                          "parameters as the block's first call has them",
                          in_quotes(prefix + operand.name));
          return;
        }
      }
    }
  }

  TracedReader& reader_;
  const TracedGraph& graph_;
  std::unordered_map<std::string, const std::vector<std::int64_t>*> shapes_;
  std::unordered_map<std::string, int> names_;
  std::unordered_map<std::int32_t,
                     std::unordered_map<std::string, const std::vector<std::int64_t>*>>
      seen_;
};

std::vector<NamedTensor> named_tensors(TracedReader& reader,
                                       const Json& document,
                                       std::string_view key) {
  std::vector<NamedTensor> result;
  const Json* said = document.find(key);
  if (said == nullptr) return result;
  const std::string at = "/" + std::string(key);
  if (!said->is_object()) reader.problem(at, "an object", described(*said));
  for (const auto& [name, tensor] : said->members()) {
    result.push_back({name, reader.tensor(tensor, at + "/" + pointer_token(name))});
  }
  return result;
}

void read_calls(TracedReader& reader, const Json& calls, TracedGraph& graph) {
  std::size_t i = 0;
  for (const Json& row : calls.items()) {
    const std::string at = "/calls/" + std::to_string(i++);
    TracedCall call;
    call.block = static_cast<std::int32_t>(
        reader.integer(row, "block", at, 0, static_cast<std::int64_t>(graph.blocks.size()) - 1));
    if (const Json* prefix = row.find("prefix"); prefix != nullptr && prefix->is_string())
      call.prefix = prefix->as_string();
    if (!call.prefix.empty() && !call.prefix.ends_with('.')) {
      reader.problem(
          at + "/prefix", "\"\" or a module's name with a dot behind it", in_quotes(call.prefix));
    }
    call.layer = reader.flag(row, "layer", at, false);
    graph.calls.push_back(std::move(call));
  }
}

// Sizes that the Trainer and the formulas of speed ask for; 0: the model has no such thing.
TransformerShape read_shape(TracedReader& reader, const Json& document, const Model& model) {
  TransformerShape shape;
  shape.position = PositionKind::none;
  const Json empty = Json::object();
  const Json* said = document.find("shape");
  if (said == nullptr) said = &empty;
  const auto size = [&](std::string_view key) {
    constexpr std::int64_t kMost = std::int64_t{1} << 31;
    return said->find(key) == nullptr ? 0 : reader.integer(*said, key, "/shape", 0, kMost);
  };
  shape.hidden = size("hidden");
  shape.layers = size("layers");
  shape.encoder_layers = size("encoder_layers");
  shape.heads = size("heads");
  shape.kv_heads = size("kv_heads");
  shape.head_dim = size("head_dim");
  shape.vocabulary = size("vocabulary");
  shape.max_positions = size("positions");
  shape.has_logits = shape.vocabulary > 0;
  if (shape.encoder_layers > 0) shape.kind = ModelKind::encoder_decoder;
  if (model.architecture.ends_with("ForMaskedLM")) shape.kind = ModelKind::encoder;
  // A table of positions ends, a rotation does not.
  for (const Parameter& parameter : model.parameters) {
    const bool table = parameter.shape.size() == 2 && shape.max_positions > 0 &&
                       (parameter.name.find("position") != std::string::npos ||
                        parameter.name.find("wpe") != std::string::npos);
    if (table) shape.position = PositionKind::learned;
  }
  return shape;
}

// The class scales its logits (logit_scale) or caps them (final_logit_softcapping: divide, tanh,
// multiply) before the loss.
void note_logits(const TracedGraph& graph, TransformerShape& shape) {
  bool is_head = false;
  for (const TracedEvent& e :
       graph.blocks[static_cast<std::size_t>(graph.calls.back().block)].events) {
    is_head = is_head || e.kind == TracedEvent::Kind::category;
    if (!is_head || e.kind != TracedEvent::Kind::operation || e.name == "linear") continue;
    if (e.name != "mul" && e.name != "div" && e.name != "tanh") break;
    shape.logits_softcap = shape.logits_softcap || e.name == "tanh";
    shape.logits_scaled = !shape.logits_softcap;
  }
}

bool is_list(TracedReader& reader, const Json& document, std::string_view key) {
  const Json* said = document.find(key);
  if (said != nullptr && said->is_array() && !said->items().empty()) return true;
  reader.problem("/" + std::string(key),
                 "a list that is not empty",
                 said == nullptr ? "no such key" : described(*said));
  return false;
}

std::string optional_text(const Json& document, std::string_view key) {
  const Json* said = document.find(key);
  return said != nullptr && said->is_string() ? printable(said->as_string()) : "";
}

std::string release_of(const Json& document, std::string_view package) {
  const Json* software = document.find("software");
  return software == nullptr ? "" : optional_text(*software, package);
}

void note_share(Parameter* experts, std::int64_t each) {
  const bool some = experts != nullptr && experts->shape.size() == 3 && each >= 1 &&
                    each < experts->shape.front();
  if (!some) return;
  experts->routed_active = each;
  experts->routed_of = experts->shape.front();
}

// `converted`: parts of the names of parameters that from_pretrained makes of other tensors.
void note_converted(const Json& document, Model& model) {
  const Json* parts = document.find("converted");
  if (parts == nullptr || !parts->is_array()) return;
  for (const Json& part : parts->items()) {
    if (!part.is_string() || part.as_string().empty()) continue;
    for (Parameter& parameter : model.parameters) {
      if (parameter.name.find(part.as_string()) == std::string::npos) continue;
      parameter.converted = true;
    }
  }
}

// Experts in one parameter, a matrix each, of which a token uses some: `_grouped_mm` multiplies
// rows, so many for each token, by it or by a view of it. `bmm` multiplies every token by all of
// them (Llama 4), of which topk chose so many.
void note_routed(const TracedGraph& graph, Model& model) {
  constexpr std::array<std::string_view, 7> kViews = {
      "transpose", "t", "permute", "view", "detach", "alias", "contiguous"};
  std::map<std::string_view, Parameter*> parameters;
  for (Parameter& parameter : model.parameters) parameters[parameter.name] = &parameter;
  for (const TracedCall& call : graph.calls) {
    const TracedBlock& block = graph.blocks[static_cast<std::size_t>(call.block)];
    std::map<std::int32_t, Parameter*> shown;  // by tensor of the block
    std::int64_t chosen = 0;
    const auto sizes_of = [&block](std::int32_t tensor) -> const std::vector<SizeFormula>& {
      return block.tensors[static_cast<std::size_t>(tensor)].shape;
    };
    const auto parameter_of = [&](const TracedOperand& operand) -> Parameter* {
      if (operand.kind == TracedOperand::Kind::parameter) {
        const auto found = parameters.find(call.prefix + operand.name);
        return found == parameters.end() ? nullptr : found->second;
      }
      const auto found = shown.find(operand.tensor);
      return found == shown.end() ? nullptr : found->second;
    };
    for (const TracedEvent& event : block.events) {
      if (event.kind != TracedEvent::Kind::operation || event.in.empty()) continue;
      if (event.name == "_grouped_mm" && event.in.size() > 1) {
        const std::int32_t rows = event.in[0].tensor;
        if (rows < 0 || sizes_of(rows).empty()) continue;
        note_share(parameter_of(event.in[1]), std::llround(sizes_of(rows).front().of_both));
      } else if (event.name == "topk" && !event.out.empty() && !sizes_of(event.out[0]).empty()) {
        chosen = std::llround(sizes_of(event.out[0]).back().constant);
      } else if (event.name == "bmm" && event.in.size() > 1) {
        note_share(parameter_of(event.in[1]), chosen);
      } else if (event.out.size() == 1 &&
                 std::find(kViews.begin(), kViews.end(), event.name) != kViews.end()) {
        if (Parameter* parameter = parameter_of(event.in.front())) {
          shown[event.out.front()] = parameter;
        }
      }
    }
  }
}

}  // namespace

namespace {

// The document says which images it was traced with; a class that loops over them has sizes of one
// batch alone.
void read_images(TracedReader& reader, const Json& document, TracedGraph& graph) {
  const Json* images = document.find("images");
  if (images == nullptr) return;
  constexpr std::int64_t kMost = 1'000'000;
  const auto number = [&](std::string_view key) {
    return reader.integer(*images, key, "/images", 1, kMost);
  };
  graph.images = {number("count"), number("width"), number("height")};
  graph.image_tokens = number("tokens");
  if (const Json* names = document.find("embeddings"); names != nullptr && names->is_array()) {
    for (const Json& name : names->items()) {
      if (name.is_string()) graph.embeddings.push_back(name.as_string());
    }
  }
  const Json* traced = document.find("traced");
  const Json* batches = traced == nullptr ? nullptr : traced->find("batches");
  if (batches == nullptr || !batches->is_array() || batches->items().size() != 1) return;
  const Json& only = batches->items().front();
  if (only.is_integer() && only.as_integer() > 0) graph.batch = only.as_integer();
}

// Says of each parameter whether the loss hangs on it.
void note_reached(const TracedGraph& graph, Model& model) {
  std::unordered_set<std::string> names;
  for (const TracedCall& call : graph.calls) {
    for (const TracedEvent& event : graph.blocks[static_cast<std::size_t>(call.block)].events) {
      if (event.no_grad) continue;
      for (const TracedOperand& operand : event.in) {
        if (operand.kind == TracedOperand::Kind::parameter)
          names.insert(call.prefix + operand.name);
      }
    }
  }
  for (Parameter& parameter : model.parameters) parameter.reached = names.contains(parameter.name);
}

}  // namespace

bool is_traced_document(const Json& document) {
  const Json* schema = document.find("schema");
  return schema != nullptr && schema->is_string() &&
         schema->as_string().starts_with("zeroplan.graph/");
}

Model read_traced_document(const Json& document,
                           const std::string& file,
                           const std::string& pointer,
                           bool recorded) {
  TracedReader reader(file, pointer);
  if (document.find("schema")->as_string() != kSchema) {
    reader.problem("/schema",
                   in_quotes(kSchema),
                   described(*document.find("schema")),
                   "trace the model again");
    reader.throw_problems();
  }
  Model model;
  model.architecture = printable(reader.text(document, "name", ""));
  model.model_type = optional_text(document, "model_type");
  if (model.model_type.empty()) model.model_type = "traced";
  const bool whole = is_list(reader, document, "modules") && is_list(reader, document, "blocks") &&
                     is_list(reader, document, "calls");
  reader.throw_problems();
  if (whole) ModuleReader(reader, model).read(*document.find("modules"), "/modules");
  TracedGraph graph;
  graph.source = optional_text(document, "source");
  graph.attention = optional_text(document, "attention");
  if (graph.attention.starts_with("flash")) graph.attention = "flash";
  const Json* const checkpoints = document.find("checkpoints");
  graph.checkpoints = checkpoints == nullptr || *checkpoints != Json(false);
  graph.recorded = recorded || document.find("config") != nullptr;
  read_images(reader, document, graph);
  graph.inputs = named_tensors(reader, document, "inputs");
  graph.buffers = named_tensors(reader, document, "buffers");
  constexpr std::int64_t kMostSlots = 100'000;
  graph.slots = static_cast<std::int32_t>(
      document.find("slots") == nullptr ? 0 : reader.integer(document, "slots", "", 0, kMostSlots));
  std::size_t i = 0;
  for (const Json& block : document.find("blocks")->items()) {
    graph.blocks.push_back(
        read_traced_block(reader, block, "/blocks/" + std::to_string(i++), graph.slots));
  }
  read_calls(reader, *document.find("calls"), graph);
  reader.throw_problems();
  separate_slots(graph);
  Checker(reader, model, graph).check();
  model.shape = read_shape(reader, document, model);
  reader.throw_problems();
  note_reached(graph, model);
  note_logits(graph, model.shape);
  note_routed(graph, model);
  note_converted(document, model);
  const std::string dtype = optional_text(document, "dtype");
  if (dtype == "bf16") model.torch_dtype = "bfloat16";
  if (dtype == "fp16") model.torch_dtype = "float16";
  if (dtype == "fp32") model.torch_dtype = "float32";
  const std::string torch = release_of(document, "torch");
  Phrase note = "operations, sizes and lifetimes as they were traced";
  if (!torch.empty()) note.append(phrase(" with torch {}", torch));
  if (!graph.source.empty()) note.append(phrase(" of {}", graph.source));
  model.notes.push_back(note);
  model.name = file;
  model.planned = true;
  model.implementation_family =
      keep_traced_graph(std::move(graph), document.dump() + (recorded ? "recorded" : ""));
  return model;
}

}  // namespace zeroplan
