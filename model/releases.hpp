// What single releases of DeepSpeed do that changes memory, time or results: one row for each
// difference, with the releases it holds for and its source.
//
// Code asks acts(rule, release) instead of comparing versions itself, and lint's rule release-trap
// reads the same rows. More comparisons of releases stand in model/engine, model/implementations
// and simulator; a row is added here when its code asks this table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "model/software.hpp"

namespace zeroplan {

enum class ReleaseRule : std::uint8_t {
  // Stage 3 keeps the weights of what is recomputed without reentrance gathered until the step.
  misses_recomputed_ends,
  // Stage 1 in bf16 with fp32 accumulation takes the optimizer without ZeRO.
  stage1_without_zero,
  // MiCS reduces gradients over all ranks although a shard group holds the weights.
  mics_reduces_over_all,
};

struct ReleaseRow {
  ReleaseRule rule;
  Version since;            // the first release that does it
  Version until;            // the first that does it no more
  std::string_view source;  // file and symbol, or pull requests of DeepSpeed
};

// In the order of ReleaseRule. Where a row begins or ends with a series (0.17.0), one release of
// that series was read (software.cpp) and stands for all of it.
inline constexpr std::array kReleaseRows{
    // ds_grads_remaining is set to zero in each forward pass but in these; tests/unit/module_walk.
    ReleaseRow{ReleaseRule::misses_recomputed_ends,
               {0, 16, 0},
               {0, 16, 8},
               "runtime/zero/parameter_offload.py:ds_grads_remaining"},
    // Two constants of one text are compared; 0.17.6 and 0.18.9 were read.
    ReleaseRow{ReleaseRule::stage1_without_zero,
               {0, 17, 0},
               {0, 18, 0},
               "runtime/engine.py:_configure_optimizer"},
    // 0.19.6 was read; 0.19.8 has no MiCS.
    ReleaseRow{ReleaseRule::mics_reduces_over_all,
               {0, 19, 0},
               {0, 19, 8},
               "runtime/zero/stage3.py:_get_param_partition_group"},
};

// The first release of each described behaviour, in the order of DeepSpeedVersion.
inline constexpr std::array kFirstReleases{Version{0, 12, 0},
                                           Version{0, 14, 0},
                                           Version{0, 16, 0},
                                           Version{0, 17, 0},
                                           Version{0, 18, 0},
                                           Version{0, 19, 0}};

constexpr const ReleaseRow& release_row(ReleaseRule rule) {
  return kReleaseRows[static_cast<std::size_t>(rule)];
}

// Whether this release of DeepSpeed does it.
constexpr bool acts(ReleaseRule rule, const Version& release) {
  const ReleaseRow& row = release_row(rule);
  return release >= row.since && release < row.until;
}

// The same of a described behaviour; for rules that begin and end with a series.
constexpr bool acts(ReleaseRule rule, DeepSpeedVersion version) {
  return acts(rule, kFirstReleases[static_cast<std::size_t>(version)]);
}

namespace releases_detail {
constexpr bool is_ordered() {
  for (std::size_t i = 0; i < kReleaseRows.size(); ++i) {
    const ReleaseRow& row = kReleaseRows[i];
    if (static_cast<std::size_t>(row.rule) != i || row.until <= row.since) return false;
  }
  return true;
}
static_assert(is_ordered(), "rows in the order of ReleaseRule, each of some release");
}  // namespace releases_detail

}  // namespace zeroplan
