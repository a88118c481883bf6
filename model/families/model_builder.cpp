#include "model/families/model_builder.hpp"

#include <utility>

#include "base/check.hpp"

namespace zeroplan {

namespace {
constexpr std::int64_t kMostParameters = 1'000'000'000'000'000;
}

ModelBuilder::ModelBuilder(std::string_view root_type) {
  modules_.push_back({.name = "", .type = std::string(root_type)});
}

std::string ModelBuilder::path_of(int module, std::string_view child) const {
  const std::string& prefix = modules_[static_cast<std::size_t>(module)].name;
  if (prefix.empty()) return std::string(child);
  return prefix + "." + std::string(child);
}

int ModelBuilder::add_module(std::string_view name, std::string_view type) {
  modules_.push_back(
      {.name = path_of(current_, name), .type = std::string(type), .parent = current_});
  return static_cast<int>(modules_.size()) - 1;
}

ModelBuilder::Scope ModelBuilder::in(std::string_view name, std::string_view type) {
  const int enclosing = current_;
  current_ = add_module(name, type);
  return Scope(*this, enclosing);
}

ModelBuilder::Scope ModelBuilder::in(std::int64_t index, std::string_view type) {
  return in(std::to_string(index), type);
}

void ModelBuilder::leaf(std::string_view name, std::string_view type) { add_module(name, type); }

int ModelBuilder::parameter(std::string_view name, std::vector<std::int64_t> shape) {
  std::int64_t numel = 1;
  for (const std::int64_t extent : shape) {
    if (__builtin_mul_overflow(numel, extent, &numel) || numel > kMostParameters) {
      throw TooManyParameters();
    }
  }
  total_ += numel;
  if (total_ > kMostParameters) throw TooManyParameters();

  const auto owner = static_cast<std::size_t>(current_);
  const int index = static_cast<int>(parameters_.size());
  for (std::size_t later = owner + 1; later < modules_.size(); ++later) {
    ZP_CHECK(modules_[later].parameters.empty(),
             "a module's own parameters stand before those of its children");
  }
  const bool experts_in_one = routed_of_ > 1 && shape.size() == 3;
  parameters_.push_back({.name = path_of(current_, name),
                         .shape = std::move(shape),
                         .numel = Elements::of(numel),
                         .routed_active = routed_active_,
                         .routed_of = routed_of_,
                         .converted = experts_in_one});
  modules_[owner].parameters.push_back(index);
  return index;
}

void ModelBuilder::uses(int parameter_index) {
  ZP_CHECK(parameter_index >= 0 && parameter_index < static_cast<int>(parameters_.size()),
           "a tied parameter stands before its second user");
  modules_[static_cast<std::size_t>(current_)].parameters.push_back(parameter_index);
}

int ModelBuilder::linear(std::string_view name,
                         std::int64_t in_features,
                         std::int64_t out_features,
                         bool bias,
                         std::string_view type) {
  const Scope scope = in(name, type);
  const int weight = parameter("weight", {out_features, in_features});
  if (bias) parameter("bias", {out_features});
  return weight;
}

int ModelBuilder::conv1d(std::string_view name,
                         std::int64_t in_features,
                         std::int64_t out_features) {
  const Scope scope = in(name, "Conv1D");
  const int weight = parameter("weight", {in_features, out_features});
  parameter("bias", {out_features});
  return weight;
}

int ModelBuilder::embedding(std::string_view name,
                            std::int64_t rows,
                            std::int64_t width,
                            std::string_view type) {
  const Scope scope = in(name, type);
  return parameter("weight", {rows, width});
}

int ModelBuilder::norm(std::string_view name, std::int64_t width, std::string_view type) {
  const Scope scope = in(name, type);
  return parameter("weight", {width});
}

int ModelBuilder::layer_norm(std::string_view name, std::int64_t width, bool bias) {
  const Scope scope = in(name, "LayerNorm");
  const int weight = parameter("weight", {width});
  if (bias) parameter("bias", {width});
  return weight;
}

void ModelBuilder::tied_linear(std::string_view name, int weight, int bias, std::string_view type) {
  const Scope scope = in(name, type);
  uses(weight);
  if (bias >= 0) uses(bias);
}

ModelBuilder::Routing ModelBuilder::routed(std::int64_t active, std::int64_t of) {
  return Routing(*this, active, of);
}

void ModelBuilder::move_into(Model& model) {
  model.parameters = std::move(parameters_);
  model.modules = std::move(modules_);
}

}  // namespace zeroplan
