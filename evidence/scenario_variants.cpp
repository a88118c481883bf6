#include "evidence/scenario_variants.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/check.hpp"
#include "evidence/measurement.hpp"
#include "evidence/mixture_interval.hpp"

namespace zeroplan::evidence {
namespace {

// Predicts a scenario under values of its open keys. `choice` has for each key the number of an
// alternative, or -1 for the default.
class Variants {
 public:
  explicit Variants(const OpenScenario& open)
      : scenario_(open.scenario),
        prepared_(open.prepared),
        keys_(open.keys),
        predict_(open.predict) {}

  // None: a value does not exist here, such as attention that the model's class lacks, or precision
  // against the ds_config.
  std::optional<Variant> of(const std::vector<int>& choice) const {
    Scenario other = scenario_;
    for (std::size_t k = 0; k < keys_.size(); ++k) {
      if (const Alternative* chosen = alternative(choice, k)) {
        if (chosen->say) chosen->say(other);
      }
    }
    try {
      Plan plan = resolve(other, prepared_);
      for (std::size_t k = 0; k < keys_.size(); ++k) {
        if (const Alternative* chosen = alternative(choice, k)) {
          if (chosen->change) chosen->change(plan);
        }
      }
      return predict_(plan);
    } catch (const InputError&) {
      return std::nullopt;
    }
  }

  double weight(const std::vector<int>& choice) const {
    double product = 1.0;
    for (std::size_t k = 0; k < keys_.size(); ++k) {
      const Alternative* chosen = alternative(choice, k);
      product *= chosen != nullptr ? chosen->weight : keys_[k].default_weight();
    }
    return product;
  }

 private:
  const Alternative* alternative(const std::vector<int>& choice, std::size_t key) const {
    if (choice[key] < 0) return nullptr;
    return &keys_[key].alternatives[static_cast<std::size_t>(choice[key])];
  }

