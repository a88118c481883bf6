#include "tuner/size_facts.hpp"

#include <algorithm>
#include <utility>

#include "model/check.hpp"
#include "simulator/allocator_options.hpp"

namespace zeroplan {
namespace {

struct Width {
  std::int64_t bytes;
  std::string_view name;
};
constexpr Width kWidths[] = {{4, "fp32"}, {2, "16 bit"}};

std::string grouped(std::int64_t count) {
  std::string text = std::to_string(count);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

class FactFinder {
 public:
  explicit FactFinder(const SizeQuestion& question) : question_(question) {}

  void add(Phrase what, std::int64_t elements, Width width, std::int64_t parts) {
    if (elements <= 0) return;
    const Bytes bytes = Elements::of(ceil_div(elements, parts)).times_width(width.bytes);
    const Bytes segment = segment_size(round_size(bytes, {}), {});
    if (segment > question_.size + question_.rounding) return;
    if (segment + question_.rounding < question_.size) return;
    std::string arithmetic = grouped(elements) + " x " + std::to_string(width.bytes) + " B";
    if (parts > 1) arithmetic += " / " + std::to_string(parts);
    facts.push_back({std::move(what), std::move(arithmetic), bytes});
  }

  std::vector<SizeFact> facts;

 private:
  const SizeQuestion& question_;
};

void add_copies(const Model& model, const RunSize& run, FactFinder& finder) {
  const ParameterCounts counts = count_parameters(model);
  for (const Width& width : kWidths) {
    finder.add(
        phrase("a copy of the whole model in {}", width.name), counts.total.count(), width, 1);
  }
  std::vector<std::int64_t> ranks = {2, 4, 8, 16, 32, 64};
  if (run.ranks) ranks = {*run.ranks};
  for (const std::int64_t n : ranks) {
    if (n < 2) continue;
    for (const Width& width : kWidths) {
      finder.add(phrase("one of {} shards of the trained weights in {}", n, width.name),
                 counts.trainable.count(),
                 width,
                 n);
    }
  }
}

// Tensors of one size are told once, by the first of them.
void add_tensors(const Model& model, FactFinder& finder) {
  for (const Width& width : kWidths) {
    std::vector<std::pair<std::int64_t, std::int64_t>> counted;  // elements, how often
    for (const Parameter& parameter : model.parameters) {
      const std::int64_t numel = parameter.numel.count();
      const auto known = std::find_if(
          counted.begin(), counted.end(), [&](const auto& pair) { return pair.first == numel; });
      if (known == counted.end()) {
        counted.emplace_back(numel, 1);
      } else {
        ++known->second;
      }
    }
    for (const auto& [numel, times] : counted) {
      const auto first = std::find_if(
          model.parameters.begin(), model.parameters.end(), [n = numel](const Parameter& one) {
            return one.numel.count() == n;
          });
      Phrase what = phrase("{} or its gradient in {}", first->name, width.name);
      if (times == 2) what += ", or another tensor as large";
      if (times > 2) what.append(phrase(", or one of {} others as large", times - 1));
      finder.add(std::move(what), numel, width, 1);
    }
  }
}

}  // namespace

std::vector<SizeFact> size_facts(const Model& model,
                                 const RunSize& run,
                                 const SizeQuestion& question) {
  FactFinder finder(question);
  if (question.size <= kLargeBuffer) return {};
  add_copies(model, run, finder);
  add_tensors(model, finder);
  if (run.tokens && model.shape.has_logits) {
    for (const Width& width : kWidths) {
      finder.add(phrase("logits of a micro-batch in {}", width.name),
                 *run.tokens * model.shape.vocabulary,
                 width,
                 1);
    }
  }
  return std::move(finder.facts);
}

}  // namespace zeroplan
