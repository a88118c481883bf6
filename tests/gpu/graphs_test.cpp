// Kernel calls by CUDA graphs: what is held until when, what is replayed, and that nothing of a
// training changes by it. On this machine's GPU and on the emulated one, as gpu_test.cpp.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/diagnostic.hpp"
#include "runtime/cuda/cuda_check.hpp"
#include "runtime/cuda/graphed_kernels.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/environment.hpp"
#include "tests/gpu/gpu_training.hpp"
#include "tests/gpu/no_gpu.hpp"

namespace zeroplan::runtime {
namespace {

using cuda::CudaDevice;
using cuda::GraphedKernels;
using test::Environment;
using test::no_gpu;
using test::plan_of;
using test::Point;
using test::train_on;

// --- trainings

TrainingReport train_with(const char* graphs, const Point& point, int steps) {
  const Environment said(cuda::kGraphsVariable.data(), graphs);
  return train_on(plan_of(point), {.steps = steps});
}
TrainingReport train_graphed(const Point& point, int steps) {
  return train_with("on", point, steps);
}

// To the bit; graphs that were launched, of all ranks.
std::int64_t replays_of(const Point& point, int steps = 4) {
  CAPTURE(point.stage, point.ranks, point.accumulation, point.precision, point.offload);
  const TrainingReport plain = train_with("off", point, steps);
  const TrainingReport graphed = train_graphed(point, steps);
  CHECK(graphed.losses == plain.losses);
  CHECK(graphed.gradient_norms == plain.gradient_norms);
  std::int64_t replays = 0;
  for (std::size_t r = 0; r < plain.ranks.size(); ++r) {
    const GraphUse& use = graphed.ranks[r].use.graphs;
    CHECK_FALSE(plain.ranks[r].use.graphs.on);
    CHECK(use.on);
    CHECK(use.refused == 0);
    CHECK(use.replays > 0);
    CHECK(use.replayed_calls >= 3 * use.replays);
    CHECK(graphed.ranks[r].memory.of(Place::device).at_peak ==
          plain.ranks[r].memory.of(Place::device).at_peak);
    replays += use.replays;
  }
  return replays;
}

TEST_CASE("losses are the same to the bit with CUDA graphs, stage by stage") {
  if (no_gpu()) return;
  for (const int stage : {0, 1, 2, 3}) {
    replays_of({.stage = stage});
    replays_of({.stage = stage, .ranks = 2});
  }
}

TEST_CASE("losses are the same to the bit with CUDA graphs where micro-batches are accumulated") {
  if (no_gpu()) return;
  for (const int stage : {0, 1, 2, 3}) {
    replays_of({.stage = stage, .ranks = 2, .accumulation = 2, .overlap = stage % 2 == 0}, 3);
  }
}

TEST_CASE("losses are the same to the bit with CUDA graphs in 16 bits") {
  if (no_gpu()) return;
  replays_of({.stage = 0, .ranks = 2, .precision = "bf16"});
  replays_of({.stage = 1, .precision = "bf16", .fused_loss = true}, 3);
  replays_of({.stage = 3, .ranks = 2, .precision = "bf16"});
  replays_of({.stage = 2, .precision = "fp16"});  // whose loss has a scale of its own
}

TEST_CASE("losses are the same to the bit with CUDA graphs where states are elsewhere") {
  if (no_gpu()) return;
  for (const int stage : {1, 2, 3}) replays_of({.stage = stage, .ranks = 2, .offload = true});
  replays_of({.stage = 3, .precision = "bf16", .offload = true, .on_drive = true}, 3);
}

TEST_CASE("steps that repeat are replayed, and capture nothing more") {
  if (no_gpu()) return;
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    const Point point{.stage = stage, .accumulation = 4};
    std::array<GraphUse, 3> after;
    for (std::size_t i = 0; i < 3; ++i) {
      after[i] = train_graphed(point, 3 + static_cast<int>(i)).ranks.front().use.graphs;
    }
    for (std::size_t i = 1; i < 3; ++i) {
      const GraphUse& use = after[i];
      const GraphUse& before = after[i - 1];
      CAPTURE(use.calls, use.replayed_calls, use.replays, use.captured);
      CAPTURE(before.calls, before.replayed_calls, before.replays, before.captured);
      CHECK(use.captured == before.captured);
      // The others go between copies of gradients, in twos.
      CHECK(2 * (use.replayed_calls - before.replayed_calls) >= use.calls - before.calls);
    }
  }
}

TEST_CASE("from the third micro-step on there are replays") {
  if (no_gpu()) return;
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    const auto first_step = [&](int accumulation) {
      return train_graphed({.stage = stage, .accumulation = accumulation}, 1).ranks.front().use;
    };
    CHECK(first_step(1).graphs.replays == 0);
    CHECK(first_step(4).graphs.replays > 0);
    CHECK(train_graphed({.stage = stage}, 3).ranks.front().use.graphs.replays > 0);
  }
  // Without a bucket to copy to, all of a step.
  const Point whole{.stage = 0};
  const GraphUse three = train_graphed(whole, 3).ranks.front().use.graphs;
  const GraphUse four = train_graphed(whole, 4).ranks.front().use.graphs;
  CHECK(four.replayed_calls - three.replayed_calls == four.calls - three.calls);
}

