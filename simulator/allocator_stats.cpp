#include "simulator/allocator_stats.hpp"

namespace zeroplan::simulator {

namespace {

template <typename Function>
void for_each_stat(MemoryStats& stats, Function&& function) {
  for (PoolStats& pool : stats.pools) {
    for (AllocatorStat* stat : {&pool.allocation,
                                &pool.segment,
                                &pool.active,
                                &pool.inactive_split,
                                &pool.allocated_bytes,
                                &pool.reserved_bytes,
                                &pool.active_bytes,
                                &pool.inactive_split_bytes,
                                &pool.requested_bytes}) {
      function(*stat);
    }
  }
  function(stats.oversize_allocations);
  function(stats.oversize_segments);
}

}  // namespace

void MemoryStats::reset_peaks() {
  for_each_stat(*this, [](AllocatorStat& stat) { stat.peak = stat.current; });
}

void MemoryStats::repeat(const MemoryStats& from, const MemoryStats& to, std::int64_t times) {
  for (std::int64_t MemoryStats::*counter : {&MemoryStats::num_alloc_retries,
                                             &MemoryStats::num_ooms,
                                             &MemoryStats::num_sync_all_streams,
                                             &MemoryStats::num_device_alloc,
                                             &MemoryStats::num_device_free}) {
    this->*counter += times * (to.*counter - from.*counter);
  }
}

void MemoryStats::reset_accumulated() {
  for_each_stat(*this, [](AllocatorStat& stat) { stat.allocated = stat.freed = 0; });
  num_alloc_retries = num_ooms = num_sync_all_streams = num_device_alloc = num_device_free = 0;
}

}  // namespace zeroplan::simulator
