// Seeded random ranks of a job: kernels, copies, allocations and waits around collectives that all
// ranks of one seed have in common. What a rank does besides differs from rank to rank.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "simulator/engines/rank_program.hpp"
#include "simulator/program_writer.hpp"

namespace zeroplan::testing {

class RandomRank {
 public:
  // Equal (seed, own) make equal programs; equal seeds make the same collectives. own 0: nothing
  // besides what all ranks do.
  RandomRank(std::uint64_t seed, std::uint64_t own) : common_(seed), own_(seed * 1009 + own) {
    writer_.add_stream("compute");
    nccl_ = writer_.add_stream("NCCL");
    copies_ = writer_.add_stream("copies");
    rank_.program.shared_stream = nccl_;
    skewed_ = own != 0;
    if (chance(50)) {
      rank_.program.device_memory = {Seconds::of(5e-4), BytesPerSecond::of(100e9)};
    }
    queue_ = writer_.new_queue();
    for (int i = 0; i < 6; ++i) slots_.push_back(writer_.new_slot());
    slot_held_.resize(slots_.size(), false);
    rank_.initialisation = section(3);
    rank_.first_steps.push_back(step(1));
    rank_.steady = step(4 + below(20));
  }

  simulator::RankProgram take() { return std::move(rank_); }

 private:
  std::int64_t below(std::uint64_t n) { return static_cast<std::int64_t>(common_() % n); }
  bool chance(std::uint64_t percent) { return common_() % 100 < percent; }
  double share() { return static_cast<double>(common_() % 1000) / 1000.0; }
  double own_share() { return static_cast<double>(own_() % 1000) / 1000.0; }

  simulator::TaskIndex task(simulator::TaskKind kind,
                            double dispatch_ms,
                            double duration_ms,
                            simulator::Demands demands) {
    return writer_.add_task(
        {"task", kind, Seconds::of(dispatch_ms * 1e-3), Seconds::of(duration_ms * 1e-3), demands});
  }
  simulator::Demands demands(double multiprocessors, double memory) const {
    simulator::Demands demands{};
    demands[static_cast<std::size_t>(simulator::SharedResource::multiprocessors)] =
        static_cast<float>(multiprocessors);
    demands[static_cast<std::size_t>(simulator::SharedResource::gpu_memory)] =
        static_cast<float>(memory);
    return demands;
  }

  simulator::StepSections step(std::int64_t repetitions) {
    simulator::StepSections step;
    step.micro_steps.push_back({section(4), 1});
    step.micro_steps.push_back({section(6), repetitions});
    step.optimizer = section(4);
    return step;
  }

  simulator::Section section(int pieces) {
    const std::size_t begin = writer_.position();
    if (chance(50)) writer_.host_wait_device();
    for (int i = 0; i < pieces; ++i) {
      kernels();
      memory();
      if (chance(70)) collective();
      if (chance(20)) writer_.throttle(queue_, below(3));
    }
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (slot_held_[i]) writer_.release(slots_[i]);
      slot_held_[i] = false;
    }
    if (chance(30)) writer_.empty_cache();
    if (chance(50)) writer_.host_wait_stream(simulator::kComputeStream);
    return writer_.since(begin);
  }

  // A statement a draw: compilers differ in the order of a call's arguments.
  template <typename Share>
  simulator::TaskIndex kernel_of(const Share& drawn) {
    const double memory = drawn();
    const double multiprocessors = drawn();
    const double duration_ms = 2.0 * drawn();
    const double dispatch_ms = 0.2 * drawn();
    return task(
        simulator::TaskKind::kernel, dispatch_ms, duration_ms, demands(multiprocessors, memory));
  }

  void kernels() {
    const simulator::TaskIndex kernel = kernel_of([&] { return share(); });
    for (std::int64_t i = below(3); i >= 0; --i) writer_.issue(kernel, simulator::kComputeStream);
    if (chance(30)) {
      writer_.issue(task(simulator::TaskKind::copy_to_host, 0.1, 3.0 * share(), demands(0.0, 0.3)),
                    copies_);
      if (chance(50)) writer_.wait_stream(simulator::kComputeStream, copies_);
    }
    if (!skewed_ || own_() % 100 >= 60) return;
    const simulator::TaskIndex more = kernel_of([&] { return own_share(); });
    writer_.issue(more, own_() % 2 == 0 ? simulator::kComputeStream : copies_);
    if (own_() % 100 < 30) writer_.host_wait_stream(copies_);
  }

  void memory() {
    const auto slot = static_cast<std::size_t>(below(slots_.size()));
    if (slot_held_[slot]) {
      if (chance(50)) writer_.use_on_stream(slots_[slot], nccl_);
      writer_.release(slots_[slot]);
    } else {
      const simulator::StreamId stream = chance(70) ? simulator::kComputeStream : nccl_;
      const Bytes bytes = Bytes::mib(1 + below(60));
      writer_.allocate(slots_[slot], bytes, MemoryCategory::activations, stream);
    }
    slot_held_[slot] = !slot_held_[slot];
  }

  void collective() {
    const double bandwidth = 0.5 * share();
    const double duration_ms = 0.1 + 3.0 * share();
    const simulator::TaskIndex all_reduce =
        task(simulator::TaskKind::collective, 0.1, duration_ms, demands(0.2, bandwidth));
    writer_.wait_stream(nccl_, simulator::kComputeStream);
    writer_.issue(all_reduce, nccl_);
    if (chance(50)) writer_.wait_stream(simulator::kComputeStream, nccl_);
    if (chance(30)) writer_.queue_event(queue_, nccl_);
  }

  std::mt19937_64 common_;
  std::mt19937_64 own_;
  simulator::RankProgram rank_;
  simulator::ProgramWriter writer_{rank_.program};
  simulator::StreamId nccl_ = -1;
  simulator::StreamId copies_ = -1;
  simulator::QueueIndex queue_ = -1;
  bool skewed_ = false;
  std::vector<simulator::SlotIndex> slots_;
  std::vector<bool> slot_held_;
};

inline simulator::RankProgram random_rank(std::uint64_t seed, std::uint64_t own = 0) {
  return RandomRank(seed, own).take();
}

}  // namespace zeroplan::testing
