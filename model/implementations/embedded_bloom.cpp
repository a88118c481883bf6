// BLOOM for the embedded runtime: a norm behind the embedding, ALiBi, and a projection that gives
// query, key and value head by head, {T, A, 3, D}.
#include <string>

#include "model/implementations/embedded_layers.hpp"
#include "model/implementations/families.hpp"

namespace zeroplan::embedded {
namespace {

constexpr const char* kBloomWords = "transformer.word_embeddings";
constexpr const char* kNorm = "transformer.word_embeddings_layernorm";

Block bloom_input_block(BlockBuilder b, bool tied) {
  const Norm first = norm(b, kNorm, embedding(b, kBloomWords));
  b.set_output(first.y);
  const KernelOperand d = b.begin_backward();
  embedding_backward(b, kBloomWords, norm_backward(b, kNorm, first, d), tied);
  return b.take();
}

}  // namespace

void build_bloom(GraphAssembler& assembler, const hf::Context& c) {
  note_dropout(assembler, c);
  const std::int64_t dim = c.shape().head_dim;
  const PreNormLayer layer{.block = "BloomBlock",
                           .first_norm = "input_layernorm",
                           .attention = "self_attention",
                           .qkv = "query_key_value",
                           .projection = "dense",
                           .second_norm = "post_attention_layernorm",
                           .mlp = "mlp",
                           .up = "dense_h_to_4h",
                           .down = "dense_4h_to_h",
                           .layout = WeightLayout::out_in,
                           .heads = {3 * c.shape().hidden, 3 * dim, {0, dim, 2 * dim}}};
  add_pre_norm_model(
      assembler,
      c,
      {"BloomModel inputs", "BloomForCausalLM head", kBloomWords, bloom_input_block, layer});
}

}  // namespace zeroplan::embedded
