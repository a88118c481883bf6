#include "model/implementations/embedded_builder.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.hpp"
#include "model/graph/kernel_cost.hpp"

namespace zeroplan::embedded {
namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

}  // namespace

// One pass: what is alive before it, its steps, and what it leaves alive.
struct BlockBuilder::Walk {
  const std::vector<Step>* steps = nullptr;
  std::vector<bool> entry, survives;
};

BlockBuilder::BlockBuilder(Setup setup) : setup_(std::move(setup)) { block_.name = setup_.name; }

std::int64_t BlockBuilder::loss_rows() const {
  const std::int64_t rows_of_chunk = setup_.options->loss_rows;
  return rows_of_chunk > 0 ? std::min(rows_of_chunk, rows()) : rows();
}

// --- tensors

std::int32_t BlockBuilder::new_storage(std::int64_t elements,
                                       DType dtype,
                                       MemoryCategory category,
                                       Keep keep) {
  const Elements count = Elements::of(elements);
  block_.storages.push_back({count, dtype, category, count * dtype});
  keeps_.push_back(keep);
  return static_cast<std::int32_t>(block_.storages.size()) - 1;
}

KernelOperand BlockBuilder::input(std::int64_t elements) {
  const KernelOperand input = tensor(elements);
  block_.input = input.index;
  return input;
}

KernelOperand BlockBuilder::tensor(std::int64_t elements, Keep keep) {
  const DType dtype = setup_.options->dtype;
  return {KernelOperand::From::storage,
          new_storage(elements, dtype, MemoryCategory::activations, keep)};
}

KernelOperand BlockBuilder::logits(std::int64_t elements) {
  const DType dtype = setup_.options->dtype;
  return {KernelOperand::From::storage,
          new_storage(elements, dtype, MemoryCategory::logits, Keep::no)};
}

KernelOperand BlockBuilder::statistic(std::int64_t elements, Keep keep) {
  return {KernelOperand::From::storage,
          new_storage(elements, DType::fp32, MemoryCategory::activations, keep)};
}

KernelOperand BlockBuilder::workspace(std::int64_t elements) {
  return {KernelOperand::From::storage,
          new_storage(elements, DType::fp32, MemoryCategory::temporaries, Keep::no)};
}

KernelOperand BlockBuilder::loss() {
  return {KernelOperand::From::storage,
          new_storage(1, DType::fp32, MemoryCategory::logits, Keep::no)};
}

KernelOperand BlockBuilder::parameter(std::string_view name) {
  std::string full;
  if (!open_modules_.empty()) full = block_.modules[at(open_modules_.back())].name;
  if (!full.empty()) full += '.';
  return parameter_of_block(full.append(name));
}

KernelOperand BlockBuilder::parameter_of_block(std::string_view name) {
  const auto known = std::find_if(block_.parameters.begin(),
                                  block_.parameters.end(),
                                  [&](const BlockParameter& p) { return p.name == name; });
  const auto index = static_cast<std::int32_t>(known - block_.parameters.begin());
  if (known != block_.parameters.end()) return {KernelOperand::From::parameter, index};
  const std::string full = setup_.prefix + std::string(name);
  const auto& all = setup_.model->parameters;
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Parameter& p) { return p.name == full; });
  if (found == all.end()) return {};
  ZP_CHECK(found->trainable, "the embedded runtime trains every parameter");
  block_.parameters.push_back({std::string(name), found->numel, true});
  parameters_.push_back(&*found);
  gradient_storages_.push_back(-1);
  ties_.emplace_back();
  return {KernelOperand::From::parameter, index};
}

const std::vector<std::int64_t>& BlockBuilder::shape_of(KernelOperand parameter) const {
  ZP_CHECK(parameter.from == KernelOperand::From::parameter, "no parameter");
  return parameters_[at(parameter.index)]->shape;
}

KernelOperand BlockBuilder::gradient_of(KernelOperand parameter) {
  if (parameter.from == KernelOperand::From::none) return {};
  ZP_CHECK(parameter.from == KernelOperand::From::parameter, "no parameter");
  std::int32_t& storage = gradient_storages_[at(parameter.index)];
  if (storage < 0 && ties_[at(parameter.index)].first) {
    storage = new_storage(parameters_[at(parameter.index)]->numel.count(),
                          setup_.options->dtype,
                          MemoryCategory::gradients,
                          Keep::no);
  }
  return {KernelOperand::From::gradient, parameter.index};
}

