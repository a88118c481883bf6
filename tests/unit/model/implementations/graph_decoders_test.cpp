// The bytes that a layer of InternLM2 saves.
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "model/families/hf_config.hpp"
#include "model/implementations/implementations.hpp"
#include "tests/catch.hpp"

namespace zeroplan {
namespace {

// h = 1024, 8 heads of 128, f = 4096, b = 2, s = 1024, bf16.
constexpr std::int64_t U = 2 * 2 * 1024 * 1024;

constexpr auto kEager = Attention::eager;
constexpr auto kSdpa = Attention::sdpa;
constexpr auto kFlash = Attention::flash;

GraphOptions options(Attention attention, Version version) {
  GraphOptions o;
  o.micro_batch = 2;
  o.sequence_length = 1024;
  o.attention = attention;
  o.transformers = version;
  o.use_cache = false;
  return o;
}

BlockMemory layer(const Model& model, Attention attention, Version version) {
  return summarize(build_graph(model, options(attention, version)).blocks[1]);
}

// Saved bytes of a layer, the layer's own input included where it saves it.
Bytes saved(const Model& model, Attention attention, Version version) {
  const BlockMemory memory = layer(model, attention, version);
  return memory.saved + (memory.saves_input ? memory.input : Bytes::zero());
}

std::string gated_decoder(std::string_view type, int kv_heads) {
  return R"({"model_type": ")" + std::string(type) + R"(", "num_key_value_heads": )" +
         std::to_string(kv_heads) +
         R"(, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 2,
             "num_attention_heads": 8, "vocab_size": 1000, "max_position_embeddings": 1024,
             "bias": false})";
}

// Its code is remote and cannot be recorded here; where the two classes do the same, a LLaMA of
// equal shape that makes its rotary tables in its layers (before transformers 4.45) has to agree.
TEST_CASE("An InternLM2 layer saves what LLaMA's saves but for values that are views of wqkv") {
  const auto made = [](std::string_view type, int kv_heads) {
    return read_model(parse_json(gated_decoder(type, kv_heads), "test").root, "test");
  };
  const Version own_tables = {4, 44};
  for (const Attention attention : {kEager, kSdpa, kFlash}) {
    CAPTURE(static_cast<int>(attention));
    const Bytes llama = saved(made("llama", 8), attention, own_tables);
    // The value of every head is a view of the projection of all, which lives as long as it; eager
    // attention multiplies by a copy.
    const Bytes more = attention == kEager ? Bytes::zero() : Bytes::of(2 * U);
    CHECK(saved(made("internlm2", 8), attention, own_tables) == llama + more);
  }
  // Heads that share keys get copies of them, and nothing of the projection is kept.
  CHECK(saved(made("internlm2", 2), kSdpa, own_tables) ==
        saved(made("llama", 2), kSdpa, own_tables));
  // Transformers' newer releases do not change what the repository's code does.
  CHECK(saved(made("internlm2", 2), kSdpa, {4, 57}) ==
        saved(made("internlm2", 2), kSdpa, own_tables));
}

}  // namespace
}  // namespace zeroplan
