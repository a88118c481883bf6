// The recipes of docs/recipes.md, followed: the files that they name are there, the family that was
// added last stands only where its recipe says, and the GPU of the GPU's recipe is planned.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "base/json.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/predict.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = ZEROPLAN_SOURCE_DIR;

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string recipes() { return text_of(kRoot / "docs/recipes.md"); }

// "## A model family" up to the next heading.
std::string recipe(const std::string& heading) {
  const std::string all = recipes();
  const std::size_t from = all.find("## " + heading + "\n");
  REQUIRE(from != std::string::npos);
  return all.substr(from, all.find("\n## ", from) - from);
}

// Paths between backquotes. NAME and * stand for part of a name.
std::set<std::string> paths_in(const std::string& text) {
  static const std::regex path("`([A-Za-z_]+(?:/[A-Za-z0-9_.*]+)+)`");
  std::set<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), path), end; at != end; ++at) {
    found.insert((*at)[1]);
  }
  return found;
}

bool matches(const std::string& pattern, const std::string& path) {
  std::string regex = std::regex_replace(pattern, std::regex("\\."), "\\.");
  regex = std::regex_replace(regex, std::regex("NAME|\\*"), "[A-Za-z0-9_]+");
  return std::regex_match(path, std::regex(regex));
}

bool exists(const std::string& pattern) {
  if (fs::exists(kRoot / pattern)) return true;
  const fs::path folder = fs::path(pattern).parent_path();
  for (const auto& entry : fs::directory_iterator(kRoot / folder)) {
    if (matches(pattern, (folder / entry.path().filename()).string())) return true;
  }
  return false;
}

// Sources of the planner, from the root.
std::set<std::string> sources() {
  std::set<std::string> found;
  for (const char* layer :
       {"model", "foreign", "simulator", "tuner", "evidence", "cli", "library"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / layer)) {
      const std::string extension = entry.path().extension();
      if (extension != ".cpp" && extension != ".hpp") continue;
      found.insert(fs::relative(entry.path(), kRoot).string());
    }
  }
  return found;
}

}  // namespace

TEST_CASE("files that recipes name are there") {
  const std::set<std::string> paths = paths_in(recipes());
  REQUIRE(paths.size() > 30);
  for (const std::string& path : paths) {
    CAPTURE(path);
    CHECK(exists(path));
  }
}

TEST_CASE("the family that was added last touched the files of its recipe") {
  const std::set<std::string> named = paths_in(recipe("A model family"));
  const std::regex family("internlm2", std::regex::icase);
  std::size_t touched = 0;
  for (const std::string& source : sources()) {
    if (!std::regex_search(text_of(kRoot / source), family)) continue;
    ++touched;
    const bool in_recipe = std::any_of(named.begin(), named.end(), [&](const std::string& pattern) {
      return matches(pattern, source);
    });
    CAPTURE(source);
    CHECK(in_recipe);
  }
  CHECK(touched >= 5);  // builder, its row, forward pass, declaration, its row
}

TEST_CASE("the GPU of the GPU's recipe is planned from its document") {
  const std::string text = recipe("A GPU");
  const std::size_t from = text.find("```json\n") + 8;
  const fs::path folder = fs::temp_directory_path() / "zeroplan_recipe_gpu";
  fs::create_directories(folder);
  const fs::path file = folder / "n1.json";
  std::ofstream(file) << text.substr(from, text.find("```", from) - from);
  JsonDocument document = read_json_file(file.string());
  fs::remove_all(folder);
  document.root["model"] = "llama-2-7b";
  document.root["workload"] =  // so much work that products decide
      Json::object({{"micro_batch_size", 8}, {"activation_checkpointing", "full"}});

  const Plan plan = resolve(parse_scenario(document));
  CHECK(plan.cluster.gpu.name == "N1-96G");
  CHECK(plan.cluster.gpu.memory.value == Bytes::of(101'000'000'000));
  CHECK(plan.coefficients[Coefficient::matmul_isolated_efficiency] == 0.8);
  const Seconds step = predict(plan).step.total;

  // Products at half the rate: a slower step. So the document's numbers count.
  for (Json& value : document.root["profile"]["values"].items()) {
    if (value.find("name")->as_string() == "matmul_isolated_efficiency") value["value"] = 0.4;
  }
  CHECK(predict(resolve(parse_scenario(document))).step.total > step * 1.2);
}
