// BLOOM for the embedded runtime: a norm behind the embedding, ALiBi, and a projection that gives
// query, key and value head by head, {T, A, 3, D}.
#include <string>

#include "model/implementations/embedded_layers.hpp"
#include "model/implementations/families.hpp"

namespace zeroplan::embedded {
namespace {

constexpr const char* kWords = "transformer.word_embeddings";
constexpr const char* kNorm = "transformer.word_embeddings_layernorm";

Block input_block(BlockBuilder b, bool tied) {
  const Norm first = norm(b, kNorm, embedding(b, kWords));
  b.set_output(first.y);
  const KernelOperand d = b.begin_backward();
  embedding_backward(b, kWords, norm_backward(b, kNorm, first, d), tied);
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
  const auto builder = [&](const char* name, const std::string& prefix, bool checkpoint) {
    return BlockBuilder({name, prefix, &c.model, &c.options, checkpoint});
  };
  assembler.add_written("", [&](const std::string& prefix, bool checkpoint) {
    return input_block(builder("BloomModel inputs", prefix, checkpoint), c.shape().tied_embeddings);
  });
  assembler.add_written_layers(
      "transformer.h.", c.shape().layers, [&](const std::string& prefix, bool checkpoint) {
        return pre_norm_layer(builder(layer.block, prefix, checkpoint), layer);
      });
  assembler.add_written("", [&](const std::string& prefix, bool checkpoint) {
    return head_block(builder("BloomForCausalLM head", prefix, checkpoint),
                      "transformer.ln_f",
                      {"lm_head", kWords, ""});
  });
}

}  // namespace zeroplan::embedded
