#include "cli/said_gpus.hpp"

#include <string>

#include "base/diagnostic.hpp"
#include "cli/commands.hpp"

namespace zeroplan::cli {

runtime::cuda::Gpus said_gpus(const Arguments& arguments, const char* without) {
  const auto said = arguments.text("device");
  if (said && *said != "cpu" && *said != "cuda") {
    throw InputError({kCommandLine, "--device", "cuda or cpu", in_quotes(*said), ""});
  }
  if (said == "cpu") return {.built = true, .found = {}, .problem = "--device cpu"};
  runtime::cuda::Gpus gpus = runtime::cuda::find_gpus();
  if (!said) return gpus;
  const Phrase instead = Phrase("--device cpu ") + without;
  if (!gpus.built) {
    throw InputError({kCommandLine,
                      "--device",
                      "cpu",
                      "cuda, and this program was built without CUDA",
                      instead});
  }
  if (gpus.found.empty()) {
    throw InputError({kCommandLine,
                      "--device",
                      "a GPU for cuda",
                      gpus.problem,
                      phrase("{}; zeroplan doctor looks for the cause", instead)});
  }
  return gpus;
}

}  // namespace zeroplan::cli
