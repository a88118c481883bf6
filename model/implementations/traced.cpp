#include "model/implementations/traced.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/diagnostic.hpp"
#include "model/implementations/assembler.hpp"
#include "model/implementations/hf_delta_rule.hpp"
#include "model/implementations/hf_mamba_ssm.hpp"
#include "model/implementations/hf_tiled.hpp"
#include "model/implementations/traced_call.hpp"
#include "model/implementations/traced_operations.hpp"

namespace zeroplan {
namespace {

// What goes from block to block, as the block that made it left it.
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

// What a block left, by slot; the output under -1.
using Left = std::map<std::int32_t, Passed>;

std::string_view last_part(std::string_view name, std::string_view around) {
  if (around.empty()) return name;
  return name.size() > around.size() && name.starts_with(around) && name[around.size()] == '.'
             ? name.substr(around.size() + 1)
             : std::string_view();
}

// What an operation asks of its tensors and this document does not give: a precondition of the code
// that plays it (ZP_CHECK), which only a document that somebody wrote can break.
InputError refused(const std::string& where, const std::logic_error& broken) {
  return InputError(Diagnostic{"",
                               "/model",
                               "operations whose tensors fit together",
                               where + ": " + failed_check(broken),
                               "trace the model again"});
}

// From here on a block multiplies with the vocabulary's matrix and makes a loss of the logits.
bool is_logits(const TracedEvent& e) {
  return e.kind == TracedEvent::Kind::category && e.name == "logits";
}

class Player {
 public:
  Player(Tape& tape,
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

  Tensor play(Left& left) {
    begin();
    for (std::size_t i = 0; i < block_.events.size(); ++i) i = event(i);
    return end(left);
  }

 private:
  struct Open {
    std::string name;
    std::int32_t scope = -1;  // -1: no events for it
    std::int32_t tensor = -1;
    Tensor outside;
  };

  void begin() {
    if (block_.input >= 0)
      values_.at(block_.input) = t_.input(place_.input->shape, place_.input->dtype);
    for (const SlotUse& use : block_.takes) {
      const Passed& passed = place_.taken.at(use.slot);
      const std::int32_t slot = first_slot_ + use.slot;
      const bool first = passed.last_user == static_cast<std::int32_t>(place_.call);
      values_.at(use.tensor) =
          passed.gradient ? t_.shared_with_gradient(slot, passed.shape, passed.dtype, first)
                          : t_.shared(slot, passed.shape, passed.dtype);
    }
  }

  // Plays one event, or a layer with an adapter; returns the last event that was played.
  std::size_t event(std::size_t i) {
    const TracedEvent& e = block_.events[i];
    switch (e.kind) {
      case TracedEvent::Kind::enter:
        if (t_.has_parameter(inside(e.name), "lora_A.default.weight")) return adapted(i);
        if (c_.options.scores.code == TokenScores::values && e.name == "score")
          return other_loss(i);
        if (c_.options.tiled_mlp && hf::is_gated_mlp(block_, i)) return tiled(i);
        enter(e);
        return i;
      case TracedEvent::Kind::leave:
        leave(e);
        return i;
      case TracedEvent::Kind::drop:
        drop(e);
        return i;
      case TracedEvent::Kind::category:
        if (is_logits(e) && has_other_loss()) return other_loss(i + 1);
        t_.set_category(e.name == "logits" ? MemoryCategory::logits : MemoryCategory::activations);
        return i;
      case TracedEvent::Kind::operation:
        if (e.name == hf::kSplitScan) return split_scan(i);
        if (is_reshape(i)) return reshape(i);
        operation(e);
        return i;
    }
    return i;
  }

  // Whether a trainer, or Liger, computes what it needs from the hidden states in code of its own.
  bool has_other_loss() const {
    return c_.options.fused_loss || c_.options.scores.code != TokenScores::none;
  }

  // The rest of the last block by that code: at `i` the class enters its head, which multiplies the
  // hidden states with the vocabulary's matrix, or scores them, and makes a loss of the result.
  // Returns the last event.
  std::size_t other_loss(std::size_t i) {
    i = std::min(i, block_.events.size());
    const TracedEvent* head = i < block_.events.size() ? &block_.events[i] : nullptr;
    const auto matrix = std::find_if(block_.events.begin() + static_cast<std::ptrdiff_t>(i),
                                     block_.events.end(),
                                     [](const TracedEvent& e) {
                                       return e.kind == TracedEvent::Kind::operation &&
                                              e.name == "linear" && e.in.size() > 1 &&
                                              e.in[1].kind == TracedOperand::Kind::parameter;
                                     });
    const bool whole = head != nullptr && head->kind == TracedEvent::Kind::enter &&
                       head->tensor >= 0 && matrix != block_.events.end();
    if (!whole) no_head();
    tie(*matrix);
    std::string_view weight = matrix->in[1].name;
    weight.remove_suffix(std::min(weight.size(), std::string_view(".weight").size()));
    const hf::CausalHead causal{.module = inside(head->name), .embedding = weight};
    values_.at(block_.output) = hf::causal_loss(t_, c_, causal, values_.at(head->tensor));
    return block_.events.size() - 1;
  }

  [[noreturn]] void no_head() const {
    throw InputError(
        Diagnostic{"",
                   c_.options.fused_loss ? "/workload/fused_loss" : "/workload/trainer",
                   "a class whose logits are one product with the vocabulary's matrix",
                   in_quotes(c_.model.architecture),
                   ""});
  }

  // The module's name within the one that runs; empty where it is not inside it.
  std::string_view inside(std::string_view module) const {
    for (auto open = open_.rbegin(); open != open_.rend(); ++open) {
      if (open->scope >= 0) return last_part(module, open->name);
    }
    return module;
  }

  void enter(const TracedEvent& e) {
    Open open{e.name, -1, e.tensor, {}};
    const bool itself = e.name.empty() && open_.empty();
    const std::string_view name = inside(e.name);
    if (itself || !name.empty()) {
      if (e.tensor >= 0 && values_.at(e.tensor).defined()) {
        open.outside = values_.at(e.tensor);
        open.scope = t_.enter(name, values_.at(e.tensor));
      } else {
        open.scope = t_.enter(name);
      }
    }
    open_.push_back(std::move(open));
  }

  void leave(const TracedEvent& e) {
    Open open = std::move(open_.back());
    open_.pop_back();
    if (e.tensor >= 0 && values_.lets_gradients_in(e.name)) t_.require_grad(values_.at(e.tensor));
    if (open.scope < 0) return;
    Tensor out;
    if (e.tensor >= 0) out = std::move(values_.at(e.tensor));
    const bool given = out.defined();
    out = t_.leave(open.scope, std::move(out));
    if (open.tensor >= 0 && open.outside.defined())
      values_.at(open.tensor) = std::move(open.outside);
    if (given) values_.at(e.tensor) = std::move(out);
  }

  void drop(const TracedEvent& e) {
    for (const std::int32_t root : e.dropped) {
      values_.drop(root);
      for (Open& open : open_) {
        if (open.tensor >= 0 && values_.share_storage(open.tensor, root)) open.outside = Tensor();
      }
      if (block_.input >= 0 && values_.share_storage(block_.input, root)) t_.forget_input();
    }
  }

  // Storages that the program lets go of where other code runs in the place of those events.
  void drop_within(std::size_t first, std::size_t end) {
    for (std::size_t k = first; k < end; ++k) {
      if (block_.events[k].kind == TracedEvent::Kind::drop) drop(block_.events[k]);
    }
  }

  void tie(const TracedEvent& e) {
    for (const TracedOperand& operand : e.in) {
      if (operand.kind != TracedOperand::Kind::parameter) continue;
      const auto tie = place_.ties.find(operand.name);
      if (tie != place_.ties.end()) t_.tie(t_.parameter(operand.name), tie->second);
    }
  }

  void operation(const TracedEvent& e) {
    tie(e);
    try {
      play_operation(values_, e);
    } catch (const std::logic_error& broken) {
      throw refused(phrase("{} in {}", e.name, block_.name), broken);
    }
    for (const std::int32_t out : e.out) {
      const Tensor& made = values_.at(out);
      if (made.defined() && !made.shape().same_sizes(values_.shape_of(out))) wrong_size(e);
    }
  }

  [[noreturn]] void wrong_size(const TracedEvent& e) const {
    throw InputError(Diagnostic{
        "",
        "/model",
        "operations whose sizes follow from those of their inputs",
        phrase("{} in {}, which gives other sizes than the document has", e.name, block_.name),
        "trace the model again"});
  }

  // A reshape that had to copy at the sizes that were traced, which are of several sequences: heads
  // of one alone need no copy.
  bool is_reshape(std::size_t i) const {
    const TracedEvent& e = block_.events[i];
    if (e.name != "clone" || !e.contiguous || i + 1 == block_.events.size()) return false;
    const TracedEvent& next = block_.events[i + 1];
    return next.kind == TracedEvent::Kind::operation && next.name == "_unsafe_view" &&
           next.in.front().kind == TracedOperand::Kind::tensor &&
           next.in.front().tensor == e.out.front();
  }

  std::size_t reshape(std::size_t i) {
    const TracedOperationCall call(values_, block_.events[i]);
    const std::int32_t out = block_.events[i + 1].out.front();
    values_.at(out) = aten::reshape(t_, call.x(), values_.shape_of(out));
    values_.at(block_.events[i].out.front()) = values_.at(out);
    return i + 1;
  }

  // mamba_ssm's kernels in place of what the module that runs does from here on; without them only
  // the parameters are named, as the class does in its arguments. Returns the last event played.
  std::size_t split_scan(std::size_t i) {
    const TracedEvent& e = block_.events[i];
    const TracedOperationCall call(values_, e);
    if (c_.options.linear_attention != LinearAttention::mamba_ssm || open_.empty()) return i;
    const std::size_t end = end_of_module(block_, open_.back().name, i);
    try {
      values_.at(block_.events[end].tensor) = hf::mamba_split_scan(t_, split_scan_inputs(call));
    } catch (const std::logic_error& broken) {
      throw refused(phrase("{} in {}", e.name, block_.name), broken);
    }
    drop_within(i, end);
    return end - 1;
  }

  // A feed-forward by tiles of the sequence, in the place of what the class does in it.
  std::size_t tiled(std::size_t i) {
    const std::size_t end = end_of_module(block_, block_.events[i].name, i);
    enter(block_.events[i]);
    values_.at(block_.events[end].tensor) =
        hf::tiled_gated_mlp(t_, values_.at(block_.events[i].tensor));
    drop_within(i, end);
    return end - 1;  // which leaves it
  }

  // A linear layer that peft wraps: its own operation, and the adapter's beside it.
  std::size_t adapted(std::size_t i) {
    const TracedEvent& entered = block_.events[i];
    const std::size_t end = end_of_module(block_, entered.name, i);
    std::string_view operation;
    std::int32_t input = -1;
    for (std::size_t k = i; k < end; ++k) {
      const TracedEvent& e = block_.events[k];
      const bool product = e.kind == TracedEvent::Kind::operation &&
                           (e.name == "linear" || e.name == "addmm" || e.name == "mm");
      if (product) operation = e.name;
      if (input < 0 && e.kind == TracedEvent::Kind::operation && !e.in.empty() &&
          e.in[0].kind == TracedOperand::Kind::tensor) {
        input = e.in[0].tensor;
      }
    }
    const std::int32_t output = block_.events[end].tensor;
    if (operation.empty() || input < 0 || output < 0) {
      throw InputError(Diagnostic{"",
                                  "/workload/method/lora/targets",
                                  "layers that are one matrix product",
                                  in_quotes(entered.name),
                                  ""});
    }
    const std::string_view module = inside(entered.name);
    const Tensor x = values_.at(input);
    values_.at(output) = operation == "linear" ? hf::linear(t_, c_, module, x)
                         : operation == "mm"   ? hf::matmul_linear(t_, c_, module, x)  // Falcon's
                                               : hf::conv1d(t_, c_, module, x);
    drop_within(i, end);
    return end;
  }

  // Of a storage that goes on to other blocks: never a parameter's, never the input's.
  Tensor own(const Tensor& tensor) {
    const bool foreign =
        tensor.storage() < 0 ||
        (block_.input >= 0 && tensor.storage() == values_.at(block_.input).storage());
    return foreign ? aten::clone(t_, tensor) : tensor;
  }

  Tensor end(Left& left) {
    for (const std::int32_t held : block_.held) {
      if (values_.at(held).defined()) t_.hold(values_.at(held));
    }
    for (const SlotUse& use : block_.gives) {
      Tensor& tensor = values_.at(use.tensor);
      tensor = own(tensor);
      t_.share_with_gradient(first_slot_ + use.slot, tensor);
      note(left, use.slot, tensor);
    }
    if (place_.call == 0 && values_.some_attention_pads()) hf::share_mask(t_, c_);
    Tensor output = own(values_.at(block_.output));
    note(left, -1, output);
    return output;
  }

  // Without autograd, as in the first pass over a checkpoint, nothing is known of gradients.
  void note(Left& left, std::int32_t slot, const Tensor& tensor) {
    if (!t_.grad_enabled()) return;
    left[slot] = Passed{tensor.shape(), tensor.dtype(), tensor.requires_grad(), -1};
  }

  Tape& t_;
  const hf::Context& c_;
  const TracedBlock& block_;
  const CallPlace& place_;
  std::int32_t first_slot_;
  TracedValues values_;
  std::vector<Open> open_;
};

// --- the whole model

class Builder {
 public:
  Builder(GraphAssembler& assembler, const hf::Context& context, const TracedGraph& graph)
      : model_(context.model), graph_(graph), context_(context), assembler_(assembler) {
    find_ties();
    find_last_users();
  }

