// Ranks that train together run the same: what differs between them is named before the first step.
#pragma once

#include "runtime/collectives/communicator.hpp"
#include "runtime/train/fingerprint.hpp"

namespace zeroplan::runtime {

// Every rank of the group calls it. Throws CollectiveError on all of them where fingerprints
// differ: the keys, and which ranks have which value. One small collective where they do not.
void require_agreement(Communicator& group, const Fingerprint& own);

// "data.seed is 0 on rank 0, 1, 3 and 7 on rank 2; ..." of fingerprints by rank, empty where all
// are the same.
std::string disagreement(const std::vector<Fingerprint>& by_rank);

}  // namespace zeroplan::runtime