TEST_CASE("a rank that is traced launches its kernels one by one", "[cupti]") {
  if (no_gpu()) return;
  const Environment on(cuda::kGraphsVariable.data(), "on");
  const TrainingReport report =
      train_on(plan_of({.stage = 1, .ranks = 2}), {.trace = true, .steps = 4});
  CHECK_FALSE(report.ranks.front().use.graphs.on);
  CHECK(report.ranks.back().use.graphs.replays > 0);
}

TEST_CASE("the environment says whether there are CUDA graphs") {
  {
    const Environment nothing(cuda::kGraphsVariable.data(), "");
    CHECK_FALSE(cuda::graphs_asked());
  }
  {
    const Environment on(cuda::kGraphsVariable.data(), "on");
    CHECK(cuda::graphs_asked());
  }
  {
    const Environment off(cuda::kGraphsVariable.data(), "off");
    CHECK_FALSE(cuda::graphs_asked());
  }
  const Environment other(cuda::kGraphsVariable.data(), "yes");
  CHECK_THROWS_WITH(cuda::graphs_asked(), Catch::Contains("expected on or off, got yes"));
}

// --- calls that set bytes

// rows: the byte. tanh_forward waits for the stream, which no capture allows; gelu_forward fails.
class Setter : public Kernels {
 public:
  Setter(CudaDevice& device, int& runs) : device_(device), runs_(runs) {}
  void run(const KernelCall& call, std::span<const Operand> operands) override {
    ++runs_;
    cudaStream_t stream = device_.stream(Queue::compute);
    if (call.kernel == Kernel::gelu_forward) throw DeviceError("gelu_forward: made to fail");
    if (call.kernel == Kernel::tanh_forward) ZP_CUDA(cudaStreamSynchronize(stream));
    const Operand& to = operands.front();
    const auto bytes = static_cast<std::size_t>((to.elements * to.dtype).count());
    ZP_CUDA(cudaMemsetAsync(to.data, static_cast<int>(call.rows), bytes, stream));
  }

 private:
  CudaDevice& device_;
  int& runs_;
};

constexpr std::size_t kSlots = 8;
constexpr Bytes kSlot = Bytes::of(512);

struct Bench {
  explicit Bench(std::size_t most_segments = GraphedKernels::kMostSegments)
      : kernels(device, std::make_unique<Setter>(device, runs), most_segments),
        data(device.allocate(kSlot * static_cast<std::int64_t>(kSlots))) {}
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() { device.release(data, kSlot * static_cast<std::int64_t>(kSlots)); }

  void call(std::size_t slot, int value, Kernel kernel = Kernel::add) {
    KernelCall call;
    call.kernel = kernel;
    call.rows = value;
    const Operand to{data + slot * 512, Elements::of(512), DType::uint8};
    kernels.run(call, std::span(&to, 1));
  }
  // Slots 0, 1, ... get value, value + 1, ...
  void segment(int value, std::size_t calls = 3, Kernel last = Kernel::add) {
    for (std::size_t i = 0; i + 1 < calls; ++i) call(i, value + static_cast<int>(i));
    call(calls - 1, value + static_cast<int>(calls) - 1, last);
  }
  bool has(int value, std::size_t calls = 3) {
    for (std::size_t i = 0; i < calls; ++i) {
      std::array<unsigned char, 512> bytes{};
      device.download(bytes.data(), data + i * 512, kSlot);
      const auto expected = static_cast<unsigned char>(value + static_cast<int>(i));
      if (!std::all_of(bytes.begin(), bytes.end(), [&](auto b) { return b == expected; })) {
        return false;
      }
    }
    return true;
  }
  void wipe() { device.zero(data, kSlot * static_cast<std::int64_t>(kSlots)); }
  GraphUse use() { return device.measured_use().graphs; }

