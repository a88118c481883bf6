#include "runtime/kernels/thread_pool.hpp"

#include <algorithm>

namespace zeroplan::runtime {

ThreadPool::ThreadPool(int threads) : workers_(static_cast<std::size_t>(std::max(threads, 1))) {}

void ThreadPool::run(std::int64_t count, const std::function<void(std::int64_t)>& task) {
  workers_.run(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)),
               [&](std::size_t i) { task(static_cast<std::int64_t>(i)); });
}

void ThreadPool::run_ranges(std::int64_t count,
                            std::int64_t grain,
                            const std::function<void(std::int64_t, std::int64_t)>& task) {
  run((count + grain - 1) / grain,
      [&](std::int64_t i) { task(i * grain, std::min(count, (i + 1) * grain)); });
}

}  // namespace zeroplan::runtime
