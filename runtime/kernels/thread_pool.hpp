// The threads of one rank. Work is cut into tasks that do not depend on the number of threads, so
// that the same sums are taken in the same order by any number.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace zeroplan::runtime {

class ThreadPool {
 public:
  // `threads` take part in every call, the caller among them; at least 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Runs task(i) for every i below count and returns when all are done. Tasks must not throw.
  void run(std::int64_t count, const std::function<void(std::int64_t)>& task);
  // The same over ranges of `grain`: task(begin, end).
  void run_ranges(std::int64_t count,
                  std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& task);

 private:
  void work();
  void take_tasks(const std::function<void(std::int64_t)>& task, std::int64_t count);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(std::int64_t)>* task_ = nullptr;
  std::int64_t count_ = 0;
  std::atomic<std::int64_t> next_{0};
  std::uint64_t round_ = 0;
  int busy_ = 0;
  bool stop_ = false;
};

}  // namespace zeroplan::runtime
