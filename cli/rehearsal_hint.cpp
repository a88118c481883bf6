#include "cli/rehearsal_hint.hpp"

#include <array>
#include <string_view>

namespace zeroplan::cli {
namespace {

struct Known {
  std::string_view source;  // what the library's own message has
  std::string_view hint;
};

constexpr std::string_view kFlash =
    "flash-attn is not on the index as a wheel: install the one of its releases page that names "
    "this torch, CUDA and Python (it needs no nvcc), or train with attn_implementation=\"sdpa\"";
constexpr std::string_view kTritonCompiler =
    "Triton compiles its launcher with a C compiler and Python's headers: apt-get install gcc "
    "python3-dev";
constexpr std::string_view kGraphs =
    "CUDA graphs are not rehearsed: leave out mode=\"reduce-overhead\", torch.cuda.graph or the "
    "setting that captures them";
constexpr std::string_view kNoNvcc =
    "this extension is compiled with nvcc when it is first used: install its wheel, or leave it "
    "out";

constexpr std::string_view kTooManyProcesses =
    "more processes were started than the cluster's node has GPUs: --ranks N, or --cluster";

// The first that is found counts.
constexpr std::array kKnown = {
    Known{.source = "FlashAttention2 has been toggled on", .hint = kFlash},
    Known{.source = "No module named 'flash_attn'", .hint = kFlash},
    Known{.source = "flash_attn seems to be not installed", .hint = kFlash},
    Known{.source = "Failed to find C compiler", .hint = kTritonCompiler},
    Known{.source = "Python.h", .hint = kTritonCompiler},
    Known{.source = "zeroplan rehearse does not emulate it", .hint = kGraphs},
    Known{.source = "CUDA_HOME", .hint = kNoNvcc},
    Known{.source = "nvcc", .hint = kNoNvcc},
    Known{
        .source = "No module named 'vllm'",
        .hint = "GRPO runs without a server where use_vllm is false; vLLM itself is not rehearsed"},
    Known{.source = "invalid device ordinal", .hint = kTooManyProcesses},
    Known{.source = "Please use a device index less than", .hint = kTooManyProcesses},
    Known{.source = "No slot '",
          .hint = "the launcher asks for more GPUs than the node has: --ranks N, or --cluster"},
};

}  // namespace

Phrase hint_of(const rehearsal::ProgramError& error) {
  for (const Known& known : kKnown) {
    if (error.message.find(known.source) != std::string::npos) return std::string(known.hint);
  }
  return "";
}

}  // namespace zeroplan::cli
