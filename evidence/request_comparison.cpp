#include "evidence/request_comparison.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/diagnostic.hpp"
#include "simulator/allocator_options.hpp"

namespace zeroplan::evidence {
namespace {

// Alignments that need more changes are of two different runs.
constexpr int kMostChanges = 6000;

struct Ask {
  std::int64_t size = 0;  // bytes, rounded up as the allocator does
  std::int64_t stream = 0;
  std::string_view place;
  std::size_t end = 0;  // requests before it was freed; beyond all: it was not
};

std::vector<Ask> asks_of(const RecordedDevice& device, Bytes at_least) {
  constexpr std::int64_t kRounding = 512;  // c10/cuda/CUDACachingAllocator.cpp kMinBlockSize
  std::vector<Ask> asks;
  std::unordered_map<std::int64_t, std::size_t> live;  // by address
  for (const RecordedEvent& event : device.history) {
    if (event.action == simulator::AllocatorAction::alloc) {
      const std::int64_t size = (event.size + kRounding - 1) / kRounding * kRounding;
      live.erase(event.address);
      if (size < at_least.count()) continue;
      live[event.address] = asks.size();
      asks.push_back({size, event.stream, event.place, static_cast<std::size_t>(-1)});
    } else if (event.action == simulator::AllocatorAction::free_requested ||
               event.action == simulator::AllocatorAction::free_completed) {
      const auto found = live.find(event.address);
      if (found == live.end()) continue;
      asks[found->second].end = asks.size();
      live.erase(found);
    }
  }
  return asks;
}

struct Pair {
  int recorded = 0, simulated = 0;
};

// Myers' greedy algorithm, to where either sequence ends. V[k]: how far diagonal k has come.
class Alignment {
 public:
  Alignment(const std::vector<Ask>& a, const std::vector<Ask>& b) : a_(a), b_(b) {}

  std::optional<std::vector<Pair>> pairs() {
    for (int changes = 0; changes <= kMostChanges; ++changes) {
      reached_.emplace_back(2 * static_cast<std::size_t>(changes) + 1);
      for (int k = -changes; k <= changes; k += 2) {
        int x = start_of(changes, k);
        while (inside(x, x - k) && a_[at(x)].size == b_[at(x - k)].size) ++x;
        reach(changes, k) = x;
        if (x >= count(a_) || x - k >= count(b_)) return back_from(changes, k);
      }
    }
    return std::nullopt;
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  static int count(const std::vector<Ask>& asks) { return static_cast<int>(asks.size()); }
  bool inside(int x, int y) const { return y >= 0 && x < count(a_) && y < count(b_); }
  int& reach(int changes, int k) { return reached_[at(changes)][at(k + changes)]; }

  // Whether diagonal k was entered from the one above, by leaving a simulated request out.
  bool from_above(int changes, int k) {
    return k == -changes || (k != changes && reach(changes - 1, k - 1) < reach(changes - 1, k + 1));
  }
  int start_of(int changes, int k) {
    if (changes == 0) return 0;
    return from_above(changes, k) ? reach(changes - 1, k + 1) : reach(changes - 1, k - 1) + 1;
  }

  std::vector<Pair> back_from(int changes, int k) {
    std::vector<Pair> found;
    for (int x = reach(changes, k); changes >= 0; --changes) {
      const int start = start_of(changes, k);
      while (x > start) {
        --x;
        found.push_back({x, x - k});
      }
      if (changes == 0) break;
      const bool above = from_above(changes, k);
      x = above ? start : start - 1;
      k += above ? 1 : -1;
    }
    std::reverse(found.begin(), found.end());
    return found;
  }

  const std::vector<Ask>& a_;
  const std::vector<Ask>& b_;
  std::vector<std::vector<int>> reached_;
};

class Comparison {
 public:
  Comparison(std::vector<Ask> recorded, std::vector<Ask> simulated, std::vector<Pair> pairs)
      : recorded_(std::move(recorded)),
        simulated_(std::move(simulated)),
        pairs_(std::move(pairs)) {}

