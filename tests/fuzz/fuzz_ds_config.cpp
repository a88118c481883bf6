// ds_config.json: what is read is emitted and read back equal, and the rules judge it.
#include "model/knobs/ds_config.hpp"
#include "model/knobs/rules.hpp"
#include "tests/fuzz/fuzz_support.hpp"

namespace fuzz = zeroplan::fuzz;

namespace {

using zeroplan::DsConfig;

DsConfig read_back(const DsConfig& config) {
  return parse_ds_config(zeroplan::parse_json(emit(config).dump(2), "emitted.json"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  DsConfig config;
  const bool read = fuzz::reads([&] {
    config = parse_ds_config(zeroplan::parse_json(fuzz::text_of(data, size), "input.json"));
  });
  if (!read) return 0;
  fuzz::require(read_back(config) == config, "what was emitted reads differently");
  const DsConfig trainer = for_trainer(config);
  fuzz::require(read_back(trainer) == trainer, "the Trainer's form reads differently");
  for (const auto style : {zeroplan::ConfigStyle::native, zeroplan::ConfigStyle::hf_trainer}) {
    zeroplan::RuleContext context;
    context.world_size = 8;
    context.style = style;
    for (const auto& finding : all_findings(config, context)) {
      fuzz::require(!finding.message.empty(), "a finding without words");
    }
  }
  return 0;
}
