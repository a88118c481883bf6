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
  add_pre_norm_model(
      assembler, c, {"GPT2Model inputs", "GPT2LMHeadModel head", kWords, input_block, layer});
}

}  // namespace zeroplan::embedded
