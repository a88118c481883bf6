#include "model/plan/release_pairs.hpp"

#include "model/releases.hpp"

namespace zeroplan {

bool stops_in_no_sync(const Version& deepspeed,
                      const Version& transformers,
                      std::int64_t gradient_accumulation_steps) {
  return gradient_accumulation_steps > 1 && acts(ReleaseRule::has_no_sync, deepspeed) &&
         acts(ReleaseRule::enters_no_sync, transformers);
}

bool stops_at_fraction(const Version& deepspeed,
                       const Version& transformers,
                       std::int64_t hidden_size) {
  constexpr std::int64_t kTenths = 10;
  return hidden_size * hidden_size % kTenths != 0 &&
         acts(ReleaseRule::needs_pydantic_2, deepspeed) &&
         acts(ReleaseRule::fills_fractions, transformers);
}

}  // namespace zeroplan
