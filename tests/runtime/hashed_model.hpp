// Weights and tokens that need no file: the hashes of tests/reference/record_losses.py.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/transformer.hpp"

namespace zeroplan::testing {

inline std::uint64_t hashed(std::uint64_t value) {
  std::uint64_t z = value + 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

inline std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t value = 0xcbf29ce484222325U;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return value;
}

inline float uniform(std::uint64_t key, std::int64_t index) {
  return static_cast<float>(hashed(key + static_cast<std::uint64_t>(index)) >> 40U) * 0x1p-24F;
}

inline std::vector<float> hashed_weights(const Parameter& parameter) {
  const bool bias = parameter.name.ends_with("bias");
  const bool is_norm = parameter.shape.size() == 1 && !bias;
  const float width = bias ? 0.02F : 0.1F;
  const std::uint64_t key = fnv1a(parameter.name);
  std::vector<float> values(static_cast<std::size_t>(parameter.numel.count()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = (2.0F * uniform(key, static_cast<std::int64_t>(i)) - 1.0F) * width;
    values[i] = is_norm ? 1.0F + value : value;
  }
  return values;
}

// Labels are what each position predicts: shifted, -1 for nothing.
struct TokenBatch {
  std::vector<std::int64_t> ids, labels;
};

struct BatchSizes {
  std::int64_t batch = 0, sequence = 0, vocabulary = 0;
  bool masked_language_model = false;
  std::int64_t mask_token = 0;
};

inline TokenBatch hashed_batch(std::int64_t index, const BatchSizes& sizes) {
  TokenBatch result;
  const std::int64_t count = sizes.batch * sizes.sequence;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t bits = hashed(static_cast<std::uint64_t>(1000 * (index + 1) + i));
    result.ids.push_back(
        static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(sizes.vocabulary)));
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (sizes.masked_language_model) {
      const bool masked = hashed(static_cast<std::uint64_t>(7777 + i)) % 5 == 0;
      result.labels.push_back(masked ? result.ids[at] : -1);
      if (masked) result.ids[at] = sizes.mask_token;
    } else {
      const bool last = (i + 1) % sizes.sequence == 0;
      result.labels.push_back(last ? -1 : result.ids[at + 1]);
    }
  }
  return result;
}

}  // namespace zeroplan::testing