  int runs = 0;
  CudaDevice device{0, 1};
  GraphedKernels kernels;
  std::byte* data;
};

TEST_CASE("a segment is launched, then captured, then replayed without its kernels' host code") {
  if (no_gpu()) return;
  Bench bench;
  for (int time = 1; time <= 4; ++time) {
    bench.wipe();
    bench.segment(7);
    CHECK(bench.has(7));
    CHECK(bench.runs == (time == 1 ? 3 : 6));
    CHECK(bench.use().replays == time - 1);
    CHECK(bench.use().captured == (time == 1 ? 0 : 1));
  }
  CHECK(bench.use().calls == 12);
  CHECK(bench.use().replayed_calls == 9);
}

TEST_CASE("a segment that differs in anything is another one") {
  if (no_gpu()) return;
  Bench bench;
  for (const int value : {1, 2, 1, 2, 1, 2}) {  // another number
    bench.segment(value);
    CHECK(bench.has(value));
  }
  CHECK(bench.use().captured == 2);
  CHECK(bench.use().replays == 4);
  const int runs = bench.runs;
  bench.call(1, 1);  // other addresses
  bench.call(0, 2);
  bench.call(2, 3);
  CHECK(bench.has(2, 1));
  CHECK(bench.runs == runs + 3);
  bench.segment(1, 4);  // one call more
  CHECK(bench.has(1, 4));
  CHECK(bench.runs == runs + 7);
}

TEST_CASE("every number of a call and of its operands is part of what a segment is known by") {
  if (no_gpu()) return;
  using Change = std::function<void(KernelCall&, Operand&)>;
  const std::vector<Change> changes{
      [](KernelCall& call, Operand&) { call.kernel = Kernel::swiglu_forward; },
      [](KernelCall& call, Operand&) { call.batch = 2; },
      [](KernelCall& call, Operand&) { call.sequence = 2; },
      [](KernelCall& call, Operand&) { call.rows = 2; },
      [](KernelCall& call, Operand&) { call.columns = 2; },
      [](KernelCall& call, Operand&) { call.inner = 2; },
      [](KernelCall& call, Operand&) { call.heads = 2; },
      [](KernelCall& call, Operand&) { call.kv_heads = 2; },
      [](KernelCall& call, Operand&) { call.head_dim = 2; },
      [](KernelCall& call, Operand&) { call.layout.row_stride = 2; },
      [](KernelCall& call, Operand&) { call.layout.head_stride = 2; },
      [](KernelCall& call, Operand&) { call.layout.offset[2] = 2; },
      [](KernelCall& call, Operand&) { call.chunk.first = 2; },
      [](KernelCall& call, Operand&) { call.chunk.all = 2; },
      [](KernelCall& call, Operand&) { call.epsilon = 2.0; },
      [](KernelCall& call, Operand&) { call.rotary_base = 2.0; },
      [](KernelCall& call, Operand&) { call.scale = 2.0; },
      [](KernelCall& call, Operand&) { call.causal = true; },
      [](KernelCall& call, Operand&) { call.alibi = true; },
      [](KernelCall& call, Operand&) { call.exact_gelu = true; },
      [](KernelCall& call, Operand&) { call.transposed = true; },
      [](KernelCall& call, Operand&) { call.accumulate = true; },
      [](KernelCall&, Operand& operand) { operand.data += 512; },
      [](KernelCall&, Operand& operand) { operand.elements = Elements::of(128); },
      [](KernelCall&, Operand& operand) { operand.dtype = DType::int8; }};
  Bench bench;
  const auto run = [&](const Change& change) {
    for (int i = 0; i < 3; ++i) {
      KernelCall call;
      call.kernel = Kernel::add;
      call.rows = 1;
      Operand to{bench.data, Elements::of(512), DType::uint8};
      if (i == 1) change(call, to);
      bench.kernels.run(call, std::span(&to, 1));
    }
    bench.device.synchronize();
    return std::exchange(bench.runs, 0);
  };
  const auto nothing = [](KernelCall&, Operand&) {};
  run(nothing);
  run(nothing);
  CHECK(run(nothing) == 0);
  for (std::size_t i = 0; i < changes.size(); ++i) {
    CAPTURE(i);
    CHECK(run(changes[i]) == 3);  // seen for the first time
    CHECK(run(nothing) == 0);
  }
}

