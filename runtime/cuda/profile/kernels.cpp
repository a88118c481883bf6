// Kernels of the runtime at the shapes of transformers. Operands are noise: a GPU that multiplies
// zeros draws less power and is faster than in training.
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/cuda/cuda_check.hpp"
#include "runtime/cuda/kernels/cuda_kernels.hpp"
#include "runtime/cuda/profile/bench.hpp"

namespace zeroplan::runtime::cuda {
namespace {

// Between -0.5 and 0.5, the same every time.
class Noise {
 public:
  explicit Noise(cudaStream_t stream, std::int64_t most)
      : stream_(stream), elements_(std::min<std::int64_t>(most, 1 << 20)), memory_(4 * elements_) {
    std::vector<float> values(static_cast<std::size_t>(elements_));
    std::uint64_t state = 0x9E3779B97F4A7C15U;
    for (float& value : values) {
      state = state * 6364136223846793005U + 1442695040888963407U;  // Knuth's MMIX
      value = static_cast<float>(state >> 40) / static_cast<float>(1 << 24) - 0.5F;
    }
    ZP_CUDA(cudaMemcpyAsync(memory_.data(),
                            values.data(),
                            values.size() * sizeof(float),
                            cudaMemcpyHostToDevice,
                            stream));
    ZP_CUDA(cudaStreamSynchronize(stream));
  }
  void fill(std::byte* to, DType dtype, std::int64_t elements) const {
    constexpr double kFactor = 0.1;
    for (std::int64_t i = 0; i < elements; i += elements_) {
      const Elements count = Elements::of(std::min(elements_, elements - i));
      convert(stream_, memory_.data(), DType::fp32, to + i * width(dtype), dtype, count, kFactor);
    }
  }

 private:
  cudaStream_t stream_;
  std::int64_t elements_;
  DeviceMemory memory_;
};

// A call's operands, one after the other in one allocation.
class Operands {
 public:
  Operands(const KernelCall& call, DType model, const Noise& noise, cudaStream_t stream)
      : memory_(bytes_of(call, model)) {
    std::byte* at = memory_.data();
    for (const OperandUse& use : operand_uses(call)) {
      const DType dtype = dtype_of(use.type, model);
      const std::int64_t bytes = use.elements * width(dtype);
      operands_.push_back({bytes > 0 ? at : nullptr, Elements::of(use.elements), dtype});
      if (bytes == 0) continue;
      if (dtype == DType::int64) {
        ZP_CUDA(cudaMemsetAsync(at, 0, static_cast<std::size_t>(bytes), stream));
      } else {
        noise.fill(at, dtype, use.elements);
      }
      at += rounded(bytes);
    }
  }
  const std::vector<Operand>& all() const { return operands_; }

  static std::int64_t bytes_of(const KernelCall& call, DType model) {
    std::int64_t bytes = 0;
    for (const OperandUse& use : operand_uses(call)) {
      bytes += rounded(use.elements * width(dtype_of(use.type, model)));
    }
    return bytes;
  }

 private:
  static std::int64_t rounded(std::int64_t bytes) {
    return ceil_div(bytes, std::int64_t{512}) * 512;
  }
  DeviceMemory memory_;
  std::vector<Operand> operands_;
};

class KernelBench {
 public:
  explicit KernelBench(Bench& bench)
      : bench_(bench),
        noise_(bench.stream(), bench.room() / 64),
        kernels_(cuda_kernels(bench.stream())),
        tf32_(cuda_kernels(bench.stream(), {.tf32 = true})) {}

  void measure(const std::vector<GpuCase>& cases) {
    for (const GpuCase& each : cases) {
      const std::int64_t bytes = Operands::bytes_of(each.call, each.dtype);
      if (bytes > bench_.room()) {
        ++left_out_;
        largest_ = std::max(largest_, bytes);
        continue;
      }
      measure(each);
    }
    if (left_out_ > 0) {
      bench_.findings.notes.push_back(
          fmt::format("{} calls were left out: operands of up to {:.1f} GB, and {:.1f} GB may be "
                      "taken of what is free",
                      left_out_,
                      static_cast<double>(largest_) / 1e9,
                      static_cast<double>(bench_.room()) / 1e9));
    }
  }

  // Flat memory: `bytes` read and written by work.
  void streaming(const char* what,
                 std::vector<std::pair<std::string, Json>> settings,
                 double bytes,
                 const Bench::Work& work) {
    settings.emplace_back("traffic_bytes", static_cast<std::int64_t>(bytes));
    settings.emplace_back("mode", Json("isolated"));
    add(what,
        std::move(settings),
        "bytes/s",
        bytes,
        bench_.isolated(work),
        bench_.kernel_seconds(work));
  }

 private:
  void measure(const GpuCase& each) {
    const Operands operands(each.call, each.dtype, noise_, bench_.stream());
    Kernels& kernels = each.tf32 ? *tf32_ : *kernels_;
    const auto work = [&] { kernels.run(each.call, operands.all()); };
    const double traffic = traffic_bytes(each.call, each.dtype);
    std::vector<Json> shape;
    for (const std::int64_t size : each.shape) shape.emplace_back(size);
    std::vector<std::pair<std::string, Json>> settings = {
        {"dtype", Json(each.tf32 ? std::string_view("tf32") : text_of(each.dtype))},
        {"shape", Json::array(std::move(shape))},
        {"mode", Json(each.sustained ? "sustained" : "isolated")}};
    if (each.flops == 0.0) {
      settings.emplace_back("traffic_bytes", static_cast<std::int64_t>(traffic));
    }
    const std::string what = "gpu_" + std::string(name(each.call.kernel));
    const double amount = each.flops > 0.0 ? each.flops : traffic;
    const char* const unit = each.flops > 0.0 ? "flop/s" : "bytes/s";
    if (each.sustained) {
      settings.emplace_back("loop_seconds", bench_.scale().sustained.seconds());
      add_loop(what, std::move(settings), amount, bench_.sustained(work));
    } else {
      add(what,
          std::move(settings),
          unit,
          amount,
          bench_.isolated(work),
          bench_.kernel_seconds(work));
    }
  }

