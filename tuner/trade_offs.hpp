// Speed against GPU memory: how fast a model trains with less of each GPU.
//
// In: a space and the options of a search. Out: the answer of that search; of one for the least
// memory and of more for speed under falling ceilings of GPU memory, what all of them simulated and
// its front. A ceiling is kept as a reserve, so that every point stays below it with the search's
// confidence. Each search ends by its own count of simulations; they share the time limit, where
// there is one, and `complete` says that it cut none. Checked by
// tests/unit/tuner/trade_offs_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "tuner/search.hpp"

namespace zeroplan::tuner {

struct TradeOffs {
  SearchResult search;              // without a ceiling; its `fitting` is moved to `points`
  std::vector<Evaluated> points;    // that fit, each once, most GPU memory first
  std::vector<std::size_t> front;   // of points: nothing else is as fast with as little GPU memory
  std::optional<std::size_t> best;  // of points: the search's answer
  std::int64_t evaluated = 0;       // by all searches
  double seconds = 0.0;             // of all searches
  bool complete = true;             // the clock cut none of them
  bool counted_out = false;         // one ended at its count of simulations, before all was proven
};

// How many simulations the searches behind the first get, each: the front needs no proof. None
// is searched for where `most` is 0.
struct FrontCounts {
  std::int64_t patience = std::numeric_limits<std::int64_t>::max();
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
};

// `ceilings`: searches besides the first.
TradeOffs trade_offs(const SearchSpace& space,
                     const SearchOptions& options,
                     int ceilings,
                     const FrontCounts& counts = {});

}  // namespace zeroplan::tuner
