#include "runtime/cuda/kernels/groups.cuh"
namespace zeroplan::runtime::cuda {
template <typename T>
void run_attention(const Run&) {}
ZP_CUDA_KERNELS(run_attention);
}
