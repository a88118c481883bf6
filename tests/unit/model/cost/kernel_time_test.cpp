// Products by shape, fused attention by kernel, memory-bound kernels.
#include "model/cost/kernel_time.hpp"

#include "model/cost/host_time.hpp"
#include "model/hardware/known_hardware.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;
using namespace zeroplan::literals;

namespace {

const Gpu& a100() {
  static const Gpu gpu = gpu_of_key("a100_sxm_80gb");
  return gpu;
}

MatmulTimes products(const char* key) { return MatmulTimes(gpu_of_key(key), Coefficients(key)); }

double share_of_peak(const char* key, const MatrixProduct& p) {
  const double flops = 2.0 * static_cast<double>(p.batch) * static_cast<double>(p.m) *
                       static_cast<double>(p.n) * static_cast<double>(p.k);
  return flops / products(key).sustained(p).seconds() /
         dense_peak(gpu_of_key(key), p.dtype).value.value();
}

}  // namespace

TEST_CASE("large products reach the sustained share of the peak that training sees") {
  CHECK(share_of_peak("a100_sxm_80gb", {1, 8192, 8192, 8192, DType::bf16}) ==
        Approx(0.75).epsilon(0.06));
  CHECK(share_of_peak("h100_sxm", {1, 8192, 8192, 8192, DType::bf16}) ==
        Approx(0.67).epsilon(0.06));
  // Single products reach .75, training with them less.
  CHECK(share_of_peak("v100_sxm2_32gb", {1, 8192, 8192, 8192, DType::fp16}) ==
        Approx(0.69).epsilon(0.06));
}

TEST_CASE("products of few tiles and products of little depth reach less") {
  const double large = share_of_peak("a100_sxm_80gb", {1, 8192, 8192, 8192, DType::bf16});
  CHECK(share_of_peak("a100_sxm_80gb", {1, 128, 4096, 4096, DType::bf16}) < 0.5 * large);
  CHECK(share_of_peak("a100_sxm_80gb", {1, 8192, 8192, 64, DType::bf16}) < 0.4 * large);
}

TEST_CASE("a product is as long as its transpose, and empty ones take no time") {
  const MatmulTimes times = products("h100_sxm");
  CHECK(times.isolated({1, 640, 4096, 4096, DType::bf16}).seconds() ==
        Approx(times.isolated({1, 4096, 640, 4096, DType::bf16}).seconds()));
  CHECK(times.isolated({1, 0, 4096, 4096, DType::bf16}) == Seconds::zero());
}

TEST_CASE("fp32 runs at the peak outside tensor cores unless TF32 is allowed") {
  const MatrixProduct product{1, 8192, 8192, 8192, DType::fp32};
  const Coefficients c("a100_sxm_80gb");
  const double fp32 =
      2.0 * 8192 * 8192 * 8192 / MatmulTimes(a100(), c).sustained(product).seconds();
  CHECK(fp32 == Approx(19.5e12 * c[Coefficient::matmul_fp32_efficiency]).epsilon(0.03));
  const double tf32 =
      2.0 * 8192 * 8192 * 8192 / MatmulTimes(a100(), c, true).sustained(product).seconds();
  CHECK(tf32 > 5.0 * fp32);
}

TEST_CASE("which attention kernel runs follows backend, versions and GPU") {
  AttentionSoftware software{Attention::sdpa, Implementation::hf, {2, 6, 0}, true};
  AttentionCall call;
  call.head_dim = 128;
  const auto kernel_of = [&](SdpaBackend backend, const AttentionSoftware& by, const Gpu& gpu) {
    call.backend = backend;
    return attention_kernel(call, by, gpu);
  };
  CHECK(kernel_of(SdpaBackend::flash, software, a100()) == AttentionKernel::flash2);
  CHECK(kernel_of(SdpaBackend::math, software, a100()) == AttentionKernel::math);
  CHECK(kernel_of(SdpaBackend::mem_efficient, software, a100()) == AttentionKernel::cutlass);
  const Gpu v100 = gpu_of_key("v100_sxm2_32gb");
  CHECK(kernel_of(SdpaBackend::flash, software, v100) == AttentionKernel::cutlass);
  const Gpu t4 = gpu_of_key("t4");
  CHECK(kernel_of(SdpaBackend::flash, software, t4) == AttentionKernel::cutlass);
  software.torch = {2, 1, 2};
  CHECK(kernel_of(SdpaBackend::flash, software, a100()) == AttentionKernel::flash1);
  CHECK(kernel_of(SdpaBackend::flash, software, t4) == AttentionKernel::flash1);
  software.requested = Attention::flash;
  CHECK(kernel_of(SdpaBackend::flash, software, a100()) == AttentionKernel::flash2);
  software.torch = {2, 5, 0};
  software.requested = Attention::sdpa;
  const Gpu h100 = gpu_of_key("h100_sxm");
  CHECK(kernel_of(SdpaBackend::flash, software, h100) == AttentionKernel::cudnn);
  CHECK(kernel_of(SdpaBackend::flash, software, a100()) == AttentionKernel::flash2);
  software.torch = {2, 10, 0};
  CHECK(kernel_of(SdpaBackend::flash, software, h100) == AttentionKernel::flash2);
  software.torch = {2, 11, 0};
  CHECK(kernel_of(SdpaBackend::flash, software, h100) == AttentionKernel::cudnn);
  CHECK(kernel_of(SdpaBackend::flash, software, a100()) == AttentionKernel::flash2);
  software.torch = {2, 6, 0};
  software.embedded = true;
  CHECK(kernel_of(SdpaBackend::flash, software, h100) == AttentionKernel::cudnn);
  CHECK(kernel_of(SdpaBackend::flash, software, a100()) == AttentionKernel::flash2);
  call.alibi = true;
  CHECK(kernel_of(SdpaBackend::flash, software, h100) == AttentionKernel::flash2);
  call.alibi = false;
  call.dtype = DType::fp32;
  CHECK(kernel_of(SdpaBackend::flash, software, h100) == AttentionKernel::flash2);
  call.dtype = DType::bf16;
  call.head_dim = 256;
  CHECK(kernel_of(SdpaBackend::flash, software, h100) == AttentionKernel::flash2);
  software.embedded = false;
  software.implementation = Implementation::composer;
  software.torch_said = false;
  CHECK(kernel_of(SdpaBackend::flash, software, a100()) == AttentionKernel::triton);
}

