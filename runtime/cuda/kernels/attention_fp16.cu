// Attention by tensor cores in fp16; a file a format, so that they are compiled side by side.
#include "runtime/cuda/kernels/attention_tensor_cores.cuh"

namespace zeroplan::runtime::cuda {

template void attention_by_tensor_cores(Stream, const Attention<Fp16>&, std::int64_t, bool);

}  // namespace zeroplan::runtime::cuda
