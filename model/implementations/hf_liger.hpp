// Liger's kernels in Hugging Face's classes: what `fused_loss` stands for there. The Trainer's
// use_liger_kernel, LLaMA-Factory's enable_liger_kernel and AutoLigerKernelForCausalLM patch norms,
// rotary positions and the gated feed-forward together with the loss, and all of them keep less for
// backward than the classes do.
// Source: liger_kernel 0.5 transformers/monkey_patch.py apply_liger_kernel_to_*.
// Checked by tests/unit/model/implementations/graph_liger_test.cpp.
#pragma once

#include <string_view>

#include "model/implementations/hf_common.hpp"

namespace zeroplan::hf {

// Whether Liger patches the layers of this model's class; of others it has the loss at most.
bool liger_patches(const Model& model);
// Whether Liger has a loss for the model's class: of those whose layers are not described here that
// is all that fused_loss changes, and they keep at most what is predicted.
bool liger_has_loss(const Model& model);
bool has_liger_layers(const Context& c);

// ops/rms_norm.py: keeps its input and a number a row; the gradient takes the place of the incoming
// one.
Tensor liger_rms_norm(Tape& t, std::string_view module, const Tensor& x);

// ops/swiglu.py, ops/geglu.py: act(gate) * up, computed again in backward, whose results overwrite
// gate and up.
Tensor liger_gated_product(Tape& t, const Tensor& gate, const Tensor& up);

// ops/rope.py: query and key, (b, heads, s, d), turned in place, and their gradients too.
void liger_rotary(Tape& t, Tensor& query, Tensor& key, const RotaryTables& tables);

}  // namespace zeroplan::hf
