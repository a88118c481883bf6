#include "tuner/size_facts.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.hpp"
#include "model/families/known_shapes.hpp"
#include "simulator/allocator_options.hpp"

namespace zeroplan::tuner {
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
    const double off =
        size_off(simulator::segment_size(simulator::round_size(bytes, {}), {}), question_);
    if (std::abs(off) > kNearSize) return;
    std::string arithmetic = grouped(elements) + " x " + std::to_string(width.bytes) + " B";
    if (parts > 1) arithmetic += " / " + std::to_string(parts);
    facts_.push_back({std::move(what), std::move(arithmetic), bytes, off});
  }

  std::vector<SizeFact> found() && {
    constexpr std::size_t kNearest = 3;
    std::stable_sort(facts_.begin(), facts_.end(), [](const SizeFact& a, const SizeFact& b) {
      return std::abs(a.off) < std::abs(b.off);
    });
    const auto first_near = std::find_if(
        facts_.begin(), facts_.end(), [](const SizeFact& fact) { return fact.off != 0.0; });
    if (first_near != facts_.begin())
      facts_.erase(first_near, facts_.end());
    else if (facts_.size() > kNearest)
      facts_.resize(kNearest);
    return std::move(facts_);
  }

 private:
  std::vector<SizeFact> facts_;
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
  if (question.size <= simulator::kLargeBuffer) return {};
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
  return std::move(finder).found();
}

namespace {

// How far a number of tokens is from the lengths and batches that people choose: powers of two
// times 1, 3, 5 or 7; nothing for others.
std::optional<std::int64_t> oddness(std::int64_t tokens) {
  constexpr std::int64_t kStep = 256;
  constexpr std::int64_t kOddest = 7;
  if (tokens < kStep) return std::nullopt;
  const std::int64_t odd = tokens >> std::countr_zero(static_cast<std::uint64_t>(tokens));
  if (tokens % kStep != 0 || odd > kOddest) return std::nullopt;
  return odd;
}

// The model that a vocabulary is named by: the first of the series with most models that have it.
const KnownShape& best_known(std::int64_t vocabulary) {
  const auto series_of = [](const KnownShape& shape) {
    return std::string_view(shape.name).substr(0, shape.name.find_last_of('-'));
  };
  const KnownShape* best = nullptr;
  std::int64_t most = 0;
  for (const KnownShape& one : known_shapes()) {
    if (one.vocabulary != vocabulary) continue;
    const auto alike =
        std::count_if(known_shapes().begin(), known_shapes().end(), [&](const KnownShape& other) {
          return other.vocabulary == vocabulary && series_of(other) == series_of(one);
        });
    if (alike > most) best = &one;
    most = std::max<std::int64_t>(most, alike);
  }
  return *best;
}

}  // namespace

std::vector<SizeFact> vocabulary_facts(const RunSize& run, const SizeQuestion& question) {
  constexpr std::size_t kMost = 3;
  constexpr Bytes kLeast = Bytes::mib(128);
  if (question.size < kLeast) return {};
  // By how odd the number of tokens is, and how few models have the vocabulary.
  std::vector<std::pair<std::pair<std::int64_t, std::int64_t>, SizeFact>> found;
  std::vector<std::int64_t> seen;
  for (const KnownShape& shape : known_shapes()) {
    if (std::find(seen.begin(), seen.end(), shape.vocabulary) != seen.end()) continue;
    seen.push_back(shape.vocabulary);
    const auto models =
        std::count_if(known_shapes().begin(), known_shapes().end(), [&](const KnownShape& known) {
          return known.vocabulary == shape.vocabulary;
        });
    for (const Width& width : kWidths) {
      const std::int64_t a_token = shape.vocabulary * width.bytes;
      constexpr std::int64_t kStep = 256;
      const std::int64_t steps = (question.size.count() / a_token + kStep / 2) / kStep;
      const std::int64_t tokens = run.tokens.value_or(steps * kStep);
      const std::optional<std::int64_t> odd = run.tokens ? 1 : oddness(tokens);
      if (!odd) continue;
      const Bytes bytes = Elements::of(tokens).times_width(a_token);
      if (size_off(simulator::segment_size(simulator::round_size(bytes, {}), {}), question) != 0.0)
        continue;
      Phrase what = phrase("logits of {} tokens in {}, with the vocabulary of {}",
                           grouped(tokens),
                           width.name,
                           best_known(shape.vocabulary).name);
      found.emplace_back(std::pair(*odd, -models),
                         SizeFact{std::move(what),
                                  grouped(tokens) + " x " + grouped(shape.vocabulary) + " x " +
                                      std::to_string(width.bytes) + " B",
                                  bytes});
    }
  }
  std::stable_sort(
      found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<SizeFact> facts;
  for (auto& [odd, fact] : found) {
    if (facts.size() < kMost) facts.push_back(std::move(fact));
  }
  return facts;
}

}  // namespace zeroplan::tuner
