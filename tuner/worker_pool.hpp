// A few threads that share out a list of jobs; results go where the jobs put them, so that they do
// not depend on the number of threads.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace zeroplan {

class WorkerPool {
 public:
  // `threads` in all, the caller's among them; at least 1.
  explicit WorkerPool(std::size_t threads) {
    for (std::size_t i = 1; i < threads; ++i) {
      workers_.emplace_back([this](const std::stop_token& stop) { serve(stop); });
    }
  }
  ~WorkerPool() {
    {
      const std::scoped_lock lock(mutex_);
      for (std::jthread& worker : workers_) worker.request_stop();
    }
    wake_.notify_all();
  }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Calls job(0) ... job(count - 1), each once, and returns when all are done. Rethrows the
  // exception of the first job that threw.
  void run(std::size_t count, const std::function<void(std::size_t)>& job) {
    std::unique_lock lock(mutex_);
    job_ = &job;
    count_ = count;
    next_ = open_ = 0;
    failures_.assign(count, nullptr);
    wake_.notify_all();
    while (next_ < count_) work_one(lock);
    done_.wait(lock, [&] { return open_ == 0; });
    job_ = nullptr;
    for (const std::exception_ptr& failure : failures_) {
      if (failure) std::rethrow_exception(failure);
    }
  }

 private:
  void serve(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock,
                 [&] { return stop.stop_requested() || (job_ != nullptr && next_ < count_); });
      if (stop.stop_requested()) return;
      work_one(lock);
      if (open_ == 0) done_.notify_all();
    }
  }

  void work_one(std::unique_lock<std::mutex>& lock) {
    const std::size_t index = next_++;
    const std::function<void(std::size_t)>& job = *job_;
    ++open_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      job(index);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failures_[index] = failure;
    --open_;
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  const std::function<void(std::size_t)>* job_ = nullptr;
  std::size_t count_ = 0;
  std::size_t next_ = 0;
  std::size_t open_ = 0;
  std::vector<std::exception_ptr> failures_;
  std::vector<std::jthread> workers_;  // last: they stop before the rest goes
};

}  // namespace zeroplan
