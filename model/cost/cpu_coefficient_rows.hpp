// Rows of kCoefficients for the embedded runtime on CPU ranks (equations [T19] and [T20]): all
// measured by this project on one machine, so that the spread is what another processor may differ
// by, not what the rows scatter. `zeroplan profile` measures those of the machine at hand.
#pragma once

#include <array>

#include "model/cost/coefficients.hpp"

namespace zeroplan {

// Best of repeated calls beside other work; single shapes lie within 15 %, first touch and what
// goes past the caches within 40 %.
inline constexpr std::string_view kMeasuredCpu =
    "measured: 2 cores of an Intel Xeon at 2.6 GHz (model 167, AVX-512, 2 MiB L2 a core), g++ 12.2 "
    "-O3, zeroplan's own kernels, 2026-11-22";

// clang-format off
inline constexpr std::array<CoefficientInfo, 32> kCpuCoefficientRows = {{
    {Coefficient::cpu_product_rate, "cpu_product_rate", "flop/s", 36000000000.0, 0.5, 100000000.0, 10000000000000.0,
     kMeasuredCpu,
     "matrix products and attention's: one thread, operands in its tiles"},
    {Coefficient::cpu_pack_seconds, "cpu_pack_seconds", "s", 3e-10, 0.5, 1e-12, 1e-07,
     kMeasuredCpu,
     "matrix products: each number that is copied into a tile"},
    {Coefficient::cpu_strided_pack_seconds, "cpu_strided_pack_seconds", "s", 2.2e-09, 0.5, 1e-12, 1e-07,
     kMeasuredCpu,
     "matrix products: the same from a transposed matrix"},
    {Coefficient::cpu_score_seconds, "cpu_score_seconds", "s", 3.7e-09, 0.5, 1e-11, 1e-07,
     kMeasuredCpu,
     "attention: each score's exponential and mask, once forward, twice backward"},
    {Coefficient::cpu_rms_norm_seconds, "cpu_rms_norm_seconds", "s", 6.8e-10, 0.5, 1e-12, 1e-07,
     kMeasuredCpu,
     "RMSNorm forward, each element"},
    {Coefficient::cpu_rms_norm_backward_seconds, "cpu_rms_norm_backward_seconds", "s", 1.7e-09, 0.5, 1e-12, 1e-07,
     kMeasuredCpu,
     "RMSNorm backward, each element"},
    {Coefficient::cpu_layer_norm_seconds, "cpu_layer_norm_seconds", "s", 1.15e-09, 0.5, 1e-12, 1e-07,
     kMeasuredCpu,
     "layer norm forward, each element"},
    {Coefficient::cpu_layer_norm_backward_seconds, "cpu_layer_norm_backward_seconds", "s", 1.8e-09, 0.5, 1e-12, 1e-07,
     kMeasuredCpu,
     "layer norm backward, each element"},
    {Coefficient::cpu_swiglu_seconds, "cpu_swiglu_seconds", "s", 2.5e-09, 0.5, 1e-12, 1e-07,
     kMeasuredCpu,
     "SwiGLU forward, each element"},
    {Coefficient::cpu_swiglu_backward_seconds, "cpu_swiglu_backward_seconds", "s", 3.2e-09, 0.5, 1e-12, 1e-07,
     kMeasuredCpu,
     "SwiGLU backward, each element"},
    {Coefficient::cpu_gelu_seconds, "cpu_gelu_seconds", "s", 5.9e-09, 0.5, 1e-12, 1e-07,
     kMeasuredCpu,
     "GELU by tanh forward, each element"},
    {Coefficient::cpu_gelu_backward_seconds, "cpu_gelu_backward_seconds", "s", 7.8e-09, 0.5, 1e-12, 1e-07,
     kMeasuredCpu,
     "GELU by tanh backward, each element"},
    {Coefficient::cpu_exact_gelu_seconds, "cpu_exact_gelu_seconds", "s", 3.4e-09, 0.5, 1e-12, 1e-07,
     kMeasuredCpu,
     "GELU by erf forward, each element"},
    {Coefficient::cpu_exact_gelu_backward_seconds, "cpu_exact_gelu_backward_seconds", "s", 6.3e-09, 0.5, 1e-12, 1e-07,
     kMeasuredCpu,
     "GELU by erf backward, each element"},
    {Coefficient::cpu_softmax_seconds, "cpu_softmax_seconds", "s", 3.2e-09, 0.5, 1e-12, 1e-07,
     kMeasuredCpu,
     "cross entropy forward, each logit"},
    {Coefficient::cpu_softmax_backward_seconds, "cpu_softmax_backward_seconds", "s", 2.2e-09, 0.5, 1e-12, 1e-07,
     kMeasuredCpu,
     "cross entropy backward, each logit"},
    {Coefficient::cpu_table_gradient_seconds, "cpu_table_gradient_seconds", "s", 1.2e-09, 0.5, 1e-12, 1e-07,
     kMeasuredCpu,
     "gradient of an embedding, each element of the tokens'"},
    {Coefficient::cpu_rotary_angle_seconds, "cpu_rotary_angle_seconds", "s", 4e-09, 0.5, 1e-12, 1e-06,
     kMeasuredCpu,
     "rotary positions: sine and cosine of an angle"},
    {Coefficient::cpu_rotary_pair_seconds, "cpu_rotary_pair_seconds", "s", 1.2e-09, 0.5, 1e-12, 1e-07,
     kMeasuredCpu,
     "rotary positions: each pair that is turned"},
    {Coefficient::cpu_stream_rate, "cpu_stream_rate", "bytes/s", 30000000000.0, 0.5, 100000000.0, 1000000000000.0,
     kMeasuredCpu,
     "what is streamed out of caches by one thread, read and written bytes"},
    {Coefficient::cpu_memory_rate, "cpu_memory_rate", "bytes/s", 14000000000.0, 0.5, 100000000.0, 10000000000000.0,
     kMeasuredCpu,
     "what is streamed past the caches by all threads of the node"},
    {Coefficient::cpu_cached_bytes, "cpu_cached_bytes", "bytes", 33554432.0, 0.8, 100000.0, 10000000000.0,
     kMeasuredCpu,
     "how much of a stream stays in the caches"},
    {Coefficient::cpu_bf16_seconds, "cpu_bf16_seconds", "s", 9e-10, 0.5, 1e-13, 1e-07,
     kMeasuredCpu,
     "kernels in bf16: each number that is written"},
    {Coefficient::cpu_fp16_seconds, "cpu_fp16_seconds", "s", 1e-09, 0.5, 1e-13, 1e-07,
     kMeasuredCpu,
     "fp16: each number that is read or written"},
    {Coefficient::cpu_cast_seconds, "cpu_cast_seconds", "s", 3.2e-10, 0.5, 1e-13, 1e-07,
     kMeasuredCpu,
     "the engine's casts between fp32 and bf16, each element"},
    {Coefficient::cpu_half_sum_seconds, "cpu_half_sum_seconds", "s", 1.5e-09, 0.5, 1e-13, 1e-07,
     kMeasuredCpu,
     "sums of 16-bit numbers between ranks: each that is read or written"},
    {Coefficient::cpu_parallel_seconds, "cpu_parallel_seconds", "s", 1e-05, 0.8, 1e-07, 0.01,
     kMeasuredCpu,
     "waking the threads of a rank for a call, and waiting for them"},
    {Coefficient::cpu_thread_gain, "cpu_thread_gain", "1", 1.0, 0.3, 0.01, 1.0,
     kMeasuredCpu,
     "what each further thread of a rank adds to its first"},
    {Coefficient::cpu_first_touch_rate, "cpu_first_touch_rate", "bytes/s", 2800000000.0, 0.6, 10000000.0, 100000000000.0,
     kMeasuredCpu,
     "memory that the system maps anew: tensors of more than 32 MiB"},
    {Coefficient::cpu_adamw_rate, "cpu_adamw_rate", "1/s", 1850000000.0, 0.5, 1000000.0, 100000000000.0,
     kMeasuredCpu,
     "AdamW by one thread, states in the caches"},
    {Coefficient::cpu_adamw_memory_rate, "cpu_adamw_memory_rate", "1/s", 850000000.0, 0.5, 1000000.0, 1000000000000.0,
     kMeasuredCpu,
     "AdamW by all threads of the node, states past the caches"},
    {Coefficient::cpu_collective_seconds, "cpu_collective_seconds", "s", 4e-06, 0.8, 1e-07, 0.01,
     kMeasuredCpu,
     "collectives between ranks of a process: meeting and parting"},
}};
// clang-format on

}  // namespace zeroplan
