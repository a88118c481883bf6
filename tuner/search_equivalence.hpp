// Choices of the tail's knobs that make a rank do exactly the same: a ratio that leaves all
// sub-groups on the GPU, pinning of what is never copied, requests of drives that nothing uses.
//
// In: a point, of which all axes but those of gathers and reductions are decided. Out: a
// fingerprint of what its knobs of the tail decide about a rank's program: the sub-groups, the
// buffers on the GPU, the actions of the backward pass and of the optimizer's step, how offloaded
// weights come. Two points of one stage, offload, checkpointing and batch with equal fingerprints
// have equal programs whatever their gathers and reductions are. Checked by
// tests/property/search_property.cpp.
#pragma once

#include "base/fingerprint.hpp"
#include "tuner/search_space.hpp"

namespace zeroplan::tuner {

// Throws InputError as SearchSpace::plan() does.
Fingerprint tail_fingerprint(const SearchSpace& space, const Point& point);

}  // namespace zeroplan::tuner
