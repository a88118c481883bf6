#include "runtime/data/initial_weights.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

#include "runtime/data/fnv1a.hpp"

namespace zeroplan::runtime {
namespace {

constexpr double kDeviation = 0.02;

// FNV-1a of the name: a parameter's numbers do not depend on what else the model has.
std::uint64_t hash_of(std::string_view text) {
  Fnv1a hash;
  hash.add_text(text);
  return hash.value();
}

// In (0, 1].
double uniform(std::uint64_t bits) { return static_cast<double>((bits >> 11) + 1) * 0x1p-53; }

// Box and Muller 1958: a pair of places shares two uniform numbers.
struct Pair {
  float even, odd;
};
Pair normals(std::uint64_t stream, std::int64_t even) {
  const std::uint64_t at = stream + static_cast<std::uint64_t>(even);
  const double radius = kDeviation * std::sqrt(-2.0 * std::log(uniform(mixed(at))));
  const double angle = 2.0 * std::numbers::pi * uniform(mixed(at + 1));
  return {static_cast<float>(radius * std::cos(angle)),
          static_cast<float>(radius * std::sin(angle))};
}

}  // namespace

void initial_weights(const Parameter& parameter,
                     std::uint64_t seed,
                     Elements first,
                     std::span<float> values) {
  if (parameter.shape.size() <= 1) {
    const bool bias = std::string_view(parameter.name).ends_with("bias");
    std::fill(values.begin(), values.end(), bias ? 0.0F : 1.0F);
    return;
  }
  const std::uint64_t stream = mixed(hash_of(parameter.name) ^ mixed(seed));
  const std::int64_t last = first.count() + static_cast<std::int64_t>(values.size());
  auto value = values.begin();
  for (std::int64_t at = first.count(); at < last;) {
    const std::int64_t even = at / 2 * 2;
    const Pair pair = normals(stream, even);
    if (at++ == even) {
      *value++ = pair.even;
      if (at == last) break;
      ++at;
    }
    *value++ = pair.odd;
  }
}

}  // namespace zeroplan::runtime