  void build() {
    first_slot_ = assembler_.add_slots(graph_.slots);
    Bytes batch;
    for (const NamedTensor& input : graph_.inputs) batch += bytes_of(input.tensor);
    assembler_.set_batch(batch);
    add_buffers();
    const GraphOptions& options = context_.options;
    const bool caches = options.use_cache && !has_operation(graph_, hf::kUpdateCache);
    if (caches && options.checkpointing == ActivationCheckpointing::none) {
      assembler_.assume("the model was traced without a cache of keys and values (use_cache).");
    }
    if (model_.shape.encoder_layers > 0) assembler_.assume(lengths());
    if (has_operation(graph_, "_grouped_mm")) {
      assembler_.assume("Tokens are spread evenly over the experts.");
    }
    if (has_operation(graph_, hf::kDeltaRule)) {
      assembler_.assume(hf::who_computes(options.linear_attention));
    }
    if (has_operation(graph_, hf::kSplitScan)) {
      assembler_.assume(hf::who_scans(options.linear_attention));
    }
    for (std::size_t i = 0; i < graph_.calls.size(); ++i) call(i);
  }

 private:
  const TracedBlock& block_of(std::size_t call) const {
    return graph_.blocks[static_cast<std::size_t>(graph_.calls[call].block)];
  }