TEST_CASE("causal attention takes about half, backward 2.5 times as long") {
  const Coefficients c("a100_sxm_80gb");
  AttentionCall call{4, 32, 32, 8192, 8192, 128, false, false, SdpaBackend::flash, DType::bf16};
  const auto time = [&] { return attention_time(call, AttentionKernel::flash2, a100(), c); };
  const Seconds full = time();
  call.causal = true;
  CHECK(time() / full == Approx(0.5).epsilon(0.05));
  const Seconds causal = time();
  call.backward = true;
  CHECK(time() / causal == Approx(2.5 / c[Coefficient::flash2_backward_rate]).epsilon(0.01));
}

TEST_CASE(
    "memory-bound kernels take their bytes over the achieved rate, and never less than a floor") {
  const Coefficients c("a100_sxm_80gb");
  const KernelTimes times(a100(), c, {});
  CHECK(times.streaming(OpKind::pointwise, Bytes::of(2'039'000'000)).seconds() ==
        Approx(1e-3 / c[Coefficient::pointwise_bandwidth_efficiency]).epsilon(0.01));
  CHECK(times.streaming(OpKind::copy, 1_KiB).seconds() ==
        Approx(c[Coefficient::kernel_floor_seconds]).epsilon(0.02));
  CHECK(times.streaming(OpKind::view, 1_GiB, 0) == Seconds::zero());
}

TEST_CASE("Ada's large L2 makes small working sets faster") {
  const char* key = "rtx_4090";
  const KernelTimes times(gpu_of_key(key), Coefficients(key), {});
  const double small = times.streaming(OpKind::pointwise, 24_MiB).seconds();
  const double large = times.streaming(OpKind::pointwise, 240_MiB).seconds();
  CHECK(large > 15.0 * small);
}

TEST_CASE("a gradient's hook costs most in stage 3; the embedded engine pays for launches alone") {
  const Coefficients c;
  const HostCosts now = host_costs({}, c);
  CHECK(host_costs({.stage = 3}, c).gradient_hook > host_costs({.stage = 2}, c).gradient_hook);
  const HostCosts embedded = host_costs({.engine = TrainingEngine::embedded}, c);
  CHECK(embedded.view == Seconds::zero());
  CHECK(embedded.forward_operation < now.backward_operation);
  CHECK(host_costs({.frontend = Frontend::native}, c).step < now.step);
}

// NVIDIA, Matrix Multiplication Background User's Guide, section 2.1.
TEST_CASE(
    "Batched 16-bit products whose rows are no multiple of 16 bytes do without tensor cores") {
  const Gpu gpu = gpu_of_key("a100_sxm_80gb");
  const Coefficients coefficients(gpu.key);
  const auto seconds = [&](std::int64_t batch, std::int64_t k, DType dtype) {
    return MatmulTimes(gpu, coefficients).sustained({batch, 2048, 2048, k, dtype}).seconds();
  };
  CHECK(seconds(32, 108, DType::fp16) > 4.0 * seconds(32, 112, DType::fp16));
  CHECK(seconds(32, 108, DType::fp32) < seconds(32, 112, DType::fp32));
  CHECK(seconds(1, 108, DType::fp16) < seconds(1, 112, DType::fp16));
}
