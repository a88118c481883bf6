#include "evidence/parallel_for.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace zeroplan {

void parallel_for(std::size_t count,
                  std::int64_t jobs,
                  const std::function<void(std::size_t)>& work) {
  constexpr std::int64_t kMostThreads = 256;
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto run = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next = count;
    }
  };
  const std::int64_t threads = std::min({jobs, kMostThreads, static_cast<std::int64_t>(count)});
  std::vector<std::thread> workers;
  for (std::int64_t i = 1; i < threads; ++i) workers.emplace_back(run);
  run();
  for (std::thread& worker : workers) worker.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace zeroplan
