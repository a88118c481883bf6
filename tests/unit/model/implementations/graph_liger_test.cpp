// What a Llama layer and its loss keep with Liger's kernels, by the tensors that liger_kernel 0.5
// saves (ops/rms_norm.py, ops/swiglu.py, ops/rope.py, ops/fused_linear_cross_entropy.py), and with
// checkpoints in host memory.
#include <algorithm>

#include "model/implementations/implementations.hpp"
#include "tests/catch.hpp"
#include "tests/support/small_models.hpp"

namespace zeroplan {
namespace {

constexpr std::int64_t kBatch = 2, kTokens = 1024;

GraphOptions options_of(bool fused_loss) {
  GraphOptions options;
  options.micro_batch = kBatch;
  options.sequence_length = kTokens;
  options.attention = Attention::flash;
  options.fused_loss = fused_loss;
  return options;
}

// In bytes of bf16: hidden states, the feed-forward's width, one fp32 number a token and a head.
struct Sizes {
  testing::LlamaSizes llama;
  std::int64_t T = kBatch * kTokens, U = 2 * T * llama.hidden, F = 2 * T * llama.intermediate,
               N = 4 * T, LSE = 4 * T * llama.heads, V = llama.vocabulary;
};

Bytes alive_at_most(const Block& block, Pass pass) {
  Bytes alive, most;
  for (const Event& event : block.of(pass)) {
    const auto i = static_cast<std::size_t>(event.index);
    if (event.kind == EventKind::allocate) alive += block.storages[i].bytes;
    if (event.kind == EventKind::release) alive -= block.storages[i].bytes;
    most = std::max(most, alive);
  }
  return most;
}

std::int64_t launches(const Block& block, Pass pass, std::string_view name) {
  return std::count_if(block.of(pass).begin(), block.of(pass).end(), [&](const Event& event) {
    return event.kind == EventKind::operation &&
           block.operations[static_cast<std::size_t>(event.index)].name == name;
  });
}

}  // namespace

TEST_CASE("A Llama layer with Liger saves its inputs of norms in 16 bits and gate and up alone") {
  const Sizes z;
  const ModelGraph graph = build_graph(testing::llama(z.llama), options_of(true));
  const BlockMemory memory = summarize(graph.blocks[1]);
  // norm 1: the layer's input, a number a row, its output U; q, k, v 3U; attention's output U with
  // its log-sum-exp; norm 2: the residual U, N and its output U; gate, up and their product 3F
  CHECK(memory.saves_input);
  CHECK(memory.saved == Bytes::of(7 * z.U + 3 * z.F + 2 * z.N + z.LSE));
}

TEST_CASE("Backward of Liger's gated product makes no tensor of its own") {
  const Sizes z;
  const auto peak = [&](bool liger) {
    const ModelGraph graph = build_graph(testing::llama(z.llama), options_of(liger));
    return summarize(graph.blocks[1]).backward.total;
  };
  // PyTorch's needs the gradients of silu's output, gate and up beside the incoming one.
  CHECK(peak(false) - peak(true) >= Bytes::of(z.F));
}

TEST_CASE("Liger leaves classes that it does not patch alone") {
  Sizes z;
  Model model = testing::llama(z.llama);
  model.model_type = "baichuan";
  const ModelGraph with = build_graph(model, options_of(true));
  const ModelGraph without = build_graph(model, options_of(false));
  CHECK(summarize(with.blocks[1]).saved == summarize(without.blocks[1]).saved);
}

TEST_CASE("The fused loss holds a chunk of logits, both gradients and a chunk's hidden gradient") {
  const Sizes z;
  const Block head = build_graph(testing::llama(z.llama), options_of(true)).blocks.back();
  // ceil(V / h) = 32 parts: next_power_of_2(2048 / 32) = 64 rows
  const std::int64_t rows = 64;
  const std::int64_t norm = z.U + z.N;  // its output and a number a row
  const std::int64_t gradients = z.U + 2 * z.V * z.llama.hidden;
  const std::int64_t chunk = 2 * rows * z.V + 2 * rows * z.llama.hidden;
  const std::int64_t losses = z.N;
  const Bytes most = alive_at_most(head, Pass::forward);
  CHECK(most >= Bytes::of(norm + gradients + losses + chunk));
  CHECK(most <= Bytes::of(norm + gradients + losses + chunk + 64 * z.T));  // labels
}

TEST_CASE("Offloaded checkpoints leave the GPU after forward and come back for backward") {
  const Sizes z;
  GraphOptions options = options_of(false);
  options.checkpointing = ActivationCheckpointing::full;
  const ModelGraph kept = build_graph(testing::llama(z.llama), options);
  options.checkpoint_offload = true;
  const ModelGraph offloaded = build_graph(testing::llama(z.llama), options);
  const Block& block = offloaded.blocks[1];
  CHECK(launches(block, Pass::forward_no_grad, "copy to host") == 1);
  CHECK(launches(block, Pass::recompute, "copy to device") == 1);
  CHECK(launches(kept.blocks[1], Pass::forward_no_grad, "copy to host") == 0);
  const auto after_forward = [](const ModelGraph& graph) {
    Bytes alive;
    for (const BlockInstance& instance : graph.instances) {
      if (!instance.checkpointed) continue;
      const Block& b = graph.block_of(instance);
      for (const Event& event : b.of(Pass::forward_no_grad)) {
        const Bytes bytes = event.kind == EventKind::operation
                                ? Bytes::zero()
                                : b.storages[static_cast<std::size_t>(event.index)].bytes;
        if (event.kind == EventKind::allocate) alive += bytes;
        if (event.kind == EventKind::release) alive -= bytes;
      }
    }
    return alive;
  };
  // each layer leaves its output; offloaded ones take their input away
  CHECK(after_forward(kept) == Bytes::of(2 * z.U));
  CHECK(after_forward(offloaded) == Bytes::zero());
}

}  // namespace zeroplan
