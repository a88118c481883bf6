// The GPU's part of a machine's profile that needs no GPU: what is measured, how much of it, and
// what the rows say in the model's terms. Who measures is runtime/cuda/gpu_profile.hpp.
//
// Kernels are the embedded runtime's. Where one is not what PyTorch runs (attention, norms, AdamW),
// its rows stay rows: a coefficient of the model is made only of what means the same.
#pragma once

#include <string>
#include <vector>

#include "model/hardware/hardware.hpp"
#include "runtime/profile/kernel_cases.hpp"
#include "runtime/profile/profile_row.hpp"
#include "runtime/profile/value_list.hpp"

namespace zeroplan::runtime {

// What CUDA and NVML say of the GPU that is measured; 0, empty or -1 where nobody says.
struct GpuFacts {
  std::string name;   // as the driver calls it
  int visible = 0;    // GPUs of this process; the first is measured, collectives use all
  Bytes memory;       // CUDA's total
  Bytes free_memory;  // before anything was measured
  int major = 0, minor = 0;
  int multiprocessors = 0;
  Bytes l2;
  std::string driver, libraries;            // "580.65", "CUDA 13.0, NCCL 2.28.9, CUPTI"
  int pcie_generation = 0, pcie_lanes = 0;  // what GPU and slot can do together
  int nvlinks = -1;                         // that are up
  double clock_limit_megahertz = 0.0;       // of the multiprocessors
  double power_limit_watts = 0.0;
};
Json to_json(const GpuFacts& facts);

struct GpuFindings {
  GpuFacts facts;
  std::vector<ProfileRow> rows;
  std::vector<std::string> notes;  // what could not be measured, and why
};

// How much is measured. Sizes in bytes where nothing else is said.
struct GpuScale {
  Repetition isolated;  // of one call between two events
  Seconds pause;        // before each of them
  Seconds sustained;    // a loop without pauses
  // Cleared before each isolated call: the L2 is cold, and the host is ahead of the GPU.
  std::int64_t cover = 0;

  struct Width {
    std::int64_t hidden, feed_forward;
  };
  std::vector<Width> widths;                       // of transformers
  std::vector<Width> other_widths;                 // also measured in fp32 and TF32
  std::vector<std::int64_t> tokens;                // of a product; the last but one also backward
  std::vector<Width> sustained_widths;             // forward, the most tokens
  std::vector<std::int64_t> sequences, head_dims;  // of attention over `attention_tokens`
  std::int64_t attention_tokens = 0, heads = 0;
  std::int64_t memory_rows = 0, memory_columns = 0;  // of kernels bound by memory
  std::int64_t adam_parameters = 0;
  std::int64_t launches = 0;  // of an empty kernel in a row
  std::int64_t largest_copy = 0, largest_allocation = 0, largest_message = 0;
  std::int64_t collectives = 0;          // calls in a row
  Seconds patience = Seconds::of(60.0);  // that a rank waits for the others
  double free_share = 0.8;               // of the free memory that a measurement may take
};
GpuScale gpu_scale(bool quick, bool tiny);

struct GpuCase {
  KernelCall call;
  DType dtype = DType::fp32;
  bool tf32 = false;
  double flops = 0.0;  // 0: bound by memory, its rate is that of the bytes
  std::vector<std::int64_t> shape;
  bool sustained = false;
};
// has_bf16: compute capability 8.0 and later. Products: [tokens, out, in]; attention: [batch,
// sequence, heads, head_dim]; the others: [rows, columns].
std::vector<GpuCase> product_cases(const GpuScale& scale, bool has_bf16);
std::vector<GpuCase> attention_cases(const GpuScale& scale, bool has_bf16);
std::vector<GpuCase> memory_cases(const GpuScale& scale, bool has_bf16);

// What the rows say as coefficients and figures: with them the model gives the measured rates. A
// GPU that profiles/gpus.json lacks gets none, and a note. host_memory_bandwidth: bytes/s as the
// same profile says, 0 where it does not.
void gpu_values(const GpuFindings& findings, double host_memory_bandwidth, ValueList& to);

// Its part about collectives; `to` gets values where the way between the GPUs is known.
void gpu_collective_values(const GpuFindings& findings,
                           const Gpu& gpu,
                           double pcie_bandwidth,
                           double host_memory_bandwidth,
                           ValueList& to);

}  // namespace zeroplan::runtime
