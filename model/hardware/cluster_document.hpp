// The inline form of a cluster, read. For cluster.cpp.
#pragma once

#include <string>

#include "base/json.hpp"
#include "model/hardware/hardware.hpp"

namespace zeroplan {

// Throws InputError with all that is wrong. Precondition: `document` is an object.
Cluster parse_cluster_document(const Json& document,
                               const std::string& file,
                               const std::string& pointer);

// "nodes" and "GPUs per node" within their limits, or diagnostics: at most kMostGpus together.
std::vector<Diagnostic> check_counts(std::int64_t nodes,
                                     std::int64_t gpus_per_node,
                                     const std::string& file,
                                     const std::string& pointer);

}  // namespace zeroplan
