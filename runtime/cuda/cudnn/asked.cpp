#include <cstdlib>

#include "base/diagnostic.hpp"
#include "runtime/cuda/kernels/library_attention.hpp"

namespace zeroplan::runtime::cuda {

AttentionBy asked_attention(const KernelOptions& options) {
  if (options.attention != AttentionBy::asked) return options.attention;
  const std::string variable(kAttentionVariable);
  const char* value = std::getenv(variable.c_str());
  const std::string_view text = value == nullptr ? "" : value;
  if (text.empty()) return AttentionBy::asked;
  if (text == "own") return AttentionBy::own;
  if (text == "cudnn") return AttentionBy::library;
  if (text == "reproducible") return AttentionBy::reproducible;
  throw InputError(Diagnostic{.file = "environment",
                              .pointer = variable,
                              .expected = "own, cudnn or reproducible",
                              .got = std::string(text),
                              .hint = "without it cuDNN is used where it is found"});
}

}  // namespace zeroplan::runtime::cuda
