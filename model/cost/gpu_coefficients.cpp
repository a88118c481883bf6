// What is known of single GPUs: the rows of gpu_coefficients() and of gpu_analogues().
//
// NVLink numbers: nccl-tests curves of aiconfigurator, larger all-reduces of ml-engineering, Azure
// and AWS. Numbers that were fitted together stand in one line and are used together: the tile
// factors, the prologue and the wave share of a matrix product are not known one by one.
// scripts/fit_kernels.py and scripts/fit_collectives.py print these lines again from published
// curves.
#include "model/cost/coefficients.hpp"

namespace zeroplan {
namespace {

using C = Coefficient;

// Matrix products by shape, of one source of isolated kernels, and the sustained derate.
struct MatmulSet {
  std::string_view gpu;
  double isolated, prologue, wave, fixed_us, tile_128, tile_128x64, tile_64, memory, derate;
  double derate_sd;
  std::string_view provenance;
};

// clang-format off
constexpr MatmulSet kMatmulSets[] = {
    {"v100", .861, 107, .31, 6.80, .92, .82, .48, .596, 1.24, .08,
     "fitted: DeepBench; derate 1.13 by user-submitted square products, 1.3 by the median of seven "
     "sources of training speeds, weighed by their spreads"},
    {"t4", .654, 129, .35, 2.54, .96, .76, .61, .685, 1.45, .15,
     "fitted: DeepBench; derate assumed, 70 W"},
    {"a100", .880, 165, .42, 3.53, .95, .74, .73, .555, 1.12, .04,
     "fitted: aiconfigurator .86-.89; sustained: vidur .80, SimuMax .78, FSDP rows .77-.79"},
    {"a100_pcie", .769, 116, .55, 2.48, .83, .71, .72, .299, 1.0, .05,
     "fitted: SimuMax, sustained already"},
    {"h100", .850, 154, .22, 2.49, .82, .58, .55, .772, 1.29, .08,
     "fitted: aiconfigurator .81-.86; sustained: vidur .71, FSDP rows .62-.65"},
    {"h200", .819, 151, .28, 2.53, .92, .99, .58, .694, 1.24, .09,
     "fitted: aiconfigurator; derate assumed as H100"},
    {"b200", .732, 125, .28, 1.91, 1.0, .61, .31, .635, 1.30, .15,
     "fitted: aiconfigurator .73, SimuMax .51; user-submitted square products .72-.75"},
    {"a40", .803, 108, .33, 2.12, .91, .73, .66, .681, 1.02, .06,
     "fitted: vidur, sustained nearly"},
    {"l40s", .690, 135, .47, 1.36, .97, .70, .85, .868, 1.15, .10,
     "fitted: aiconfigurator; derate assumed"},
    {"rtx_pro_6000", .854, 142, .51, 1.72, .92, .70, .76, .871, 1.10, .08,
     "fitted: aiconfigurator; derate from user-submitted square products"},
    {"rtx_4090", 1.039, 96, .31, 2.52, .98, .90, .65, .741, 1.12, .06,
     "fitted: LLMServingSim; derate assumed"},
};
// clang-format on
constexpr std::size_t kMatmulFields = 9;

constexpr auto matmul_rows() {
  std::array<GpuCoefficient, std::size(kMatmulSets) * kMatmulFields> rows{};
  std::size_t i = 0;
  for (const MatmulSet& s : kMatmulSets) {
    rows[i++] = {C::matmul_isolated_efficiency, s.gpu, s.isolated, .05, s.provenance};
    rows[i++] = {C::matmul_prologue_depth, s.gpu, s.prologue, .3, s.provenance};
    rows[i++] = {C::matmul_wave_share, s.gpu, s.wave, .3, s.provenance};
    rows[i++] = {C::matmul_fixed_seconds, s.gpu, s.fixed_us * 1e-6, .3, s.provenance};
    rows[i++] = {C::matmul_tile_128x128, s.gpu, s.tile_128, .1, s.provenance};
    rows[i++] = {C::matmul_tile_128x64, s.gpu, s.tile_128x64, .2, s.provenance};
    rows[i++] = {C::matmul_tile_64x64, s.gpu, s.tile_64, .2, s.provenance};
    rows[i++] = {C::matmul_memory_efficiency, s.gpu, s.memory, .1, s.provenance};
    rows[i++] = {C::matmul_sustained_derate, s.gpu, s.derate, s.derate_sd, s.provenance};
  }
  return rows;
}

// One process of a current PyTorch with kernels loaded lazily, outside its allocator: in
// out-of-memory messages of public repositories, memory in use by the process minus what PyTorch
// has allocated and reserved.
struct MeasuredContext {
  std::string_view gpu;
  double mib;
  double multiprocessors;
  double relative_sd;
  std::string_view provenance;
};

// clang-format off
constexpr MeasuredContext kMeasuredContexts[] = {
    {"v100", 388, 80, .05, "measured: eight out-of-memory messages, 378-399 MiB"},
    {"t4", 128, 40, .15, "measured: four out-of-memory messages, 113-143 MiB"},
    {"l4", 256, 58, .05, "measured: two out-of-memory messages"},
    {"a40", 348, 84, .10, "measured: one out-of-memory message"},
    {"rtx_4090", 430, 128, .10, "measured: four out-of-memory messages"},
    {"a100", 522, 108, .06,
     "measured: two out-of-memory messages; ml-engineering: 481 MiB alone, 563 in DDP"},
    {"h100", 604, 132, .15, "measured: two out-of-memory messages, 522 and 686 MiB"},
    {"h200", 522, 132, .10, "measured: one out-of-memory message"},
    {"b200", 712, 148, .10, "measured: one out-of-memory message"},
    {"rtx_pro_6000", 694, 188, .05, "measured: two out-of-memory messages"},
    {"rtx_5090", 563, 170, .10, "measured: two out-of-memory messages"},
    // Compute capability counts for the context more than the generation of the tensor cores.
    {"p100", 4.1, 1, .20, "derived: the mean of all GPUs with a reading"},
    {"rtx_3090", 348, 84, .12, "derived: as A40, of the same compute capability"},
    {"l40", 3.887, 1, .12, "derived: between L4 and RTX 4090, of the same compute capability"},
};
// clang-format on

constexpr auto context_rows() {
  constexpr double kMiB = 1 << 20;
  std::array<GpuCoefficient, std::size(kMeasuredContexts)> rows{};
  std::size_t i = 0;
  for (const MeasuredContext& m : kMeasuredContexts) {
    rows[i++] = {C::cuda_context_bytes_per_sm,
                 m.gpu,
                 m.mib * kMiB / m.multiprocessors,
                 m.relative_sd,
                 m.provenance};
  }
  return rows;
}

// clang-format off
constexpr GpuCoefficient kSingleRows[] = {
    // Level of GPUs whose shape curve is another's.
    {C::matmul_isolated_efficiency, "h100_pcie", .63, .06,
     "measured: user-submitted square products"},
    {C::matmul_isolated_efficiency, "h20", .96, .03, "measured: user-submitted square products"},
    {C::matmul_sustained_derate, "h20", 1.03, .03,
     "assumed: the tensor rate is capped below what the GPU can feed"},
    {C::matmul_isolated_efficiency, "rtx_a6000", .79, .04,
     "measured: user-submitted square products"},
    {C::matmul_sustained_derate, "rtx_a6000", 1.07, .07, "assumed: power limit"},
    {C::matmul_isolated_efficiency, "rtx_3090", 1.07, .04,
     "measured: user-submitted square products"},
    {C::matmul_sustained_derate, "rtx_3090", 1.13, .08, "assumed: power limit of 350 W"},
    {C::matmul_isolated_efficiency, "rtx_5090", 1.10, .06,
     "measured: user-submitted square products"},

    // fp32 outside tensor cores.
    {C::matmul_fp32_efficiency, "a100", .93, .08, "measured: user-submitted square products"},
    {C::matmul_fp32_efficiency, "a100_pcie", .90, .08, "measured: user-submitted square products"},
    {C::matmul_fp32_efficiency, "h100", .77, .08, "measured: user-submitted square products"},
    {C::matmul_fp32_efficiency, "v100", .88, .08, "measured: user-submitted square products"},
    {C::matmul_fp32_efficiency, "t4", .53, .08, "measured: user-submitted square products"},
    {C::matmul_emulated_bf16_efficiency, "v100", .64, .1, "measured: user-submitted square products"},
    {C::matmul_emulated_bf16_efficiency, "t4", .28, .1, "measured: user-submitted square products"},
    {C::matmul_fp32_efficiency, "rtx_3090", .69, .08, "measured: user-submitted square products"},
    {C::matmul_fp32_efficiency, "rtx_4090", .65, .08, "measured: user-submitted square products"},
    {C::matmul_fp32_efficiency, "rtx_5090", .65, .08, "measured: user-submitted square products"},
    {C::matmul_fp32_efficiency, "rtx_a6000", .62, .08, "measured: user-submitted square products"},
    {C::matmul_fp32_efficiency, "l40s", .51, .08, "measured: user-submitted square products"},
    {C::matmul_fp32_efficiency, "l4", .51, .08, "measured: user-submitted square products"},
    {C::matmul_fp32_efficiency, "l20", .62, .08, "measured: user-submitted square products"},
    {C::matmul_fp32_efficiency, "h20", .72, .08, "measured: user-submitted square products"},
    {C::matmul_fp32_efficiency, "b200", .83, .08, "measured: user-submitted square products"},
    {C::matmul_isolated_efficiency, "l20", .955, .05, "measured: user-submitted square products"},
    {C::matmul_isolated_efficiency, "l4", .58, .06, "measured: user-submitted square products"},

    // Fused attention.
    {C::flash1_efficiency_64, "a100", .336, .08, "fitted: FlashAttention-2 chart"},
    {C::flash1_efficiency_128, "a100", .260, .08, "fitted: FlashAttention-2 chart"},
    {C::flash2_efficiency_64, "a100", .630, .05,
     "fitted: FlashAttention-2 chart, forward and backward"},
    {C::flash2_efficiency_128, "a100", .714, .06,
     "fitted: FlashAttention-2 chart, forward and backward"},
    {C::flash2_efficiency_256, "a100", .640, .12, "assumed: .9 of 128 as on H100"},
    {C::flash1_efficiency_64, "h100", .157, .1, "fitted: FlashAttention-2 chart, H100"},
    {C::flash1_efficiency_128, "h100", .138, .1, "fitted: FlashAttention-2 chart, H100"},
    {C::triton_attention_efficiency_64, "a100", .31, .06, "fitted: llm-foundry rows"},
    {C::triton_attention_efficiency_128, "a100", .32, .06, "fitted: llm-foundry rows"},
    {C::triton_attention_efficiency_64, "h100", .16, .15,
     "assumed: FlashAttention-2's ratio of both head dimensions"},
    {C::triton_attention_efficiency_128, "h100", .178, .07, "fitted: llm-foundry rows"},
    {C::flash2_efficiency_64, "h100", .335, .06, "fitted: FlashAttention-2 and -3 charts"},
    {C::flash2_efficiency_128, "h100", .384, .06, "fitted: FlashAttention-2 and -3 charts"},
    {C::flash2_efficiency_256, "h100", .319, .08, "fitted: FlashAttention-3 chart"},
    {C::cutlass_attention_efficiency_64, "h100", .13, .3,
     "assumed: A100's rate by FlashAttention-2's ratio"},
    {C::cutlass_attention_efficiency_128, "h100", .16, .3,
     "assumed: A100's rate by FlashAttention-2's ratio"},
    {C::flash2_efficiency_128, "l40s", .473, .12, "fitted: aiconfigurator"},
    {C::flash2_efficiency_64, "l40s", .43, .2, "assumed: A100's ratio to 128"},
    {C::flash2_efficiency_128, "rtx_4090", .85, .2,
     "assumed: half-rate tensor cores are easy to fill"},
    {C::flash2_efficiency_64, "rtx_4090", .78, .2, "assumed: A100's ratio to 128"},
    {C::flash2_efficiency_128, "rtx_3090", .80, .2,
     "assumed: half-rate tensor cores are easy to fill"},
    {C::flash2_efficiency_64, "rtx_3090", .73, .2, "assumed: A100's ratio to 128"},
    {C::flash2_efficiency_128, "b200", .17, .3,
     "assumed: H100's rate by clock and multiprocessors, the kernel is older than the GPU"},
    {C::flash2_efficiency_64, "b200", .15, .3, "assumed: H100's ratio to 128"},
    {C::cudnn_attention_efficiency_128, "b200", .47, .15,
     "fitted: SimuMax, 64 heads; kernel not named"},
    {C::cutlass_attention_efficiency_64, "v100", .32, .3, "assumed: 40 TFLOP/s counted causal"},
    {C::cutlass_attention_efficiency_128, "v100", .38, .3, "assumed: 45-50 TFLOP/s counted causal"},

    // Memory-bound kernels.
    {C::pointwise_bandwidth_efficiency, "h100", .95, .05, "measured: vidur, additions"},
    {C::pointwise_bandwidth_efficiency, "a100", .88, .05, "measured: vidur, additions"},
    {C::norm_bandwidth_efficiency, "a40", .57, .15, "measured: vidur, fused RMSNorm"},
    {C::gather_bandwidth_efficiency, "a40", .47, .2, "measured: vidur, embedding look-up"},
    {C::l2_bandwidth_ratio, "l40", 1.8, .3, "measured: LLMServingSim on RTX 4090"},
    {C::l2_bandwidth_ratio, "rtx_4090", 1.8, .3, "measured: LLMServingSim, kernels below 72 MB"},
    {C::l2_bandwidth_ratio, "rtx_6000_ada", 1.8, .3, "assumed as RTX 4090"},

    // Collectives over NVLink; each GPU fitted to twelve curves at once.
    {C::nccl_base_seconds, "a100", 8.92e-6, .1, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_hop_seconds, "a100", .71e-6, .1, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_gather_efficiency, "a100", .729, .04, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_scatter_efficiency, "a100", .783, .04, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_reduce_efficiency, "a100", .801, .04, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_alltoall_efficiency, "a100", .770, .08, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_gather_ramp_seconds, "a100", 32.5e-6, .2, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_scatter_ramp_seconds, "a100", 28.0e-6, .2,
     "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_reduce_ramp_seconds, "a100", 30.7e-6, .2, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_alltoall_ramp_seconds, "a100", 29.4e-6, .3,
     "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_pair_efficiency, "a100", .855, .06, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_base_seconds, "h100", 5.27e-6, .1, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_hop_seconds, "h100", .66e-6, .1, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_gather_efficiency, "h100", .807, .04, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_scatter_efficiency, "h100", .747, .04, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_reduce_efficiency, "h100", .876, .04, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_alltoall_efficiency, "h100", .824, .08, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_gather_ramp_seconds, "h100", 15.8e-6, .2, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_scatter_ramp_seconds, "h100", 7.5e-6, .2, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_reduce_ramp_seconds, "h100", 10.5e-6, .2, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_alltoall_ramp_seconds, "h100", 13.0e-6, .3,
     "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_pair_efficiency, "h100", .814, .06, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_sharp_gain, "h100", 1.26, .05, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_sharp_ramp_seconds, "h100", 31e-6, .2, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_base_seconds, "h200", 5.05e-6, .1, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_hop_seconds, "h200", .74e-6, .1, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_gather_efficiency, "h200", .816, .04, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_scatter_efficiency, "h200", .758, .04, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_reduce_efficiency, "h200", .868, .04, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_alltoall_efficiency, "h200", .835, .08, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_gather_ramp_seconds, "h200", 15.7e-6, .2, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_scatter_ramp_seconds, "h200", 7.7e-6, .2, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_reduce_ramp_seconds, "h200", 8.6e-6, .2, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_alltoall_ramp_seconds, "h200", 11.2e-6, .3,
     "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_pair_efficiency, "h200", .826, .06, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_sharp_gain, "h200", 1.29, .05, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_sharp_ramp_seconds, "h200", 31e-6, .2, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_base_seconds, "b200", 7.59e-6, .1, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_hop_seconds, "b200", 1.03e-6, .1, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_gather_efficiency, "b200", .825, .04, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_scatter_efficiency, "b200", .754, .04, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_reduce_efficiency, "b200", .859, .04, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_alltoall_efficiency, "b200", .644, .08, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_gather_ramp_seconds, "b200", 23.8e-6, .2, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_scatter_ramp_seconds, "b200", 15.5e-6, .2,
     "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_reduce_ramp_seconds, "b200", 16.7e-6, .2, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_alltoall_ramp_seconds, "b200", 12.6e-6, .3,
     "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_pair_efficiency, "b200", .767, .06, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_sharp_gain, "b200", 1.09, .05, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_sharp_ramp_seconds, "b200", 53e-6, .2, "fitted: nccl-tests, twelve curves at once"},
    {C::nccl_base_seconds, "v100", 2.0e-5, .4, "fitted: vTrain, DGX-1"},
    {C::nccl_reduce_efficiency, "v100", .93, .06,
     "fitted: vTrain, DGX-1, 134 of 150 GB/s at 512 MiB"},
    {C::nccl_gather_efficiency, "v100", .90, .10, "assumed as the all-reduce, less"},
    {C::nccl_scatter_efficiency, "v100", .90, .10, "assumed as the all-reduce, less"},
    {C::pcie_peer_efficiency, "rtx_pro_6000", .39, .15, "fitted: nccl-tests of aiconfigurator"},
    {C::pcie_cross_socket_efficiency, "rtx_pro_6000", .39, .15,
     "fitted: nccl-tests of aiconfigurator"},
    {C::pcie_peer_pair_efficiency, "rtx_pro_6000", .54, .10,
     "fitted: nccl-tests of aiconfigurator"},
    {C::pcie_peer_efficiency, "a100_pcie", .65, .15,
     "measured: SimuMax, four GPUs 20.7 of 31.5 GB/s"},
    {C::pcie_cross_socket_efficiency, "a100_pcie", .40, .2,
     "measured: SimuMax, eight GPUs 11-13.5 of 31.5 GB/s"},
    {C::pcie_peer_pair_efficiency, "l40s", .65, .10, "fitted: nccl-tests of aiconfigurator"},
    {C::pcie_peer_efficiency, "l40s", .25, .7,
     "measured: one host, 4.8 of 31.5 GB/s with four; other hosts assumed better"},
    {C::pcie_cross_socket_efficiency, "l40s", .15, .8,
     "measured: one host, 1.2-2 of 31.5 GB/s with eight; other hosts assumed better"},
};

constexpr GpuAnalogue kAnalogues[] = {
    {"a800", "a100", "same chip, fewer NVLinks"},
    {"a800_pcie", "a100_pcie", "same chip, fewer NVLinks"},
    {"a30", "a100", "half of the same chip"},
    {"h800", "h100", "same chip, fewer NVLinks"},
    {"h20", "h100", "same chip, fewer multiprocessors"},
    {"h200", "h100", "same chip, faster memory"},
    {"gh200", "h100", "same chip, faster memory"},
    {"b300", "b200", "same architecture"},
    {"gb200", "b200", "same chip"},
    {"gb300", "b200", "same architecture"},
    {"rtx_a6000", "a40", "same chip"},
    {"a10", "a40", "same architecture"},
    {"a10g", "a40", "same architecture"},
    {"rtx_3090", "rtx_4090", "half-rate tensor cores, shape curve of the next generation"},
    {"rtx_5090", "rtx_pro_6000", "same chip, half-rate tensor cores"},
    {"rtx_5060_ti", "rtx_pro_6000", "same architecture"},
    {"rtx_5070_ti", "rtx_pro_6000", "same architecture"},
    {"rtx_5080", "rtx_pro_6000", "same architecture"},
    {"rtx_4080", "rtx_4090", "same architecture"},
    {"rtx_6000_ada", "l40s", "same chip"},
    {"l40", "l40s", "same chip"},
    {"l20", "l40s", "same architecture"},
    {"l4", "l40s", "same architecture"},
    {"quadro_rtx_6000", "t4", "same architecture"},
    {"titan_rtx", "t4", "same architecture"},
    {"rtx_2080_ti", "t4", "same architecture"},
    {"v100s", "v100", "same chip, faster memory"},
    {"p100", "v100", "the generation before, without tensor cores"},
};
// clang-format on

constexpr auto all_rows() {
  constexpr auto kMatmul = matmul_rows();
  constexpr auto kContexts = context_rows();
  std::array<GpuCoefficient, kMatmul.size() + kContexts.size() + std::size(kSingleRows)> rows{};
  std::size_t i = 0;
  for (const GpuCoefficient& row : kMatmul) rows[i++] = row;
  for (const GpuCoefficient& row : kContexts) rows[i++] = row;
  for (const GpuCoefficient& row : kSingleRows) rows[i++] = row;
  return rows;
}
constexpr auto kGpuRows = all_rows();

}  // namespace

std::span<const GpuCoefficient> gpu_coefficients() { return kGpuRows; }
std::span<const GpuAnalogue> gpu_analogues() { return kAnalogues; }

}  // namespace zeroplan
