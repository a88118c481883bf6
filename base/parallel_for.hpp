// Threads that share out work, wherever the program has any.
//
// A machine that has no thread or no memory for one more is no error: the threads that are there,
// the caller's at least, do the work. What a job throws is thrown again where the work was asked
// for. Jobs that depend on nothing but their number give the same results on any number of threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

namespace zeroplan {

// As many threads as the machine runs at a time; at least 1.
std::int64_t machine_threads();

// Threads that are joined when they go.
class Threads {
 public:
  Threads() = default;
  ~Threads() { join(); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  // Starts body(0), body(1), ... below `many`, each on a thread of its own, in that order until one
  // cannot be started. `body` must not throw. Returns how many were started.
  template <class Body>
  std::size_t start(std::size_t many, const Body& body) noexcept {
    std::size_t started = 0;
    try {
      threads_.reserve(threads_.size() + many);
      for (; started < many; ++started) threads_.emplace_back(body, started);
    } catch (const std::exception&) {
      // No more can be had. What threads_ has room for is never lost.
    }
    return started;
  }
  std::size_t size() const { return threads_.size(); }
  void join();

 private:
  std::vector<std::thread> threads_;
};

// Threads that stay between lists of jobs.
class WorkerPool {
 public:
  // `threads` in all, the caller's among them; 0 counts as 1.
  explicit WorkerPool(std::size_t threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Calls job(i) once for each i below `count`, in that order on as many threads as there are, and
  // returns when all have ended. When a job throws, no further one is begun; of several that threw,
  // the one with the lowest number is thrown again here. One caller at a time, not out of a job.
  void run(std::size_t count, const std::function<void(std::size_t)>& job);

 private:
  void serve();
  void take_jobs(const std::function<void(std::size_t)>& job, std::size_t count);
  void note_failure(std::size_t index);

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(std::size_t)>* job_ = nullptr;
  std::size_t count_ = 0;
  std::atomic<std::size_t> next_{0};
  std::uint64_t round_ = 0;  // lists so far: a thread serves each once
  std::size_t busy_ = 0;     // threads that are not done with the list
  std::size_t failed_ = std::numeric_limits<std::size_t>::max();  // the lowest job that threw
  std::exception_ptr failure_;
  bool stop_ = false;
  Threads threads_;  // last: they end before the rest goes
};

// The same for one list, on up to `jobs` threads (no more than 256).
void parallel_for(std::size_t count,
                  std::int64_t jobs,
                  const std::function<void(std::size_t)>& work);

}  // namespace zeroplan
