#include "model/graph/traced_graph.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <string_view>

#include "base/check.hpp"

namespace zeroplan {
namespace {

constexpr std::string_view kFamily = "traced ";

struct Kept {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<const TracedGraph>, std::less<>> graphs;
};

Kept& kept() {
  static Kept all;
  return all;
}

// FNV-1a of the text, with its length: names a document, protects nothing.
std::string name_of(const std::string& document) {
  constexpr std::uint64_t kPrime = 0x100000001b3;
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : document) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  return std::string(kFamily) + std::to_string(hash) + "-" + std::to_string(document.size());
}

}  // namespace

std::string failed_check(const std::logic_error& broken) {
  constexpr std::string_view kMark = "internal error: ";
  const std::string what = broken.what();
  const std::size_t mark = what.find(kMark);
  return mark == std::string::npos ? what : what.substr(mark + kMark.size());
}

std::size_t end_of_module(const TracedBlock& block, std::string_view name, std::size_t from) {
  std::size_t end = from + 1;
  while (block.events.at(end).kind != TracedEvent::Kind::leave || block.events[end].name != name) {
    ++end;
  }
  return end;
}

bool has_operation(const TracedGraph& graph, std::string_view name) {
  const auto is_it = [&](const TracedEvent& event) {
    return event.kind == TracedEvent::Kind::operation && event.name == name;
  };
  return std::any_of(graph.blocks.begin(), graph.blocks.end(), [&](const TracedBlock& block) {
    return std::any_of(block.events.begin(), block.events.end(), is_it);
  });
}

std::int64_t SizeFormula::at(std::int64_t batch, std::int64_t sequence) const {
  const auto b = static_cast<double>(batch), s = static_cast<double>(sequence);
  const double value = constant + of_batch * b + of_sequence * s + of_both * b * s;
  constexpr double kMost = 9e15;  // whole numbers below are exact in a double
  if (!(value < kMost)) throw SizeOverflow();
  constexpr double kRounding = 1e-6;  // of shares that are no binary fractions
  return value <= 0.0 ? 0 : static_cast<std::int64_t>(std::ceil(value - kRounding));
}

std::string keep_traced_graph(TracedGraph graph, const std::string& document) {
  std::string name = name_of(document);
  Kept& all = kept();
  const std::lock_guard lock(all.mutex);
  auto& place = all.graphs[name];
  if (place == nullptr) place = std::make_unique<const TracedGraph>(std::move(graph));
  return name;
}

const TracedGraph* traced_graph_of(const Model& model) {
  if (!model.implementation_family.starts_with(kFamily)) return nullptr;
  Kept& all = kept();
  const std::lock_guard lock(all.mutex);
  const auto found = all.graphs.find(model.implementation_family);
  ZP_CHECK(found != all.graphs.end(), "a traced model whose graph is not kept");
  return found->second.get();
}

bool can_checkpoint(const Model& model) {
  const TracedGraph* traced = traced_graph_of(model);
  return traced == nullptr || traced->checkpoints;
}

std::int64_t traced_batch_of(const Model& model) {
  const TracedGraph* traced = traced_graph_of(model);
  return traced == nullptr ? 0 : traced->batch;
}

}  // namespace zeroplan