  // The assumption says how long the inputs of an encoder and of a decoder are.
  Phrase lengths() const {
    const bool hears =
        std::any_of(graph_.inputs.begin(), graph_.inputs.end(), [](const NamedTensor& input) {
          return input.name == "input_features";
        });
    return hears ? "The target has the sequence length, the sound that goes in the longest that "
                   "the class takes."
                 : "Source and target both have the sequence length.";
  }

  Bytes bytes_of(const TracedTensor& tensor) const {
    Elements count = 1_elements;
    for (const SizeFormula& size : tensor.shape)
      count = count * size.at(context_.batch, context_.sequence);
    return count * (tensor.of_model ? context_.options.dtype : tensor.dtype);
  }

  void add_buffers() {
    for (const NamedTensor& buffer : graph_.buffers) {
      const std::size_t dot = buffer.name.rfind('.');
      const std::string module = dot == std::string::npos ? "" : buffer.name.substr(0, dot + 1);
      assembler_.add_buffer(module, bytes_of(buffer.tensor));
    }
  }

  // Parameters that several calls read. A model of values has another head in place of the
  // vocabulary's (Player::other_loss).
  void find_ties() {
    const bool of_values = context_.options.scores.code == TokenScores::values;
    for (std::size_t i = 0; i < graph_.calls.size(); ++i) {
      for (const TracedEvent& event : block_of(i).events) {
        if (of_values && is_logits(event)) break;
        for (const TracedOperand& operand : event.in) {
          if (operand.kind != TracedOperand::Kind::parameter) continue;
          std::vector<std::size_t>& calls = users_[graph_.calls[i].prefix + operand.name];
          if (calls.empty() || calls.back() != i) calls.push_back(i);
          if (calls.back() == i)
            by_product_[graph_.calls[i].prefix + operand.name] =
                event.name == "linear" || event.name == "mm";
        }
      }
    }
  }

