// The threads of one rank. Work is cut into tasks that do not depend on the number of threads, so
// that the same sums are taken in the same order by any number.
#pragma once

#include <cstdint>
#include <functional>

#include "base/parallel_for.hpp"

namespace zeroplan::runtime {

class ThreadPool {
 public:
  // `threads` take part in every call, the caller among them; at least 1, and fewer where the
  // machine has no more.
  explicit ThreadPool(int threads);

  // Runs task(i) for every i below count and returns when all are done; throws what a task threw.
  void run(std::int64_t count, const std::function<void(std::int64_t)>& task);
  // The same over ranges of `grain`: task(begin, end).
  void run_ranges(std::int64_t count,
                  std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& task);

 private:
  WorkerPool workers_;
};

}  // namespace zeroplan::runtime
