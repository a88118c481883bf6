// The embedded runtime's kernels at the shapes of transformers: matrix products by dtype,
// attention, kernels bound by memory.
#include "runtime/kernels/kernels.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "model/graph/kernel_call.hpp"
#include "runtime/kernels/cpu_float.hpp"
#include "runtime/profile/cpu_cases.hpp"
#include "runtime/profile/kernel_cases.hpp"
#include "runtime/profile/machine_profile.hpp"

namespace zeroplan::runtime {
namespace {

// Memory for the operands of a call, filled with small numbers; tokens are spread over the table,
// or over the classes of a loss.
class CallMemory {
 public:
  CallMemory(const KernelCall& call, DType model) {
    for (const OperandUse& use : operand_uses(call)) {
      const DType dtype = dtype_of(use.type, model);
      auto& memory = memory_.emplace_back(static_cast<std::size_t>(use.elements * width(dtype)));
      fill(memory, dtype);
      if (dtype == DType::int64) put_ids(memory, call);
      operands_.push_back(
          {use.elements > 0 ? memory.data() : nullptr, Elements::of(use.elements), dtype});
    }
  }

  const std::vector<Operand>& operands() const { return operands_; }

 private:
  template <typename T>
  static void put(std::vector<std::byte>& memory) {
    T* const values = reinterpret_cast<T*>(memory.data());
    const std::size_t count = memory.size() / sizeof(T);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = from_float<T>(0.01F * static_cast<float>(static_cast<int>(i % 13) - 6) + 0.02F);
    }
  }
  static void put_ids(std::vector<std::byte>& memory, const KernelCall& call) {
    constexpr std::size_t kStep = 7919;  // a prime: neighbours are far apart
    const std::int64_t choices =
        call.inner > 0 ? call.inner : std::max<std::int64_t>(1, call.columns);
    auto* const ids = reinterpret_cast<std::int64_t*>(memory.data());
    for (std::size_t i = 0; i < memory.size() / sizeof(std::int64_t); ++i) {
      ids[i] = static_cast<std::int64_t>(i * kStep) % choices;
    }
  }
  static void fill(std::vector<std::byte>& memory, DType dtype) {
    if (dtype == DType::fp32) put<float>(memory);
    if (dtype == DType::bf16) put<Bf16>(memory);
    if (dtype == DType::fp16) put<Fp16>(memory);
  }

  std::vector<std::vector<std::byte>> memory_;
  std::vector<Operand> operands_;
};

class KernelMeasurer {
 public:
  explicit KernelMeasurer(const ProfileScale& scale)
      : scale_(scale),
        threads_(scale.threads.back()),
        kernels_(cpu_kernels(static_cast<int>(threads_))) {}

  // Alone, with a pause before each run.
  void isolated(const KernelCall& call, DType dtype, double flops, std::vector<Json> shape) {
    CallMemory memory(call, dtype);
    const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
    const auto work = [&] { kernels_->run(call, memory.operands()); };
    add(call,
        dtype,
        "isolated",
        std::move(shape),
        flops > 0.0 ? flops : traffic_bytes(call, dtype),
        flops > 0.0,
        repeat(work, scale_.repetition, pause));
  }

  // The last half of a loop without pauses.
  void sustained(const KernelCall& call, DType dtype, double flops, std::vector<Json> shape) {
    CallMemory memory(call, dtype);
    Repetition loop = scale_.repetition;
    loop.long_enough = scale_.sustained;
    loop.most = 1'000'000;
    loop.least *= 2;
    std::vector<double> seconds = repeat([&] { kernels_->run(call, memory.operands()); }, loop);
    const auto half = static_cast<std::ptrdiff_t>(seconds.size() / 2);
    seconds.erase(seconds.begin(), seconds.begin() + half);
    add(call, dtype, "sustained", std::move(shape), flops, true, seconds, half);
  }