TEST_CASE("few calls are launched at once, many go in several segments") {
  if (no_gpu()) return;
  Bench bench;
  for (int time = 0; time < 4; ++time) {
    bench.segment(1, 2);
    CHECK(bench.has(1, 2));
  }
  CHECK(bench.use().replays == 0);
  CHECK(bench.runs == 8);
  for (int time = 0; time < 3; ++time) {
    for (std::size_t i = 0; i < GraphedKernels::kMostCalls + 3; ++i) bench.call(i % kSlots, 9);
    CHECK(bench.runs >= 8 + static_cast<int>(GraphedKernels::kMostCalls));  // not held for ever
    bench.device.synchronize();
  }
  CHECK(bench.use().captured == 2);
  CHECK(bench.use().replays == 4);
}

TEST_CASE("what CUDA does not capture is launched call by call, and the rest is captured") {
  if (no_gpu()) return;
  Bench bench;
  for (int time = 1; time <= 4; ++time) {
    bench.wipe();
    bench.segment(5, 3, Kernel::tanh_forward);
    CHECK(bench.has(5));
    CHECK(bench.use().refused == (time == 1 ? 0 : 1));
  }
  CHECK(bench.runs == 3 * 4 + 3);  // each time, and once in vain
  CHECK(bench.use().replays == 0);
  for (int time = 0; time < 3; ++time) {
    bench.segment(6);
    bench.device.synchronize();
  }
  CHECK(bench.use().replays == 2);
}

TEST_CASE("no more segments are known than may be, the one that was not used for longest goes") {
  if (no_gpu()) return;
  Bench bench(2);
  const auto once = [&](int value) {
    bench.segment(value);
    CHECK(bench.has(value));
  };
  for (int time = 0; time < 3; ++time) {
    for (const int value : {1, 2, 3}) once(value);  // each is forgotten before it comes again
  }
  CHECK(bench.use().captured == 0);
  for (int time = 0; time < 3; ++time) {
    for (const int value : {1, 2}) once(value);
  }
  CHECK(bench.use().captured == 2);
  CHECK(bench.use().graphs == 2);
  once(3);  // instead of 1
  CHECK(bench.use().graphs == 1);
  const std::int64_t replays = bench.use().replays;
  once(2);
  CHECK(bench.use().replays == replays + 1);
  once(1);
  CHECK(bench.use().replays == replays + 1);
}

TEST_CASE("whatever comes behind calls that are held lets them go first") {
  if (no_gpu()) return;
  Bench bench;
  CudaDevice& device = bench.device;
  std::byte* const at = bench.data;
  const std::byte* const from = at + 512;
  std::byte* const pinned = device.allocate_pinned(kSlot);
  std::array<float, 4> host{};
  const Elements four = Elements::of(4);
  const std::vector<std::pair<const char*, std::function<void()>>> all{
      {"zero", [&] { device.zero(at, kSlot); }},
      {"copy", [&] { device.convert(from, DType::fp32, at, DType::fp32, four); }},
      {"convert", [&] { device.convert(from, DType::fp32, at, DType::bf16, four); }},
      {"add_to", [&] { device.add_to(at, DType::fp32, from, DType::fp32, four); }},
      {"adamw",
       [&] {
         device.adamw({at, at + 32, at + 64, at + 96, four}, {}, 1, 1.0);
       }},
      {"squares", [&] { device.add_squares_of(at, DType::fp32, four, Scalar::squares); }},
      {"overflow", [&] { device.find_overflow(at, DType::fp32, four); }},
      {"upload", [&] { device.upload(at, host.data(), Bytes::of(16)); }},
      {"download", [&] { device.download(host.data(), at, Bytes::of(16)); }},
      {"take", [&] { static_cast<void>(device.take(Scalar::squares)); }},
      {"synchronize", [&] { device.synchronize(); }},
      {"record", [&] { static_cast<void>(device.record(Queue::compute)); }},
      {"wait", [&] { device.wait(Queue::compute, device.record(Queue::copy)); }},
      {"a queue behind", [&] { const OnQueue on(device, Queue::reduce); }},
      {"pinned memory that goes", [&] { device.release_pinned(pinned, kSlot); }}};
  for (const auto& [name, work] : all) {
    CAPTURE(name);
    bench.runs = 0;
    bench.segment(3, 2);
    CHECK(bench.runs == 0);
    work();
    CHECK(bench.runs == 2);
  }
  bench.runs = 0;
  bench.segment(3, 2);
  std::byte* other = device.allocate(Bytes::kib(4));
  device.release(other, Bytes::kib(4));
  static_cast<void>(device.record(Queue::copy));
  CHECK(bench.runs == 0);  // the host's bookkeeping, and queues that were never behind them
}

