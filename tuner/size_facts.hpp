// What of a model has a given size: whole copies, shards, single tensors, logits. Arithmetic on the
// model alone, for allocations that no simulated step makes: copies while loading, saving or
// converting.
//
// Sizes are compared as PyTorch's allocator would ask for them: in whole segments.
// Checked by tests/unit/tuner/size_facts_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/phrase.hpp"
#include "model/transformer.hpp"
#include "tuner/peak_inventory.hpp"

namespace zeroplan::tuner {

struct RunSize {
  std::optional<std::int64_t> ranks;   // that share a copy; absent: 2, 4, 8, 16, 32, 64 are tried
  std::optional<std::int64_t> tokens;  // of a micro-batch; absent: logits are left out
};

struct SizeFact {
  Phrase what;             // "a whole copy in fp32", "model.embed_tokens.weight in fp32"
  std::string arithmetic;  // "6,738,415,616 x 4 / 8"
  Bytes bytes;
  double off = 0.0;  // as SizeMatch's
};

// Whole copies first, then shards, tensors, logits; where nothing has the size, the three nearest
// within 2 %. Sizes of 20 MiB and less say too little and give nothing.
std::vector<SizeFact> size_facts(const Model& model,
                                 const RunSize& run,
                                 const SizeQuestion& question);

// Without a model: logits over the vocabularies of the models that are known, of the run's tokens
// where they are said, else of round numbers of tokens, the roundest first. A printed size has
// three digits, so that several may fit.
std::vector<SizeFact> vocabulary_facts(const RunSize& run, const SizeQuestion& question);

}  // namespace zeroplan::tuner
