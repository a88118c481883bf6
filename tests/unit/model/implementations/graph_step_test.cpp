// A whole micro-batch: what is alive between blocks, with and without checkpointing
// (recorded with six Llama layers, F = 4U).
#include "model/implementations/implementations.hpp"
#include "tests/catch.hpp"
#include "tests/support/graph_walk.hpp"
#include "tests/support/small_models.hpp"

namespace zeroplan {
namespace {

using testing::GraphWalk;

constexpr std::int64_t kTokens = 2048;
constexpr std::int64_t U = 2 * kTokens * 1024;
constexpr std::int64_t kRow = 4 * kTokens, kLse = 4 * 8 * kTokens;
constexpr std::int64_t kTables = 2 * 2 * 1024 * 128;  // cos and sin of the model
constexpr std::int64_t kLoss = 512;                   // the scalar that the loop holds
constexpr std::int64_t kLayer = 28 * U + 2 * kRow + kLse;

Model six_layers() {
  testing::LlamaSizes sizes;
  sizes.layers = 6;
  sizes.vocabulary = 512;
  return testing::llama(sizes);
}

GraphOptions options(ActivationCheckpointing checkpointing, bool reentrant = true) {
  GraphOptions o;
  o.micro_batch = 2;
  o.sequence_length = 1024;
  o.transformers = {4, 47};
  o.checkpointing = checkpointing;
  o.checkpoint_reentrant = reentrant;
  return o;
}

TEST_CASE("After the last of six layers 6 x 28U and its output are alive") {
  const ModelGraph graph = build_graph(six_layers(), options(ActivationCheckpointing::none));
  const GraphWalk walk(graph);
  CHECK(walk.after(Pass::forward, 6) == Bytes::of(6 * kLayer + U + kTables));
  CHECK(walk.peak_of(Pass::backward, 6) == Bytes::of(6 * kLayer + kTables + U + 8 * U + kLoss));
}

TEST_CASE("A reentrant checkpoint peaks at its inputs, the gradient, 28U, the output and 2F") {
  const ModelGraph graph = build_graph(six_layers(), options(ActivationCheckpointing::full));
  const GraphWalk walk(graph);
  // 44U: six inputs, the gradient, the recomputed tensors and output, and 2F
  CHECK(walk.peak_of(Pass::backward, 6) ==
        Bytes::of((6 + 1 + 1 + 8) * U + kLayer + kTables + kLoss));
  // 23U at the last layer: six inputs, and what the layer holds without autograd
  CHECK(walk.after(Pass::forward_no_grad, 6) == Bytes::of(7 * U + kTables));
}

TEST_CASE("A non-reentrant checkpoint stops before the last product and saves the output") {
  const ModelGraph graph = build_graph(six_layers(), options(ActivationCheckpointing::full, false));
  const GraphWalk walk(graph);
  CHECK(walk.peak_of(Pass::backward, 6) == Bytes::of((6 + 1 + 8) * U + kLayer + kTables + kLoss));
}

TEST_CASE("Recomputation repeats the forward operations, all of them where it is reentrant") {
  const ModelGraph graph = build_graph(six_layers(), options(ActivationCheckpointing::full));
  const Block& layer = graph.blocks[1];
  const PassCost first = cost(layer, Pass::forward_no_grad);
  const PassCost again = cost(layer, Pass::recompute);
  CHECK(first.operations == again.operations);
  CHECK(first.matmul.value() == again.matmul.value());
  const ModelGraph early = build_graph(six_layers(), options(ActivationCheckpointing::full, false));
  const PassCost stopped = cost(early.blocks[1], Pass::recompute);
  // down_proj and the residual sum
  CHECK(stopped.operations == again.operations - 2);
}

TEST_CASE("A recomputation that stops early runs the last product of DeepSpeed's linear layer") {
  GraphOptions zero3 = options(ActivationCheckpointing::full);
  zero3.zero3_linear = true;
  const PassCost again = cost(build_graph(six_layers(), zero3).blocks[1], Pass::recompute);
  zero3.checkpoint_reentrant = false;
  const PassCost stopped = cost(build_graph(six_layers(), zero3).blocks[1], Pass::recompute);
  CHECK(stopped.operations == again.operations - 1);  // the residual sum
  CHECK(stopped.matmul.value() == again.matmul.value());
}

TEST_CASE("A micro-batch releases everything it allocates, and yields every gradient once") {
  for (const Attention attention : {Attention::eager, Attention::sdpa, Attention::flash}) {
    for (const ActivationCheckpointing checkpointing :
         {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
      for (const bool reentrant : {true, false}) {
        for (const bool held : {true, false}) {
          for (const int minor : {30, 44, 47, 50, 57}) {
            GraphOptions o = options(checkpointing, reentrant);
            o.attention = attention;
            o.outputs_held_in_backward = held;
            o.transformers = {4, minor};
            testing::LlamaSizes sizes;
            sizes.tied = minor == 50;
            o.fused_loss = minor == 57;
            const Model model = testing::llama(sizes);
            const ModelGraph graph = build_graph(model, o);
            const GraphWalk walk(graph);
            CHECK(walk.alive() == 0_B);
            CHECK(walk.gradients() == static_cast<int>(model.parameters.size()));
          }
        }
      }
    }
  }
}

TEST_CASE("The analytic estimate of a block agrees with the walk through the model") {
  const ModelGraph graph = build_graph(six_layers(), options(ActivationCheckpointing::none));
  const GraphWalk walk(graph);
  const BlockMemory layer = summarize(graph.blocks[1]);
  CHECK(walk.after(Pass::forward, 5) - walk.after(Pass::forward, 4) == layer.saved);
  CHECK(walk.peak_of(Pass::backward, 3) ==
        walk.after(Pass::backward, 4) + layer.backward_dropping_weight_gradients);
}

TEST_CASE("Equal layers share one block and differ in their parameters") {
  const ModelGraph graph = build_graph(six_layers(), options(ActivationCheckpointing::none));
  REQUIRE(graph.blocks.size() == 3);
  REQUIRE(graph.instances.size() == 8);
  const BlockInstance& third = graph.instances[3];
  const Model model = six_layers();
  for (std::size_t i = 0; i < third.parameters.size(); ++i) {
    CHECK(model.parameters[static_cast<std::size_t>(third.parameters[i])].name ==
          "model.layers.2." + graph.blocks[1].parameters[i].name);
  }
}

TEST_CASE("Model FLOPs are 6 N + 12 L h s a token when attention is not halved") {
  GraphOptions o = options(ActivationCheckpointing::none);
  o.attention = Attention::eager;  // computes every score
  const Model model = six_layers();
  const ModelGraph graph = build_graph(model, o);
  double executed = 0;
  for (const BlockInstance& instance : graph.instances) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      const PassCost total = cost(graph.block_of(instance), pass);
      executed += total.matmul.value() + total.attention.value();
    }
  }
  double in_products = 0;  // all parameters but the embedding table and the norms
  for (const Parameter& parameter : model.parameters) {
    if (parameter.shape.size() == 2 && parameter.name != "model.embed_tokens.weight") {
      in_products += static_cast<double>(parameter.numel.count());
    }
  }
  CHECK(executed == Approx(kTokens * (6 * in_products + 12.0 * 6 * 1024 * 1024)));
}

}  // namespace
}  // namespace zeroplan
