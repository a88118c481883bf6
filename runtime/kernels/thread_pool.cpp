#include "runtime/kernels/thread_pool.hpp"

#include <algorithm>

namespace zeroplan::runtime {

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::take_tasks(const std::function<void(std::int64_t)>& task, std::int64_t count) {
  for (std::int64_t i = next_++; i < count; i = next_++) task(i);
}

void ThreadPool::work() {
  std::uint64_t seen = 0;
  while (true) {
    const std::function<void(std::int64_t)>* task = nullptr;
    std::int64_t count = 0;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || round_ != seen; });
      if (stop_) return;
      seen = round_;
      task = task_;
      count = count_;
    }
    take_tasks(*task, count);
    {
      const std::scoped_lock lock(mutex_);
      if (--busy_ == 0) done_.notify_one();
    }
  }
}

void ThreadPool::run(std::int64_t count, const std::function<void(std::int64_t)>& task) {
  if (workers_.empty() || count <= 1) {
    for (std::int64_t i = 0; i < count; ++i) task(i);
    return;
  }
  {
    const std::scoped_lock lock(mutex_);
    task_ = &task;
    count_ = count;
    next_ = 0;
    busy_ = static_cast<int>(workers_.size());
    ++round_;
  }
  wake_.notify_all();
  take_tasks(task, count);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return busy_ == 0; });
}

void ThreadPool::run_ranges(std::int64_t count,
                            std::int64_t grain,
                            const std::function<void(std::int64_t, std::int64_t)>& task) {
  run((count + grain - 1) / grain,
      [&](std::int64_t i) { task(i * grain, std::min(count, (i + 1) * grain)); });
}

}  // namespace zeroplan::runtime
