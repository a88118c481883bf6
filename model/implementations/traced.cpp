#include "model/implementations/traced.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/diagnostic.hpp"
#include "model/implementations/assembler.hpp"
#include "model/implementations/hf_delta_rule.hpp"
#include "model/implementations/hf_mamba_ssm.hpp"
#include "model/implementations/traced_player.hpp"

namespace zeroplan {
namespace {

class Builder {
 public:
  Builder(GraphAssembler& assembler, const hf::Context& context, const TracedGraph& graph)
      : model_(context.model), graph_(graph), context_(context), assembler_(assembler) {
    find_calls();
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
    const bool pipeline = options.stage.stages > 1;
    if (pipeline) hf::keep_logits(assembler_, context_);
    for (std::size_t i = 0; i < graph_.calls.size(); ++i) {
      if (pipeline && !graph_.calls[i].layer) {
        around_layers(i);
      } else if (is_here_[i]) {
        call(i);
      }
    }
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

  // Calls of this stage of a pipeline: of its layers, on the first stage of what stands before
  // them, on the last of what stands behind.
  void find_calls() {
    const StagePlace& stage = context_.options.stage;
    std::int64_t layers = 0;
    for (const TracedCall& call : graph_.calls) {
      const bool around = layers == 0 ? stage.is_first() : stage.is_last();
      const std::int64_t layer = layers - stage.first_layer;
      is_here_.push_back(stage.stages == 1 ||
                         (call.layer ? layer >= 0 && layer < stage.layers : around));
      layers += call.layer ? 1 : 0;
    }
  }

  // Parameters that several calls read. A model of values has another head in place of the
  // vocabulary's (Player::other_loss).
  void find_ties() {
    const bool of_values = context_.options.scores.code == TokenScores::values;
    for (std::size_t i = 0; i < graph_.calls.size(); ++i) {
      if (!is_here_[i]) continue;
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
      if (!is_here_[i]) continue;
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

  CallPlace place_of(std::size_t i) {
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
      const auto passed = left_.find(use.slot);
      if (passed == left_.end()) {
        if (graph_.calls[i].layer) needs_another_stage();
        continue;
      }
      place.taken[use.slot] = passed->second;
      place.taken[use.slot].last_user = last_user_.at(use.slot);
    }
    return place;
  }

  [[noreturn]] void needs_another_stage() const {
    throw InputError(Diagnostic{"",
                                "/workload/pipeline_parallel",
                                "a class whose layers read hidden states and what is made of none",
                                in_quotes(model_.architecture),
                                ""});
  }

  // Adds a block before or behind the layers of a pipeline, or what takes its place in a stage
  // without it.
  void around_layers(std::size_t i) {
    const TracedBlock& block = block_of(i);
    const CallPlace place = place_of(i);
    Left left;
    const auto player = [&](Tape& t) {
      return TracedPlayer(t, context_, graph_, block, place, first_slot_);
    };
    const Shape hidden = context_.hidden_shape();
    assembler_.set_hidden(hidden, [&](Tape& t) {
      player(t).play_beside(left);
      left[-1] = Passed{hidden, context_.options.dtype, true, -1};
    });
    assembler_.add(
        block.name, graph_.calls[i].prefix, [&](Tape& t) { return player(t).play(left); });
    for (const auto& [slot, passed] : left) left_[slot] = passed;
  }

  void call(std::size_t i) {
    const TracedBlock& block = block_of(i);
    const CallPlace place = place_of(i);
    const std::string kind = kind_of(place);
    Left left;
    const auto forward = [&](Tape& t) {
      return TracedPlayer(t, context_, graph_, block, place, first_slot_).play(left);
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
  std::vector<bool> is_here_;                              // calls of this stage
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
