// How far predictions of a kind of plan were off: from rehearsals of real programs and published
// measurements, as tests/identical compares them and writes them to configs/accuracy.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan::evidence {

// The name of a plan's way to divide a model in tables of accuracy: "ZeRO-3, optimizer on CPU",
// "FSDP full shard".
std::string strategy_of(const Plan& plan);
// Its name in the table of rehearsals, where trainers and adapters are kinds of their own.
std::string rehearsed_kind_of(const Plan& plan);

// Relative errors without their sign.
struct KnownErrors {
  std::string kind;  // "all" where nothing of the plan's kind was compared
  std::int64_t rows = 0;
  double median = 0.0;
  double p95 = 0.0;
};

struct Accuracy {
  KnownErrors rehearsed;  // what a GPU allocates, rehearsed
  KnownErrors memory;     // a GPU's peak, published
  KnownErrors time;       // a step, published
};

Accuracy accuracy_of(const Plan& plan);

// A row of a file in configs/accuracy.
Json to_json(const KnownErrors& errors);

}  // namespace zeroplan::evidence
