// The parsed profiles/gpus.json and profiles/nodes.json, for hardware.cpp and gpu_names.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/hardware/hardware.hpp"

namespace zeroplan {

// GPUs that one name stands for when size and form factor are left out.
struct GpuFamily {
  std::string name;
  std::vector<std::string> spellings;   // folded
  std::optional<std::int64_t> size_gb;  // taken for an open size
};

struct CatalogGpu {
  Gpu gpu;
  std::string family;
  std::vector<std::int64_t> sizes_gb;  // as people write them
};

struct GpuCatalog {
  std::vector<GpuFamily> families;
  std::vector<CatalogGpu> gpus;
  std::map<std::int64_t, std::string> usual_of_size;  // GB -> family, for "24G"
  Gpu cpu;
};

struct NodeCatalog {
  std::vector<NodeProfile> nodes;
  std::vector<Quantity<Seconds>> latencies;  // in the order of LinkKind
};

// Read from the embedded files when first called.
const GpuCatalog& gpu_catalog();
const NodeCatalog& node_catalog();

// Lower case without spaces and '-', '_', '.', '(', ')', '/'.
std::string folded_name(std::string_view text);

}  // namespace zeroplan
