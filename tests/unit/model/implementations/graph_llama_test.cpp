// What a Llama layer saves, allocates and launches, against recordings of the transformers classes
// with PyTorch 2.6 (modeling_llama of 4.47, 4.50 and 4.57 run on meta
// tensors).
#include "model/implementations/implementations.hpp"
#include "tests/catch.hpp"
#include "tests/support/small_models.hpp"

namespace zeroplan {
namespace {

// Symbols, in bytes of bf16 unless the dtype says otherwise.
struct Symbols {
  std::int64_t U, Q, K, A, F, N, LSE, L;
};

struct Case {
  testing::LlamaSizes sizes;
  GraphOptions options;

  Symbols symbols() const {
    const std::int64_t e = width(options.dtype), b = options.micro_batch,
                       s = options.sequence_length, a = sizes.heads;
    return {e * b * s * sizes.hidden,
            e * b * s * a * sizes.head_dim,
            e * b * s * sizes.kv_heads * sizes.head_dim,
            e * b * a * s * s,
            e * b * s * sizes.intermediate,
            4 * b * s,
            4 * b * a * s,
            e * b * s * sizes.vocabulary};
  }
  ModelGraph graph() const { return build_graph(testing::llama(sizes), options); }
  Block layer() const { return graph().blocks[1]; }
  Block head() const { return graph().blocks.back(); }
};

Case llama(Attention attention, Version version = {4, 47}) {
  Case c;
  c.options.micro_batch = 2;
  c.options.sequence_length = 1024;
  c.options.attention = attention;
  c.options.transformers = version;
  return c;
}

TEST_CASE("A Llama layer with flash attention saves 12U + 4F + 2N + LSE") {
  const Case c = llama(Attention::sdpa);
  const auto [U, Q, K, A, F, N, LSE, L] = c.symbols();
  const BlockMemory memory = summarize(c.layer());
  CHECK(memory.saved == Bytes::of(12 * U + 4 * F + 2 * N + LSE));
  CHECK_FALSE(memory.saves_input);
  CHECK(memory.forward.total == Bytes::of(15 * U + 4 * F + 2 * N + LSE));
}

TEST_CASE("A Llama layer with eager attention saves 8U + 4Q + 3A + 4F + 2N") {
  for (const std::int64_t batch : {1, 2}) {
    Case c = llama(Attention::eager);
    c.options.micro_batch = batch;
    const auto [U, Q, K, A, F, N, LSE, L] = c.symbols();
    CHECK(summarize(c.layer()).saved == Bytes::of(8 * U + 4 * Q + 3 * A + 4 * F + 2 * N));
  }
}

TEST_CASE("Attention dropout turns the saved 3A of eager attention into 3.5A") {
  Case c = llama(Attention::eager);
  c.sizes.attention_dropout = 0.1;
  const auto [U, Q, K, A, F, N, LSE, L] = c.symbols();
  CHECK(summarize(c.layer()).saved == Bytes::of(8 * U + 4 * Q + 3 * A + A / 2 + 4 * F + 2 * N));
}

TEST_CASE("transformers 4.30 keeps the scores once more for torch.max") {
  const Case c = llama(Attention::eager, {4, 30});
  const auto [U, Q, K, A, F, N, LSE, L] = c.symbols();
  const std::int64_t tables = 2 * 2 * 1024 * 128;  // cos and sin of the layer's own
  const std::int64_t bound = 512;
  CHECK(summarize(c.layer()).saved ==
        Bytes::of(8 * U + 4 * Q + 4 * A + 4 * F + 2 * N + tables + bound));
}

TEST_CASE("transformers 4.48 to 4.55 make queries, keys and values contiguous before SDPA") {
  // Copies replace the originals; the output takes the queries' layout and is copied once more.
  for (const int minor : {48, 50, 55}) {
    const Case c = llama(Attention::sdpa, {4, minor});
    const auto [U, Q, K, A, F, N, LSE, L] = c.symbols();
    CHECK(summarize(c.layer()).saved == Bytes::of(13 * U + 4 * F + 2 * N + LSE));
  }
  const Case newer = llama(Attention::sdpa, {4, 57});
  const auto [U, Q, K, A, F, N, LSE, L] = newer.symbols();
  CHECK(summarize(newer.layer()).saved == Bytes::of(12 * U + 4 * F + 2 * N + LSE));
}

TEST_CASE("Grouped keys and values are saved repeated before transformers 4.54") {
  Case c = llama(Attention::sdpa);
  c.sizes.kv_heads = 2;
  const auto [U, Q, K, A, F, N, LSE, L] = c.symbols();
  CHECK(summarize(c.layer()).saved == Bytes::of(8 * U + 2 * Q + 2 * Q + 4 * F + 2 * N + LSE));
  c.options.transformers = {4, 57};
  CHECK(summarize(c.layer()).saved == Bytes::of(8 * U + 2 * Q + 2 * K + 4 * F + 2 * N + LSE));
}

TEST_CASE("In fp32 a norm saves its input and a softmax its output once") {
  Case c = llama(Attention::eager);
  c.options.dtype = DType::fp32;
  const auto [U, Q, K, A, F, N, LSE, L] = c.symbols();
  const BlockMemory memory = summarize(c.layer());
  // 6U of the table with the layer's own input, which is a boundary tensor here
  CHECK(memory.saves_input);
  CHECK(memory.saved + memory.input == Bytes::of(6 * U + 4 * Q + A + 4 * F + 2 * N));
}

TEST_CASE("Frozen weights keep what other derivatives need and nothing for themselves") {
  Case c = llama(Attention::sdpa);
  Model model = testing::llama(c.sizes);
  for (Parameter& parameter : model.parameters) {
    parameter.trainable = parameter.name == "model.embed_tokens.weight";
  }
  const ModelGraph graph = build_graph(model, c.options);
  const auto [U, Q, K, A, F, N, LSE, L] = c.symbols();
  const BlockMemory memory = summarize(graph.blocks[1]);
  CHECK(memory.saved == Bytes::of(4 * U + Q + 2 * K + Q + 3 * F + 2 * N + LSE));
  CHECK(memory.weight_gradients == 0_B);
}

TEST_CASE("The backward pass of a Llama layer peaks at the gated product, 2F above its entry") {
  const Case c = llama(Attention::sdpa);
  const auto [U, Q, K, A, F, N, LSE, L] = c.symbols();
  const BlockMemory memory = summarize(c.layer());
  CHECK(memory.backward.total == Bytes::of(2 * F));
  CHECK(memory.weight_gradients == Bytes::of(2 * (4 * 1024 * 1024 + 3 * 1024 * 4096 + 2 * 1024)));
  CHECK(memory.largest_weight_gradient == Bytes::of(2 * 1024 * 4096));
}

TEST_CASE("A Llama layer dispatches the operations that were recorded") {
  const auto count = [](const Case& c, Pass pass) { return cost(c.layer(), pass).operations; };
  const Case flash = llama(Attention::sdpa);
  CHECK(count(flash, Pass::forward) == 38);
  CHECK(count(flash, Pass::backward) == 71);
  const Case eager = llama(Attention::eager);
  CHECK(count(eager, Pass::forward) == 48);
  CHECK(count(eager, Pass::backward) == 80);
  CHECK(cost(flash.layer(), Pass::forward).dispatched == 73);
}

TEST_CASE("Matrix products cost 2 m n k, twice that backward, and causal attention half") {
  const Case c = llama(Attention::sdpa);
  const double T = 2048, h = 1024, f = 4096, s = 1024;
  const PassCost forward = cost(c.layer(), Pass::forward);
  CHECK(forward.matmul.value() == Approx(2 * T * (4 * h * h + 3 * h * f)));
  CHECK(forward.attention.value() == Approx(4 * T * s * h / 2));
  const PassCost backward = cost(c.layer(), Pass::backward);
  CHECK(backward.matmul.value() == Approx(2 * forward.matmul.value()));
  CHECK(backward.attention.value() == Approx(2.5 * forward.attention.value()));
}

// The cases of the loss. Logits shifted by one position have s - 1 rows of s. Labels are shifted
// too, into a copy that is saved; since 4.49 they are padded first.
constexpr std::int64_t kLabels = 8 * 2048, kPaddedLabels = kLabels + 512;
struct Loss {
  Bytes saved, forward, backward;
};
Loss loss_of(const Case& c) {
  const BlockMemory memory = summarize(c.head());
  return {memory.saved, memory.forward.total, memory.backward.total};
}

TEST_CASE("Loss case A: logits.float() in the model, shifted, until 4.45") {
  const Case c = llama(Attention::sdpa, {4, 44});
  const auto [U, Q, K, A, F, N, LSE, L] = c.symbols();
  const std::int64_t shifted = L / 1024 * 1023;
  const Loss loss = loss_of(c);
  const std::int64_t norm = 4 * U + N, scalars = 2 * 512;
  CHECK(loss.saved == Bytes::of(norm + 2 * shifted + 512 + kLabels));
  // The model's variable is bound to the norm's output: its input (U) dies there.
  CHECK(loss.forward == Bytes::of(norm - U + 2 * L + 4 * shifted + kLabels + scalars));
  // d(nll) and d(log_softmax): 6L with the saved log-probabilities. total_weight and labels died.
  CHECK(loss.backward == Bytes::of(4 * shifted - 512 - kLabels));
}

TEST_CASE("Loss case C: float() in the loss function, shifted, 4.46 to 4.48") {
  const Case c = llama(Attention::sdpa, {4, 47});
  const auto [U, Q, K, A, F, N, LSE, L] = c.symbols();
  const std::int64_t shifted = L / 1024 * 1023;
  CHECK(loss_of(c).forward == Bytes::of(3 * U + N + 3 * L + 4 * shifted + kLabels + 1024));
}

TEST_CASE("Loss case D: labels shifted instead, 4.49 and later") {
  const Case c = llama(Attention::sdpa, {4, 50});
  const auto [U, Q, K, A, F, N, LSE, L] = c.symbols();
  CHECK(loss_of(c).saved == Bytes::of(4 * U + N + 2 * L + 512 + kLabels));
  CHECK(loss_of(c).forward == Bytes::of(3 * U + N + 5 * L + kPaddedLabels + kLabels + 1024));
  CHECK(loss_of(c).backward == Bytes::of(4 * L - 512 - kLabels));
  CHECK(summarize(c.head()).held == Bytes::of(L));
}

TEST_CASE("Loss cases E and F: an fp32 model needs no upcast") {
  Case c = llama(Attention::sdpa, {4, 44});
  c.options.dtype = DType::fp32;
  const auto [U, Q, K, A, F, N, LSE, L] = c.symbols();  // L is 4 bytes an element here
  const std::int64_t shifted = L / 1024 * 1023, norm = 2 * U + N, scalars = 1024;
  CHECK(loss_of(c).forward == Bytes::of(norm + L + 2 * shifted + kLabels + scalars));
  c.options.transformers = {4, 50};
  CHECK(loss_of(c).forward == Bytes::of(norm + 2 * L + kPaddedLabels + kLabels + scalars));
  CHECK(loss_of(c).saved == Bytes::of(norm - U + U + L + 512 + kLabels));
}

TEST_CASE("A padded batch takes the memory-efficient kernel, which expands keys and pads LSE") {
  Case c = llama(Attention::sdpa, {4, 47});
  c.options.mask = MaskKind::padded;
  c.options.sequence_length = 1000;  // LSE is padded to 1024 rows
  c.sizes.kv_heads = 2;
  const auto [U, Q, K, A, F, N, LSE, L] = c.symbols();
  const std::int64_t padded = 4 * 2 * 8 * 1024;
  const auto rounded = [](std::int64_t bytes) { return round_up(bytes, 512); };
  // q, k, v and out; out's layout is (b, s, heads, d), so its transpose is contiguous
  CHECK(summarize(c.layer()).saved == Bytes::of(8 * U + 4 * Q + 4 * F + 2 * rounded(N) + padded));
  const ModelGraph graph = c.graph();
  const auto& attentions = graph.blocks[1].attentions;
  REQUIRE(attentions.size() == 2);
  CHECK(attentions[0].backend == SdpaBackend::mem_efficient);
  CHECK_FALSE(attentions[0].causal);
}

TEST_CASE("Before compute capability 8.0 there is no flash attention, and no bf16 either") {
  Case c = llama(Attention::sdpa, {4, 47});
  c.options.compute_capability = 70;
  c.options.dtype = DType::fp16;
  const ModelGraph half = c.graph();
  CHECK(half.blocks[1].attentions.front().backend == SdpaBackend::mem_efficient);
  c.options.dtype = DType::fp32;
  c.options.compute_capability = 90;
  const ModelGraph single = c.graph();
  CHECK(single.blocks[1].attentions.front().backend == SdpaBackend::mem_efficient);
}

TEST_CASE("The math backend of torch 2.5 and later saves fp32: 6Q + 2A") {
  Case c = llama(Attention::sdpa, {4, 47});
  c.options.compute_capability = 70;  // bf16: no fused kernel takes it
  const auto [U, Q, K, A, F, N, LSE, L] = c.symbols();
  // 8U without attention, fp32 q, k, v (2Q each), probabilities 2A, out in bf16
  CHECK(summarize(c.layer()).saved == Bytes::of(8 * U + 6 * Q + 2 * A + Q + 4 * F + 2 * N));
}

TEST_CASE("DeepSpeed's stage-3 linear saves its input for frozen weights too") {
  Case c = llama(Attention::sdpa, {4, 47});
  const auto [U, Q, K, A, F, N, LSE, L] = c.symbols();
  c.options.zero3_linear = true;
  CHECK(summarize(c.layer()).saved == Bytes::of(12 * U + 4 * F + 2 * N + LSE));
  Model model = testing::llama(c.sizes);
  for (Parameter& parameter : model.parameters) {
    parameter.trainable = parameter.name == "model.embed_tokens.weight";
  }
  // 2U of the norms' outputs and F of the product come back
  CHECK(summarize(build_graph(model, c.options).blocks[1]).saved ==
        Bytes::of(4 * U + 2 * U + 4 * Q + 4 * F + 2 * N + LSE));
}

TEST_CASE("A fused loss never holds all logits and keeps both gradients from forward") {
  Case c = llama(Attention::sdpa, {4, 50});
  c.options.fused_loss = true;
  const auto [U, Q, K, A, F, N, LSE, L] = c.symbols();
  const ModelGraph graph = c.graph();
  const BlockMemory head = summarize(graph.blocks.back());
  // 2048 tokens in chunks of 64: ceil(2048 / ceil(32000 / 1024)) is 64
  const std::int64_t weight = 2 * 32000 * 1024;
  // Liger's norm: its input, which is a boundary tensor here, and a number a row; dX and dW
  CHECK(head.saves_input);
  CHECK(head.saved == Bytes::of(N + U + weight));
  CHECK(head.forward.total < Bytes::of(4 * U + 2 * N + weight + L / 32 + 64 * 1024));
  CHECK(head.weight_gradients == Bytes::of(2 * 32000 * 1024 + 2 * 1024));
}

TEST_CASE("Outputs that a loop holds through backward keep the logits to its end") {
  Case c = llama(Attention::sdpa, {4, 50});
  c.options.outputs_held_in_backward = true;
  const auto [U, Q, K, A, F, N, LSE, L] = c.symbols();
  CHECK(summarize(c.head()).held == Bytes::of(L));
  CHECK(micro_batch(c.graph()).back().pass == Pass::drop_outputs);
}

}  // namespace
}  // namespace zeroplan
