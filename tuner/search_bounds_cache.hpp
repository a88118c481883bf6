// What the two files of SearchBounds share: parts of bounds that were computed before.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/fingerprint.hpp"
#include "base/parallel_for.hpp"
#include "model/engine/partition.hpp"
#include "model/graph/graph.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/step_work.hpp"
#include "tuner/host_state.hpp"
#include "tuner/message_sum.hpp"
#include "tuner/search_space.hpp"
#include "tuner/step_lower_bound.hpp"

namespace zeroplan::tuner {

// Does the optimizer's step begin when all gradients are reduced? Stages 1 to 3 wait for their
// streams when the backward pass ends (GradientReducer::end_backward); weights that were gathered
// have been waited for by the kernels that use them.
inline bool awaits_reductions(const EngineConfig& config) { return has_zero_wrapper(config); }

struct PointHash {
  std::size_t operator()(const Point& point) const {
    std::uint64_t hash = static_cast<std::uint64_t>(point.strategy) << 40 ^
                         static_cast<std::uint64_t>(point.checkpointing) << 32 ^
                         static_cast<std::uint64_t>(point.batch);
    for (const std::uint8_t value : point.at) hash = hash * 0x100000001b3ULL + value;
    return hash ^ (hash >> 29);
  }
};
template <typename T>
using ByPoint = std::unordered_map<Point, std::unique_ptr<const T>, PointHash>;

// One micro-batch of the graph.
struct BoundsHead {
  double busy = 0.0;          // s of kernels on the compute stream
  double neutral = 0.0;       // of these, of kernels that share nothing
  double memory_bound = 0.0;  // of these, of kernels that take the memory's rate
  double dispatch = 0.0;
  double before = 0.0;      // s of the host, to prepare a micro-step
  double rest = 0.0;        // s of kernels behind the last gradient
  bool waits = false;       // the device is idle when a micro-step begins
  bool tail_alone = false;  // and no collective of the passes is left when the optimizer steps
  Bytes memory;  // highest moment of activations, with batch, workspaces and registered buffers
};

// One way in which offloaded weights may come to the GPU.
struct CopyWay {
  std::unique_ptr<const Plan> plan;
  std::vector<Elements> reads;  // by parameter, from NVMe; empty where none is there
};

struct BoundsCache {
  explicit BoundsCache(std::size_t threads) : pool(threads) {}

  WorkerPool pool;
  std::recursive_mutex mutex;
  ByPoint<BoundsHead> heads;
  ByPoint<TailWork> tails;
  ByPoint<GatherTimes> gathers, fewest_gathers;
  std::map<std::pair<Point, std::vector<std::int64_t>>, GatherTimes> gathers_by_rules;
  ByPoint<std::vector<CopyWay>> copy_ways;
  ByPoint<MessageTimes> reductions, fewest_reductions;
  ByPoint<Bytes> buffers, fewest_buffers;
  ByPoint<HostState> host;
  ByPoint<Bytes> outside, secondary_partitions;
  ByPoint<Fingerprint> gather_prints;
  ByPoint<StepWork> works;
  std::map<std::tuple<Point, std::uint64_t, std::uint64_t>, Seconds> passes;
  ByPoint<double> memory_sd;
  ByPoint<ModelGraph> graphs;
  std::vector<std::int32_t> gathers_alike;  // by strategy: the first that gathers as it does
};

// The value of `key`, made where it is not known.
template <typename T, typename Make>
const T& known(ByPoint<T>& values, const Point& key, Make&& make) {
  auto found = values.find(key);
  if (found == values.end()) {
    found = values.emplace(key, std::make_unique<const T>(make())).first;
  }
  return *found->second;
}

}  // namespace zeroplan::tuner
