// The changes that may make a run fit, as data: what each costs, which part of the memory it is
// about, how it is said and what it sets.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/phrase.hpp"
#include "model/memory_category.hpp"
#include "tuner/fit_answer.hpp"
#include "tuner/variations.hpp"

namespace zeroplan::tuner {

class RemedySubject;

struct RemedyCandidate {
  RemedyPrice price = RemedyPrice::nothing;
  MemoryCategory acts = MemoryCategory::activations;
  bool decides = false;  // what it is about is what does not fit: before others of its price
  // Sizes from that which surely spares most to that which spares least; empty: it has none.
  std::vector<std::int64_t> sizes;
  std::function<Phrase(std::int64_t)> say;
  std::function<Variation(std::int64_t)> make;
};

// Those that make sense for the subject, in the order in which they are tried.
std::vector<RemedyCandidate> remedy_candidates(const RemedySubject& subject);

}  // namespace zeroplan::tuner