  // One after the other: in training the threads of a rank are awake.
  void in_a_row(const CpuCase& cpu_case, Kernels& kernels, std::int64_t threads) {
    const KernelCall call = call_of(cpu_case);
    CallMemory memory(call, cpu_case.dtype);
    const auto work = [&] { kernels.run(call, memory.operands()); };
    rows.push_back(row_of(
        cpu_case, threads, spread_of(repeat(work, scale_.repetition), scale_.repetition.discard)));
  }

  // What a thread does, and what more of them add.
  void in_a_row() {
    const std::unique_ptr<Kernels> alone = cpu_kernels(1);
    for (const CpuCase& cpu_case : cpu_cases(scale_)) in_a_row(cpu_case, *alone, 1);
    if (threads_ == 1) return;
    for (const CpuCase& cpu_case : threaded_cases(scale_)) in_a_row(cpu_case, *kernels_, threads_);
  }

  std::vector<ProfileRow> rows;

 private:
  void add(const KernelCall& call,
           DType dtype,
           const char* mode,
           std::vector<Json> shape,
           double amount,
           bool flops,
           std::vector<double> seconds,
           std::int64_t also_discarded = 0) {
    rows.push_back(
        {std::string(name(call.kernel)),
         {{"dtype", Json(text_of(dtype))},
          {"shape", Json::array(std::move(shape))},
          {"threads", Json(threads_)},
          {"mode", Json(mode)}},
         flops ? "flop/s" : "bytes/s",
         spread_of(rates(amount, std::move(seconds)), scale_.repetition.discard + also_discarded)});
  }

  const ProfileScale& scale_;
  std::int64_t threads_;
  std::unique_ptr<Kernels> kernels_;
};

void products(const ProfileScale& scale, KernelMeasurer& measurer) {
  for (const std::int64_t hidden : scale.hidden) {
    for (const std::int64_t out : {hidden, 4 * hidden}) {
      const double flops = product_flops(scale.tokens, out, hidden);
      const std::vector<Json> shape = {Json(scale.tokens), Json(out), Json(hidden)};
      for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
        measurer.isolated(
            linear_call(Kernel::linear_forward, scale.tokens, out, hidden), dtype, flops, shape);
      }
      for (const Kernel kernel : {Kernel::linear_backward_input, Kernel::linear_backward_weight}) {
        measurer.isolated(
            linear_call(kernel, scale.tokens, out, hidden), DType::fp32, flops, shape);
      }
      measurer.sustained(linear_call(Kernel::linear_forward, scale.tokens, out, hidden),
                         DType::fp32,
                         flops,
                         shape);
    }
  }
}

void attention(const ProfileScale& scale, KernelMeasurer& measurer) {
  constexpr std::int64_t kHeads = 4;
  constexpr std::int64_t kDim = 64;
  for (const Kernel kernel : {Kernel::attention_forward, Kernel::attention_backward}) {
    const KernelCall call = attention_call(kernel, 1, scale.tokens, kHeads, kDim);
    measurer.isolated(call,
                      DType::fp32,
                      attention_flops(call),
                      {Json(1), Json(scale.tokens), Json(kHeads), Json(kDim)});
  }
}

void memory_bound(const ProfileScale& scale, KernelMeasurer& measurer) {
  const std::int64_t hidden = scale.hidden.back();
  const std::int64_t rows = 4 * scale.tokens;
  for (const Kernel kernel : {Kernel::add,
                              Kernel::rms_norm_forward,
                              Kernel::layer_norm_forward,
                              Kernel::swiglu_forward,
                              Kernel::gelu_forward}) {
    measurer.isolated(
        rowwise_call(kernel, rows, hidden), DType::fp32, 0.0, {Json(rows), Json(hidden)});
  }
}

}  // namespace

std::vector<ProfileRow> measure_kernels(const ProfileScale& scale) {
  KernelMeasurer measurer(scale);
  products(scale, measurer);
  attention(scale, measurer);
  memory_bound(scale, measurer);
  measurer.in_a_row();
  return std::move(measurer.rows);
}

}  // namespace zeroplan::runtime
