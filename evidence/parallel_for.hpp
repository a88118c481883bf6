// Work on independent items by threads. What an item computes depends on nothing else, so results
// are the same for any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace zeroplan {

// Calls `work(i)` once for each i below `count`, on up to `jobs` threads, each taking the next item
// until none is left. The first exception is thrown again here once all threads have ended.
void parallel_for(std::size_t count,
                  std::int64_t jobs,
                  const std::function<void(std::size_t)>& work);

}  // namespace zeroplan
