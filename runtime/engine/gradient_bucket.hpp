// The bucket of gradients that fills, and the flush at hand: copies into the bucket, its
// collectives, and where the sum is. When that happens GradientReducer says; what is kept of the
// sum is RankEngine's.
//
// Sources: model/engine/gradient_buckets.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "model/engine/engine_action.hpp"
#include "model/engine/engine_config.hpp"
#include "model/engine/partition.hpp"
#include "runtime/collectives/communicator.hpp"
#include "runtime/device/device.hpp"
#include "runtime/engine/transients.hpp"
#include "runtime/memory/memory.hpp"

namespace zeroplan::runtime {

class GradientBucket {
 public:
  // A stretch of gradients of a bucket.
  struct Piece {
    std::int32_t parameter = -1;
    std::byte* data = nullptr;
    Elements elements;
    bool outside = false;  // of the bucket's buffer
  };
  // A flush's sum in one piece.
  struct Sum {
    std::byte* data = nullptr;  // null: the pieces themselves
    DType dtype = DType::fp32;
    bool scattered = false;  // stage 3: this rank's partitions alone
  };

  // All must outlive it. `partition`: of stages 1 and 2. `group`: who share a copy.
  GradientBucket(const EngineConfig& config,
                 std::span<const EngineParameter> parameters,
                 const FlatPartition& partition,
                 Communicator& group,
                 Device& device,
                 Transients& transients);

  // Stages 1 and 2 with overlap: which of the two buffers fills; else 0.
  int buffer() const { return buffer_; }
  bool is_empty() const { return filling_.empty() && outside_.empty(); }
  // A gradient joins in `buffer`, or stays where it is until drop().
  void insert(const EngineAction& action, const Buffer& gradient, std::byte* buffer);
  void keep_outside(const EngineAction& action, Buffer gradient);
  void drop(std::span<const int> parameters);

  // From here on the collectives take what the bucket has, or in stage 0 these gradients.
  void begin_flush(std::span<const int> members);
  void begin_dense(std::span<const Piece> gradients);
  void end_flushes() { flushed_.clear(); }

  // The actions of that name, of the flush at hand.
  void flatten(const EngineAction& action);
  void concatenate(const EngineAction& action);
  void cast(const EngineAction& action);
  void reduce(const EngineAction& action);
  void copy_back(const EngineAction& action);

  // Of the flush at hand. Precondition: the parameter is in it.
  const Piece& piece_of(std::int32_t parameter) const;
  std::span<const Piece> flushed() const { return flushed_; }
  const Sum& sum() const { return sum_; }

 private:
  // Gradients of one owner, which collectives take whole.
  struct Run {
    int owner = -1;
    std::byte* data = nullptr;
    Elements elements;
  };

  void begin_collectives();
  void cut_into_runs();
  void copy_runs(std::size_t first, std::size_t last, std::byte* flat, bool back);
  std::size_t runs_of(Elements elements) const;
  void cast_outside(const EngineAction& action);
  Elements numel(std::int32_t p) const { return parameters_[static_cast<std::size_t>(p)].numel; }
  Elements part(std::int32_t p) const {
    return partitioned_numel(numel(p), partition_ranks(config_));
  }

  const EngineConfig& config_;
  std::span<const EngineParameter> parameters_;
  const FlatPartition& partition_;
  Communicator& group_;
  Device& device_;
  Transients& transients_;

  std::vector<Piece> filling_;
  Elements filled_;
  int buffer_ = 0;     // of two
  Fence buffer_read_;  // by the flush before, which had that buffer
  // Gradients that stayed in their own storage, by parameter.
  std::vector<std::pair<std::int32_t, Buffer>> outside_;

  std::vector<Piece> flushed_;
  std::vector<Run> runs_;  // in the order of its collectives
  std::size_t next_run_ = 0;
  Sum sum_;
};

}  // namespace zeroplan::runtime
