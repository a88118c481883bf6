// Forward code of transformers for text models whose layers are of several kinds, each with
// parameters of its own: linear and full attention, experts and dense feed-forwards.
#pragma once

#include "model/implementations/families.hpp"

namespace zeroplan::hf {

void build_hybrid(GraphAssembler& assembler, const Context& context);  // Qwen3-Next, Qwen3.5

}  // namespace zeroplan::hf