  void find_last_users() {
    for (std::size_t i = 0; i < graph_.calls.size(); ++i) {
      for (const SlotUse& use : block_of(i).takes)
        last_user_[use.slot] = static_cast<std::int32_t>(i);
    }
  }

  // In backward the last call comes first. What a product by a transposed weight gives is a view,
  // to which nothing is added in place; LinearFunctionForZeroStage3's is none.
  std::map<std::string, Tape::Tie> ties_of(std::size_t call) const {
    std::map<std::string, Tape::Tie> ties;
    const std::string& prefix = graph_.calls[call].prefix;
    for (const TracedEvent& event : block_of(call).events) {
      for (const TracedOperand& operand : event.in) {
        if (operand.kind != TracedOperand::Kind::parameter) continue;
        const auto found = users_.find(prefix + operand.name);
        if (found == users_.end() || found->second.size() < 2) continue;
        Tape::Tie tie;
        tie.first = call == found->second.back();
        tie.last = call == found->second.front();
        tie.in_place = context_.options.zero3_linear || !by_product_.at(prefix + operand.name);
        ties[operand.name] = tie;
      }
    }
    return ties;
  }

  // What makes calls of one block different: parameters that train or have adapters, ties, what
  // comes in.
  std::string kind_of(const CallPlace& place) const {
    const TracedCall& call = graph_.calls[place.call];
    std::string kind = std::to_string(call.block);
    for (const auto& [name, tie] : place.ties) {
      kind += " " + name + (tie.first ? "f" : "") + (tie.last ? "l" : "");
    }
    const auto flags = [&kind](const Passed& passed, std::size_t call_number) {
      kind += passed.gradient ? " g" : " n";
      kind += std::to_string(static_cast<int>(passed.dtype));
      if (passed.last_user == static_cast<std::int32_t>(call_number)) kind += "f";
    };
    if (place.input) flags(*place.input, place.call);
    for (const auto& [slot, passed] : place.taken) flags(passed, place.call);
    kind += " :";
    for (std::size_t p = 0; p < model_.parameters.size(); ++p) {
      const Parameter& parameter = model_.parameters[p];
      if (call.prefix.empty() || !parameter.name.starts_with(call.prefix)) continue;
      kind += parameter.name.substr(call.prefix.size()) + (parameter.trainable ? "+" : "-");
    }
    return kind;
  }