TEST_CASE("a call that fails is heard of from what comes next") {
  if (no_gpu()) return;
  Bench bench;
  bench.segment(1, 3, Kernel::gelu_forward);
  CHECK_THROWS_WITH(bench.device.synchronize(), Catch::Contains("gelu_forward: made to fail"));
  bench.segment(2);
  CHECK(bench.has(2));  // and of that once
  // Where nothing may be thrown it is kept.
  std::byte* const pinned = bench.device.allocate_pinned(kSlot);
  bench.segment(1, 3, Kernel::gelu_forward);
  bench.device.release_pinned(pinned, kSlot);
  CHECK_THROWS_WITH(bench.device.synchronize(), Catch::Contains("gelu_forward: made to fail"));
}

TEST_CASE("a graph that cannot be launched says which kernels are in it") {
  if (no_gpu() || cuda::find_gpus().found.front().name != "emulated") return;
  Bench bench;
  for (int time = 0; time < 2; ++time) {
    bench.segment(1, 4, Kernel::linear_forward);
    bench.device.synchronize();
  }
  const Environment broken("ZEROPLAN_EMULATED_BROKEN_GRAPHS", "1");
  bench.segment(1, 4, Kernel::linear_forward);
  CHECK_THROWS_WITH(bench.device.synchronize(),
                    Catch::Contains("cudaGraphLaunch of 4 kernel calls, add to linear_forward: "));
}

// --- what a capture may see

TEST_CASE("what CUDA does not allow in a capture breaks it") {
  if (no_gpu()) return;
  CudaDevice device(0, 1);
  cudaStream_t stream = device.stream(Queue::compute);
  cudaStream_t other = device.stream(Queue::reduce);
  cudaGraph_t graph = nullptr;
  const auto begin = [&](cudaStreamCaptureMode mode) {
    REQUIRE(cudaStreamBeginCapture(stream, mode) == cudaSuccess);
  };
  const auto end = [&] {
    const cudaError_t status = cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    (void)cudaGetLastError();
    return status;
  };
  void* memory = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorIllegalState);
  begin(cudaStreamCaptureModeRelaxed);
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaErrorIllegalState);
  CHECK(cudaMalloc(&memory, 512) == cudaSuccess);
  CHECK(end() == cudaSuccess);
  begin(cudaStreamCaptureModeThreadLocal);
  void* more = nullptr;
  CHECK(cudaMalloc(&more, 512) == cudaErrorStreamCaptureUnsupported);
  CHECK(end() == cudaErrorStreamCaptureInvalidated);
  begin(cudaStreamCaptureModeRelaxed);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaMemsetAsync(memory, 0, 512, stream) == cudaErrorStreamCaptureInvalidated);
  CHECK(end() == cudaErrorStreamCaptureInvalidated);
  const Fence fence = device.record_on(other);
  begin(cudaStreamCaptureModeRelaxed);
  CHECK(cudaStreamWaitEvent(stream, cuda::event_of(fence), 0) == cudaErrorStreamCaptureIsolation);
  CHECK(end() == cudaErrorStreamCaptureInvalidated);
  begin(cudaStreamCaptureModeRelaxed);
  CHECK(cudaEventRecord(cuda::event_of(fence), stream) == cudaSuccess);
  CHECK(cudaEventQuery(cuda::event_of(fence)) == cudaErrorCapturedEvent);
  // CUDA 13 on an H200: asking for it has ended the capture.
  CHECK(cudaMemsetAsync(memory, 0, 512, stream) == cudaErrorStreamCaptureInvalidated);
  CHECK(end() == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaFree(memory) == cudaSuccess);
}

}  // namespace
}  // namespace zeroplan::runtime
