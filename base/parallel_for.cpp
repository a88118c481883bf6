#include "base/parallel_for.hpp"

#include <algorithm>
#include <utility>

namespace zeroplan {

std::int64_t machine_threads() { return std::max(1U, std::thread::hardware_concurrency()); }

void Threads::join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

WorkerPool::WorkerPool(std::size_t threads) {
  threads_.start(std::max<std::size_t>(threads, 1) - 1, [this](std::size_t) { serve(); });
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  threads_.join();
}

void WorkerPool::run(std::size_t count, const std::function<void(std::size_t)>& job) {
  if (threads_.size() == 0 || count <= 1) {
    for (std::size_t i = 0; i < count; ++i) job(i);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    job_ = &job;
    count_ = count;
    next_ = 0;
    busy_ = threads_.size();
    failed_ = count;
    ++round_;
  }
  wake_.notify_all();
  take_jobs(job, count);
  std::exception_ptr failure;
  {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return busy_ == 0; });
    failure = std::exchange(failure_, nullptr);
  }
  if (failure) std::rethrow_exception(failure);
}

void WorkerPool::serve() {
  std::uint64_t seen = 0;
  while (true) {
    const std::function<void(std::size_t)>* job = nullptr;
    std::size_t count = 0;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || round_ != seen; });
      if (stop_) return;
      seen = round_;
      job = job_;
      count = count_;
    }
    take_jobs(*job, count);
    {
      const std::lock_guard lock(mutex_);
      if (--busy_ == 0) done_.notify_one();
    }
  }
}

void WorkerPool::take_jobs(const std::function<void(std::size_t)>& job, std::size_t count) {
  for (std::size_t i = next_++; i < count; i = next_++) {
    try {
      job(i);
    } catch (...) {
      note_failure(i);
    }
  }
}

// Jobs are begun in order, so that whoever throws first, the lowest job that throws was begun.
void WorkerPool::note_failure(std::size_t index) {
  const std::lock_guard lock(mutex_);
  if (index < failed_) {
    failed_ = index;
    failure_ = std::current_exception();
  }
  next_ = count_;
}

void parallel_for(std::size_t count,
                  std::int64_t jobs,
                  const std::function<void(std::size_t)>& work) {
  constexpr std::int64_t kMostThreads = 256;
  const auto threads = static_cast<std::size_t>(std::clamp<std::int64_t>(jobs, 1, kMostThreads));
  WorkerPool(std::min(threads, count)).run(count, work);
}

}  // namespace zeroplan
