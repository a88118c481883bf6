// Bounds that let a search leave points out without simulating them: no step of theirs can be
// shorter, no peak lower. Each is made of what the simulator surely counts, from the same cost
// functions and the same policies, and leaves out what depends on how things meet in time.
//
// [S1] a step          T >= max( B + G C + R + I + max(0, K - k S F) + X,  D,  H )
//   G micro-steps; B seconds in which the host prepares them: the first one, or all where it waits
//   for the device before each (the throughput timer); C seconds of a micro-batch's kernels, one
//   after the other on the compute stream; R what follows them in the optimizer's step and its loop
//   (step_lower_bound.hpp); H all dispatch of the host and the copies that it waits for, and the
//   slower of host and kernels in each micro-step; D the longest queue: collectives of one
//   communicator, copies of offloaded weights before their gathers, NVMe. I, where the host waits
//   before each micro-step: the gathers that its first kernel waits for, reductions on the compute
//   stream, and the last reduction behind its last gradient. K = sum over the other collectives of
//   min(s, m) t: tasks that share a resource get on at rates that sum to at most 1
//   (simulator/event_loop.hpp), a kernel takes all of the multiprocessors or of the memory's rate,
//   and a collective of t seconds takes s of the former, m of the latter; so beside kernels it
//   costs them at least that much. k the largest min(s, m), S communicators, F = G N + B + I + R: N
//   seconds of kernels that share nothing; R only where the optimizer's step may begin before the
//   last reduction is done. What runs then is free. X = max(0, L - S (G M + F)) d: memory-bound
//   kernels, M seconds a micro-batch, have no room for more than S M seconds of collectives,
//   because both go at the same rate. What is left of the L seconds of those with m < s runs beside
//   compute-bound kernels and costs them s, the smallest s - m of all more: d, or 1 / S - k where
//   the step gets longer instead.
//
//   With the program's clocks T >= P + R, too: P what the passes take at least on the host's and
//   the streams' clocks, with every wait between them (simulator/least_step_time.hpp). For
//   DeepSpeed without NVMe, of the representative rank where ranks differ.
//
// [S2] GPU memory      M >= buffers that always exist + hpZ's secondary partitions (from the second
//                           micro-step on; of frozen weights always) + the highest moment of the
//                           activations
//                           + batch, cuBLAS workspaces, CUDA context, NCCL
//
// [S3] Host memory and NVMe hang on few knobs and are not bounded but known (predict_host), but for
//      hpZ's secondary partitions of offloaded weights, which stay there: the group with the least
//      counts.
//
// Checked by tests/property/search_property.cpp: over random scenarios no simulation is faster or
// smaller. All functions may be called by several threads.
#pragma once

#include <memory>
#include <vector>

#include "model/predict/predict.hpp"
#include "tuner/host_state.hpp"
#include "tuner/search_space.hpp"

namespace zeroplan::tuner {

struct BoundsCache;
struct BoundsHead;
struct CopyWay;
struct GatherTimes;
struct MessageTimes;
struct TailWork;

// How much of a point is decided.
enum class BoundDepth {
  batch,     // strategy, checkpointing, batch
  tail,      // and all axes but those of gathers and reductions
  messages,  // the same, with the least that any gathers and reductions send
  whole,
  clocks,  // by the clocks of its program, written and followed: some milliseconds
};

class SearchBounds {
 public:
  // Both must outlive the bounds. `threads` work out what many points need at once.
  SearchBounds(const SearchSpace& space, const PredictOptions& options, std::size_t threads = 1);
  ~SearchBounds();

  // [S1] of every point that agrees with this one in what `depth` says.
  Seconds step_time(const Point& point, BoundDepth depth) const;
  // The same as tokens a second and GPU, from above.
  double tokens_per_second(const Point& point, BoundDepth depth) const;
  // [S2] the same. Of the total, as nvidia-smi shows it.
  Bytes gpu_memory(const Point& point, BoundDepth depth) const;
  // Is [S2] small enough that the plan of the point may fit, uncertain as its memory is? False: it
  // surely does not. Throws InputError as SearchSpace::plan() does.
  bool may_fit(const Point& point) const;
  // [S3] The point decides all axes but those of gathers and reductions.
  const HostState& host(const Point& point) const;

 private:
  using Messages = MessageTimes;

  const BoundsHead& head(const Point& point) const;
  const TailWork& tail(const Point& point) const;
  Point gather_key(const Point& point) const;
  const GatherTimes& gathers(const Point& point) const;
  void make_gathers(const std::vector<Point>& keys) const;
  const std::vector<CopyWay>& copy_ways(const Point& point) const;
  const Messages& reductions(const Point& point) const;
  Seconds passes(const Point& point) const;
  const GatherTimes& fewest_gathers(const Point& point) const;
  const Messages& fewest_reductions(const Point& point) const;
  Bytes buffers(const Point& point) const;
  Bytes fewest_buffers(const Point& point, BoundDepth depth) const;
  Bytes secondary_partitions(const Point& point) const;
  Bytes outside_torch(const Point& point) const;
  double memory_sd(const Point& point) const;  // of what is predicted, relative

  const SearchSpace& space_;
  PredictOptions options_;
  std::unique_ptr<BoundsCache> cache_;
};

}  // namespace zeroplan::tuner
