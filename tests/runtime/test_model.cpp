#include "tests/runtime/test_model.hpp"

#include <cmath>
#include <string>
#include <utility>

#include "base/check.hpp"

namespace zeroplan::runtime::test {
namespace {

using From = KernelOperand::From;

KernelOperand storage(int index) { return {From::storage, index}; }
KernelOperand weight(int index) { return {From::parameter, index}; }
KernelOperand gradient(int index) { return {From::gradient, index}; }

// Writes the events of one block.
class Writer {
 public:
  Writer(const SmallModelSizes& sizes, std::string name) : sizes_(sizes) {
    block.name = std::move(name);
    block.modules.push_back({""});
  }

  int make(std::int64_t elements, MemoryCategory category = MemoryCategory::activations) {
    block.storages.push_back(
        {Elements::of(elements), DType::fp32, category, Elements::of(elements) * DType::fp32});
    return static_cast<int>(block.storages.size()) - 1;
  }
  void pass(Pass pass) {
    pass_ = pass;
    add(EventKind::module_enter, 0);
  }
  void end() { add(EventKind::module_exit, 0); }
  void allocate(int index) { add(EventKind::allocate, index); }
  void release(int index) { add(EventKind::release, index); }
  void run(Kernel kernel, std::vector<KernelOperand> operands, KernelCall call = {}) {
    call.kernel = kernel;
    call.operands = std::move(operands);
    call.batch = sizes_.batch;
    call.sequence = sizes_.sequence;
    call.rows = sizes_.batch * sizes_.sequence;
    Operation operation;
    operation.name = name(kernel);
    operation.kernels = 1;
    block.operations.push_back(operation);
    block.calls.push_back(call);
    add(EventKind::operation, static_cast<int>(block.calls.size()) - 1);
  }
  void announce(int parameter, int index, bool complete = true) {
    block.weight_gradients.push_back({parameter, index, complete});
    add(EventKind::weight_gradient, static_cast<int>(block.weight_gradients.size()) - 1);
  }

  Block block;

