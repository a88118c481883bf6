// How long samples are, and how long the micro-batches that are padded to their longest sample.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/workload.hpp"

namespace zeroplan {

// [J2] The lengths of a dataset as a distribution over 0 to S tokens (S: sequence_length):
//   lengths               the samples' own
//   mean and tokens_sd    lognormal: what lengths of texts are close to
//   mean alone            exponential: of all distributions with that mean it assumes least
// Longer ones are cut at S, as tokenizers truncate them, or dropped. A mean without a deviation is
// that of what is left, one with a deviation that of the samples as they are.
// Checked by tests/unit/model/step/sample_lengths_test.cpp and
// tests/unit/model/predict/job_time_test.cpp.
class SampleLengths {
 public:
  // Precondition: dataset.tells_lengths(), sequence_length > 0.
  SampleLengths(const Dataset& dataset, std::int64_t sequence_length);

  // Share of the samples with at most so many tokens, 1 from S on.
  double share_up_to(double tokens) const;
  // The length that a share p (0 to 1) of the samples does not exceed, in tokens.
  double quantile(double p) const;

  // Expected tokens of a sample, and of the longest of b:
  //   L(b) = integral over x from 0 to S of 1 - F(x)^b
  double mean() const { return expected_longest(1); }
  double expected_longest(std::int64_t samples) const;

  // Does any sample differ from S?
  bool vary() const;

 private:
  double uncut_share_up_to(double tokens) const;

  double longest_;
  std::vector<double> lengths_;  // ascending, cut or without what is dropped
  double scale_ = 0.0;           // exponential, where above 0
  double log_mean_ = 0.0, log_sd_ = 0.0;
  double kept_ = 1.0;  // share that is not dropped
};

// Tokens that `micro_batches` micro-batches of b samples are padded to, in the order in which a
// shuffled loader might bring them: evenly spread over the distribution of the longest of b (the
// multiples of the golden section, modulo 1, as probabilities), rounded up to
// dataset.pad_to_multiple_of, at most sequence_length.
std::vector<std::int64_t> padded_lengths(const Dataset& dataset,
                                         std::int64_t sequence_length,
                                         std::int64_t micro_batch_size,
                                         int micro_batches);

}  // namespace zeroplan
