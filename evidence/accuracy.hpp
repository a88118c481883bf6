// How far predictions of a kind of plan were off: from rehearsals of real programs and published
// measurements, as tests/identical compares them and writes them to configs/accuracy, and from
// measurements of one's own, which `zeroplan validate -o` writes into a profile.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "model/cost/profile.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan::evidence {

// The name of a plan's way to divide a model in tables of accuracy: "ZeRO-3, optimizer on CPU",
// "FSDP full shard".
std::string strategy_of(const Plan& plan);
// Its name in the table of rehearsals, where trainers and adapters are kinds of their own.
std::string rehearsed_kind_of(const Plan& plan);

// Errors of the plan's kind; those of "all" where nothing of that kind was compared.
struct Accuracy {
  KnownErrors rehearsed;                  // what a GPU allocates, rehearsed
  KnownErrors memory;                     // a GPU's peak, published
  KnownErrors time;                       // a step, published
  std::optional<KnownErrors> own_memory;  // peaks that the plan's profile was validated with
  std::optional<KnownErrors> own_time;    // and steps
};

Accuracy accuracy_of(const Plan& plan);

}  // namespace zeroplan::evidence