 private:
  void add(EventKind kind, int index) {
    block.events[static_cast<std::size_t>(pass_)].push_back({kind, index});
  }
  SmallModelSizes sizes_;
  Pass pass_ = Pass::forward;
};

Block embedding(const SmallModelSizes& s) {
  const std::int64_t rows = s.batch * s.sequence;
  Writer w(s, "Embedding");
  w.block.parameters = {{"weight", Elements::of(s.vocabulary * s.hidden), true}};
  const int out = w.block.output = w.make(rows * s.hidden);
  const int d_out = w.block.output_gradient = w.make(rows * s.hidden);
  const int d_weight = w.make(s.vocabulary * s.hidden, MemoryCategory::gradients);
  KernelCall call;
  call.columns = s.hidden;
  call.inner = s.vocabulary;
  w.pass(Pass::forward);
  w.allocate(out);
  w.run(Kernel::embedding_forward, {storage(out), {From::ids}, weight(0)}, call);
  w.end();
  w.pass(Pass::backward);
  if (!s.tied) w.allocate(d_weight);
  call.accumulate = s.tied;
  w.run(Kernel::embedding_backward, {gradient(0), {From::ids}, storage(d_out)}, call);
  w.announce(0, s.tied ? -1 : d_weight);
  w.release(d_out);
  w.end();
  return std::move(w.block);
}

Block layer(const SmallModelSizes& s) {
  const std::int64_t rows = s.batch * s.sequence;
  const std::int64_t h = s.hidden;
  Writer w(s, "Layer");
  w.block.parameters = {{"weight", Elements::of(h * h), true}, {"bias", Elements::of(h), true}};
  const int x = w.block.input = w.make(rows * h);
  const int y = w.make(rows * h);
  const int z = w.block.output = w.make(rows * h);
  const int d_z = w.block.output_gradient = w.make(rows * h);
  const int d_y = w.make(rows * h);
  const int d_x = w.block.input_gradient = w.make(rows * h);
  const int d_w = w.make(h * h, MemoryCategory::gradients);
  const int d_b = w.make(h, MemoryCategory::gradients);
  w.block.saves_input = true;
  KernelCall call;
  call.columns = call.inner = h;
  w.pass(Pass::forward);
  w.allocate(y);
  w.run(Kernel::linear_forward, {storage(y), storage(x), weight(0), weight(1)}, call);
  w.allocate(z);
  w.run(Kernel::gelu_forward, {storage(z), storage(y)}, call);
  w.end();
  w.pass(Pass::backward);
  w.allocate(d_y);
  w.run(Kernel::gelu_backward, {storage(d_y), storage(d_z), storage(y)}, call);
  w.release(d_z);
  w.release(y);
  w.allocate(d_w);
  w.run(Kernel::linear_backward_weight, {gradient(0), storage(d_y), storage(x)}, call);
  w.announce(0, d_w);
  w.allocate(d_b);
  w.run(Kernel::linear_backward_bias, {gradient(1), storage(d_y)}, call);
  w.announce(1, d_b);
  w.release(x);
  w.allocate(d_x);
  w.run(Kernel::linear_backward_input, {storage(d_x), storage(d_y), weight(0)}, call);
  w.release(d_y);
  w.end();
  return std::move(w.block);
}

Block head(const SmallModelSizes& s) {
  const std::int64_t rows = s.batch * s.sequence;
  Writer w(s, "Head");
  w.block.parameters = {{"weight", Elements::of(s.vocabulary * s.hidden), true}};
  const int x = w.block.input = w.make(rows * s.hidden);
  const int logits = w.make(rows * s.vocabulary, MemoryCategory::logits);
  const int lse = w.make(rows);
  const int loss = w.block.output = w.make(1);
  const int d_x = w.block.input_gradient = w.make(rows * s.hidden);
  const int d_w = w.make(s.vocabulary * s.hidden, MemoryCategory::gradients);
  w.block.saves_input = true;
  KernelCall call;
  call.columns = s.vocabulary;
  call.inner = s.hidden;
  w.pass(Pass::forward);
  w.allocate(logits);
  w.run(Kernel::linear_forward, {storage(logits), storage(x), weight(0), {}}, call);
  w.allocate(lse);
  w.allocate(loss);
  w.run(Kernel::cross_entropy_forward,
        {storage(loss), storage(lse), storage(logits), {From::labels}},
        call);
  w.end();
  w.pass(Pass::backward);
  w.run(Kernel::cross_entropy_backward,
        {storage(logits), storage(logits), storage(lse), {From::labels}},
        call);
  w.release(lse);
  w.allocate(d_w);
  w.run(Kernel::linear_backward_weight, {gradient(0), storage(logits), storage(x)}, call);
  w.announce(0, d_w, !s.tied);
  w.release(x);
  w.allocate(d_x);
  w.run(Kernel::linear_backward_input, {storage(d_x), storage(logits), weight(0)}, call);
  w.release(logits);
  w.end();
  return std::move(w.block);
}

// --- kernels

// Weights count tenfold: N(0, 0.02) is for layers wider than these.
constexpr float kGain = 10.0F;

double gelu(double x) { return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0))); }
double gelu_slope(double x) {
  return 0.5 * (1.0 + std::erf(x / std::sqrt(2.0))) +
         x * std::exp(-0.5 * x * x) * 0.3989422804014327;
}

