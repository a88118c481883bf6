// What a Llama layer keeps and holds with DeepSpeed's TiledMLP (ulysses_sp.py), by the tensors that
// its forward and backward name.
#include <algorithm>

#include "model/implementations/hf_tiled.hpp"
#include "model/implementations/implementations.hpp"
#include "tests/catch.hpp"
#include "tests/support/small_models.hpp"

namespace zeroplan {
namespace {

constexpr std::int64_t kBatch = 1;

struct Sizes {
  testing::LlamaSizes llama;
  std::int64_t tokens = llama.hidden * 8;
  std::int64_t U = 2 * kBatch * tokens * llama.hidden;
  std::int64_t F = 2 * kBatch * tokens * llama.intermediate;
  std::int64_t tile = F / 8;                               // the feed-forward's width of one tile
  std::int64_t W = 2 * llama.hidden * llama.intermediate;  // a weight of it
};

GraphOptions options_of(std::int64_t tokens, bool tiled) {
  GraphOptions options;
  options.micro_batch = kBatch;
  options.sequence_length = tokens;
  options.attention = Attention::flash;
  options.tiled_mlp = tiled;
  return options;
}

Block layer(const Sizes& z, bool tiled) {
  return build_graph(testing::llama(z.llama), options_of(z.tokens, tiled)).blocks[1];
}

double product_flops(const Block& block, Pass pass) {
  double flops = 0.0;
  for (const Event& event : block.of(pass)) {
    if (event.kind != EventKind::operation) continue;
    flops += block.operations[static_cast<std::size_t>(event.index)].flops.value();
  }
  return flops;
}

Bytes made_by(const Block& block, Pass pass, Bytes size) {
  Bytes total;
  for (const Event& event : block.of(pass)) {
    if (event.kind != EventKind::allocate) continue;
    const Bytes bytes = block.storages[static_cast<std::size_t>(event.index)].bytes;
    if (bytes == size) total += bytes;
  }
  return total;
}

}  // namespace

TEST_CASE("a tiled feed-forward keeps its input alone") {
  const Sizes z;
  REQUIRE(hf::mlp_tiles(z.tokens, z.llama.hidden) == 8);
  const BlockMemory plain = summarize(layer(z, false));
  const BlockMemory tiled = summarize(layer(z, true));
  // gate, its activation, up and their product; the input U stays
  CHECK(plain.saved - tiled.saved == Bytes::of(4 * z.F));
}

TEST_CASE("no tensor of a tiled feed-forward is wider than a tile") {
  const Sizes z;
  const Block plain = layer(z, false);
  const Block tiled = layer(z, true);
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    CHECK(made_by(plain, pass, Bytes::of(z.F)) > Bytes::zero());
    CHECK(made_by(tiled, pass, Bytes::of(z.F)) == Bytes::zero());
    CHECK(made_by(tiled, pass, Bytes::of(z.tile)) > Bytes::zero());
  }
}

TEST_CASE("a tiled feed-forward runs its products once more, in backward") {
  const Sizes z;
  const Block plain = layer(z, false);
  const Block tiled = layer(z, true);
  const double forward = 3.0 * 2.0 * static_cast<double>(kBatch * z.tokens) *
                         static_cast<double>(z.llama.hidden * z.llama.intermediate);
  CHECK(product_flops(tiled, Pass::forward) ==
        Approx(product_flops(plain, Pass::forward)).epsilon(1e-3));
  CHECK(product_flops(tiled, Pass::backward) - product_flops(plain, Pass::backward) ==
        Approx(forward).epsilon(1e-2));
  CHECK(tiled.weight_gradients.size() == plain.weight_gradients.size());
}

TEST_CASE("a sequence no longer than the hidden size is one tile") {
  CHECK(hf::mlp_tiles(64, 64) == 1);
  CHECK(hf::mlp_tiles(65, 64) == 2);
  CHECK(hf::mlp_tiles(1, 64) == 1);
}

TEST_CASE("models without three plain projections have no tiled feed-forward") {
  CHECK(has_tiled_mlp(testing::llama({})));
  Model other = testing::llama({});
  other.implementation_family = "gpt2";
  CHECK_FALSE(has_tiled_mlp(other));
  Model quantized = testing::llama({});
  for (Parameter& parameter : quantized.parameters) parameter.quantized = true;
  CHECK_FALSE(has_tiled_mlp(quantized));
}

}  // namespace zeroplan
