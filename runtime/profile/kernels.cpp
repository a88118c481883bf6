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
#include "runtime/profile/machine_profile.hpp"

namespace zeroplan::runtime {
namespace {

// Memory for the operands of a call, filled with small numbers; token ids are 0.
class CallMemory {
 public:
  CallMemory(const KernelCall& call, DType model) {
    for (const OperandUse& use : operand_uses(call)) {
      const DType dtype = use.type == OperandUse::Type::model  ? model
                          : use.type == OperandUse::Type::fp32 ? DType::fp32
                                                               : DType::int64;
      auto& memory = memory_.emplace_back(static_cast<std::size_t>(use.elements * width(dtype)));
      fill(memory, dtype);
      bytes_ += static_cast<double>(memory.size()) * (use.access == Access::update ? 2.0 : 1.0);
      operands_.push_back(
          {use.elements > 0 ? memory.data() : nullptr, Elements::of(use.elements), dtype});
    }
  }

  const std::vector<Operand>& operands() const { return operands_; }
  double bytes() const { return bytes_; }  // read and written

 private:
  template <typename T>
  static void put(std::vector<std::byte>& memory) {
    T* const values = reinterpret_cast<T*>(memory.data());
    const std::size_t count = memory.size() / sizeof(T);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = from_float<T>(0.01F * static_cast<float>(static_cast<int>(i % 13) - 6) + 0.02F);
    }
  }
  static void fill(std::vector<std::byte>& memory, DType dtype) {
    if (dtype == DType::fp32) put<float>(memory);
    if (dtype == DType::bf16) put<Bf16>(memory);
    if (dtype == DType::fp16) put<Fp16>(memory);
  }

  std::vector<std::vector<std::byte>> memory_;
  std::vector<Operand> operands_;
  double bytes_ = 0.0;
};

std::string_view text_of(DType dtype) {
  return dtype == DType::fp32 ? "fp32" : dtype == DType::bf16 ? "bf16" : "fp16";
}

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
        flops > 0.0 ? flops : memory.bytes(),
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

KernelCall linear(Kernel kernel, std::int64_t tokens, std::int64_t out, std::int64_t in) {
  KernelCall call;
  call.kernel = kernel;
  const std::size_t operands = kernel == Kernel::linear_forward ? 4 : 3;
  call.operands.resize(operands);
  for (std::size_t i = 0; i < std::min<std::size_t>(operands, 3); ++i) {
    call.operands[i].from = KernelOperand::From::storage;
  }
  call.rows = tokens;
  call.columns = out;
  call.inner = in;
  return call;
}

KernelCall rowwise(Kernel kernel, std::size_t operands, std::int64_t rows, std::int64_t columns) {
  KernelCall call;
  call.kernel = kernel;
  call.operands.resize(operands, {KernelOperand::From::storage, 0});
  call.rows = rows;
  call.columns = columns;
  call.epsilon = 1e-5;
  return call;
}

void products(const ProfileScale& scale, KernelMeasurer& measurer) {
  for (const std::int64_t hidden : scale.hidden) {
    for (const std::int64_t out : {hidden, 4 * hidden}) {
      const double flops = 2.0 * static_cast<double>(scale.tokens) * static_cast<double>(out) *
                           static_cast<double>(hidden);
      const std::vector<Json> shape = {Json(scale.tokens), Json(out), Json(hidden)};
      for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
        measurer.isolated(
            linear(Kernel::linear_forward, scale.tokens, out, hidden), dtype, flops, shape);
      }
      for (const Kernel kernel : {Kernel::linear_backward_input, Kernel::linear_backward_weight}) {
        measurer.isolated(linear(kernel, scale.tokens, out, hidden), DType::fp32, flops, shape);
      }
      measurer.sustained(
          linear(Kernel::linear_forward, scale.tokens, out, hidden), DType::fp32, flops, shape);
    }
  }
}

// 4 S^2 D products a head forward, halved by causality; 2.5 times that backward.
void attention(const ProfileScale& scale, KernelMeasurer& measurer) {
  constexpr std::int64_t kHeads = 4;
  constexpr std::int64_t kDim = 64;
  for (const Kernel kernel : {Kernel::attention_forward, Kernel::attention_backward}) {
    const bool forward = kernel == Kernel::attention_forward;
    KernelCall call = rowwise(kernel, forward ? 5 : 10, scale.tokens, 0);
    call.batch = 1;
    call.sequence = scale.tokens;
    call.heads = call.kv_heads = kHeads;
    call.head_dim = kDim;
    call.scale = 1.0 / std::sqrt(static_cast<double>(kDim));
    call.causal = true;
    const double s = static_cast<double>(scale.tokens);
    const double flops = 2.0 * static_cast<double>(kHeads * kDim) * s * s * (forward ? 1.0 : 2.5);
    measurer.isolated(
        call, DType::fp32, flops, {Json(1), Json(scale.tokens), Json(kHeads), Json(kDim)});
  }
}

void memory_bound(const ProfileScale& scale, KernelMeasurer& measurer) {
  const std::int64_t hidden = scale.hidden.back();
  const std::int64_t rows = 4 * scale.tokens;
  const auto measure = [&](Kernel kernel, std::size_t operands) {
    measurer.isolated(
        rowwise(kernel, operands, rows, hidden), DType::fp32, 0.0, {Json(rows), Json(hidden)});
  };
  measure(Kernel::add, 3);
  measure(Kernel::rms_norm_forward, 4);
  measure(Kernel::layer_norm_forward, 6);
  measure(Kernel::swiglu_forward, 3);
  measure(Kernel::gelu_forward, 2);
}

}  // namespace

std::vector<ProfileRow> measure_kernels(const ProfileScale& scale) {
  KernelMeasurer measurer(scale);
  products(scale, measurer);
  attention(scale, measurer);
  memory_bound(scale, measurer);
  return std::move(measurer.rows);
}

}  // namespace zeroplan::runtime
