// lint against DeepSpeed itself: tests/reference/ds_config_judgements.json has what the
// parsers of two releases (with the Hugging Face Trainer and accelerate before them, where a file
// says "auto") said about every file of the corpus and every mutated configuration. Where lint and
// a release differ, tests/reference/ds_config_differences.json says why; nothing else may differ.
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "model/lint/lint.hpp"
#include "model/predict/predict.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

namespace fs = std::filesystem;

const std::string kReference = std::string(ZEROPLAN_SOURCE_DIR) + "/tests/reference/";
const fs::path kCorpus = fs::path(ZEROPLAN_SOURCE_DIR) / ".." / "shared" / "corpus" / "ds_configs";

Json read(const std::string& name) { return read_json_file(kReference + name).root; }

const Json& member(const Json& object, std::string_view key) {
  const Json* found = object.find(key);
  REQUIRE(found != nullptr);
  return *found;
}

std::string text_of(const Json& object, std::string_view key) {
  return member(object, key).as_string();
}

// A file of the corpus or a mutation, and the number of GPUs that it was judged for.
struct Case {
  std::string name;
  std::string path;
  std::int64_t gpus = 1;
  const Json* verdicts = nullptr;
};

// Mutations become files of a folder that goes away with the object.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / "zeroplan_ds_config_judgements") {
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string write(const std::string& name, const std::string& text) const {
    const fs::path file = path_ / (name + ".json");
    std::ofstream(file, std::ios::binary) << text;
    return file.string();
  }

 private:
  fs::path path_;
};

// What lint says: the code or the place of its first error; empty where it has none.
std::string first_error(const Case& one, const std::string& release) {
  LintRequest request{.result_of = [](const Plan& plan) { return predict(plan); }};
  request.scenario.set(ScenarioKey::deepspeed_version, release, {"command line", "--deepspeed"});
  request.gpus = one.gpus;
  try {
    request.config = read_ds_config(one.path);
  } catch (const InputError& error) {
    const Diagnostic& first = error.diagnostics().front();
    CHECK_FALSE(first.expected.empty());
    return "input " + first.pointer;
  }
  for (const Finding& finding : lint(request).findings) {
    if (finding.severity != Severity::error) continue;
    CHECK_FALSE(finding.message.empty());
    return finding.code;
  }
  return "";
}

// The reasons of ds_config_differences.json by release and name; `used` collects what occurred.
class Differences {
 public:
  Differences() : document_(read("ds_config_differences.json")) {
    for (const Json& group : member(document_, "differences").items()) {
      CHECK(text_of(group, "why").size() > 20);
      for (const Json& release : member(group, "releases").items()) {
        for (const Json& name : member(group, "names").items()) {
          const Key key{release.as_string(), name.as_string()};
          INFO(key.second);
          CHECK(lint_says_.emplace(key, text_of(group, "lint")).second);
        }
      }
    }
  }

  // "accepts" or "refuses" where a difference is listed, else empty.
  std::string lint_says(const std::string& release, const std::string& name) {
    const auto found = lint_says_.find({release, name});
    if (found == lint_says_.end()) return "";
    used_.insert(found->first);
    return found->second;
  }
  std::vector<std::string> never_used(const std::set<std::string>& judged) const {
    std::vector<std::string> names;
    for (const auto& [key, says] : lint_says_) {
      if (judged.count(key.second) > 0 && used_.count(key) == 0) names.push_back(key.second);
    }
    return names;
  }

 private:
  using Key = std::pair<std::string, std::string>;
  Json document_;
  std::map<Key, std::string> lint_says_;
  std::set<Key> used_;
};

void hold_against(const std::vector<Case>& cases, const std::vector<std::string>& releases) {
  Differences differences;
  std::set<std::string> judged;
  for (const Case& one : cases) {
    judged.insert(one.name);
    for (const std::string& release : releases) {
      const Json& verdict = member(*one.verdicts, release);
      const bool refused = text_of(verdict, "verdict") == "rejected";
      const std::string error = first_error(one, release);
      const std::string said = refused ? text_of(verdict, "message") : "accepted";
      const std::string listed = differences.lint_says(release, one.name);
      INFO(one.name << " for DeepSpeed " << release << ": " << said
                    << "; lint: " << (error.empty() ? "nothing" : error));
      if (refused == !error.empty()) {
        CHECK(listed.empty());  // the difference is gone: remove it from the table
      } else {
        CHECK(listed == (error.empty() ? "accepts" : "refuses"));
      }
    }
  }
  CHECK(differences.never_used(judged).empty());
}

std::vector<std::string> releases_of(const Json& judgements) {
  std::vector<std::string> releases;
  for (const auto& [release, versions] : member(judgements, "judges").members()) {
    releases.push_back(release);
  }
  return releases;
}

}  // namespace

TEST_CASE("lint judges mutated configurations as DeepSpeed does") {
  const Json judgements = read("ds_config_judgements.json");
  const Json mutations = read("ds_config_mutations.json");
  const Json& verdicts = member(judgements, "mutations");
  const Folder folder;
  std::vector<Case> cases;
  for (const Json& mutation : member(mutations, "mutations").items()) {
    const std::string id = text_of(mutation, "id");
    const Json* text = mutation.find("text");
    const Json& verdict = member(verdicts, id);
    cases.push_back(
        {id,
         folder.write(id, text != nullptr ? text->as_string() : member(mutation, "config").dump()),
         member(verdict, "gpus").as_integer(),
         &verdict});
  }
  REQUIRE(cases.size() >= 80);
  CHECK(cases.size() == verdicts.members().size());
  const std::vector<std::string> releases = releases_of(judgements);
  REQUIRE(releases.size() == 2);
  hold_against(cases, releases);
}

TEST_CASE("lint judges the files of the corpus as DeepSpeed does") {
  const Json judgements = read("ds_config_judgements.json");
  std::error_code error;
  if (!fs::is_directory(kCorpus, error)) {
    WARN("skipped: no corpus of ds_configs beside the repository");
    return;
  }
  std::vector<Case> cases;
  for (const auto& [name, verdict] : member(judgements, "corpus").members()) {
    cases.push_back(
        {name, (kCorpus / name).string(), member(verdict, "gpus").as_integer(), &verdict});
  }
  REQUIRE(cases.size() >= 150);
  hold_against(cases, releases_of(judgements));
}
