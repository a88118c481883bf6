// In programs that were built without cuDNN's headers, and in those that emulate CUDA.
#include "base/diagnostic.hpp"
#include "runtime/cuda/kernels/library_attention.hpp"

namespace zeroplan::runtime::cuda {

std::unique_ptr<LibraryAttention> make_library_attention(Stream, const KernelOptions& options) {
  if (asked_attention(options) != AttentionBy::library) return nullptr;
  throw InputError(Diagnostic{.file = "environment",
                              .pointer = std::string(kAttentionVariable),
                              .expected = "own",
                              .got = "cudnn, and this program was built without cuDNN",
                              .hint = "build where cudnn_graph.h is"});
}

}  // namespace zeroplan::runtime::cuda