  void add(const std::string& what,
           std::vector<std::pair<std::string, Json>> settings,
           const char* unit,
           double amount,
           std::vector<double> seconds,
           std::optional<double> kernel_seconds) {
    const double median = spread_of(seconds, 0).median;
    ProfileRow row = bench_.row(what,
                                std::move(settings),
                                unit,
                                rates(amount, std::move(seconds)),
                                bench_.scale().isolated.discard);
    row.beside.emplace_back("event_seconds", median);
    if (kernel_seconds) row.beside.emplace_back("cupti_seconds", *kernel_seconds);
    bench_.findings.rows.push_back(std::move(row));
  }

  void add_loop(const std::string& what,
                std::vector<std::pair<std::string, Json>> settings,
                double amount,
                Bench::Loop loop) {
    ProfileRow row = bench_.row(what,
                                std::move(settings),
                                "flop/s",
                                rates(amount, std::move(loop.seconds)),
                                loop.discarded);
    row.megahertz = loop.clock_at_work.value_or(0.0);
    const auto put = [&](const char* key, std::optional<double> value) {
      row.beside.emplace_back(key, value ? Json(*value) : Json());
    };
    put("megahertz_before", loop.clock_before);
    put("watts", loop.watts_at_work);
    put("celsius", loop.celsius_at_work);
    bench_.findings.rows.push_back(std::move(row));
  }

  Bench& bench_;
  Noise noise_;
  std::unique_ptr<Kernels> kernels_, tf32_;
  std::int64_t left_out_ = 0, largest_ = 0;
};

bool has_bf16(const Bench& bench) { return bench.findings.facts.major >= 8; }

void measure_adam(Bench& bench, KernelBench& kernels) {
  const std::int64_t parameters = std::min(bench.scale().adam_parameters, bench.room() / 16);
  const DeviceMemory memory(16 * parameters);
  ZP_CUDA(
      cudaMemsetAsync(memory.data(), 0, static_cast<std::size_t>(16 * parameters), bench.stream()));
  std::byte* const state = memory.data();
  std::int64_t step = 0;
  const auto update = [&] {
    adamw(bench.stream(),
          {.weights = state,
           .first_moment = state + 4 * parameters,
           .second_moment = state + 8 * parameters,
           .gradient = state + 12 * parameters,
           .elements = Elements::of(parameters)},
          {},
          ++step,
          1.0);
  };
  // Weight and moments are read and written, the gradient is read.
  kernels.streaming("gpu_adamw",
                    {{"parameters", Json(parameters)}, {"dtype", Json("fp32")}},
                    28.0 * static_cast<double>(parameters),
                    update);
}

void measure_flat(Bench& bench, KernelBench& kernels) {
  const std::int64_t wanted = bench.scale().memory_rows * bench.scale().memory_columns;
  const std::int64_t elements = std::min(wanted, bench.room() / 8);
  const DeviceMemory from(4 * elements);
  const DeviceMemory to(4 * elements);
  for (const DeviceMemory* each : {&from, &to}) {
    ZP_CUDA(
        cudaMemsetAsync(each->data(), 0, static_cast<std::size_t>(4 * elements), bench.stream()));
  }
  const DType half = has_bf16(bench) ? DType::bf16 : DType::fp16;
  const auto cast = [&](DType a, DType b) {
    kernels.streaming(
        "gpu_cast",
        {{"from", Json(text_of(a))}, {"to", Json(text_of(b))}, {"elements", Json(elements)}},
        static_cast<double>(elements * (width(a) + width(b))),
        [&, a, b] {
          convert(bench.stream(), from.data(), a, to.data(), b, Elements::of(elements), 1.0);
        });
  };
  cast(DType::fp32, half);
  cast(half, DType::fp32);
  const auto bytes = static_cast<std::size_t>(4 * elements);
  kernels.streaming(
      "gpu_device_copy", {{"bytes", Json(4 * elements)}}, 8.0 * static_cast<double>(elements), [&] {
        ZP_CUDA(cudaMemcpyAsync(
            to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, bench.stream()));
      });
  kernels.streaming(
      "gpu_set", {{"bytes", Json(4 * elements)}}, 4.0 * static_cast<double>(elements), [&] {
        ZP_CUDA(cudaMemsetAsync(to.data(), 0, bytes, bench.stream()));
      });
}

}  // namespace

void measure_products(Bench& bench) {
  KernelBench(bench).measure(product_cases(bench.scale(), has_bf16(bench)));
}

void measure_attention(Bench& bench) {
  KernelBench(bench).measure(attention_cases(bench.scale(), has_bf16(bench)));
}

void measure_memory_kernels(Bench& bench) {
  KernelBench kernels(bench);
  kernels.measure(memory_cases(bench.scale(), has_bf16(bench)));
  measure_flat(bench, kernels);
  measure_adam(bench, kernels);
}

}  // namespace zeroplan::runtime::cuda
