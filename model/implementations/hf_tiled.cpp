#include "model/implementations/hf_tiled.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zeroplan::hf {

namespace {

constexpr std::string_view kGate = "gate_proj", kUp = "up_proj", kDown = "down_proj";

// Sizes of the tiles and of the whole, in rows of (batch x tokens).
struct Tiling {
  std::int64_t tiles = 1;
  std::int64_t tile_rows = 0;
  std::int64_t rows = 0;
  DType dtype = DType::bf16;

  Tensor tile(Tape& t, std::int64_t width) const { return t.empty(Shape{tile_rows, width}, dtype); }
};

Tiling tiling_of(const Tensor& x) {
  Tiling tiling;
  const std::int64_t batch = x.size(0), tokens = x.size(1);
  tiling.tiles = mlp_tiles(tokens, x.size(-1));
  tiling.tile_rows = batch * ceil_div(tokens, tiling.tiles);
  tiling.rows = batch * tokens;
  tiling.dtype = x.dtype();
  return tiling;
}

// m x k times k x n over all tiles; `reads` weights or gradients once a tile.
void launch_product(Tape& t, const Tiling& tiling, std::int64_t m, std::int64_t n, std::int64_t k) {
  const std::int64_t elements = m * n + m * k + n * k;
  t.launch({.name = "mm",
            .kind = OpKind::matmul,
            .traffic = Elements::of(elements) * tiling.dtype,
            .kernels = static_cast<std::int32_t>(tiling.tiles)},
           MatrixProduct{1, m, n, k, tiling.dtype});
}

// A pointwise kernel a tile, over `operands` tensors of `width` columns.
void launch_pointwise(
    Tape& t, const Tiling& tiling, std::string_view name, std::int64_t width, int operands) {
  t.launch({.name = name,
            .traffic = Elements::of(tiling.rows * width) * tiling.dtype * operands,
            .kernels = static_cast<std::int32_t>(tiling.tiles)});
}

// One linear layer on a tile: (rows, in) -> (rows, out).
Tensor project(Tape& t, const Tiling& tiling, std::string_view module) {
  const auto scope = t.enter(module);
  const Tensor weight = t.module_parameter("weight");
  const Tensor out = tiling.tile(t, weight.size(0));
  launch_product(t, tiling, tiling.rows, weight.size(0), weight.size(1));
  return t.leave(scope, out);
}

// What a tile's forward leaves: without autograd the product alone.
struct TileForward {
  Tensor gate, activated, up, product;
};

TileForward run_tile(Tape& t, const Tiling& tiling, bool keep) {
  TileForward tile;
  tile.gate = project(t, tiling, kGate);
  const std::int64_t width = tile.gate.size(-1);
  tile.activated = tiling.tile(t, width);
  launch_pointwise(t, tiling, "activation", width, 2);
  if (!keep) tile.gate = Tensor();
  tile.up = project(t, tiling, kUp);
  tile.product = tiling.tile(t, width);
  launch_pointwise(t, tiling, "mul", width, 3);
  if (!keep) tile.activated = tile.up = Tensor();
  return tile;
}

// The gradient of the running module's weight, added up over the tiles.
Tensor weight_gradient(Tape& t, const Tiling& tiling) {
  const Tensor weight = t.module_parameter("weight");
  const Shape shape = weight.shape().as_contiguous();
  const Tensor sum = t.empty(shape, tiling.dtype, MemoryCategory::gradients);
  launch_product(t, tiling, weight.size(0), weight.size(1), tiling.rows);
  if (tiling.tiles == 1) return sum;
  const Tensor part = t.empty(shape, tiling.dtype, MemoryCategory::gradients);
  t.launch({.name = "add_",
            .traffic = sum.bytes() * (3 * (tiling.tiles - 1)),
            .kernels = static_cast<std::int32_t>(tiling.tiles - 1)});
  return sum;
}

struct LinearGradients {
  Tensor input, weight;
};

LinearGradients project_backward(Tape& t,
                                 const Tiling& tiling,
                                 std::string_view module,
                                 bool needs_weight) {
  const auto scope = t.enter(module);
  const Tensor weight = t.module_parameter("weight");
  LinearGradients gradients;
  gradients.input = tiling.tile(t, weight.size(1));
  launch_product(t, tiling, tiling.rows, weight.size(1), weight.size(0));
  if (needs_weight) gradients.weight = weight_gradient(t, tiling);
  gradients.input = t.leave(scope, gradients.input);
  return gradients;
}

// Inputs of the node: x, and the weights of gate, up and down.
void tiled_backward(Backward& b, const Tiling& tiling, const Tensor& x) {
  Tape& t = b.tape;
  const Tensor dx = t.empty(x.shape().as_contiguous(), x.dtype());
  t.launch({.name = "zeros_like", .kind = OpKind::fill, .traffic = dx.bytes()});
  TileForward tile = run_tile(t, tiling, true);
  const std::int64_t width = tile.product.size(-1);
  Tensor out = project(t, tiling, kDown);
  LinearGradients down = project_backward(t, tiling, kDown, b.needs(3));
  out = tile.product = Tensor();
  Tensor dup = tiling.tile(t, width);
  launch_pointwise(t, tiling, "mul", width, 3);
  Tensor dgate = tiling.tile(t, width);  // of the activated gate
  launch_pointwise(t, tiling, "mul", width, 3);
  down.input = tile.activated = tile.up = Tensor();
  LinearGradients up = project_backward(t, tiling, kUp, b.needs(2));
  dup = Tensor();
  {
    const Tensor before = tiling.tile(t, width);
    launch_pointwise(t, tiling, "activation_backward", width, 3);
    dgate = before;
  }
  tile.gate = Tensor();
  LinearGradients gate = project_backward(t, tiling, kGate, b.needs(1));
  launch_pointwise(t, tiling, "add_", x.size(-1), 3);  // both ways into the tile
  launch_pointwise(t, tiling, "add_", x.size(-1), 3);  // the tile into its rows of dx
  b.give(0, dx);
  if (b.needs(1)) b.give(1, std::move(gate.weight));
  if (b.needs(2)) b.give(2, std::move(up.weight));
  if (b.needs(3)) b.give(3, std::move(down.weight));
}

Tensor weight_of(Tape& t, std::string_view module) {
  return t.module_parameter(std::string(module) + ".weight");
}

bool is_one_kernel(ActivationFunction function) {
  return function == ActivationFunction::silu || function == ActivationFunction::relu ||
         function == ActivationFunction::gelu || function == ActivationFunction::gelu_tanh;
}

}  // namespace

