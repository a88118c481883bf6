// A stopwatch on one GPU: events around what is ordered on a stream, alone and in a loop. For
// sources of runtime/cuda/profile alone.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "runtime/cuda/profile/nvml.hpp"
#include "runtime/profile/gpu_profile.hpp"

namespace zeroplan::runtime::cuda {

// Memory of the device or, pinned, of the host; given back with the object. Throws DeviceError.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::int64_t bytes);
  std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
};
class PinnedMemory {
 public:
  explicit PinnedMemory(std::int64_t bytes);
  std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
};

// An event with a time.
class Mark {
 public:
  Mark();
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  ~Mark();
  void record(cudaStream_t stream);
  void wait() const;                               // the host, until it has passed
  void hold(cudaStream_t stream) const;            // the stream, until it has passed
  double seconds_since(const Mark& before) const;  // both have passed
  cudaEvent_t event() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class OwnStream {
 public:
  OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream();
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Bench {
 public:
  using Work = std::function<void()>;  // orders something on stream()

  // On the device that is current.
  Bench(const GpuScale& scale, const Nvml& nvml);

  const GpuScale& scale() const { return scale_; }
  cudaStream_t stream() const { return stream_; }
  const Nvml& nvml() const { return nvml_; }
  std::int64_t room() const;  // bytes that a measurement may take now

  // Seconds of each kept call, between two events. Each stands alone after a pause, behind a
  // memset that is larger than the L2 and during which the host orders the call, so that its own
  // time does not count.
  std::vector<double> isolated(const Work& work);
  // `calls` of it in a row behind `covers` memsets, each call's share.
  std::vector<double> in_a_row(const Work& work, std::int64_t calls, int covers);

  struct Loop {
    std::vector<double> seconds;  // a call's share of each batch of the last half
    std::int64_t discarded = 0;   // batches
    std::optional<double> clock_before, clock_at_work, watts_at_work, celsius_at_work;
  };
  // Without pauses: the next batch is ordered while the one before runs.
  Loop sustained(const Work& work);

  // By CUPTI, after an untimed call; absent where it is missing or refuses.
  std::optional<double> kernel_seconds(const Work& work);

  // A row with the clock as it is now.
  ProfileRow row(std::string what,
                 std::vector<std::pair<std::string, Json>> settings,
                 std::string unit,
                 std::vector<double> values,
                 std::int64_t discarded) const;

  GpuFindings findings;

 private:
  void cover();

  const GpuScale& scale_;
  const Nvml& nvml_;
  OwnStream stream_;
  std::int64_t cover_bytes_ = 0;
  std::optional<DeviceMemory> cover_;
  bool cupti_ = true;  // until it refuses
};

// The parts.
void measure_launches(Bench& bench);
void measure_copies(Bench& bench);
void measure_allocations(Bench& bench);
void measure_products(Bench& bench);
void measure_attention(Bench& bench);
void measure_memory_kernels(Bench& bench);
// Each rank a thread with a GPU of its own. Throws where NCCL fails; without NCCL or a second GPU a
// note says so.
void measure_nccl(Bench& bench, int gpus);

}  // namespace zeroplan::runtime::cuda
