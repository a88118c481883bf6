// GPT-2 for the embedded runtime: learned positions, layer norms before each branch, Conv1D weights
// {in, out} whose one projection gives queries, keys and values one behind the other.
#include <string>

#include "model/implementations/embedded_layers.hpp"
#include "model/implementations/families.hpp"

namespace zeroplan::embedded {
namespace {

constexpr const char* kGpt2Words = "transformer.wte";
constexpr const char* kGpt2Positions = "transformer.wpe";

Block gpt2_input_block(BlockBuilder b, bool tied) {
  const KernelOperand x = embedding(b, kGpt2Words);
  add_positions(b, kGpt2Positions, x, b.sequence());
  b.set_output(x);
  const KernelOperand d = b.begin_backward();
  positions_backward(b, kGpt2Positions, d, b.sequence());
  embedding_backward(b, kGpt2Words, d, tied);
  return b.take();
}

void check_gpt2(const hf::Context& c) {
  if (c.model.model_type != "gpt2") refuse(c, "its one key head for all queries");
  if (!is_gelu(c.shape())) refuse(c, "an activation other than GELU");
}

}  // namespace

void build_gpt2(GraphAssembler& assembler, const hf::Context& c) {
  check_gpt2(c);
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
      assembler,
      c,
      {"GPT2Model inputs", "GPT2LMHeadModel head", kGpt2Words, gpt2_input_block, layer});
}

}  // namespace zeroplan::embedded