  void call(std::size_t i) {
    const TracedBlock& block = block_of(i);
    CallPlace place;
    place.call = i;
    place.ties = ties_of(i);
    if (block.input >= 0) {
      place.input = left_.at(-1);
    } else {
      assembler_.begin_stack();
    }
    for (const SlotUse& use : block.takes) {
      Passed passed = left_.at(use.slot);
      passed.last_user = last_user_.at(use.slot);
      place.taken[use.slot] = passed;
    }
    const std::string kind = kind_of(place);
    Left left;
    const auto forward = [&](Tape& t) {
      return Player(t, context_, graph_, block, place, first_slot_).play(left);
    };
    const std::size_t made = assembler_.add_call(
        {block.name, graph_.calls[i].prefix, kind, graph_.calls[i].layer}, forward);
    if (made >= left_by_.size()) left_by_.resize(made + 1);
    if (!left.empty()) left_by_[made] = std::move(left);
    for (const auto& [slot, passed] : left_by_[made]) left_[slot] = passed;
  }

  const Model& model_;
  const TracedGraph& graph_;
  hf::Context context_;
  GraphAssembler& assembler_;
  std::map<std::string, std::vector<std::size_t>> users_;  // calls that read a parameter
  std::map<std::string, bool> by_product_;                 // the last of them in a product
  std::map<std::int32_t, std::int32_t> last_user_;         // of a slot
  Left left_;
  std::vector<Left> left_by_;  // by block of the graph
  std::int32_t first_slot_ = 0;
};

[[noreturn]] void refuse(std::string pointer, Phrase expected, Phrase got, Phrase hint) {
  throw InputError(
      Diagnostic{"", std::move(pointer), std::move(expected), std::move(got), std::move(hint)});
}

void check_options(const TracedGraph& graph, const GraphOptions& options) {
  if (options.embedded)
    refuse("/workload/engine", "a model that the embedded runtime trains", "a traced model", "");
  if (options.implementation != Implementation::hf)
    refuse("/workload/implementation",
           "hf: a traced model is its own implementation",
           "another one",
           "");
  if (options.tensor_parallel > 1)
    refuse("/workload/tensor_parallel",
           "1 for a traced model",
           std::to_string(options.tensor_parallel),
           "");
  if (options.stage.stages > 1)
    refuse("/workload/pipeline_parallel",
           "1 for a traced model",
           std::to_string(options.stage.stages),
           "");
  if (graph.attention.empty()) return;
  const std::string asked(name(kAttentionNames, options.attention));
  if (asked != graph.attention) {
    refuse("/workload/attention",
           phrase("{}, as the model was traced", in_quotes(graph.attention)),
           in_quotes(asked),
           phrase("zeroplan trace --attention {}", asked));
  }
}

}  // namespace

void build_traced(GraphAssembler& assembler, const hf::Context& context, const TracedGraph& graph) {
  check_options(graph, context.options);
  try {
    Builder(assembler, context, graph).build();
  } catch (const std::logic_error& broken) {  // of a gradient
    throw refused("the backward pass", broken);
  }
}

}  // namespace zeroplan