void BlockBuilder::tie(KernelOperand parameter, const Tie& tie) {
  ties_[at(parameter.index)] = tie;
}

// --- the calls

BlockBuilder::Scope BlockBuilder::module(std::string_view name) {
  std::string full;
  if (!open_modules_.empty()) full = block_.modules[at(open_modules_.back())].name;
  if (!full.empty() && !name.empty()) full += '.';
  full += name;
  const auto known = std::find_if(block_.modules.begin(),
                                  block_.modules.end(),
                                  [&](const BlockModule& m) { return m.name == full; });
  const auto index = static_cast<std::int32_t>(known - block_.modules.begin());
  if (known == block_.modules.end()) block_.modules.push_back({full});
  open_modules_.push_back(index);
  steps().push_back({EventKind::module_enter, index});
  return Scope(*this);
}

void BlockBuilder::leave() noexcept {
  try {
    steps().push_back({EventKind::module_exit, open_modules_.back()});
  } catch (const std::bad_alloc&) {
    misses_event_ = true;  // the end of a scope cannot throw: take() does
  }
  open_modules_.pop_back();
}

void BlockBuilder::run(KernelCall call) {
  if (call.batch == 0) call.batch = batch();
  if (call.sequence == 0) call.sequence = sequence();
  if (call.rows == 0) call.rows = rows();
  const KernelCost cost = kernel_cost(call, setup_.options->dtype);
  Operation operation;
  operation.name = name(call.kernel);
  operation.kind = cost.kind;
  operation.flops = cost.flops;
  operation.traffic = cost.traffic;
  operation.kernels = 1;
  operation.module = open_modules_.empty() ? -1 : open_modules_.back();
  if (cost.product) {
    operation.shape = static_cast<std::int32_t>(block_.products.size());
    block_.products.push_back(*cost.product);
  } else if (cost.attention) {
    operation.shape = static_cast<std::int32_t>(block_.attentions.size());
    block_.attentions.push_back(*cost.attention);
  }
  steps().push_back({EventKind::operation, static_cast<std::int32_t>(block_.operations.size())});
  block_.operations.push_back(operation);
  block_.calls.push_back(std::move(call));
}

void BlockBuilder::set_output(KernelOperand output) { block_.output = output.index; }

KernelOperand BlockBuilder::begin_backward() {
  ZP_CHECK(block_.output >= 0 && open_modules_.empty(), "the forward pass is not finished");
  in_backward_ = true;
  const Storage& output = block_.storages[at(block_.output)];
  if (output.elements == 1_elements) return {};
  const KernelOperand gradient = tensor(output.elements.count());
  block_.output_gradient = gradient.index;
  return gradient;
}

void BlockBuilder::set_input_gradient(KernelOperand gradient) {
  block_.input_gradient = gradient.index;
}

// --- what follows from them

std::int32_t BlockBuilder::storage_of(const KernelOperand& operand) const {
  if (operand.from == KernelOperand::From::storage) return operand.index;
  if (operand.from == KernelOperand::From::gradient) return gradient_storages_[at(operand.index)];
  return -1;
}

// Read by the backward pass before it writes there; and gradients of weights that the forward pass
// makes.
void BlockBuilder::mark_saved() {
  std::vector<bool> born(block_.storages.size(), false);
  saved_.assign(block_.storages.size(), false);
  if (block_.output_gradient >= 0) born[at(block_.output_gradient)] = true;
  for (const Step& step : backward_) {
    if (step.kind != EventKind::operation) continue;
    const KernelCall& call = block_.calls[at(step.index)];
    const std::vector<OperandUse> uses = operand_uses(call);
    for (const bool reads : {true, false}) {
      for (std::size_t i = 0; i < uses.size(); ++i) {
        const std::int32_t storage = storage_of(call.operands[i]);
        if (storage < 0 || reads != (uses[i].access != Access::write)) continue;
        if (reads && !born[at(storage)]) saved_[at(storage)] = true;
        if (!reads && !saved_[at(storage)]) born[at(storage)] = true;
      }
    }
  }
  for (const Step& step : forward_) {
    if (step.kind != EventKind::operation) continue;
    for (const KernelOperand& operand : block_.calls[at(step.index)].operands) {
      if (operand.from != KernelOperand::From::gradient) continue;
      ZP_CHECK(!setup_.checkpoint && gradient_storages_[at(operand.index)] >= 0,
               "a pass that runs once begins a gradient");
      saved_[at(gradient_storages_[at(operand.index)])] = true;
    }
  }
  ZP_CHECK(!saved_[at(block_.output)], "an output belongs to the next block");
}

