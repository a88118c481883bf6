// What is said about errors of rehearsed programs.
#include "cli/rehearsal_hint.hpp"

#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

std::string hint(const std::string& message) {
  rehearsal::ProgramError error;
  error.message = message;
  return cli::hint_of(error);
}

}  // namespace

TEST_CASE("An extension that cannot be rehearsed is named, with what to do instead") {
  using Catch::Contains;
  CHECK_THAT(hint("FlashAttention2 has been toggled on, but it cannot be used due to the following "
                  "error: the package flash_attn seems to be not installed."),
             Contains("attn_implementation=\"sdpa\""));
  CHECK_THAT(hint("CUDA error: operation not supported (zeroplan rehearse does not emulate it)"),
             Contains("CUDA graphs are not rehearsed"));
  CHECK_THAT(hint("Failed to find C compiler. Please specify via CC environment variable."),
             Contains("apt-get install gcc"));
  CHECK_THAT(hint("CUDA_HOME environment variable is not set."), Contains("nvcc"));
}

TEST_CASE("More processes than GPUs are told from other errors of devices") {
  CHECK_THAT(hint("CUDA error: invalid device ordinal\nCUDA kernel errors might be"),
             Catch::Contains("--ranks"));
  CHECK_THAT(
      hint("device_id cuda:2 is out of range. Please use a device index less than the number "
           "of accelerators available: 2."),
      Catch::Contains("--ranks"));
  CHECK(hint("CUDA error: out of memory").empty());
  CHECK(hint("").empty());
}
