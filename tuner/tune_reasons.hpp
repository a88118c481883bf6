// What stands beside the answer of a search: what matters in it, how far it reaches, how few GPUs
// would do, and what to give up where nothing fits. Nothing is returned where the deadline left no
// time for it.
#pragma once

#include <optional>
#include <vector>

#include "tuner/deadline.hpp"
#include "tuner/tune_answer.hpp"

namespace zeroplan::tuner {

// Every key of the point with its other values, one at a time, simulated. Where a key has many
// values, its ends and DeepSpeed's default.
std::optional<std::vector<KnobImpact>> knob_impacts(const SearchSpace& space,
                                                    const Evaluated& best,
                                                    const SearchOptions& options,
                                                    std::size_t most,
                                                    const Deadline& deadline);

// Of the best point; fits() is that of `simulate` with these limits.
std::optional<Headroom> headroom_of(const SearchSpace& space,
                                    const Evaluated& best,
                                    const SearchOptions& options,
                                    const Deadline& deadline);

// Smaller clusters of the same GPUs: parts of a node (halves), then whole nodes; ascending.
std::vector<Cluster> smaller_clusters(const Cluster& cluster);

// The first of them, or the cluster itself, where something of the space fits; a bounded number of
// simulations each.
std::optional<std::int64_t> fewest_gpus(const Scenario& scenario,
                                        const SearchRequest& request,
                                        const Prepared& prepared,
                                        const SearchOptions& options,
                                        const Deadline& deadline);

// The first of the relaxations with which something fits.
std::optional<Relaxation> nearest_fit(const Scenario& scenario,
                                      const SearchRequest& request,
                                      const Prepared& prepared,
                                      const SearchOptions& options,
                                      const Deadline& deadline);

}  // namespace zeroplan::tuner
