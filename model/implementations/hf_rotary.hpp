// Rotary positions that are not turned in the model's dtype by cosines and sines.
#pragma once

#include "model/implementations/hf_common.hpp"

namespace zeroplan::hf {

// Whether tables stay in fp32, and what is turned by them too until it is done (OLMo's since 4.52).
bool turns_in_fp32(const Context& c);

// As complex numbers, which stand here as pairs of fp32 (DeepSeek-V2, Llama 4): the model's table
// of the whole sequence, torch.polar of the angles, in Slot::cos.
void share_complex_table(Tape& t, const Context& c);
// view_as_complex(x.float()) * table, still in fp32; heads stand in dimension `heads` of `wide`.
Tensor turned_complex(Tape& t, const Context& c, const Tensor& wide, int heads);

}  // namespace zeroplan::hf
