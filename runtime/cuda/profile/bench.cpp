#include "runtime/cuda/profile/bench.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <thread>
#include <utility>

#include "runtime/cuda/activity.hpp"
#include "runtime/cuda/cuda_check.hpp"

namespace zeroplan::runtime::cuda {

DeviceMemory::DeviceMemory(std::int64_t bytes) {
  void* data = nullptr;
  ZP_CUDA(cudaMalloc(&data, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))));
  data_.reset(static_cast<std::byte*>(data));
}
void DeviceMemory::Free::operator()(std::byte* data) const { ZP_CUDA_LOG(cudaFree(data)); }

PinnedMemory::PinnedMemory(std::int64_t bytes) {
  void* data = nullptr;
  ZP_CUDA(cudaHostAlloc(&data, static_cast<std::size_t>(bytes), cudaHostAllocDefault));
  data_.reset(static_cast<std::byte*>(data));
}
void PinnedMemory::Free::operator()(std::byte* data) const { ZP_CUDA_LOG(cudaFreeHost(data)); }

Mark::Mark() { ZP_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDefault)); }
Mark::~Mark() { ZP_CUDA_LOG(cudaEventDestroy(event_)); }
void Mark::record(cudaStream_t stream) { ZP_CUDA(cudaEventRecord(event_, stream)); }
void Mark::wait() const { ZP_CUDA(cudaEventSynchronize(event_)); }
void Mark::hold(cudaStream_t stream) const { ZP_CUDA(cudaStreamWaitEvent(stream, event_, 0)); }
double Mark::seconds_since(const Mark& before) const {
  float milliseconds = 0.0F;
  ZP_CUDA(cudaEventElapsedTime(&milliseconds, before.event_, event_));
  return 1e-3 * static_cast<double>(milliseconds);
}

OwnStream::OwnStream() { ZP_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
OwnStream::~OwnStream() {
  ZP_CUDA_LOG(cudaStreamSynchronize(stream_));
  ZP_CUDA_LOG(cudaStreamDestroy(stream_));
}

Bench::Bench(const GpuScale& scale, const Nvml& nvml)
    : scale_(scale), nvml_(nvml), cover_bytes_(std::min(scale.cover, room() / 8)) {
  if (cover_bytes_ > 0) cover_.emplace(cover_bytes_);
}

std::int64_t Bench::room() const {
  std::size_t free = 0;
  std::size_t total = 0;
  ZP_CUDA(cudaMemGetInfo(&free, &total));
  return static_cast<std::int64_t>(scale_.free_share * static_cast<double>(free));
}

void Bench::cover() {
  if (!cover_) return;
  ZP_CUDA(cudaMemsetAsync(cover_->data(), 0, static_cast<std::size_t>(cover_bytes_), stream_));
}

std::vector<double> Bench::in_a_row(const Work& work, std::int64_t calls, int covers) {
  Mark begin;
  Mark end;
  const auto timed = [&] {
    std::this_thread::sleep_for(std::chrono::duration<double>(scale_.pause.seconds()));
    for (int i = 0; i < covers; ++i) cover();
    begin.record(stream_);
    for (std::int64_t i = 0; i < calls; ++i) work();
    end.record(stream_);
    end.wait();
    return end.seconds_since(begin) / static_cast<double>(calls);
  };
  return repeat_timed(timed, scale_.isolated);
}

std::vector<double> Bench::isolated(const Work& work) { return in_a_row(work, 1, 1); }

Bench::Loop Bench::sustained(const Work& work) {
  constexpr double kBatch = 0.02;  // seconds; long against an event, short against the loop
  constexpr std::int64_t kMostCalls = 1000;
  const double once = isolated(work).front();
  const auto calls = static_cast<std::int64_t>(
      std::clamp(std::ceil(kBatch / once), 1.0, static_cast<double>(kMostCalls)));
  Loop loop;
  loop.clock_before = nvml_.clock_megahertz();
  // Batch i lies between marks i and i + 1; two are in flight.
  std::array<Mark, 3> marks;
  marks[0].record(stream_);
  double sum = 0.0;
  constexpr std::size_t kFewest = 6;
  for (std::size_t i = 0; loop.seconds.size() < kFewest || sum < scale_.sustained.seconds(); ++i) {
    for (std::int64_t call = 0; call < calls; ++call) work();
    marks[(i + 1) % 3].record(stream_);
    if (i == 0) continue;
    marks[i % 3].wait();
    const double seconds = marks[i % 3].seconds_since(marks[(i - 1) % 3]);
    sum += seconds;
    loop.seconds.push_back(std::max(1e-9, seconds / static_cast<double>(calls)));
  }
  loop.clock_at_work = nvml_.clock_megahertz();  // the last batch still runs
  loop.watts_at_work = nvml_.power_watts();
  loop.celsius_at_work = nvml_.temperature_celsius();
  ZP_CUDA(cudaStreamSynchronize(stream_));
  const std::size_t half = loop.seconds.size() / 2;
  loop.seconds.erase(loop.seconds.begin(),
                     loop.seconds.begin() + static_cast<std::ptrdiff_t>(half));
  loop.discarded = static_cast<std::int64_t>(half);
  return loop;
}

std::optional<double> Bench::kernel_seconds(const Work& work) {
  if (!cupti_) return std::nullopt;
  const std::unique_ptr<DeviceRecorder> recorder = activity_recorder();
  if (recorder == nullptr) {
    cupti_ = false;
    findings.notes.emplace_back(built_with_cupti()
                                    ? "CUPTI refuses to record: kernels are timed by events alone"
                                    : "built without CUPTI: kernels are timed by events alone");
    return std::nullopt;
  }
  work();
  ZP_CUDA(cudaStreamSynchronize(stream_));
  constexpr std::size_t kCalls = 3;
  recorder->begin();
  for (std::size_t span = 0; span < kCalls; ++span) {
    cover();
    recorder->open(span);
    work();
    recorder->close();
  }
  ZP_CUDA(cudaStreamSynchronize(stream_));
  std::array<double, kCalls> sums{};
  for (const DeviceActivity& activity : recorder->finish()) {
    const bool kernel = activity.name != "copy" && activity.name != "set";
    if (kernel && activity.span < kCalls) {
      sums[activity.span] += (activity.end - activity.begin).seconds();
    }
  }
  std::sort(sums.begin(), sums.end());
  return sums[kCalls / 2] > 0.0 ? std::optional(sums[kCalls / 2]) : std::nullopt;
}

ProfileRow Bench::row(std::string what,
                      std::vector<std::pair<std::string, Json>> settings,
                      std::string unit,
                      std::vector<double> values,
                      std::int64_t discarded) const {
  ProfileRow row{std::move(what),
                 std::move(settings),
                 std::move(unit),
                 spread_of(std::move(values), discarded)};
  row.megahertz = nvml_.clock_megahertz().value_or(0.0);
  return row;
}

}  // namespace zeroplan::runtime::cuda