  RequestComparison result() {
    pair_streams();
    // How many pairs come before a place of either sequence.
    for (const Pair& pair : pairs_) {
      recorded_in_pairs_.push_back(pair.recorded);
      simulated_in_pairs_.push_back(pair.simulated);
    }
    Pair next;
    for (const Pair& pair : pairs_) {
      for (; next.recorded < pair.recorded; ++next.recorded) recorded_only(next);
      for (; next.simulated < pair.simulated; ++next.simulated) simulated_only(next);
      side_by_side(pair);
      next = {pair.recorded + 1, pair.simulated + 1};
    }
    finish(next);
    return std::move(result_);
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  void pair_streams() {
    std::map<std::int64_t, std::map<std::int64_t, int>> met;
    for (const Pair& pair : pairs_) {
      ++met[recorded_[at(pair.recorded)].stream][simulated_[at(pair.simulated)].stream];
    }
    for (const auto& [stream, others] : met) {
      stream_[stream] = std::max_element(others.begin(), others.end(), [](auto& x, auto& y) {
                          return x.second < y.second;
                        })->first;
    }
  }

  ModuleRequests& module_of(std::string_view name) {
    const auto [found, is_new] = places_.try_emplace(std::string(name), result_.modules.size());
    if (is_new) result_.modules.push_back({std::string(name), 0, 0, 0});
    return result_.modules[found->second];
  }

  void note(RequestDifferenceKind kind, std::string_view place, std::int64_t size) {
    ++counts_[{kind, module_, std::string(place), size}];
  }

  void recorded_only(const Pair& pair) {
    const Ask& ask = recorded_[at(pair.recorded)];
    ++module_of(module_).recorded;
    note(RequestDifferenceKind::recorded_only, ask.place, ask.size);
  }

  void simulated_only(const Pair& pair) {
    const Ask& ask = simulated_[at(pair.simulated)];
    module_ = ask.place;
    ++module_of(module_).simulated;
    note(RequestDifferenceKind::simulated_only, "", ask.size);
  }

  static std::ptrdiff_t pairs_before(const std::vector<int>& places, std::size_t end) {
    const auto least =
        std::lower_bound(places.begin(), places.end(), end, [](int place, std::size_t value) {
          return at(place) < value;
        });
    return least - places.begin();
  }

  void side_by_side(const Pair& pair) {
    const Ask& one = recorded_[at(pair.recorded)];
    const Ask& other = simulated_[at(pair.simulated)];
    module_ = other.place;
    ModuleRequests& module = module_of(module_);
    ++module.recorded;
    ++module.simulated;
    ++result_.both;
    const bool same_stream = stream_[one.stream] == other.stream;
    const bool same_life =
        pairs_before(recorded_in_pairs_, one.end) == pairs_before(simulated_in_pairs_, other.end);
    if (!same_stream) {
      ++result_.other_stream;
      note(RequestDifferenceKind::stream, one.place, one.size);
    }
    if (!same_life) {
      ++result_.other_lifetime;
      note(RequestDifferenceKind::lifetime, one.place, one.size);
    }
    if (same_stream && same_life) ++module.equal;
  }

  void finish(const Pair& end) {
    result_.recorded = end.recorded;
    result_.simulated = end.simulated;
    for (const auto& [what, times] : counts_) {
      const auto& [kind, module, place, size] = what;
      result_.differences.push_back({kind, module, place, Bytes::of(size), times});
    }
    std::stable_sort(result_.differences.begin(),
                     result_.differences.end(),
                     [](const RequestDifference& a, const RequestDifference& b) {
                       return a.size * a.times > b.size * b.times;
                     });
  }

  std::vector<Ask> recorded_, simulated_;
  std::vector<Pair> pairs_;
  std::map<std::int64_t, std::int64_t> stream_;  // of the simulation, by the recorded one
  std::vector<int> recorded_in_pairs_, simulated_in_pairs_;
  std::map<std::string, std::size_t> places_;
  std::map<std::tuple<RequestDifferenceKind, std::string, std::string, std::int64_t>, std::int64_t>
      counts_;
  std::string module_;  // of the last simulated request
  RequestComparison result_;
};

const char* name_of(RequestDifferenceKind kind) {
  switch (kind) {
    case RequestDifferenceKind::recorded_only:
      return "recorded_only";
    case RequestDifferenceKind::simulated_only:
      return "simulated_only";
    case RequestDifferenceKind::stream:
      return "stream";
    case RequestDifferenceKind::lifetime:
      break;
  }
  return "lifetime";
}

}  // namespace

RequestComparison compare_requests(const RecordedDevice& recorded,
                                   const RecordedDevice& simulated,
                                   Bytes at_least,
                                   const std::string& file) {
  std::vector<Ask> one = asks_of(recorded, at_least);
  std::vector<Ask> other = asks_of(simulated, at_least);
  auto pairs = Alignment(one, other).pairs();
  if (!pairs) {
    throw InputError({file,
                      "",
                      "a recording of the run that was simulated",
                      fmt::format("more than {} requests of at least {} bytes that only one has",
                                  kMostChanges,
                                  at_least.count()),
                      "compare larger requests"});
  }
  return Comparison(std::move(one), std::move(other), std::move(*pairs)).result();
}

Json to_json(const RequestComparison& comparison) {
  Json modules = Json::array();
  for (const ModuleRequests& module : comparison.modules) {
    modules.push_back(Json::object({{"module", module.module},
                                    {"recorded", module.recorded},
                                    {"simulated", module.simulated},
                                    {"equal", module.equal}}));
  }
  Json differences = Json::array();
  for (const RequestDifference& difference : comparison.differences) {
    differences.push_back(Json::object({{"kind", name_of(difference.kind)},
                                        {"module", difference.module},
                                        {"place", difference.place},
                                        {"bytes", difference.size.count()},
                                        {"times", difference.times}}));
  }
  return Json::object({{"schema", "zeroplan.requests/1"},
                       {"recorded", comparison.recorded},
                       {"simulated", comparison.simulated},
                       {"both", comparison.both},
                       {"other_stream", comparison.other_stream},
                       {"other_lifetime", comparison.other_lifetime},
                       {"modules", modules},
                       {"differences", differences}});
}

}  // namespace zeroplan::evidence
