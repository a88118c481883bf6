#include "cli/arguments.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>

#include "base/diagnostic.hpp"
#include "model/plan/cluster_parts.hpp"
#include "model/plan/scenario_reader.hpp"

namespace zeroplan::cli {
namespace {

constexpr std::array kClusterFlags = {
    ClusterFlagInfo{"--host-memory",
                    "",
                    "host_memory_bytes",
                    ClusterFlagInfo::Kind::bytes,
                    "SIZE",
                    "host memory of a node: 64G, 512GiB, 1T, or bytes"},
    ClusterFlagInfo{
        "--cpu-cores", "", "cpu_cores", ClusterFlagInfo::Kind::count, "N", "CPU cores of a node"},
    ClusterFlagInfo{"--network",
                    "inter_node",
                    "bandwidth",
                    ClusterFlagInfo::Kind::gigabits,
                    "GBITS",
                    "network of a node in Gb/s: 25, 100"},
};

// The number that `text` starts with; the rest stays in `text`.
std::optional<double> take_number(std::string_view& text) {
  double number = 0.0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  return number;
}

// What a unit multiplies by: G and GB are 10^9, GiB is 2^30.
std::optional<double> unit_factor(std::string_view unit) {
  struct Unit {
    std::string_view names[3];
    double factor;
  };
  constexpr Unit kUnits[] = {{{"", "B", "b"}, 1.0},
                             {{"M", "MB", "m"}, 1e6},
                             {{"G", "GB", "g"}, 1e9},
                             {{"T", "TB", "t"}, 1e12},
                             {{"MiB", "Mi", ""}, 1024.0 * 1024},
                             {{"GiB", "Gi", ""}, 1024.0 * 1024 * 1024},
                             {{"TiB", "Ti", ""}, 1024.0 * 1024 * 1024 * 1024}};
  for (const Unit& row : kUnits) {
    for (const std::string_view name : row.names) {
      if (name == unit) return row.factor;
    }
  }
  return std::nullopt;
}

}  // namespace

std::span<const ClusterFlagInfo> cluster_flags() { return kClusterFlags; }

std::vector<std::string> parts_of(const std::string& value, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= value.size();) {
    const std::size_t end = std::min(value.find(separator, begin), value.size());
    parts.push_back(value.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Json parse_cluster_flag(const ClusterFlagInfo& flag, std::string_view text) {
  std::string_view rest = text;
  const std::optional<double> number = take_number(rest);
  constexpr double kMost = 1e18;  // finite; the cluster's own ranges are checked where it is read
  const bool good = number && *number >= 0 && *number <= kMost;
  Phrase expected = "a whole number";
  if (flag.kind == ClusterFlagInfo::Kind::bytes) {
    const std::optional<double> factor = unit_factor(rest);
    if (good && factor) return Json(*number * *factor);
    expected = "a size such as 64G, 512GiB or 1T";
  } else if (flag.kind == ClusterFlagInfo::Kind::gigabits) {
    const bool plain = rest.empty() || rest == "G" || rest == "Gb" || rest == "Gb/s";
    if (good && plain) return Json(*number * 1e9 / 8.0);
    expected = "gigabits per second such as 25 or 100";
  } else if (good && rest.empty() &&
             *number == static_cast<double>(static_cast<std::int64_t>(*number))) {
    return Json(static_cast<std::int64_t>(*number));
  }
  throw InputError({kCommandLine, std::string(flag.flag), expected, in_quotes(text), ""});
}

std::optional<std::string> Arguments::text(const std::string& option) const {
  const auto found = options.find(option);
  if (found == options.end()) return std::nullopt;
  return found->second;
}

std::optional<std::int64_t> Arguments::integer(const std::string& option,
                                               std::int64_t min,
                                               std::int64_t max) const {
  const auto said = text(option);
  if (!said) return std::nullopt;
  std::int64_t number = 0;
  const char* const end = said->data() + said->size();
  const auto [stop, error] = std::from_chars(said->data(), end, number);
  if (error != std::errc() || stop != end || number < min || number > max) {
    const bool open = max == std::numeric_limits<std::int64_t>::max();
    const std::string least = std::to_string(min);
    throw InputError({kCommandLine,
                      "--" + option,
                      open ? phrase("a whole number of at least {}", least)
                           : phrase("a whole number from {} to {}", least, max),
                      in_quotes(*said),
                      ""});
  }
  return number;
}

std::optional<double> Arguments::real(const std::string& option, double min, double max) const {
  const auto said = text(option);
  if (!said) return std::nullopt;
  std::string_view rest = *said;
  const std::optional<double> number = take_number(rest);
  if (!number || !rest.empty() || !(*number >= min && *number <= max)) {
    throw InputError({kCommandLine,
                      "--" + option,
                      phrase("a number from {} to {}", Json(min).dump(), Json(max).dump()),
                      in_quotes(*said),
                      ""});
  }
  return number;
}

Json with_cluster_parts(const Json& said, const Origin& origin, const Arguments& arguments) {
  std::vector<ClusterPart> parts;
  for (const auto& [flag, value] : arguments.cluster_changes) {
    parts.push_back({flag->section, flag->key, value});
  }
  return with_cluster_parts(said, origin, parts);
}

Scenario with_flags(const Scenario& base, const Arguments& arguments) {
  Scenario scenario = overlay(base, arguments.flags);
  if (!arguments.ds_config.empty()) {
    ExplicitValue whole =
        with_ds_config_flags(scenario.find(ScenarioKey::ds_config), arguments.ds_config);
    scenario.set(ScenarioKey::ds_config, std::move(whole.value), whole.origin);
  }
  const ExplicitValue* said = scenario.find(ScenarioKey::cluster);
  if (said == nullptr) return scenario;  // resolve() asks for it
  const Origin origin = said->origin;
  scenario.set(ScenarioKey::cluster, with_cluster_parts(said->value, origin, arguments), origin);
  return scenario;
}

namespace {

// A kit's folder, or scenario.json on top of it, names kit/scenario.json below.
std::string scenario_path(const std::string& said) {
  namespace fs = std::filesystem;
  std::error_code none;
  const bool folder = fs::is_directory(said, none);
  if (!folder && (fs::exists(said, none) || fs::path(said).filename() != "scenario.json"))
    return said;
  const fs::path top = folder ? fs::path(said) : fs::path(said).parent_path();
  for (const fs::path& path : {top / "kit" / "scenario.json", top / "scenario.json"}) {
    if (fs::exists(path, none)) return path.string();
  }
  return said;
}

}  // namespace

Scenario scenario_of(const Arguments& arguments) {
  if (!arguments.scenario_file) return with_flags(arguments.from, arguments);
  const Scenario document = parse_scenario(read_json_file(scenario_path(*arguments.scenario_file)));
  return with_flags(overlay(document, arguments.from), arguments);
}

std::vector<Positional> positionals_of(const CommandInfo& command) {
  std::vector<Positional> result;
  std::string_view rest = command.positionals;
  while (!rest.empty()) {
    const std::size_t space = rest.find(' ');
    std::string_view word = rest.substr(0, space);
    rest = space == std::string_view::npos ? "" : rest.substr(space + 1);
    const bool optional = word.back() == '?' || word.back() == '*';
    const bool many = word.back() == '+' || word.back() == '*';
    if (optional || many) word.remove_suffix(1);
    result.push_back({word, !optional, many});
  }
  return result;
}

}  // namespace zeroplan::cli
