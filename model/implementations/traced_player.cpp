#include "model/implementations/traced_player.hpp"

#include <algorithm>
#include <utility>

#include "model/implementations/hf_mamba_ssm.hpp"
#include "model/implementations/hf_tiled.hpp"
#include "model/implementations/traced_call.hpp"
#include "model/implementations/traced_operations.hpp"

namespace zeroplan {
namespace {

std::string_view last_part(std::string_view name, std::string_view around) {
  if (around.empty()) return name;
  return name.size() > around.size() && name.starts_with(around) && name[around.size()] == '.'
             ? name.substr(around.size() + 1)
             : std::string_view();
}

}  // namespace

bool is_logits(const TracedEvent& e) {
  return e.kind == TracedEvent::Kind::category && e.name == "logits";
}

InputError refused(const std::string& where, const std::logic_error& broken) {
  return InputError(Diagnostic{"",
                               "/model",
                               "operations whose tensors fit together",
                               where + ": " + failed_check(broken),
                               "trace the model again"});
}

Tensor TracedPlayer::play(Left& left) {
  begin();
  for (std::size_t i = 0; i < block_.events.size(); ++i) i = event(i);
  return end(left);
}

void TracedPlayer::play_beside(Left& left) {
  begin();
  for (const TracedEvent& e : block_.events) {
    if (e.kind == TracedEvent::Kind::drop) drop(e);
    if (e.kind == TracedEvent::Kind::operation && is_made_again(e)) operation(e);
  }
  give(left);
}

void TracedPlayer::begin() {
  if (block_.input >= 0)
    values_.at(block_.input) = t_.input(place_.input->shape, place_.input->dtype);
  for (const SlotUse& use : block_.takes) {
    if (!place_.taken.contains(use.slot)) continue;  // of another stage
    const Passed& passed = place_.taken.at(use.slot);
    const std::int32_t slot = first_slot_ + use.slot;
    const bool first = passed.last_user == static_cast<std::int32_t>(place_.call);
    values_.at(use.tensor) = passed.gradient
                                 ? t_.shared_with_gradient(slot, passed.shape, passed.dtype, first)
                                 : t_.shared(slot, passed.shape, passed.dtype);
  }
}

bool TracedPlayer::is_made_again(const TracedEvent& e) {
  return std::all_of(e.in.begin(), e.in.end(), [&](const TracedOperand& operand) {
    if (operand.kind == TracedOperand::Kind::tensor) return values_.at(operand.tensor).defined();
    return operand.kind != TracedOperand::Kind::parameter;
  });
}

std::size_t TracedPlayer::event(std::size_t i) {
  const TracedEvent& e = block_.events[i];
  switch (e.kind) {
    case TracedEvent::Kind::enter:
      if (t_.has_parameter(inside(e.name), "lora_A.default.weight")) return whole_layer(i);
      if (is_four_bit_matmul(i)) return whole_layer(i);
      if (c_.options.scores.code == TokenScores::values && e.name == "score") return other_loss(i);
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

bool TracedPlayer::has_other_loss() const {
  // Liger has no loss for words that are masked: it leaves those classes as they are.
  const bool fused = c_.options.fused_loss && c_.shape().kind != ModelKind::encoder;
  return fused || c_.options.scores.code != TokenScores::none;
}

std::size_t TracedPlayer::other_loss(std::size_t i) {
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

void TracedPlayer::no_head() const {
  throw InputError(Diagnostic{"",
                              c_.options.fused_loss ? "/workload/fused_loss" : "/workload/trainer",
                              "a class whose logits are one product with the vocabulary's matrix",
                              in_quotes(c_.model.architecture),
                              ""});
}

std::string_view TracedPlayer::inside(std::string_view module) const {
  for (auto open = open_.rbegin(); open != open_.rend(); ++open) {
    if (open->scope >= 0) return last_part(module, open->name);
  }
  return module;
}

void TracedPlayer::enter(const TracedEvent& e) {
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

void TracedPlayer::leave(const TracedEvent& e) {
  Open open = std::move(open_.back());
  open_.pop_back();
  if (e.tensor >= 0 && values_.lets_gradients_in(e.name)) t_.require_grad(values_.at(e.tensor));
  if (open.scope < 0) return;
  Tensor out;
  if (e.tensor >= 0) out = std::move(values_.at(e.tensor));
  const bool given = out.defined();
  out = t_.leave(open.scope, std::move(out));
  if (open.tensor >= 0 && open.outside.defined()) values_.at(open.tensor) = std::move(open.outside);
  if (given) values_.at(e.tensor) = std::move(out);
}

void TracedPlayer::drop(const TracedEvent& e) {
  for (const std::int32_t root : e.dropped) {
    values_.drop(root);
    for (Open& open : open_) {
      if (open.tensor >= 0 && values_.share_storage(open.tensor, root)) open.outside = Tensor();
    }
    if (block_.input >= 0 && values_.share_storage(block_.input, root)) t_.forget_input();
  }
}

void TracedPlayer::drop_within(std::size_t first, std::size_t end) {
  for (std::size_t k = first; k < end; ++k) {
    if (block_.events[k].kind == TracedEvent::Kind::drop) drop(block_.events[k]);
  }
}

void TracedPlayer::tie(const TracedEvent& e) {
  for (const TracedOperand& operand : e.in) {
    if (operand.kind != TracedOperand::Kind::parameter) continue;
    const auto tie = place_.ties.find(operand.name);
    if (tie != place_.ties.end()) t_.tie(t_.parameter(operand.name), tie->second);
  }
}

void TracedPlayer::operation(const TracedEvent& e) {
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

void TracedPlayer::wrong_size(const TracedEvent& e) const {
  throw InputError(Diagnostic{
      "",
      "/model",
      "operations whose sizes follow from those of their inputs",
      phrase("{} in {}, which gives other sizes than the document has", e.name, block_.name),
      "trace the model again"});
}

bool TracedPlayer::is_reshape(std::size_t i) const {
  const TracedEvent& e = block_.events[i];
  if (e.name != "clone" || !e.contiguous || i + 1 == block_.events.size()) return false;
  const TracedEvent& next = block_.events[i + 1];
  return next.kind == TracedEvent::Kind::operation && next.name == "_unsafe_view" &&
         next.in.front().kind == TracedOperand::Kind::tensor &&
         next.in.front().tensor == e.out.front();
}

std::size_t TracedPlayer::reshape(std::size_t i) {
  const TracedOperationCall call(values_, block_.events[i]);
  const std::int32_t out = block_.events[i + 1].out.front();
  values_.at(out) = aten::reshape(t_, call.x(), values_.shape_of(out));
  values_.at(block_.events[i].out.front()) = values_.at(out);
  return i + 1;
}

std::size_t TracedPlayer::split_scan(std::size_t i) {
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

std::size_t TracedPlayer::tiled(std::size_t i) {
  const std::size_t end = end_of_module(block_, block_.events[i].name, i);
  enter(block_.events[i]);
  values_.at(block_.events[end].tensor) =
      hf::tiled_gated_mlp(t_, values_.at(block_.events[i].tensor));
  drop_within(i, end);
  return end - 1;  // which leaves it
}

bool TracedPlayer::is_four_bit_matmul(std::size_t i) const {
  const std::string& name = block_.events[i].name;
  if (!t_.has_parameter(inside(name), "weight")) return false;
  const auto begin = block_.events.begin();
  const auto end = static_cast<std::ptrdiff_t>(end_of_module(block_, name, i));
  const auto is_product = [](const TracedEvent& e) { return e.name == "mm"; };
  return std::any_of(begin + static_cast<std::ptrdiff_t>(i), begin + end, is_product) &&
         t_.is_quantized(t_.parameter(name + ".weight"));
}

std::size_t TracedPlayer::whole_layer(std::size_t i) {
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

Tensor TracedPlayer::own(const Tensor& tensor) {
  const bool foreign =
      tensor.storage() < 0 ||
      (block_.input >= 0 && tensor.storage() == values_.at(block_.input).storage());
  return foreign ? aten::clone(t_, tensor) : tensor;
}

Tensor TracedPlayer::end(Left& left) {
  for (const std::int32_t held : block_.held) {
    if (values_.at(held).defined()) t_.hold(values_.at(held));
  }
  give(left);
  Tensor output = own(values_.at(block_.output));
  note(left, -1, output);
  return output;
}

void TracedPlayer::give(Left& left) {
  for (const SlotUse& use : block_.gives) {
    Tensor& tensor = values_.at(use.tensor);
    if (!tensor.defined()) continue;  // of another stage
    tensor = own(tensor);
    t_.share_with_gradient(first_slot_ + use.slot, tensor);
    note(left, use.slot, tensor);
  }
  if (place_.call == 0 && values_.some_attention_pads()) hf::share_mask(t_, c_);
}

void TracedPlayer::note(Left& left, std::int32_t slot, const Tensor& tensor) {
  if (!t_.grad_enabled()) return;
  left[slot] = Passed{tensor.shape(), tensor.dtype(), tensor.requires_grad(), -1};
}

}  // namespace zeroplan
