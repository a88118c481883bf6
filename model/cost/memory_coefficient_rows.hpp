// Rows of kCoefficients for memory: what the allocator keeps, what contexts, NCCL and host
// processes take, and how far each figure may be off. In the order of the enum.
#pragma once

#include <array>

#include "model/cost/coefficients.hpp"

namespace zeroplan {

// clang-format off
inline constexpr std::array<CoefficientInfo, 21> kMemoryCoefficientRows = {{
    {Coefficient::allocator_fragmentation, "allocator_fragmentation", "1", 0.06, 0.60, 0.0, 0.3,
     "assumed: 3-15 % of what varies within a step stays reserved and unused",
     "reserved memory in the analytic estimate"},
    {Coefficient::reserved_gap_share, "reserved_gap_share", "1", 0.17, 0.60, 0.0, 0.6,
     "fitted: mean of four sources, .07 (bigscience tr3m), .15 (gpt2-meg-ds), .16 (tr11), .29 "
     "(fsdp_qlora); sd .09 between and .06 within them",
     "reserved and total memory and their intervals: of the allocated peak, what is kept beside it"},
    {Coefficient::simulated_allocated_sd, "simulated_allocated_sd", "1", 0.012, 0.0, 0.0, 0.3,
     "measured: 94 % of 1024 rehearsals within 0.2 %, 98 % within 1 % (docs/validate.md); published runs of "
     "transformers' code on one GPU 0.6 % in the median: programs have code of their own",
     "intervals of all memory where the simulator knows every allocation"},
    {Coefficient::simulated_reserved_sd, "simulated_reserved_sd", "1", 0.02, 0.0, 0.0, 0.5,
     "measured: with this value 97 % of the 90 % intervals of 1382 rehearsals contain the nearer end "
     "of what was reserved, 79 % the farther one",
     "intervals of reserved and total memory where the simulator knows every allocation"},
    {Coefficient::varied_reserved_gap_sd, "varied_reserved_gap_sd", "1", 0.5, 0.0, 0.0, 1.0,
     "measured: 29 published runs of samples of all lengths (data/groundtruth_modern, swift_bench2024), "
     "what was reserved beside the predicted peak of allocated memory over what is predicted beside it",
     "intervals of reserved and total memory where lengths vary: of what is reserved and not allocated"},
    {Coefficient::activation_model_sd, "activation_model_sd", "1", 0.05, 0.0, 0.0, 0.3,
     "assumed: spread of measured activation memory around the graph's sum",
     "intervals and probability"},
    {Coefficient::model_state_sd, "model_state_sd", "1", 0.02, 0.0, 0.0, 0.1,
     "assumed: the engine's buffers are counted one by one and match recordings; what trainers "
     "and other releases keep besides is not",
     "intervals and probability"},
    {Coefficient::megatron_memory_sd, "megatron_memory_sd", "1", 0.05, 0.0, 0.0, 0.4,
     "fitted: allocated peaks and what is held between steps, four values of gpt2-meg-ds, 0 to 16 %; "
     "no recording of its classes by PyTorch stands behind them as behind transformers'",
     "intervals and probability of Megatron's code: its share of the allocated peak"},
    {Coefficient::host_process_bytes, "host_process_bytes", "bytes", 3.5e9, 0.40, 1e9, 1e10,
     "assumed: Python, PyTorch, CUDA libraries and the data loader of one rank",
     "host memory"},
    {Coefficient::host_load_sd, "host_load_sd", "1", 0.30, 0.0, 0.0, 1.0,
     "assumed: scripts load in 16 or in 32 bits, with or without a second copy of the state dict",
     "host memory while weights are loaded"},
    {Coefficient::host_state_sd, "host_state_sd", "1", 0.05, 0.0, 0.0, 0.3,
     "assumed: buffers are counted one by one; heap fragmentation and page tables are not",
     "host memory of offloaded states"},
    {Coefficient::deferred_free_sd, "deferred_free_sd", "1", 0.58, 0.0, 0.0, 1.0,
     "assumed: anything from none to twice the expected share of freed copies waits for its "
     "stream (uniform, 1/sqrt(3))",
     "reserved memory in stage 3"},
    {Coefficient::cuda_context_bytes_per_sm,
     "cuda_context_bytes_per_sm", "bytes", 4.1 * (1 << 20), 0.20, 1e6, 2e7,
     "measured: the mean of the GPUs with a reading, 3.2 to 4.8 MiB",
     "CUDA context of a process, for each multiprocessor, kernels loaded lazily"},
    {Coefficient::cuda_context_split_ratio, "cuda_context_split_ratio", "1", 1.77, 0.12, 1.0, 4.0,
     "measured: A100, torch 1.13 922 MiB against 522 (ml-engineering training/performance)",
     "CUDA context with PyTorch 1.13"},
    {Coefficient::cuda_context_eager_ratio, "cuda_context_eager_ratio", "1", 3.2, 0.12, 1.0, 6.0,
     "measured: A100, torch 1.10 1823 MiB against 522 (ml-engineering); bigscience's V100 (2021) 1113 against 388",
     "CUDA context with PyTorch before 1.13: all kernels are loaded at once"},
    {Coefficient::nccl_ring_bytes, "nccl_ring_bytes", "bytes", 688 * (1 << 20), 0.15, 1e8, 4e9,
     "measured: NVIDIA/nccl issue 964, A100, more than two ranks after a 4 MB all-reduce",
     "NCCL, first communicator in a node over NVLink, with A100's channels"},
    {Coefficient::nccl_pair_bytes, "nccl_pair_bytes", "bytes", 544 * (1 << 20), 0.15, 1e8, 4e9,
     "measured: NVIDIA/nccl issue 964, two A100",
     "NCCL, the same between two ranks"},
    {Coefficient::nccl_further_bytes, "nccl_further_bytes", "bytes", 600 * (1 << 20), 0.50, 0.0, 4e9,
     "measured: NVIDIA/nccl issue 964, 544 to 688 MiB for each group; issue 864, 1.6 GB with one and 6 GB with three or more",
     "NCCL, each further communicator over NVLink"},
    {Coefficient::nccl_pcie_ring_bytes, "nccl_pcie_ring_bytes", "bytes", 228 * (1 << 20), 0.30, 1e7, 2e9,
     "measured: NVIDIA/nccl pull 2366, RTX 3090, context and NCCL 484 MiB, context alone 256",
     "NCCL, each communicator in a node without NVLink"},
    {Coefficient::nccl_light_bytes, "nccl_light_bytes", "bytes", 200 * (1 << 20), 0.80, 0.0, 2e9,
     "assumed: with it Megatron's groups come near what 64 V100 show beyond PyTorch's reserved memory (bigscience gpt2-meg-ds-3d)",
     "NCCL, each communicator without two ranks in a node, and pairs that send"},
    {Coefficient::nccl_peer_bytes, "nccl_peer_bytes", "bytes", 3.28e9 / 7, 0.40, 0.0, 2e9,
     "measured: NVIDIA/nccl issue 1685, 1.06 and 4.34 GB before and after an all-to-all of 8 H100",
     "NCCL, each peer of an all-to-all"},
}};
// clang-format on

}  // namespace zeroplan
