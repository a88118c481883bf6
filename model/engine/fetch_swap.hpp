// Stage 3's weights on NVMe as the parameter coordinator sees them: which partitions are on the
// drive, which are being read into a pinned buffer of the pool, which stand in one. A partition
// keeps its buffer until the gathered weight is released, so that what prefetch and reuse keep on
// the GPU takes buffers too; a fetch that finds too few of them ends the run ("Not enough buffers",
// DeepSpeed#3062).
//
// Source: DeepSpeed 0.19.6, runtime/swap_tensor/partitioned_param_swapper.py (PS): swap_in,
// synchronize_reads, remove_partition_and_release_buffers; zero/partition_parameters.py:
// _ensure_availability_of_partitioned_params, _partition_param.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/engine/fetch_schedule.hpp"

namespace zeroplan {

// What a run asks of the pool. DeepSpeed stops at the first of either.
struct SwapPoolUse {
  int most = 0;           // buffers that were held or asked for at once
  bool short_of = false;  // a fetch needed more buffers than were free
  bool twice = false;     // one partition was to be read into two buffers by the same read-ahead
  Elements largest;       // partition on the drive; above a buffer's size DeepSpeed does not start
};

class SwappedWeights {
 public:
  // `on_drive` by parameter; empty: none. `buffers` of the pool.
  SwappedWeights(const std::vector<bool>& on_drive, int buffers);

  bool any() const { return !places_.empty(); }
  // Neither in a buffer nor on its way into one.
  bool is_away(ParameterIndex parameter) const;
  int free_buffers() const { return buffers_ - held_; }
  const SwapPoolUse& use() const { return use_; }

  // Before a gather: what is away is read, and the host waits for every read under way. Goes on
  // where buffers are short, as if there were more.
  void ensure(std::span<const ParameterIndex> parameters, FetchLog& log);
  // Begins to read what is away, in this order. Precondition: at most free_buffers().
  void read_ahead(std::span<const ParameterIndex> parameters, FetchLog& log);
  // The gathered weight goes, or stays for good: its buffer is free again.
  void release(ParameterIndex parameter);

 private:
  enum class Place : std::uint8_t { memory, drive, reading, buffer };

  void read(std::span<const ParameterIndex> parameters, bool ahead, FetchLog& log);

  std::vector<Place> places_;
  int buffers_ = 0;
  int held_ = 0;
  SwapPoolUse use_;
  std::vector<ParameterIndex> reading_;
  std::vector<ParameterIndex> missing_;  // scratch
};

}  // namespace zeroplan
