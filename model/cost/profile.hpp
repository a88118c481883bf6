// A profile: what was measured of a machine or fitted to measurements, to be used instead of the
// tables' values, and how far predictions of its runs were off. Written by `zeroplan profile`,
// `zeroplan calibrate` and `zeroplan validate`, read by every command through --profile or the
// scenario's "profile" (docs/calibrate.md).
//
//   {"schema": "zeroplan.profile/1", "name": "...", "date": "2026-11-22", "provenance": "...",
//    "values": [{"name": "cpu_adam_process_rate", "value": 9e8, "unit": "1/s",
//                "relative_sd": 0.02, "provenance": "measured: ...", "gpu": "a100"}],
//    "range": {"parameters": [1e8, 3e10], ...},
//    "validated": {"memory": [{"kind": "ZeRO-3", "rows": 4, "median_abs_error": 0.01,
//                              "p95_abs_error": 0.02}, ...], "time": [...]}}
//
// A value's name is a coefficient (model/cost/coefficients.hpp) or a figure of the machine
// (kMachineFigures); `gpu` limits a coefficient to GPUs whose key begins so. `range` says what a
// fit has seen; a plan outside it is warned of. `validated` changes no prediction: what an answer
// says of its errors has it beside those of published runs. Anything else in the document is for
// people.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "model/cost/coefficients.hpp"
#include "model/hardware/hardware.hpp"

namespace zeroplan {

// Figures of one machine that a profile may give, by their keys in the inline cluster (contract
// section 1); those of `nvme` with its name in front.
struct MachineFigure {
  std::string_view name;
  std::string_view unit;
  std::string_view section;  // of the inline cluster; empty: its top
  std::string_view key;
  bool whole;  // a whole number
  double low, high;
};
inline constexpr std::array kMachineFigures = {
    MachineFigure{"host_memory_bytes", "bytes", "", "host_memory_bytes", true, 1e8, 1e15},
    MachineFigure{
        "host_memory_bandwidth", "bytes/s", "", "host_memory_bandwidth", false, 1e8, 1e14},
    MachineFigure{"cpu_cores", "1", "", "cpu_cores", true, 1, 4096},
    MachineFigure{"cpu_sockets", "1", "", "cpu_sockets", true, 1, 64},
    MachineFigure{"pcie_bandwidth", "bytes/s", "", "pcie_bandwidth", false, 1e8, 1e13},
    MachineFigure{"nvme_read_bandwidth", "bytes/s", "nvme", "read_bandwidth", false, 1e6, 1e13},
    MachineFigure{"nvme_write_bandwidth", "bytes/s", "nvme", "write_bandwidth", false, 1e6, 1e13},
    MachineFigure{"nvme_capacity_bytes", "bytes", "nvme", "capacity_bytes", true, 1e6, 1e17},
};

struct MachineValue {
  const MachineFigure* figure = nullptr;
  double value = 0.0;
  double relative_sd = 0.0;
};

// What a fit has seen of a quantity, inclusive.
struct SeenRange {
  std::string what;  // "parameters", "sequence_length", "tokens_per_micro_batch", "gpus"
  double low = 0.0;
  double high = 0.0;
};

// How far predictions of a kind of plan were off: relative errors without their sign.
struct KnownErrors {
  std::string kind;  // "ZeRO-3, optimizer on CPU"; "all": of every kind
  std::int64_t rows = 0;
  double median = 0.0;
  double p95 = 0.0;
};

// The errors of one kind as a row of `validated` and of configs/accuracy has them.
Json to_json(const KnownErrors& errors);
// Such a row, which has all members.
KnownErrors known_errors(const Json& row);

struct Profile {
  std::string name;
  std::string date;
  std::string provenance;
  std::vector<CoefficientValue> coefficients;
  std::vector<MachineValue> machine;
  std::vector<SeenRange> range;
  std::vector<std::string> gpus;  // keys of the GPUs a fit has seen; empty: no fit
  // Errors of the machine's own runs by kind of plan, "all" last; empty: none were compared.
  std::vector<KnownErrors> validated_memory;  // a GPU's peaks
  std::vector<KnownErrors> validated_time;    // steps
  Json document;                              // as read
};

// Whether the profile replaces coefficients or figures: one made by `validate` alone does not.
bool has_figures(const Profile& profile);

// The document at a path or in a scenario. Throws InputError with all that is wrong: an unknown
// name with the nearest ones, a value that is no number or outside its bounds, a wrong unit.
Profile parse_profile(const Json& value, const std::string& file, const std::string& pointer);

// One entry of `values`.
Json value_json(std::string_view name,
                double value,
                std::string_view unit,
                double relative_sd,
                std::string_view provenance,
                std::string_view gpu = "");

// The inline cluster with the profile's figures for those that are unspecified: what is missing,
// and what its own list `assumed` names. `taken` gets the names of those that were set.
Json with_machine_figures(Json cluster, const Profile& profile, std::vector<std::string>& taken);

}  // namespace zeroplan
