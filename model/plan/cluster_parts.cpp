#include "model/plan/cluster_parts.hpp"

#include "model/hardware/cluster.hpp"

namespace zeroplan {
namespace {

void forget_assumption(Json& cluster, std::string_view key) {
  if (Json* list = cluster.find("assumed"); list != nullptr && list->is_array()) {
    std::erase_if(list->items(), [&](const Json& item) { return item == Json(key); });
  }
  Json* sentences = cluster.find("assumptions");
  if (key != "host_memory_bytes" || sentences == nullptr || !sentences->is_array()) return;
  std::erase_if(sentences->items(), [](const Json& item) {
    return item.is_string() && item.as_string().starts_with("host memory ") &&
           !item.as_string().starts_with("host memory bandwidth ");
  });
}

}  // namespace

Json with_cluster_parts(const Json& said,
                        const Origin& origin,
                        const std::vector<ClusterPart>& parts) {
  if (parts.empty()) return said;
  Json cluster = cluster_document(said, origin.file, origin.pointer);
  for (const ClusterPart& part : parts) {
    Json& section = part.section.empty() ? cluster : cluster[part.section];
    if (!section.is_object() && !section.is_null()) section = Json::object();
    section[part.key] = part.value;
    const bool marked = part.section.empty() || part.key == "bandwidth";
    if (marked) forget_assumption(cluster, part.section.empty() ? part.key : part.section);
  }
  return cluster;
}

}  // namespace zeroplan
