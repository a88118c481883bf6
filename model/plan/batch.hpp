// The batch of a step: what was said about it, and what is taken where nobody said anything.
//
// A command that predicts one configuration (simulate, explain, verify) takes micro-batch 1 without
// accumulation: resolve(). One that looks for a configuration (fit, tune, report) gets the batch
// that people fine-tune with, and chooses how a step makes it: batch_choices(). Both are said as
// assumptions. Batches are in sequences. Checked by tests/unit/model/plan/batch_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/phrase.hpp"
#include "model/knobs/ds_config.hpp"
#include "model/plan/scenario.hpp"

namespace zeroplan {

// Sequences of a step, all GPUs together: Stanford Alpaca and Vicuna train with 128 (their READMEs'
// tables of hyperparameters). Long sequences are fewer: a step has at most 4 Mi tokens, what Llama
// 3.1's first stage has (arXiv:2407.21783, section 3.4.1).
inline constexpr std::int64_t kUsualBatch = 128;
inline constexpr std::int64_t kMostUsualTokens = 1LL << 22;

// Of a configuration about whose batch nothing was said.
inline constexpr std::int64_t kDefaultMicroBatch = 1;

struct BatchSizes {
  std::int64_t micro_batch = 1;
  std::int64_t accumulation = 1;
  friend bool operator==(const BatchSizes&, const BatchSizes&) = default;
};

struct SaidBatch {
  std::optional<std::int64_t> micro_batch;
  std::optional<std::int64_t> accumulation;
  std::optional<std::int64_t> global;
};

// What flags and document say, else the file; `file` may be null. That both agree is resolve()'s to
// check.
SaidBatch said_batch(const Scenario& scenario, const DsConfig* file);

// What a step of the usual batch has for each data-parallel rank: the power of two that comes
// nearest, so that every micro-batch of a power of two makes it.
std::int64_t usual_share(std::int64_t ranks, std::int64_t sequence_length);

struct BatchChoices {
  std::vector<BatchSizes> sizes;  // ascending micro-batches, at least one
  Phrase assumption;              // where the batch was not said: what is taken; else empty
};

// The ways to make the batch: all of a global batch, or of the usual one, divided into
// micro-batches and accumulation, less what was said. With a micro-batch or an accumulation that
// does not divide the usual batch a step has about as many sequences. Throws InputError for a
// global batch that the ranks cannot share equally; empty nowhere else.
BatchChoices batch_choices(const SaidBatch& said, std::int64_t ranks, std::int64_t sequence_length);

// The same micro-batches, each a step by itself. Precondition: nobody said the batch.
BatchChoices without_accumulation(const BatchChoices& choices, std::int64_t ranks);

}  // namespace zeroplan
