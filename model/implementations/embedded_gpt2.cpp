// GPT-2 for the embedded runtime: learned positions, layer norms before each branch, Conv1D weights
// {in, out} whose one projection gives queries, keys and values one behind the other.
#include <string>

#include "model/implementations/embedded_layers.hpp"
#include "model/implementations/families.hpp"

namespace zeroplan::embedded {
namespace {

constexpr const char* kWords = "transformer.wte";
constexpr const char* kPositions = "transformer.wpe";

Block input_block(BlockBuilder b, bool tied) {
  const KernelOperand x = embedding(b, kWords);
  add_positions(b, kPositions, x, b.sequence());
  b.set_output(x);
  const KernelOperand d = b.begin_backward();
  positions_backward(b, kPositions, d, b.sequence());
  embedding_backward(b, kWords, d, tied);
  return b.take();
}

void check(const hf::Context& c) {
  if (c.model.model_type != "gpt2") refuse(c, "its one key head for all queries");
  if (!is_gelu(c.shape())) refuse(c, "an activation other than GELU");
}

}  // namespace

void build_gpt2(GraphAssembler& assembler, const hf::Context& c) {
  check(c);
  note_dropout(assembler, c);
  const std::int64_t hidden = c.shape().hidden;
  const PreNormLayer layer{.block = "GPT2Block",
                           .first_norm = "ln_1",
                           .attention = "attn",
                           .qkv = "c_attn",
                           .projection = "c_proj",
                           .second_norm = "ln_2",
                           .mlp = "mlp",
                           .up = "c_fc",
                           .down = "c_proj",
                           .layout = WeightLayout::in_out,
                           .heads = {3 * hidden, c.shape().head_dim, {0, hidden, 2 * hidden}}};
  const auto builder = [&](const char* name, const std::string& prefix, bool checkpoint) {
    return BlockBuilder({name, prefix, &c.model, &c.options, checkpoint});
  };
  assembler.add_written("", [&](const std::string& prefix, bool checkpoint) {
    return input_block(builder("GPT2Model inputs", prefix, checkpoint), c.shape().tied_embeddings);
  });
  assembler.add_written_layers(
      "transformer.h.", c.shape().layers, [&](const std::string& prefix, bool checkpoint) {
        return pre_norm_layer(builder(layer.block, prefix, checkpoint), layer);
      });
  assembler.add_written("", [&](const std::string& prefix, bool checkpoint) {
    return head_block(builder("GPT2LMHeadModel head", prefix, checkpoint),
                      "transformer.ln_f",
                      {"lm_head", kWords, ""});
  });
}

}  // namespace zeroplan::embedded
