#include "tuner/headroom.hpp"

#include <algorithm>

#include "model/graph/traced_graph.hpp"

namespace zeroplan::tuner {

std::int64_t sequence_limit(const Model& model) {
  constexpr std::int64_t kMostSequence = 1 << 20;
  const TransformerShape& shape = model.shape;
  const bool bounded = shape.position == PositionKind::learned && shape.max_positions > 0;
  return bounded ? shape.max_positions : kMostSequence;
}

std::int64_t largest_that_fits(std::int64_t most, const std::function<bool(std::int64_t)>& fits) {
  std::int64_t good = 0;
  std::int64_t step = 1;
  while (step <= most && fits(step)) {
    good = step;
    step *= 2;
  }
  std::int64_t bad = std::min(step, most + 1);
  while (bad - good > 1) {
    const std::int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

std::int64_t most_micro_batch(const Model& model) {
  const std::int64_t only = traced_batch_of(model);
  return only == 0 ? kMostMicroBatch : only;
}

std::int64_t largest_played(std::int64_t known,
                            std::int64_t most,
                            const std::function<bool(std::int64_t, bool)>& fits) {
  const std::int64_t near =
      largest_that_fits(most, [&](std::int64_t n) { return n <= known || fits(n, false); });
  const std::int64_t start = std::max(known, near);
  constexpr std::int64_t kPart = 32;
  std::int64_t step = std::max<std::int64_t>(1, start / kPart);
  std::int64_t good = start;
  std::int64_t bad = most + 1;
  if (start == known || fits(start, true)) {
    for (; good + step <= most; step *= 2) {
      if (!fits(good + step, true)) {
        bad = good + step;
        break;
      }
      good += step;
    }
  } else {
    for (bad = start, good = known; bad - step > known; step *= 2) {
      if (fits(bad - step, true)) {
        good = bad - step;
        break;
      }
      bad -= step;
    }
  }
  while (bad - good > 1) {
    const std::int64_t middle = good + (bad - good) / 2;
    (fits(middle, true) ? good : bad) = middle;
  }
  return good;
}

}  // namespace zeroplan::tuner