// The forward calls that something saved and not `kept` depends on.
std::vector<BlockBuilder::Step> BlockBuilder::needed_again(const std::vector<bool>& kept) const {
  std::vector<bool> wanted = saved_;
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = wanted[i] && !kept[i];
  std::vector<bool> runs(block_.operations.size(), false);
  for (auto step = forward_.rbegin(); step != forward_.rend(); ++step) {
    if (step->kind != EventKind::operation) continue;
    const KernelCall& call = block_.calls[at(step->index)];
    const std::vector<OperandUse> uses = operand_uses(call);
    bool needed = false;
    for (std::size_t i = 0; i < uses.size(); ++i) {
      const std::int32_t storage = storage_of(call.operands[i]);
      needed |= storage >= 0 && uses[i].access != Access::read && wanted[at(storage)];
    }
    if (!needed) continue;
    runs[at(step->index)] = true;
    for (std::size_t i = 0; i < uses.size(); ++i) {
      const std::int32_t storage = storage_of(call.operands[i]);
      if (storage < 0) continue;
      ZP_CHECK(uses[i].access == Access::read || !kept[at(storage)],
               "what a checkpoint keeps is not computed again");
      if (!kept[at(storage)]) wanted[at(storage)] = true;
    }
  }
  std::vector<Step> steps;
  for (const Step& step : forward_) {
    if (step.kind == EventKind::operation && !runs[at(step.index)]) continue;
    const bool empty_module = step.kind == EventKind::module_exit && !steps.empty() &&
                              steps.back().kind == EventKind::module_enter;
    if (empty_module) {
      steps.pop_back();
    } else {
      steps.push_back(step);
    }
  }
  return steps;
}

// By storage: the step that uses it last, -1 for none.
std::vector<std::int32_t> BlockBuilder::last_uses(const std::vector<Step>& steps) const {
  std::vector<std::int32_t> last(block_.storages.size(), -1);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].kind != EventKind::operation) continue;
    for (const KernelOperand& operand : block_.calls[at(steps[i].index)].operands) {
      const std::int32_t storage = storage_of(operand);
      if (storage >= 0) last[at(storage)] = static_cast<std::int32_t>(i);
    }
  }
  return last;
}

void BlockBuilder::write_pass(Pass pass, const Walk& walk) {
  std::vector<Event>& events = block_.events[static_cast<std::size_t>(pass)];
  const std::vector<std::int32_t> last = last_uses(*walk.steps);
  const bool records = pass == Pass::forward || pass == Pass::recompute;
  std::vector<bool> alive = walk.entry;
  if (pass == Pass::backward) announce_forward_gradients();
  const auto release = [&](std::int32_t storage) {
    if (!alive[at(storage)] || walk.survives[at(storage)]) return;
    alive[at(storage)] = false;
    events.push_back({EventKind::release, storage});
  };
  for (std::size_t i = 0; i < walk.steps->size(); ++i) {
    const Step& step = (*walk.steps)[i];
    if (step.kind != EventKind::operation) {
      events.push_back({step.kind, step.index});
      continue;
    }
    const std::vector<KernelOperand>& operands = block_.calls[at(step.index)].operands;
    for (const KernelOperand& operand : operands) {
      const std::int32_t storage = storage_of(operand);
      if (storage < 0 || alive[at(storage)]) continue;
      alive[at(storage)] = true;
      events.push_back({EventKind::allocate, storage});
    }
    events.push_back({EventKind::operation, step.index});
    for (const KernelOperand& operand : operands) {
      const std::int32_t storage = storage_of(operand);
      if (storage < 0 || last[at(storage)] != static_cast<std::int32_t>(i)) continue;
      const bool is_saved = records && saved_[at(storage)] && alive[at(storage)];
      const bool said = !events.empty() && events.back().kind == EventKind::save &&
                        events.back().index == storage;
      if (is_saved && !said) events.push_back({EventKind::save, storage});
      release(storage);
    }
    if (pass == Pass::backward) announce_gradients(i);
  }
  for (std::int32_t s = 0; at(s) < alive.size(); ++s) release(s);
}

