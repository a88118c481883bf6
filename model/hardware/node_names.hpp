// Machines of profiles/nodes.json by name: its key (aws_p4d.24xlarge), the key without its provider
// (p4d.24xlarge), its printed name (DGX H100). Without case and separators.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/phrase.hpp"
#include "model/hardware/hardware.hpp"

namespace zeroplan {

// A machine and, where the name left something open, what was taken for it.
struct NodeMatch {
  NodeProfile node;
  Phrase assumption;  // empty where nothing was open
};

// Absent for a name nobody knows, and for the generic machines, which stand for no product.
std::optional<NodeMatch> find_node(std::string_view text);

// The names to suggest for a mistyped one.
std::vector<std::string> node_names();

}  // namespace zeroplan