std::int64_t mlp_tiles(std::int64_t tokens, std::int64_t hidden) {
  return ceil_div(tokens, hidden);
}

Tensor tiled_gated_mlp(Tape& t, const Tensor& x) {
  const Tiling tiling = tiling_of(x);
  const Tensor gate = weight_of(t, kGate), up = weight_of(t, kUp), down = weight_of(t, kDown);
  const bool trains = t.trains({&x, &gate, &up, &down});
  const Tensor saved = trains ? t.save(x) : Tensor();
  Tensor outputs;  // of all tiles
  {
    const TileForward tile = run_tile(t, tiling, false);
    outputs = t.empty(x.shape().as_contiguous(), x.dtype());
    const Tensor last = project(t, tiling, kDown);
  }
  Tensor out = outputs;
  if (tiling.tiles > 1) {
    out = t.empty(x.shape().as_contiguous(), x.dtype());
    t.launch({.name = "cat", .kind = OpKind::copy, .traffic = out.bytes() * 2});
  }
  outputs = Tensor();
  if (!trains) return out;
  t.record({&out}, {&x, &gate, &up, &down}, [saved, tiling](Backward& b) {
    tiled_backward(b, tiling, saved);
  });
  return out;
}

bool is_gated_mlp(const TracedBlock& block, std::size_t entered) {
  const TracedEvent& module = block.events[entered];
  if (module.kind != TracedEvent::Kind::enter || module.tensor < 0 || !module.name.ends_with("mlp"))
    return false;
  std::vector<std::string_view> done;  // projections that are entered, and operations
  const std::size_t end = end_of_module(block, module.name, entered);
  for (std::size_t i = entered + 1; i < end; ++i) {
    const TracedEvent& e = block.events[i];
    const std::string_view inner = std::string_view(e.name).substr(e.name.rfind('.') + 1);
    const bool projects = inner == kGate || inner == kUp || inner == kDown;
    if (e.kind == TracedEvent::Kind::operation) done.push_back(e.name);
    if (e.kind == TracedEvent::Kind::enter && projects) done.push_back(inner);
  }
  constexpr std::array<std::string_view, 3> kActivations{"silu", "gelu", "relu"};
  return std::any_of(kActivations.begin(), kActivations.end(), [&](std::string_view activation) {
    return done == std::vector<std::string_view>{
                       kGate, "linear", activation, kUp, "linear", "mul", kDown, "linear"};
  });
}

bool has_gated_mlp(const Model& model) {
  if (const TracedGraph* traced = traced_graph_of(model)) {
    const auto has = [](const TracedBlock& block) {
      for (std::size_t i = 0; i < block.events.size(); ++i) {
        if (is_gated_mlp(block, i)) return true;
      }
      return false;
    };
    if (std::none_of(traced->blocks.begin(), traced->blocks.end(), has)) return false;
  } else {
    const std::string& family = model.implementation_family;
    const bool gated = family == "llama" || family == "decoder";
    if (!gated || !is_one_kernel(model.shape.activation)) return false;
  }
  return std::any_of(
      model.parameters.begin(), model.parameters.end(), [](const Parameter& parameter) {
        return parameter.name.ends_with(".mlp.gate_proj.weight") && !parameter.quantized;
      });
}

}  // namespace zeroplan::hf
