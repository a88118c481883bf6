#include "model/release_table.hpp"

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "base/embedded.hpp"
#include "base/enum_names.hpp"
#include "base/json.hpp"

namespace zeroplan {
namespace {

constexpr const char* kPath = "configs/release_rules.json";
constexpr auto kNames = enumerator_names<ReleaseRule>();
constexpr auto kPackages = enumerator_names<Package>();
static_assert(kNames.names.size() <= RuleSwitches::kMost);

// configs/release_rules.json, whose texts the rows point into; rows in the order of ReleaseRule.
class Table {
 public:
  Table() : rows(kNames.names.size()) {
    for (const auto& [group, objects] : member(document_, "rules").members()) {
      for (const Json& object : objects.items()) {
        const ReleaseRow row = row_of(object);
        ReleaseRow& place = rows[static_cast<std::size_t>(row.rule)];
        ZP_CHECK(place.does.empty(), kPath + (": twice " + std::string(row.does)));
        place = row;
      }
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ZP_CHECK(!rows[i].does.empty(), kPath + (" lacks " + std::string(kNames.names[i])));
    }
  }

 private:
  static const Json& member(const Json& object, std::string_view key) {
    const Json* found = object.find(key);
    ZP_CHECK(found != nullptr, kPath + (" lacks " + std::string(key)));
    return *found;
  }

  // 0.0.0 where nothing is said.
  static Version release(const Json& object, std::string_view key) {
    const Json* said = object.find(key);
    if (said == nullptr) return {};
    const std::optional<Version> release = parse_version(said->as_string());
    ZP_CHECK(release.has_value(), kPath + (" has no release " + said->as_string()));
    return *release;
  }

  static ReleaseRow row_of(const Json& object) {
    const std::string& name = member(object, "rule").as_string();
    const std::optional<ReleaseRule> rule = find(kNames, name);
    const std::optional<Package> package = find(kPackages, member(object, "package").as_string());
    ZP_CHECK(rule.has_value() && package.has_value(), kPath + (" has an unknown name: " + name));
    return {*rule,
            *package,
            release(object, "since"),
            release(object, "until"),
            member(object, "does").as_string(),
            member(object, "source").as_string()};
  }

  Json document_ = parse_json(embedded_file(kPath), kPath).root;

 public:
  std::vector<ReleaseRow> rows;
};

const Table& table() {
  static const Table once;
  return once;
}

// In the order of DeepSpeedVersion.
constexpr std::array kFirstReleases{Version{0, 12, 0},
                                    Version{0, 14, 0},
                                    Version{0, 16, 0},
                                    Version{0, 17, 0},
                                    Version{0, 18, 0},
                                    Version{0, 19, 0}};
static_assert(kFirstReleases.size() == static_cast<std::size_t>(kNewestDeepSpeed) + 1);

}  // namespace

std::span<const ReleaseRow> release_rows() { return table().rows; }

const ReleaseRow& release_row(ReleaseRule rule) {
  return table().rows[static_cast<std::size_t>(rule)];
}

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
