// One function a family: adds the blocks of a whole model to the assembler.
#pragma once

#include "model/implementations/hf_common.hpp"

namespace zeroplan::hf {

// Each throws InputError where a member of the family is not modelled.
void build_llama(GraphAssembler& assembler, const Context& context);
void build_internlm2(GraphAssembler& assembler, const Context& context);
void build_glm(GraphAssembler& assembler, const Context& context);
void build_chatglm(GraphAssembler& assembler, const Context& context);

void build_decoder(GraphAssembler& assembler, const Context& context);

// LlamaMLP and Phi3MLP, in the layer's module mlp.
Tensor gated_mlp(Tape& t, const Context& c, const Tensor& hidden);

// MixtralSparseMoeBlock and the Qwen blocks like it, in place of a layer's feed-forward. `prefix`
// is the module's name in the layer.
Tensor sparse_moe(Tape& t, const Context& c, std::string_view module, const Tensor& hidden);

}  // namespace zeroplan::hf

// What others write: docs/families.md.
namespace zeroplan::composer {
void build_mpt(GraphAssembler& assembler, const hf::Context& context);
}
namespace zeroplan::fms {
void build_llama(GraphAssembler& assembler, const hf::Context& context);
}

// The embedded runtime's: forward and backward written out (embedded_builder.hpp). The refusals
// name what the runtime does not compute.
namespace zeroplan::embedded {
void build_llama(GraphAssembler& assembler, const hf::Context& context);
void build_gpt2(GraphAssembler& assembler, const hf::Context& context);
void build_bloom(GraphAssembler& assembler, const hf::Context& context);
void build_bert(GraphAssembler& assembler, const hf::Context& context);
}  // namespace zeroplan::embedded
namespace zeroplan::litgpt {
void build(GraphAssembler& assembler, const hf::Context& context);
}
namespace zeroplan::megatron {
void build(GraphAssembler& assembler, const hf::Context& context);
}