bool BlockBuilder::writes_gradient(const Step& step, std::int32_t parameter) const {
  if (step.kind != EventKind::operation) return false;
  const std::vector<KernelOperand>& operands = block_.calls[at(step.index)].operands;
  return std::any_of(operands.begin(), operands.end(), [&](const KernelOperand& operand) {
    return operand.from == KernelOperand::From::gradient && operand.index == parameter;
  });
}

// In the backward pass, which alone announces.
void BlockBuilder::announce(std::int32_t parameter) {
  const auto index = static_cast<std::int32_t>(block_.weight_gradients.size());
  block_.weight_gradients.push_back(
      {parameter, gradient_storages_[at(parameter)], ties_[at(parameter)].last});
  block_.events[static_cast<std::size_t>(Pass::backward)].push_back(
      {EventKind::weight_gradient, index});
}

// In the order in which the forward pass finishes them.
void BlockBuilder::announce_forward_gradients() {
  std::vector<std::int32_t> finished;
  for (auto step = forward_.rbegin(); step != forward_.rend(); ++step) {
    for (std::int32_t p = 0; at(p) < gradient_storages_.size(); ++p) {
      const bool seen = std::find(finished.begin(), finished.end(), p) != finished.end();
      if (seen || !writes_gradient(*step, p)) continue;
      const bool goes_on = std::any_of(backward_.begin(), backward_.end(), [&](const Step& later) {
        return writes_gradient(later, p);
      });
      if (!goes_on) finished.push_back(p);
    }
  }
  for (auto p = finished.rbegin(); p != finished.rend(); ++p) announce(*p);
}

// The gradients that the step writes and no later one.
void BlockBuilder::announce_gradients(std::size_t step) {
  for (const KernelOperand& operand : block_.calls[at(backward_[step].index)].operands) {
    if (operand.from != KernelOperand::From::gradient) continue;
    const bool again =
        std::any_of(backward_.begin() + static_cast<std::ptrdiff_t>(step) + 1,
                    backward_.end(),
                    [&](const Step& later) { return writes_gradient(later, operand.index); });
    if (!again) announce(operand.index);
  }
}

Block BlockBuilder::take() {
  if (misses_event_) throw std::bad_alloc();
  ZP_CHECK(in_backward_ && open_modules_.empty(), "the backward pass is not written");
  mark_saved();
  const std::size_t count = block_.storages.size();
  const auto with = [&](std::vector<bool> set, std::int32_t storage) {
    if (storage >= 0) set[at(storage)] = true;
    return set;
  };
  const std::vector<bool> input = with(std::vector<bool>(count, false), block_.input);
  block_.saves_input = block_.input >= 0 && (setup_.checkpoint || saved_[at(block_.input)]);
  std::vector<bool> backward_entry = with(saved_, block_.output_gradient);
  if (setup_.checkpoint) {
    const bool selective = setup_.options->checkpointing == ActivationCheckpointing::selective;
    std::vector<bool> kept = input;
    for (std::size_t i = 0; i < count; ++i) {
      if (selective && saved_[i] && keeps_[i] == Keep::selective) kept[i] = true;
    }
    const std::vector<Step> again = needed_again(kept);
    write_pass(Pass::forward_no_grad, {&forward_, input, with(kept, block_.output)});
    write_pass(Pass::recompute, {&again, kept, with(saved_, block_.input)});
    backward_entry = with(backward_entry, block_.input);
  } else {
    write_pass(Pass::forward, {&forward_, input, with(saved_, block_.output)});
  }
  std::vector<bool> left = with(std::vector<bool>(count, false), block_.input_gradient);
  for (const std::int32_t gradient : gradient_storages_) left = with(std::move(left), gradient);
  write_pass(Pass::backward, {&backward_, backward_entry, left});
  return std::move(block_);
}

}  // namespace zeroplan::embedded
