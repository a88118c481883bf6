#include "model/release_table.hpp"

#include <algorithm>
#include <array>

#include "base/check.hpp"
#include "model/release_rows_deepspeed.hpp"
#include "model/release_rows_pairs.hpp"
#include "model/release_rows_torch.hpp"
#include "model/release_rows_transformers.hpp"
#include "model/release_rows_trl.hpp"

namespace zeroplan {
namespace {

template <std::size_t... Sizes>
constexpr auto joined(const std::array<ReleaseRow, Sizes>&... parts) {
  std::array<ReleaseRow, (Sizes + ...)> all{};
  auto end = all.begin();
  ((end = std::copy(parts.begin(), parts.end(), end)), ...);
  return all;
}

constexpr std::array kRows = joined(release_tables::kDeepSpeedRows,
                                    release_tables::kTorchRows,
                                    release_tables::kTransformersRows,
                                    release_tables::kTrlRows,
                                    release_tables::kPairRows);

constexpr bool is_ordered() {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    const ReleaseRow& row = kRows[i];
    if (static_cast<std::size_t>(row.rule) != i) return false;
    if (row.until != Version{} && row.until <= row.since) return false;
  }
  return kRows.size() <= RuleSwitches::kMost;
}
static_assert(is_ordered(), "rows in the order of ReleaseRule, each of some release");

// In the order of DeepSpeedVersion.
constexpr std::array kFirstReleases{Version{0, 12, 0},
                                    Version{0, 14, 0},
                                    Version{0, 16, 0},
                                    Version{0, 17, 0},
                                    Version{0, 18, 0},
                                    Version{0, 19, 0}};
static_assert(kFirstReleases.size() == static_cast<std::size_t>(kNewestDeepSpeed) + 1);

}  // namespace

std::span<const ReleaseRow> release_rows() { return kRows; }

const ReleaseRow& release_row(ReleaseRule rule) { return kRows[static_cast<std::size_t>(rule)]; }

std::string_view display_name(Package package) {
  switch (package) {
    case Package::deepspeed:
      return "DeepSpeed";
    case Package::torch:
      return "torch";
    case Package::transformers:
      return "transformers";
    case Package::trl:
      return "TRL";
    case Package::accelerate:
      return "accelerate";
  }
  return "";
}

Version first_release(DeepSpeedVersion version) {
  return kFirstReleases[static_cast<std::size_t>(version)];
}

bool acts(ReleaseRule rule, const Version& release) {
  const ReleaseRow& row = release_row(rule);
  return release >= row.since && (row.until == Version{} || release < row.until);
}

bool acts(ReleaseRule rule, Package package, const Version& release, const RuleSwitches& switched) {
  ZP_CHECK(release_row(rule).package == package, "a rule of another package");
  return acts(rule, release) != switched.contains(rule);
}

}  // namespace zeroplan
