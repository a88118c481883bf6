// The assumptions that stand in a resolved document of a cluster, as the phrases they were made as.
#pragma once

#include "model/hardware/cluster_fill.hpp"

namespace zeroplan {

// A sentence of `given` that comes out the same when its gaps are filled in again becomes that
// phrase, which can be said in the reader's language; the others stay as they are written.
// Precondition: counts are positive.
void recognise_sentences(ClusterGiven& given);

}  // namespace zeroplan
