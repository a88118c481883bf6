// What a ds_config.json says of the engine, with each knob's default where it is silent: for a plan
// (engine_from_plan.cpp), and for a recorded run (evidence/recorded_engine.cpp).
#pragma once

#include <optional>
#include <string>

#include "base/check.hpp"
#include "base/units.hpp"
#include "model/engine/engine_config.hpp"
#include "model/knobs/ds_config.hpp"

namespace zeroplan {

// Knobs of one file, with their defaults for its stage and the release that reads it.
class KnobReader {
 public:
  // `config` must outlive the reader.
  KnobReader(const DsConfig& config, const Version& release)
      : config_(config),
        stage_(static_cast<int>(config.integer(Knob::zero_stage).value_or(0))),
        release_(release) {}

  int stage() const { return stage_; }
  bool boolean(Knob knob) const {
    if (const auto said = config_.boolean(knob)) return *said;
    const KnobValue value = default_value(knob, stage_, release_);
    return std::holds_alternative<bool>(value) && std::get<bool>(value);
  }
  std::int64_t integer(Knob knob) const {
    if (const auto said = config_.integer(knob)) return *said;
    const KnobValue value = default_value(knob, stage_, release_);
    ZP_CHECK(std::holds_alternative<std::int64_t>(value), "a knob without an integer default");
    return std::get<std::int64_t>(value);
  }
  double real(Knob knob) const {
    if (const auto said = config_.real(knob)) return *said;
    const KnobValue value = default_value(knob, stage_, release_);
    ZP_CHECK(std::holds_alternative<double>(value), "a knob without a real default");
    return std::get<double>(value);
  }
  std::string text(Knob knob, const char* otherwise) const {
    return config_.text(knob).value_or(otherwise);
  }
  Elements elements(Knob knob) const { return Elements::of(integer(knob)); }
  std::optional<std::int64_t> said_integer(Knob knob) const { return config_.integer(knob); }
  std::optional<double> said_real(Knob knob) const { return config_.real(knob); }

 private:
  const DsConfig& config_;
  int stage_;
  Version release_;
};

// What a file leaves to the run.
struct EngineRun {
  Version release;        // of DeepSpeed
  RuleSwitches switched;  // of the rules about it
  int data_parallel_ranks = 1;
  DType model_dtype = DType::bf16;
};

// Stage, dtypes, gradient reduction, offload, stage 3, clipping. Left as EngineConfig has them: the
// rank and its neighbours, accumulation, the optimizer. What the release ignores is in it still
// (drop_what_is_ignored).
EngineConfig engine_from_ds_config(const DsConfig& file, const EngineRun& run);

// DeepSpeed's names of number formats (runtime/constants.py, runtime/config.py DtypeEnum).
DType dtype_named(const std::string& text, DType otherwise);

}  // namespace zeroplan
