// The families against transformers itself, as recorded by tests/reference/count_parameters.py.
#include <algorithm>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "model/families/hf_config.hpp"
#include "model/families/recorded_class.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Json reference() {
  return read_json_file(ZEROPLAN_SOURCE_DIR "/tests/reference/parameter_counts.json").root;
}

const ModelUse kUse{.experts = ExpertLayout::modules, .transformers = Version{4, 51, 3}};

// Of transformers 5, for the families that came after 4.51 or whose experts are stacked there.
Json reference_5() {
  return read_json_file(ZEROPLAN_SOURCE_DIR "/tests/reference/parameter_counts_5.json").root;
}

// "name [1, 2]" of each parameter, in order.
std::vector<std::string> parameter_lines(const Model& model) {
  std::vector<std::string> lines;
  for (const Parameter& parameter : model.parameters) {
    std::vector<Json> shape;
    for (const std::int64_t extent : parameter.shape) shape.emplace_back(extent);
    lines.push_back(parameter.name + " " + Json::array(shape).dump());
  }
  return lines;
}

std::vector<std::string> module_lines(const Model& model) {
  std::vector<std::string> lines;
  for (const Module& module : model.modules) lines.push_back(module.name + " " + module.type);
  return lines;
}

std::vector<std::string> recorded(const Json& pairs) {
  std::vector<std::string> lines;
  for (const Json& pair : pairs.items()) {
    const Json& second = pair.items()[1];
    lines.push_back(pair.items()[0].as_string() + " " +
                    (second.is_string() ? second.as_string() : second.dump()));
  }
  return lines;
}

// Where two lists part, "" where they are equal.
std::string first_difference(const std::vector<std::string>& ours,
                             const std::vector<std::string>& theirs) {
  const std::size_t longer = std::max(ours.size(), theirs.size());
  for (std::size_t at = 0; at < longer; ++at) {
    const std::string mine = at < ours.size() ? ours[at] : "nothing";
    const std::string other = at < theirs.size() ? theirs[at] : "nothing";
    if (mine != other) return std::to_string(at) + ": " + mine + " instead of " + other;
  }
  return "";
}

}  // namespace

namespace {

// Whether the config is of a recorded class and not among what was recorded: it has another head,
// or more switches at once.
bool is_left_out(const Json& config, const ModelUse& use) {
  const Json* type = config.find("model_type");
  const std::optional<RecordedClass> known =
      recorded_class(config, type != nullptr ? type->as_string() : "", use);
  return known && !known->document;
}

// Returns how many are left out.
int check_layouts(const Json& root, const ModelUse& use) {
  int left_out = 0;
  for (const Json& row : root.find("layouts")->items()) {
    const Json& config = *row.find("config");
    INFO(config.dump());
    if (is_left_out(config, use)) {
      ++left_out;
      continue;
    }
    const Model model = read_model(config, "layout", "", use);
    CHECK(first_difference(parameter_lines(model), recorded(*row.find("parameters"))) == "");
    // A newer release may call its modules otherwise.
    if (!use.transformers || model.releases.recorded <= *use.transformers) {
      CHECK(first_difference(module_lines(model), recorded(*row.find("modules"))) == "");
    }
    CHECK(count_parameters(model).total.count() == row.find("total")->as_integer());
  }
  return left_out;
}

void check_presets(const Json& root) {
  for (const Json& row : root.find("presets")->items()) {
    INFO(row.dump());
    const Model model = model_from_name(row.find("name")->as_string());
    CHECK(count_parameters(model).total.count() == row.find("parameters")->as_integer());
  }
}

}  // namespace

TEST_CASE("families list parameters and modules exactly as transformers does") {
  REQUIRE(reference().find("layouts")->items().size() > 50);
  CHECK(check_layouts(reference(), kUse) == 40);
  REQUIRE(reference_5().find("layouts")->items().size() >= 6);
  CHECK(check_layouts(reference_5(), {.experts = ExpertLayout::fused}) == 9);
}

TEST_CASE("presets count what transformers counts at full size") {
  REQUIRE(reference().find("presets")->items().size() > 40);
  check_presets(reference());
  REQUIRE(reference_5().find("presets")->items().size() >= 2);
  check_presets(reference_5());
}

TEST_CASE("a module's parameters are the ones below its name, tied ones included") {
  const Json root = reference();
  for (const Json& row : root.find("layouts")->items()) {
    if (is_left_out(*row.find("config"), kUse)) continue;
    const Model model = read_model(*row.find("config"), "layout", "", kUse);
    INFO(row.find("config")->dump());
    std::vector<int> first_user(model.parameters.size(), -1);
    for (std::size_t m = 0; m < model.modules.size(); ++m) {
      const Module& module = model.modules[m];
      if (m > 0) {
        REQUIRE(module.parent >= 0);
        REQUIRE(module.parent < static_cast<int>(m));
        const std::string& parent = model.modules[static_cast<std::size_t>(module.parent)].name;
        const bool below = parent.empty() || module.name.rfind(parent + ".", 0) == 0;
        CHECK(below);
      }
      for (const int index : module.parameters) {
        const auto at = static_cast<std::size_t>(index);
        REQUIRE(at < model.parameters.size());
        if (first_user[at] < 0) {
          first_user[at] = static_cast<int>(m);
          const bool named = model.parameters[at].name.rfind(module.name, 0) == 0;
          CHECK(named);
        }
      }
    }
    for (const int user : first_user) CHECK(user >= 0);
  }
}