class PlainKernels : public Kernels {
 public:
  void run(const KernelCall& call, std::span<const Operand> o) override {
    const std::int64_t T = call.rows;
    const std::int64_t n = call.columns;
    const std::int64_t k = call.inner;
    const auto f = [&](std::size_t i) { return o[i].as<float>(); };
    switch (call.kernel) {
      case Kernel::embedding_forward:
        for (std::int64_t t = 0; t < T; ++t) {
          const std::int64_t id = o[1].as<std::int64_t>()[t];
          for (std::int64_t j = 0; j < n; ++j) f(0)[t * n + j] = kGain * f(2)[id * n + j];
        }
        return;
      case Kernel::embedding_backward:
        if (!call.accumulate) std::fill_n(f(0), k * n, 0.0F);
        for (std::int64_t t = 0; t < T; ++t) {
          const std::int64_t id = o[1].as<std::int64_t>()[t];
          for (std::int64_t j = 0; j < n; ++j) f(0)[id * n + j] += kGain * f(2)[t * n + j];
        }
        return;
      case Kernel::linear_forward:
        for (std::int64_t t = 0; t < T; ++t) {
          for (std::int64_t i = 0; i < n; ++i) {
            float sum = 0.0F;
            for (std::int64_t j = 0; j < k; ++j) sum += f(1)[t * k + j] * f(2)[i * k + j];
            f(0)[t * n + i] = kGain * sum + (f(3) != nullptr ? f(3)[i] : 0.0F);
          }
        }
        return;
      case Kernel::linear_backward_input:
        for (std::int64_t t = 0; t < T; ++t) {
          for (std::int64_t j = 0; j < k; ++j) {
            float sum = 0.0F;
            for (std::int64_t i = 0; i < n; ++i) sum += f(1)[t * n + i] * f(2)[i * k + j];
            f(0)[t * k + j] = kGain * sum;
          }
        }
        return;
      case Kernel::linear_backward_weight:
        for (std::int64_t i = 0; i < n; ++i) {
          for (std::int64_t j = 0; j < k; ++j) {
            float sum = 0.0F;
            for (std::int64_t t = 0; t < T; ++t) sum += f(1)[t * n + i] * f(2)[t * k + j];
            f(0)[i * k + j] = kGain * sum;
          }
        }
        return;
      case Kernel::linear_backward_bias:
        for (std::int64_t i = 0; i < n; ++i) {
          float sum = 0.0F;
          for (std::int64_t t = 0; t < T; ++t) sum += f(1)[t * n + i];
          f(0)[i] = sum;
        }
        return;
      case Kernel::gelu_forward:
        for (std::int64_t i = 0; i < T * n; ++i) f(0)[i] = static_cast<float>(gelu(f(1)[i]));
        return;
      case Kernel::gelu_backward:
        for (std::int64_t i = 0; i < T * n; ++i) {
          f(0)[i] = f(1)[i] * static_cast<float>(gelu_slope(f(2)[i]));
        }
        return;
      case Kernel::cross_entropy_forward: {
        double total = 0.0;
        for (std::int64_t t = 0; t < T; ++t) {
          double sum = 0.0;
          for (std::int64_t i = 0; i < n; ++i) sum += std::exp(double(f(2)[t * n + i]));
          f(1)[t] = static_cast<float>(std::log(sum));
          total += std::log(sum) - double(f(2)[t * n + o[3].as<std::int64_t>()[t]]);
        }
        f(0)[0] = static_cast<float>(total / static_cast<double>(T));
        return;
      }
      case Kernel::cross_entropy_backward: {
        const auto scale = static_cast<float>(call.scale / static_cast<double>(T));
        for (std::int64_t t = 0; t < T; ++t) {
          for (std::int64_t i = 0; i < n; ++i) {
            const float hit = o[3].as<std::int64_t>()[t] == i ? 1.0F : 0.0F;
            f(0)[t * n + i] = (std::exp(f(1)[t * n + i] - f(2)[t]) - hit) * scale;
          }
        }
        return;
      }
      default:
        ZP_CHECK(false, "not a kernel of the small model");
    }
  }
};

}  // namespace

SmallModel small_model(const SmallModelSizes& s) {
  SmallModel result;
  Model& model = result.model;
  ModelGraph& graph = result.graph;
  const auto add_parameter = [&](std::string name, std::vector<std::int64_t> shape) {
    Parameter parameter{.name = std::move(name), .shape = std::move(shape), .numel = {}};
    std::int64_t numel = 1;
    for (const std::int64_t size : parameter.shape) numel *= size;
    parameter.numel = Elements::of(numel);
    model.parameters.push_back(parameter);
    return static_cast<int>(model.parameters.size()) - 1;
  };
  const auto add_module =
      [&](std::string name, std::string type, std::vector<int> weights, int parent) {
        model.modules.push_back({std::move(name), std::move(type), std::move(weights), parent});
        return static_cast<int>(model.modules.size()) - 1;
      };
  model.name = "small";
  graph.batch = Elements::of(2 * s.batch * s.sequence) * DType::int64;
  graph.blocks = {embedding(s), layer(s), head(s)};
  const int root = add_module("", "Root", {}, -1);
  const int table = add_parameter("embed.weight", {s.vocabulary, s.hidden});
  const int embed = add_module("embed", "Embedding", {table}, root);
  graph.instances.push_back({0, "embed.", {table}, {embed}, false});
  const int layers = add_module("layers", "ModuleList", {}, root);
  for (std::int64_t i = 0; i < s.layers; ++i) {
    const std::string name = "layers." + std::to_string(i);
    const int w = add_parameter(name + ".weight", {s.hidden, s.hidden});
    const int b = add_parameter(name + ".bias", {s.hidden});
    const int module = add_module(name, "Linear", {w, b}, layers);
    graph.instances.push_back({1, name + ".", {w, b}, {module}, false});
  }
  const int out = s.tied ? table : add_parameter("head.weight", {s.vocabulary, s.hidden});
  const int head_module = add_module("head", "Linear", {out}, root);
  graph.instances.push_back({2, "head.", {out}, {head_module}, false});
  return result;
}

std::unique_ptr<Kernels> plain_kernels() { return std::make_unique<PlainKernels>(); }

}  // namespace zeroplan::runtime::test
