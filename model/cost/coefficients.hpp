// THE table of constants that were measured, fitted or assumed: name, unit, value, spread, bounds,
// where it comes from and who uses it. A formula never holds such a number itself.
//
// profiles/coefficients.json has a row for each, with the value for a GPU that nobody measured, and
// what is known of single GPUs. Coefficients is the set for one machine:
// GPU rows over general ones, then what a measured profile or a calibration says. Every cost
// function takes such a set, so that moving one value and asking again gives its share of an
// interval.
//
// Confidence ranks as in docs/design.md rule 5: measured beats fitted beats data sheet beats
// assumed.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace zeroplan {

enum class Coefficient {
  host_seconds_per_zero3_tensor,
  network_collective_efficiency,
  omnipath_collective_efficiency,
  tcp_collective_efficiency,
  compute_slowdown_under_communication,
  pcie_copy_efficiency,
  pageable_copy_slowdown,
  cpu_adam_bytes_per_parameter,
  cpu_adam_dram_efficiency,
  cpu_adam_parameters_per_second_per_core,
  nvme_efficiency,
  step_fixed_seconds,
  micro_step_fixed_seconds,
  allocator_fragmentation,
  reserved_gap_share,
  simulated_allocated_sd,
  simulated_reserved_sd,
  varied_reserved_gap_sd,
  activation_model_sd,
  model_state_sd,
  megatron_memory_sd,
  host_process_bytes,
  host_load_sd,
  host_state_sd,
  deferred_free_sd,
  cuda_context_bytes_per_sm,
  cuda_context_split_ratio,
  cuda_context_eager_ratio,
  nccl_ring_bytes,
  nccl_pair_bytes,
  nccl_further_bytes,
  nccl_pcie_ring_bytes,
  nccl_light_bytes,
  nccl_peer_bytes,
  step_time_model_sd,
  matmul_isolated_efficiency,
  matmul_prologue_depth,
  matmul_wave_share,
  matmul_fixed_seconds,
  matmul_tile_128x128,
  matmul_tile_128x64,
  matmul_tile_64x64,
  matmul_memory_efficiency,
  matmul_sustained_derate,
  matmul_fp32_efficiency,
  matmul_emulated_bf16_efficiency,
  matmul_batched_efficiency,
  matmul_accumulation_slowdown,
  flash1_efficiency_64,
  flash1_efficiency_128,
  flash2_efficiency_64,
  flash2_efficiency_128,
  flash2_efficiency_256,
  flash3_efficiency_64,
  flash3_efficiency_128,
  flash3_efficiency_256,
  cudnn_attention_efficiency_64,
  cudnn_attention_efficiency_128,
  cutlass_attention_efficiency_64,
  cutlass_attention_efficiency_128,
  flash1_prologue_keys,
  flash2_prologue_keys,
  flash3_prologue_keys,
  cudnn_attention_prologue_keys,
  cutlass_attention_prologue_keys,
  attention_fixed_seconds,
  flash2_backward_rate,
  flash3_backward_rate,
  pointwise_bandwidth_efficiency,
  reduction_bandwidth_efficiency,
  softmax_bandwidth_efficiency,
  norm_bandwidth_efficiency,
  copy_bandwidth_efficiency,
  gather_bandwidth_efficiency,
  scatter_bandwidth_efficiency,
  kernel_floor_seconds,
  l2_bandwidth_ratio,
  l2_resident_share,
  host_forward_operation_seconds,
  host_backward_operation_seconds,
  host_view_seconds,
  host_module_hook_seconds,
  host_zero3_gradient_seconds,
  host_fsdp_unit_seconds,
  host_gradient_hook_seconds,
  host_collective_call_seconds,
  host_launch_seconds,
  native_step_seconds,
  native_micro_step_seconds,
  composer_step_seconds,
  dataloader_batch_seconds,
  dataloader_token_seconds,
  log_line_seconds,
  adam_foreach_traffic_ratio,
  adam_bandwidth_efficiency,
  nccl_base_seconds,
  nccl_hop_seconds,
  nccl_gather_efficiency,
  nccl_scatter_efficiency,
  nccl_reduce_efficiency,
  nccl_alltoall_efficiency,
  nccl_sharp_gain,
  nccl_pair_efficiency,
  nccl_gather_ramp_seconds,
  nccl_scatter_ramp_seconds,
  nccl_reduce_ramp_seconds,
  nccl_alltoall_ramp_seconds,
  nccl_sharp_ramp_seconds,
  nccl_bulk_hop_seconds,
  nccl_small_protocol_share,
  nccl_small_protocol_bytes,
  pcie_peer_pair_efficiency,
  pcie_peer_efficiency,
  pcie_cross_socket_efficiency,
  pcie_bridge_efficiency,
  pcie_collective_base_seconds,
  pcie_ramp_seconds,
  pcie_host_efficiency,
  pcie_host_dram_passes,
  pcie_collective_hop_seconds,
  cube_mesh_pair_efficiency,
  cube_mesh_quad_efficiency,
  network_bulk_hop_seconds,
  network_ramp_seconds,
  cpu_rank_collective_efficiency,
  cpu_rank_hop_seconds,
  gpu_allocation_call_seconds,
  gpu_allocation_rate,
  copy_fixed_seconds,
  copy_dram_share,
  numa_remote_share,
  cpu_adam_process_rate,
  cpu_adam_unbound_slowdown,
  host_pass_dram_efficiency,
  host_pass_rate_per_core,
  nvme_request_seconds,
  collective_slowdown_under_compute,
  collective_memory_passes,
  copy_memory_passes,
  zero3_blocking_host_share,
  scaling_loss_per_doubling,
  tensor_rank_wait_seconds,
  triton_attention_efficiency_64,
  triton_attention_efficiency_128,
  // the embedded runtime on CPU ranks (equations [T19] and [T20])
  cpu_product_rate,
  cpu_pack_seconds,
  cpu_strided_pack_seconds,
  cpu_score_seconds,
  cpu_rms_norm_seconds,
  cpu_rms_norm_backward_seconds,
  cpu_layer_norm_seconds,
  cpu_layer_norm_backward_seconds,
  cpu_swiglu_seconds,
  cpu_swiglu_backward_seconds,
  cpu_gelu_seconds,
  cpu_gelu_backward_seconds,
  cpu_exact_gelu_seconds,
  cpu_exact_gelu_backward_seconds,
  cpu_softmax_seconds,
  cpu_softmax_backward_seconds,
  cpu_table_gradient_seconds,
  cpu_rotary_angle_seconds,
  cpu_rotary_pair_seconds,
  cpu_stream_rate,
  cpu_memory_rate,
  cpu_cached_bytes,
  cpu_bf16_seconds,
  cpu_fp16_seconds,
  cpu_cast_seconds,
  cpu_half_sum_seconds,
  cpu_parallel_seconds,
  cpu_thread_gain,
  cpu_first_touch_rate,
  cpu_adamw_rate,
  cpu_adamw_memory_rate,
  cpu_collective_seconds,
};