  const Scenario& scenario_;
  const Prepared& prepared_;
  const std::vector<OpenKey>& keys_;
  const PredictVariant& predict_;
};

// By how much one variant differs from another: the largest |log| of a metric's ratio, or the
// difference in probability. Both are compared with a number near 0.
double distance(const Variant& a, const Variant& b) {
  double most = std::abs(a.result.fit_probability - b.result.fit_probability);
  for (std::size_t m = 0; m < kMetricCount; ++m) {
    if (!a.metrics[m] || !b.metrics[m]) continue;
    if (a.metrics[m]->value <= 0.0 || b.metrics[m]->value <= 0.0) continue;
    most = std::max(most, std::abs(std::log(a.metrics[m]->value / b.metrics[m]->value)));
  }
  return most;
}

void cover(const MetricArray& others, MetricArray& hull) {
  for (std::size_t m = 0; m < kMetricCount; ++m) {
    if (!hull[m] || !others[m]) continue;
    hull[m]->low = std::min(hull[m]->low, others[m]->low);
    hull[m]->high = std::max(hull[m]->high, others[m]->high);
  }
}

// The ends of `hull` move by the factors by which one key's own values move those of `defaults`.
void widen(const MetricArray& defaults, const std::vector<Variant>& values, MetricArray& hull) {
  MetricArray own = defaults;
  for (const Variant& value : values) cover(value.metrics, own);
  for (std::size_t m = 0; m < kMetricCount; ++m) {
    if (!hull[m] || !own[m]) continue;
    if (defaults[m]->low > 0.0) hull[m]->low *= own[m]->low / defaults[m]->low;
    if (defaults[m]->high > 0.0) hull[m]->high *= own[m]->high / defaults[m]->high;
  }
}

// What one open key does by itself.
struct KeyEffect {
  std::size_t key = 0;
  std::vector<Variant> values;
  std::vector<int> numbers;  // of the alternatives behind them: those that exist
  double distance = 0.0;
};

constexpr double kNoEffect = 0.005;

// The effect of key k's values where the other keys have those of `base`.
KeyEffect effect_at(const std::vector<int>& base,
                    std::size_t k,
                    const std::vector<OpenKey>& keys,
                    const Variants& variants,
                    const Variant& reference) {
  KeyEffect effect{k, {}, {}, 0.0};
  for (std::size_t a = 0; a < keys[k].alternatives.size(); ++a) {
    std::vector<int> choice = base;
    choice[k] = static_cast<int>(a);
    std::optional<Variant> variant = variants.of(choice);
    if (!variant) continue;
    effect.distance = std::max(effect.distance, distance(*variant, reference));
    effect.values.push_back(*variant);
    effect.numbers.push_back(static_cast<int>(a));
  }
  return effect;
}

// Whether `a` is nearer to fitting: likelier, or as likely with a lower peak.
bool is_nearer(const Variant& a, const Variant& b) {
  if (std::abs(a.result.fit_probability - b.result.fit_probability) > kNoEffect) {
    return a.result.fit_probability > b.result.fit_probability;
  }
  constexpr auto kPeak = static_cast<std::size_t>(Metric::peak_total_bytes);
  if (!a.metrics[kPeak] || !b.metrics[kPeak]) return false;
  return a.metrics[kPeak]->value < (1.0 - kNoEffect) * b.metrics[kPeak]->value;
}

// Keys with an effect, the largest first. A key may matter only beside another's value: the host's
// size only where the GPU's memory suffices, a tiled feed-forward only where the logits do not set
// the peak. So what does nothing to the defaults is tried again where one other value has brought
// the scenario nearest to fitting.
std::vector<KeyEffect> effects_of(const std::vector<OpenKey>& keys,
                                  const Variants& variants,
                                  const Variant& defaults) {
  const std::vector<int> none(keys.size(), -1);
  std::vector<int> best = none;
  Variant best_variant = defaults;
  std::vector<KeyEffect> effects;
  std::vector<std::size_t> without;
  for (std::size_t k = 0; k < keys.size(); ++k) {
    KeyEffect effect = effect_at(none, k, keys, variants, defaults);
    for (std::size_t a = 0; a < effect.values.size(); ++a) {
      if (!is_nearer(effect.values[a], best_variant)) continue;
      best = none;
      best[k] = effect.numbers[a];
      best_variant = effect.values[a];
    }
    if (effect.distance >= kNoEffect) {
      effects.push_back(std::move(effect));
    } else {
      without.push_back(k);
    }
  }
  if (best != none) {
    for (const std::size_t k : without) {
      KeyEffect effect = effect_at(best, k, keys, variants, best_variant);
      if (effect.distance < kNoEffect) continue;
      effect.values.clear();  // alone they do nothing
      effects.push_back(std::move(effect));
    }
  }
  std::stable_sort(effects.begin(), effects.end(), [](const KeyEffect& a, const KeyEffect& b) {
    return a.distance > b.distance;
  });
  return effects;
}

// One combination of values of the keys that are varied together.
struct Combination {
  std::vector<int> choice;
  Variant variant;
  double weight = 0.0;                                                           // of its values
  double likelihood() const { return weight * variant.result.fit_probability; }  // since it ran
};

// Every combination of the values of the first keys of `effects`, so far as these are few; the
// defaults come first. `crossed` gets how many keys are in.
std::vector<Combination> combine(const std::vector<KeyEffect>& effects,
                                 const std::vector<OpenKey>& keys,
                                 const Variants& variants,
                                 const Variant& defaults,
                                 std::size_t& crossed) {
  constexpr std::size_t kMostCombinations = 32;
  crossed = 0;
  std::size_t count = 1;
  for (const KeyEffect& effect : effects) {
    const std::size_t values = keys[effect.key].alternatives.size() + 1;
    if (count * values > kMostCombinations) break;
    count *= values;
    ++crossed;
  }
  std::vector<Combination> combinations;
  for (std::size_t number = 0; number < count; ++number) {
    std::vector<int> choice(keys.size(), -1);
    std::size_t rest = number;
    for (std::size_t i = 0; i < crossed; ++i) {
      const std::size_t values = keys[effects[i].key].alternatives.size() + 1;
      choice[effects[i].key] = static_cast<int>(rest % values) - 1;
      rest /= values;
    }
    std::optional<Variant> variant = number == 0 ? defaults : variants.of(choice);
    if (!variant) continue;
    const double weight = variants.weight(choice);
    combinations.push_back({std::move(choice), std::move(*variant), weight});
  }
  return combinations;
}

constexpr double kClearly = 1.5;  // so much likelier than the default takes its place

// The combination of each key's likeliest value, the default unless another is clearly likelier: by
// its weight, or because the default can hardly have run. Where all are unlikely to fit, the
// nearest to it is still the likeliest; where none can, the defaults stay.
const Combination& likeliest(const std::vector<Combination>& combinations, std::size_t keys) {
  std::vector<int> choice(keys, -1);
  for (std::size_t k = 0; k < keys; ++k) {
    std::map<int, double> sums;
    for (const Combination& one : combinations) sums[one.choice[k]] += one.likelihood();
    double best = kClearly * sums[-1];
    for (const auto& [value, sum] : sums) {
      if (value < 0 || sum <= best) continue;
      best = sum;
      choice[k] = value;
    }
  }
  for (const Combination& one : combinations) {
    if (one.choice == choice) return one;
  }
  return combinations.front();  // a combination that does not exist
}

// How much of the GPU's memory a metric may show at most; infinite where it has no such limit.
double most_of(Metric metric, const StepResult& result) {
  const Bytes outside = at(result.gpu.breakdown_at_peak, MemoryCategory::cuda_context);
  const Bytes capacity = result.gpu.capacity;
  switch (metric) {
    case Metric::peak_total_bytes:
      return static_cast<double>(capacity.count());
    case Metric::peak_allocated_bytes:
    case Metric::peak_reserved_bytes:
    case Metric::static_allocated_bytes:
      return static_cast<double>((capacity - outside).count());
    default:
      return std::numeric_limits<double>::infinity();
  }
}

// The 90 % interval of a figure of memory over the combinations, each as likely as it is given that
// it ran. Where none can have run they count by their values' weights.
std::optional<std::pair<double, double>> memory_interval(
    Metric metric, const std::vector<Combination>& combinations) {
  constexpr double kHardly = 1e-6;
  double likelihood = 0.0;
  for (const Combination& one : combinations) likelihood += one.likelihood();
  const bool can_run = likelihood > kHardly;
  std::vector<MixturePart> parts;
  for (const Combination& one : combinations) {
    const auto& predicted = one.variant.metrics[static_cast<std::size_t>(metric)];
    if (!predicted) continue;
    const double most =
        can_run ? most_of(metric, one.variant.result) : std::numeric_limits<double>::infinity();
    const double weight = can_run ? one.likelihood() : one.weight;
    if (weight > 0.0 && predicted->low < most) {
      parts.push_back({predicted->low, predicted->high, weight, most});
    }
  }
  if (parts.empty()) return std::nullopt;
  return mixture_interval(parts);
}

// Memory as above; of other metrics the hull.
void take_intervals(const std::vector<Combination>& combinations, MetricArray& metrics) {
  for (const Combination& one : combinations) cover(one.variant.metrics, metrics);
  for (std::size_t m = 0; m < kMetricCount; ++m) {
    const auto metric = static_cast<Metric>(m);
    if (!metrics[m] || !is_memory(metric)) continue;
    if (const auto interval = memory_interval(metric, combinations)) {
      std::tie(metrics[m]->low, metrics[m]->high) = *interval;
    }
  }
}

}  // namespace

VariantsAnswer weigh_variants(const OpenScenario& open, const Variant& defaults) {
  const Variants variants(open);
  const std::vector<KeyEffect> effects = effects_of(open.keys, variants, defaults);
  std::size_t crossed = 0;
  const std::vector<Combination> combinations =
      combine(effects, open.keys, variants, defaults, crossed);
  VariantsAnswer answer;
  answer.metrics = defaults.metrics;
  double weights = 0.0;
  double probability = 0.0;
  for (const Combination& one : combinations) {
    weights += one.weight;
    probability += one.weight * one.variant.result.fit_probability;
  }
  answer.fit_probability = weights > 0.0 ? probability / weights : defaults.result.fit_probability;
  take_intervals(combinations, answer.metrics);
  for (std::size_t i = crossed; i < effects.size(); ++i) {
    widen(defaults.metrics, effects[i].values, answer.metrics);
  }
  const Combination& likely = likeliest(combinations, open.keys.size());
  answer.likely = likely.variant.metrics;
  for (std::size_t m = 0; m < kMetricCount; ++m) {  // what is likely is never outside
    if (!answer.metrics[m] || !answer.likely[m]) continue;
    answer.metrics[m]->low = std::min(answer.metrics[m]->low, answer.likely[m]->value);
    answer.metrics[m]->high = std::max(answer.metrics[m]->high, answer.likely[m]->value);
  }
  for (std::size_t k = 0; k < open.keys.size(); ++k) {
    if (likely.choice[k] < 0) continue;
    const auto value = static_cast<std::size_t>(likely.choice[k]);
    answer.likely_values.push_back(open.keys[k].name + " " + open.keys[k].alternatives[value].text);
  }
  return answer;
}

}  // namespace zeroplan::evidence
