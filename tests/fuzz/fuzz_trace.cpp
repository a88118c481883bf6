// zeroplan.graph/1, the document that `zeroplan trace` writes. A document that is read has
// parameters, gives the same when it is written and read again, and its graph is simulated or
// refused with an InputError.
#include "model/families/hf_config.hpp"
#include "model/families/traced_document.hpp"
#include "model/implementations/implementations.hpp"
#include "tests/fuzz/fuzz_support.hpp"

namespace fuzz = zeroplan::fuzz;

namespace {

// One input takes milliseconds: layers that are told to repeat stand in it one by one.
bool is_small(const zeroplan::Model& model) {
  constexpr std::size_t kMostTensors = 200;
  constexpr std::int64_t kMostLayers = 8;
  return model.parameters.size() <= kMostTensors && model.shape.layers <= kMostLayers;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using zeroplan::Json;
  using zeroplan::Model;
  fuzz::reads([&] {
    const Json document = zeroplan::parse_json(fuzz::text_of(data, size), "graph.json").root;
    if (!zeroplan::is_traced_document(document)) return;
    const Model model = zeroplan::read_model(document, "graph.json");
    const zeroplan::ParameterCounts counts = count_parameters(model);
    fuzz::require(counts.total >= counts.trainable, "more trainable parameters than parameters");
    const Json printed = zeroplan::parse_json(document.dump(), "printed.json").root;
    const Model again = zeroplan::read_model(printed, "graph.json");
    fuzz::require(count_parameters(again).total == counts.total,
                  "what was printed has other parameters");
    if (!is_small(model)) return;
    for (const auto checkpointing :
         {zeroplan::ActivationCheckpointing::none, zeroplan::ActivationCheckpointing::full}) {
      zeroplan::GraphOptions options;
      options.micro_batch = 2;
      options.sequence_length = 96;
      options.transformers = {5, 17};
      options.torch = {2, 11};
      options.use_cache = false;
      options.checkpointing = checkpointing;
      const zeroplan::ModelGraph graph = zeroplan::build_graph(model, options);
      fuzz::require(!graph.instances.empty(), "a graph without a block");
    }
  });
  return 0;
}
