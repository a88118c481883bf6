// Hugging Face config.json: what is read has parameters, and the same from its own print.
#include "model/families/hf_config.hpp"
#include "tests/fuzz/fuzz_support.hpp"

namespace fuzz = zeroplan::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using zeroplan::Json;
  using zeroplan::Model;
  fuzz::reads([&] {
    const Json config = zeroplan::parse_json(fuzz::text_of(data, size), "config.json").root;
    const Model model = zeroplan::read_model(config, "config.json");
    const zeroplan::ParameterCounts counts = count_parameters(model);
    fuzz::require(counts.total >= counts.trainable, "more trainable parameters than parameters");
    const Json printed = zeroplan::parse_json(config.dump(), "printed.json").root;
    const Model again = zeroplan::read_model(printed, "config.json");
    fuzz::require(count_parameters(again).total == counts.total,
                  "what was printed has other parameters");
  });
  return 0;
}
