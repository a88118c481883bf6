#include "model/step/sample_lengths.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"

namespace zeroplan {
namespace {

// The scale whose lengths, cut at S, have that mean: E[min(x, S)] = l (1 - exp(-S / l)).
double scale_of(double mean, double longest) {
  double low = mean;
  double high = 1e6 * longest;
  for (int i = 0; i < 80; ++i) {
    const double middle = std::sqrt(low * high);
    const double got = -middle * std::expm1(-longest / middle);
    (got < mean ? low : high) = middle;
  }
  return std::sqrt(low * high);
}

double normal(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

}  // namespace

SampleLengths::SampleLengths(const Dataset& dataset, std::int64_t sequence_length)
    : longest_(static_cast<double>(sequence_length)) {
  ZP_CHECK(dataset.tells_lengths() && sequence_length > 0, "lengths are told");
  const bool drops = dataset.longer == LongSamples::drop;
  if (!dataset.lengths.empty()) {
    for (const std::int64_t tokens : dataset.lengths) {
      if (drops && tokens > sequence_length) continue;
      lengths_.push_back(static_cast<double>(std::min(tokens, sequence_length)));
    }
    if (lengths_.empty()) lengths_.push_back(longest_);
    return;
  }
  const double mean = *dataset.mean_tokens;
  if (dataset.tokens_sd) {
    const double ratio = *dataset.tokens_sd / mean;
    log_sd_ = std::sqrt(std::log1p(ratio * ratio));
    log_mean_ = std::log(mean) - 0.5 * log_sd_ * log_sd_;
  } else {
    scale_ = scale_of(std::min(mean, longest_), longest_);
  }
  if (drops && dataset.tokens_sd) kept_ = uncut_share_up_to(longest_);
}

double SampleLengths::uncut_share_up_to(double tokens) const {
  if (tokens <= 0.0) return 0.0;
  if (scale_ > 0.0) return -std::expm1(-tokens / scale_);
  if (log_sd_ <= 0.0) return std::log(tokens) < log_mean_ ? 0.0 : 1.0;
  return normal((std::log(tokens) - log_mean_) / log_sd_);
}

double SampleLengths::share_up_to(double tokens) const {
  if (tokens >= longest_) return 1.0;
  if (lengths_.empty()) {
    return kept_ > 0.0 ? std::min(1.0, uncut_share_up_to(tokens) / kept_) : 0.0;
  }
  const auto up_to = std::upper_bound(lengths_.begin(), lengths_.end(), tokens) - lengths_.begin();
  return static_cast<double>(up_to) / static_cast<double>(lengths_.size());
}

double SampleLengths::quantile(double p) const {
  if (!lengths_.empty()) {
    const auto last = static_cast<double>(lengths_.size()) - 1.0;
    const double at = std::floor(p * static_cast<double>(lengths_.size()));
    return lengths_[static_cast<std::size_t>(std::clamp(at, 0.0, last))];
  }
  double low = 0.0, high = longest_;
  for (int i = 0; i < 60; ++i) {
    const double middle = 0.5 * (low + high);
    (share_up_to(middle) < p ? low : high) = middle;
  }
  return high;
}

// Simpson's rule, or a sum over the lengths. Beyond 40 scales of an exponential and 5 deviations of
// the logarithm nothing is left.
double SampleLengths::expected_longest(std::int64_t samples) const {
  const double b = static_cast<double>(std::max<std::int64_t>(1, samples));
  if (!lengths_.empty()) {
    double sum = 0.0, below = 0.0;
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      const double share = static_cast<double>(i + 1) / static_cast<double>(lengths_.size());
      const double up_to = std::pow(share, b);
      sum += (up_to - below) * lengths_[i];
      below = up_to;
    }
    return sum;
  }
  if (!vary()) return longest_;
  const int pieces = scale_ > 0.0 ? 512 : 4096;
  const double tail = scale_ > 0.0 ? 40.0 * scale_ : std::exp(log_mean_ + 5.0 * log_sd_);
  const double end = std::min(longest_, tail);
  const double step = end / pieces;
  // What lies at S itself has no part in the integral.
  const double whole = kept_ > 0.0 ? kept_ : 1.0;
  const auto above = [&](double x) {
    return 1.0 - std::pow(std::min(1.0, uncut_share_up_to(x) / whole), b);
  };
  double sum = above(0.0) + above(end);
  for (int i = 1; i < pieces; ++i) sum += (i % 2 == 0 ? 2.0 : 4.0) * above(step * i);
  return sum * step / 3.0;
}

bool SampleLengths::vary() const {
  if (!lengths_.empty()) return lengths_.front() < longest_;
  return scale_ > 0.0 ? scale_ < 1e5 * longest_ : uncut_share_up_to(longest_ * (1.0 - 1e-9)) > 0.0;
}

std::vector<std::int64_t> padded_lengths(const Dataset& dataset,
                                         std::int64_t sequence_length,
                                         std::int64_t micro_batch_size,
                                         int micro_batches) {
  const SampleLengths lengths(dataset, sequence_length);
  const double samples = static_cast<double>(std::max<std::int64_t>(1, micro_batch_size));
  const double golden = 0.5 * (std::sqrt(5.0) - 1.0);
  const std::int64_t multiple = std::max<std::int64_t>(1, dataset.pad_to_multiple_of);
  std::vector<std::int64_t> result;
  for (int i = 1; i <= micro_batches; ++i) {
    const double u = i * golden - std::floor(i * golden);
    const double tokens = lengths.quantile(std::pow(u, 1.0 / samples));
    const auto whole = std::max<std::int64_t>(1, std::llround(std::ceil(tokens)));
    result.push_back(std::min((whole + multiple - 1) / multiple * multiple, sequence_length));
  }
  return result;
}

}  // namespace zeroplan
