#include "model/graph/autograd.hpp"

#include <algorithm>
#include <new>

#include "base/check.hpp"

namespace zeroplan {

// --- Tensor ---

Tensor::Tensor(const Tensor& other)
    : tape_(other.tape_),
      storage_(other.storage_),
      node_(other.node_),
      output_(other.output_),
      parameter_(other.parameter_),
      trainable_(other.trainable_),
      view_(other.view_),
      dtype_(other.dtype_),
      shape_(other.shape_) {
  if (tape_ != nullptr) tape_->retain(storage_);
}

Tensor::Tensor(Tensor&& other) noexcept { swap(*this, other); }

Tensor& Tensor::operator=(Tensor other) noexcept {
  swap(*this, other);
  return *this;
}

Tensor::~Tensor() {
  if (tape_ != nullptr) tape_->drop(storage_);
}

void swap(Tensor& a, Tensor& b) noexcept {
  std::swap(a.tape_, b.tape_);
  std::swap(a.storage_, b.storage_);
  std::swap(a.node_, b.node_);
  std::swap(a.output_, b.output_);
  std::swap(a.parameter_, b.parameter_);
  std::swap(a.trainable_, b.trainable_);
  std::swap(a.view_, b.view_);
  std::swap(a.dtype_, b.dtype_);
  std::swap(a.shape_, b.shape_);
}

Tensor Tensor::detached() const {
  Tensor result = *this;
  result.node_ = -1;
  result.trainable_ = false;
  return result;
}

// --- Backward ---

const Tensor& Backward::gradient(std::size_t output) const {
  return Tape::at(gradients_, static_cast<std::int64_t>(output));
}

bool Backward::needs(std::size_t input) const {
  const Tape::Edge& edge =
      Tape::at(Tape::at(tape.nodes_, node_).inputs, static_cast<std::int64_t>(input));
  return edge.node >= 0 || edge.parameter >= 0;
}

void Backward::give(std::size_t input, Tensor gradient) {
  Tape::at(results_, static_cast<std::int64_t>(input)) = std::move(gradient);
}

// --- Tape: storages and events ---

void Tape::no_element(std::int64_t i, std::int64_t count) {
  check_failed(
      __FILE__, __LINE__, "at", "element " + std::to_string(i) + " of " + std::to_string(count));
}

Tape::Tape(Setup setup) : setup_(std::move(setup)) {
  block_.name = setup_.name;
  if (setup_.model != nullptr) {
    const auto& all = setup_.model->parameters;
    while (first_parameter_ < all.size() &&
           all[first_parameter_].name.compare(0, setup_.prefix.size(), setup_.prefix) != 0) {
      ++first_parameter_;
    }
  }
}

Tape::~Tape() { recording_ = false; }

void Tape::emit(EventKind kind, std::int32_t index) {
  if (recording_) block_.events[static_cast<std::size_t>(pass_)].push_back({kind, index});
}

std::int32_t Tape::new_storage(Elements elements, DType dtype, MemoryCategory category) {
  const auto index = static_cast<std::int32_t>(block_.storages.size());
  block_.storages.push_back({elements, dtype, category, elements * dtype});
  references_.push_back(0);
  storage_times_.push_back(times_);
  released_elsewhere_.push_back(false);
  return index;
}

void Tape::retain(std::int32_t storage) {
  if (storage >= 0) ++references_[static_cast<std::size_t>(storage)];
}

void Tape::drop(std::int32_t storage) noexcept {
  if (storage < 0 || !recording_) return;
  const auto i = static_cast<std::size_t>(storage);
  if (--references_[i] != 0 || released_elsewhere_[i]) return;
  try {
    emit(EventKind::release, storage);
  } catch (const std::bad_alloc&) {
    misses_event_ = true;  // a tensor that dies cannot throw: take() does
  }
}

Tensor Tape::empty(const Shape& shape, DType dtype) { return empty(shape, dtype, category_); }

Tensor Tape::empty(const Shape& shape, DType dtype, MemoryCategory category) {
  Tensor result;
  result.tape_ = this;
  result.shape_ = shape;
  result.dtype_ = dtype;
  result.storage_ = new_storage(shape.numel(), dtype, category);
  retain(result.storage_);
  emit(EventKind::allocate, result.storage_);
  return result;
}

Tensor Tape::alias(const Tensor& base, const Shape& shape, std::string_view name) {
  if (!name.empty()) launch({.name = name, .kind = OpKind::view, .kernels = 0});
  Tensor result = base.detached();
  result.parameter_ = -1;
  result.shape_ = shape;
  if (!name.empty() && name != "_unsafe_view") result.view_ = true;
  return result;
}

std::int32_t Tape::add_operation(const Launch& launch) {
  const auto index = static_cast<std::int32_t>(block_.operations.size());
  Operation operation;
  operation.name = launch.name;
  operation.kind = launch.kind;
  operation.traffic = launch.traffic;
  operation.kernels = launch.kernels;
  operation.times = times_;
  operation.library = launch.library.value_or(Library::own);
  operation.module = module_stack_.empty() ? -1 : module_stack_.back();
  block_.operations.push_back(operation);
  return index;
}

void Tape::launch(const Launch& launch) { emit(EventKind::operation, add_operation(launch)); }

void Tape::launch(const Launch& launch, const MatrixProduct& product) {
  const Library library = launch.library.value_or(Library::cublas);
  Tensor workspace;
  if (library == Library::cublas && setup_.product_workspace > Bytes::zero()) {
    const Shape shape{setup_.product_workspace.count()};
    workspace = empty(shape, DType::uint8, MemoryCategory::temporaries);
  }
  const std::int32_t index = add_operation(launch);
  Operation& operation = block_.operations.back();
  operation.kind = OpKind::matmul;
  operation.library = library;
  operation.shape = static_cast<std::int32_t>(block_.products.size());
  operation.flops = flops_of(product);
  block_.products.push_back(product);
  emit(EventKind::operation, index);
}

void Tape::launch(const Launch& launch, const AttentionCall& call) {
  const std::int32_t index = add_operation(launch);
  Operation& operation = block_.operations.back();
  operation.kind = OpKind::attention;
  operation.shape = static_cast<std::int32_t>(block_.attentions.size());
  operation.flops = flops_of(call);
  block_.attentions.push_back(call);
  emit(EventKind::operation, index);
}

bool Tape::trains(std::initializer_list<const Tensor*> inputs) const {
  if (!grad_enabled_) return false;
  return std::any_of(inputs.begin(), inputs.end(), [](const Tensor* t) {
    return t->defined() && t->requires_grad();
  });
}

Tensor Tape::save(const Tensor& tensor) {
  Tensor saved = tensor.detached();
  if (saved.storage_ < 0) return saved;
  emit(EventKind::save, saved.storage_);
  if (saved.storage_ == block_.input) block_.saves_input = true;
  for (SharedUse& use : block_.shared) {
    if (use.storage == saved.storage_) use.saved = true;
  }
  return saved;
}

void Tape::record(const std::vector<Tensor*>& outputs,
                  const std::vector<const Tensor*>& inputs,
                  BackwardFormula formula) {
  if (!grad_enabled_) return;
  const auto index = static_cast<std::int32_t>(nodes_.size());
  Node node;
  bool any = false;
  for (const Tensor* input : inputs) {
    Edge edge;
    if (input->defined() && input->requires_grad()) {
      any = true;
      edge.node = input->node_;
      edge.output = input->output_;
      if (input->node_ < 0) edge.parameter = input->parameter_;
      edge.category = input->storage_ < 0  // a parameter or a view of one
                          ? MemoryCategory::gradients
                          : block_.storages[static_cast<std::size_t>(input->storage_)].category;
    }
    node.inputs.push_back(edge);
  }
  if (!any) return;
  node.formula = std::move(formula);
  node.buffer.resize(outputs.size());
  node.category = category_;
  node.times = times_;
  node.module = module_stack_.empty() ? -1 : module_stack_.back();
  nodes_.push_back(std::move(node));
  std::int32_t number = 0;
  for (Tensor* output : outputs) {
    output->node_ = index;
    output->output_ = number++;
  }
}

// --- Tape: what forward code is given ---

Tensor Tape::input(const Shape& shape, DType dtype) {
  Tensor result;
  result.tape_ = this;
  result.shape_ = shape;
  result.dtype_ = dtype;
  if (block_.input < 0) {
    block_.input = new_storage(shape.numel(), dtype, MemoryCategory::activations);
  }
  result.storage_ = block_.input;
  retain(result.storage_);
  if (setup_.input_requires_grad && grad_enabled_) {
    // The leaf: its gradient goes to the block before.
    Node leaf;
    leaf.buffer.resize(1);
    result.node_ = static_cast<std::int32_t>(nodes_.size());
    leaf.formula = [](Backward& b) {
      Tape& tape = b.tape;
      const std::int32_t storage = b.gradient().storage();
      tape.block_.input_gradient = storage;
      at(tape.released_elsewhere_, storage) = true;
    };
    nodes_.push_back(std::move(leaf));
  }
  input_ = result;
  if (setup_.holds_input) hold(result);
  return result;
}

void Tape::forget_input() { input_ = Tensor(); }

void Tape::forget(const Tensor& tensor) {
  const std::int32_t storage = tensor.storage();
  if (storage < 0 || at(references_, storage) != 1 || at(released_elsewhere_, storage)) return;
  emit(EventKind::release, storage);
  at(released_elsewhere_, storage) = true;
}

Tensor Tape::shared(std::int32_t in_stack, const Shape& shape, DType dtype) {
  const std::int32_t slot = in_stack + setup_.first_slot;
  Tensor result;
  result.tape_ = this;
  result.shape_ = shape;
  result.dtype_ = dtype;
  for (const SharedUse& use : block_.shared) {
    if (use.slot == slot) result.storage_ = use.storage;
  }
  if (result.storage_ < 0) {
    result.storage_ = new_storage(shape.numel(), dtype, category_);
    released_elsewhere_[static_cast<std::size_t>(result.storage_)] = true;
    block_.shared.push_back({slot, result.storage_, false, false, -1});
  }
  retain(result.storage_);
  return result;
}

std::int32_t Tape::use_of(std::int32_t in_stack) const {
  const std::int32_t slot = in_stack + setup_.first_slot;
  for (std::size_t i = 0; i < block_.shared.size(); ++i) {
    if (block_.shared[i].slot == slot) return static_cast<std::int32_t>(i);
  }
  return -1;
}

Tensor Tape::shared_with_gradient(std::int32_t slot,
                                  const Shape& shape,
                                  DType dtype,
                                  bool first_in_backward) {
  Tensor result = shared(slot, shape, dtype);
  if (!grad_enabled_) return result;
  const std::int32_t use = use_of(slot);
  Node leaf;
  leaf.buffer.resize(1);
  leaf.formula = [use, first_in_backward](Backward& b) {
    Tape& tape = b.tape;
    const Tensor& gradient = b.gradient();
    std::int32_t& sum = at(tape.block_.shared, use).gradient;
    if (first_in_backward && sum < 0) {
      sum = gradient.storage();
      at(tape.released_elsewhere_, sum) = true;
    } else {
      tape.launch({.name = "add_", .traffic = gradient.bytes() * 3});
    }
  };
  result.node_ = static_cast<std::int32_t>(nodes_.size());
  result.output_ = 0;
  nodes_.push_back(std::move(leaf));
  return result;
}

void Tape::share_with_gradient(std::int32_t slot, const Tensor& tensor) {
  // A recomputation makes the tensor again, for itself.
  if (use_of(slot) < 0) share(slot, tensor);
  if (!grad_enabled_ || tensor.node_ < 0) return;
  SharedOutput output{use_of(slot), tensor.detached()};
  output.tensor.node_ = tensor.node_;
  output.tensor.output_ = tensor.output_;
  shared_outputs_.push_back(std::move(output));
}

void Tape::share(std::int32_t in_stack, const Tensor& tensor) {
  const std::int32_t slot = in_stack + setup_.first_slot;
  at(released_elsewhere_, tensor.storage_) = true;
  block_.shared.push_back({slot, tensor.storage_, true, false, -1});
}

void Tape::hold_in_frame(std::int32_t slot, const Tensor& tensor) {
  share(slot, tensor);
  frame_slots_.push_back(slot);
}

std::int32_t Tape::find_parameter(std::string_view name) const {
  const auto& all = setup_.model->parameters;
  const std::size_t prefix = setup_.prefix.size();
  for (std::size_t i = first_parameter_; i < all.size(); ++i) {
    const std::string_view full = all[i].name;
    if (full.substr(0, prefix) != setup_.prefix) break;  // a layer's parameters stand together
    if (full.substr(prefix) == name) return static_cast<std::int32_t>(i);
  }
  return -1;
}

Tensor Tape::parameter(std::string_view name) {
  Tensor result;
  const std::int32_t found = find_parameter(name);
  if (found < 0) return result;
  const Parameter& parameter = setup_.model->parameters[static_cast<std::size_t>(found)];
  result.tape_ = this;
  result.shape_ = Shape(parameter.shape);
  result.dtype_ = parameter.trainable ? setup_.trained_dtype.value_or(setup_.dtype)
                  : parameter.upcast  ? DType::fp32
                                      : setup_.dtype;
  result.trainable_ = parameter.trainable;
  const auto known = std::find_if(block_.parameters.begin(),
                                  block_.parameters.end(),
                                  [&](const BlockParameter& p) { return p.name == name; });
  result.parameter_ = static_cast<std::int32_t>(known - block_.parameters.begin());
  if (known == block_.parameters.end()) {
    block_.parameters.push_back(
        {std::string(name), parameter.numel, parameter.trainable, parameter.quantized});
    uses_.push_back(0);
    parameter_gradients_.emplace_back();
    tied_.emplace_back();
  }
  return result;
}

Tensor Tape::autocast_copy(const Tensor& parameter, DType dtype, BackwardFormula formula) {
  ZP_CHECK(parameter.parameter_ >= 0, "autocast's copy is of a parameter");
  if (width(dtype) < width(parameter.dtype_)) {
    block_.parameters[static_cast<std::size_t>(parameter.parameter_)].autocast = true;
  }
  Tensor copy = parameter.detached();
  copy.parameter_ = -1;
  copy.dtype_ = dtype;
  record({&copy}, {&parameter}, std::move(formula));
  return copy;
}

Tensor Tape::buffer(const Shape& shape, DType dtype) {
  Tensor result;
  result.tape_ = this;
  result.shape_ = shape;
  result.dtype_ = dtype;
  return result;
}

void Tape::tie(const Tensor& parameter, const Tie& tie) { at(tied_, parameter.parameter_) = tie; }

void Tape::require_grad(Tensor& tensor) {
  if (!grad_enabled_ || tensor.requires_grad()) return;
  Node leaf;
  leaf.buffer.resize(1);
  leaf.formula = [](Backward&) {};
  tensor.node_ = static_cast<std::int32_t>(nodes_.size());
  tensor.output_ = 0;
  nodes_.push_back(std::move(leaf));
}

std::string Tape::relative_to_module(std::string_view name) const {
  std::string full;
  if (!module_stack_.empty()) {
    full = block_.modules[static_cast<std::size_t>(module_stack_.back())].name;
  }
  if (!full.empty() && !name.empty()) full += '.';
  full += name;
  return full;
}

Tensor Tape::module_parameter(std::string_view name) { return parameter(relative_to_module(name)); }

bool Tape::has_parameter(std::string_view module, std::string_view name) const {
  if (module.empty()) return false;
  return find_parameter(relative_to_module(module) + '.' + std::string(name)) >= 0;
}

bool Tape::is_quantized(const Tensor& parameter) const {
  return parameter.parameter_ >= 0 &&
         block_.parameters[static_cast<std::size_t>(parameter.parameter_)].quantized;
}

void Tape::hold(const Tensor& tensor) {
  if (pass_ != Pass::recompute) held_.push_back(tensor.detached());
}

std::int32_t Tape::enter(std::string_view name) {
  std::string full = relative_to_module(name);
  auto known = std::find_if(block_.modules.begin(),
                            block_.modules.end(),
                            [&](const BlockModule& m) { return m.name == full; });
  const auto index = static_cast<std::int32_t>(known - block_.modules.begin());
  if (known == block_.modules.end()) block_.modules.push_back({std::move(full)});
  module_stack_.push_back(index);
  emit(EventKind::module_enter, index);
  return index;
}

std::int32_t Tape::enter(std::string_view name, Tensor& input) {
  const std::int32_t module = enter(name);
  if (grad_enabled_ && input.requires_grad()) {
    const Tensor outside = input;
    record({&input}, {&outside}, [module](Backward& b) {
      b.tape.emit(EventKind::module_exit, module);
      b.give(0, b.gradient());
    });
  }
  return module;
}

Tensor Tape::leave(std::int32_t module, Tensor output) {
  ZP_CHECK(!module_stack_.empty() && module_stack_.back() == module, "modules must nest");
  if (grad_enabled_ && output.requires_grad()) {
    const Tensor inside = output;
    record({&output}, {&inside}, [module](Backward& b) {
      b.tape.emit(EventKind::module_enter, module);
      b.give(0, b.gradient());
    });
  }
  module_stack_.pop_back();
  emit(EventKind::module_exit, module);
  return output;
}

}  // namespace zeroplan
