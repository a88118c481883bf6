#include "model/hardware/node_names.hpp"

#include <algorithm>
#include <array>

#include "model/hardware/hardware_catalog.hpp"
#include "model/hardware/known_hardware.hpp"

namespace zeroplan {
namespace {

bool is_product(const NodeProfile& node) {
  return !node.gpus.empty() && !node.key.starts_with("generic_");
}

// The key without "aws_" and its like; empty where there is no provider in it.
std::string_view without_provider(std::string_view key) {
  constexpr std::array<std::string_view, 4> kProviders = {"aws_", "azure_", "gcp_", "aliyun_"};
  for (const std::string_view provider : kProviders) {
    if (key.starts_with(provider)) return key.substr(provider.size());
  }
  return "";
}

// "NVIDIA DGX A100 (8x80GB)" -> "dgxa100"
std::string short_product(const NodeProfile& node) {
  std::string name = folded_name(node.name.substr(0, node.name.find('(')));
  if (name.starts_with("nvidia")) name.erase(0, 6);
  return name;
}

bool is_called(const NodeProfile& node, const std::string& folded) {
  return folded == folded_name(node.key) || folded == folded_name(without_provider(node.key)) ||
         folded == folded_name(node.name) || folded == short_product(node);
}

}  // namespace

std::optional<NodeMatch> find_node(std::string_view text) {
  const std::string folded = folded_name(text);
  if (folded.empty()) return std::nullopt;
  std::vector<const NodeProfile*> found;
  for (const NodeProfile& node : node_catalog().nodes) {
    if (is_product(node) && is_called(node, folded)) found.push_back(&node);
  }
  if (found.empty()) return std::nullopt;
  std::stable_sort(found.begin(), found.end(), [](const NodeProfile* a, const NodeProfile* b) {
    return a->usual > b->usual;
  });
  NodeMatch match{*found.front(), ""};
  if (found.size() > 1) {
    match.assumption =
        phrase("{} is taken as {}, the usual one of that name", text, match.node.key);
  } else if (match.node.gpus.size() > 1) {
    match.assumption = phrase("{} is taken with {}: it was sold with either of two GPUs",
                              match.node.key,
                              gpu_of_key(match.node.gpus.front()).name);
  }
  return match;
}

std::vector<std::string> node_names() {
  std::vector<std::string> names;
  for (const NodeProfile& node : node_catalog().nodes) {
    if (!is_product(node)) continue;
    names.push_back(node.key);
    const std::string_view rest = without_provider(node.key);
    if (!rest.empty()) names.emplace_back(rest);
  }
  return names;
}

}  // namespace zeroplan