struct CoefficientInfo {
  Coefficient id;
  std::string_view name;
  std::string_view unit;
  double value;
  double relative_sd;           // one standard deviation over the value
  double low, high;             // physical bounds
  std::string_view provenance;  // measured, fitted, datasheet or assumed, and the source
  std::string_view used_by;
};

inline constexpr std::size_t kCoefficientCount =
    static_cast<std::size_t>(Coefficient::cpu_collective_seconds) + 1;
// In the order of the enum.
const std::array<CoefficientInfo, kCoefficientCount>& coefficient_rows();

const CoefficientInfo& info(Coefficient id);

// What is known of one kind of GPU: keys of profiles/gpus.json that begin so. The longest prefix
// that fits decides.
struct GpuCoefficient {
  Coefficient id;
  std::string_view gpu_key_prefix;
  double value;
  double relative_sd;
  std::string_view provenance;
};
std::span<const GpuCoefficient> gpu_coefficients();

// A GPU without measurements of its own takes the rows of one that is built alike; its own rows
// stand over them.
struct GpuAnalogue {
  std::string_view gpu_key_words;  // the key, or its first words: "h200" of h200_sxm
  std::string_view like;           // a key or the prefix of keys
  std::string_view reason;
};
std::span<const GpuAnalogue> gpu_analogues();
const GpuAnalogue* gpu_analogue(std::string_view gpu_key);  // null where there is none

std::optional<Coefficient> find_coefficient(std::string_view name);

// The row of the tables that a GPU's value comes from: the prefix of its row in
// gpu_coefficients(), its analogue's too, or "" for the row of coefficient_rows(). GPUs with the
// same row share one value, and a fit fits it once.
std::string_view row_for_gpu(Coefficient id, std::string_view gpu_key);

// What a measured profile or a calibration says of a coefficient. With a prefix it stands in for
// the tables' row of that prefix, or is a new one; without it for the row of coefficient_rows(),
// which rows of GPUs stand over.
struct CoefficientValue {
  Coefficient id;
  std::string gpu_key_prefix;
  double value = 0.0;
  double relative_sd = 0.0;
};

// The values in force on one machine.
class Coefficients {
 public:
  Coefficients();  // of a GPU that nobody measured
  explicit Coefficients(std::string_view gpu_key, std::span<const CoefficientValue> profile = {});

  double operator[](Coefficient id) const { return values_[index(id)]; }
  double relative_sd(Coefficient id) const { return relative_sd_[index(id)]; }

  void set(Coefficient id, double value) { values_[index(id)] = value; }
  void set(Coefficient id, double value, double relative_sd) {
    values_[index(id)] = value;
    relative_sd_[index(id)] = relative_sd;
  }

 private:
  static constexpr std::size_t index(Coefficient id) { return static_cast<std::size_t>(id); }
  void take_gpu(std::string_view gpu_key, std::span<const CoefficientValue> profile);

  std::array<double, kCoefficientCount> values_;
  std::array<double, kCoefficientCount> relative_sd_;
};

}  // namespace zeroplan
