// Parts of a cluster that were said apart from its name: 2x4xA800-80G, and 512 GiB in each node.
#pragma once

#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "model/plan/scenario.hpp"

namespace zeroplan {

// A key of the inline cluster (docs/contract.md section 1).
struct ClusterPart {
  std::string_view section;  // empty: at the document's top
  std::string_view key;      // "host_memory_bytes"
  Json value;
};

// The cluster as an inline document with these parts; as it was said where there is none. Marks of
// an assumption about a part go: it was stated. Throws InputError for a cluster that cannot be
// read.
Json with_cluster_parts(const Json& said,
                        const Origin& origin,
                        const std::vector<ClusterPart>& parts);

}  // namespace zeroplan
