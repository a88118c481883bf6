// A kit is written over nothing that zeroplan did not write.
#include "cli/write_kit.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <sys/stat.h>

#include "base/diagnostic.hpp"
#include "tests/catch.hpp"

namespace zeroplan {
namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "zeroplan_kit_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return (path / name).string(); }
};

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_directory()) names.push_back(entry.path().lexically_relative(folder).string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

using Kit = std::vector<tuner::KitFile>;

void write(const Kit& kit, const std::string& folder, bool force = false) {
  std::ostringstream log;
  cli::write_kit(kit, folder, force, log, cli::Translation(cli::Language::en));
}

std::vector<Diagnostic> refusals(const Kit& kit, const std::string& folder) {
  try {
    write(kit, folder);
  } catch (const InputError& error) {
    return error.diagnostics();
  }
  return {};
}

const Kit kFirst = {{"PLAN.md", "one"}, {"ds_config.json", "{}"}, {"model/config.json", "{1}"}};
const Kit kSecond = {{"PLAN.md", "two"}, {"ds_config.json", "{}"}, {"run.sh", "echo", true}};

TEST_CASE("a kit replaces the kit before it, whose files that it lacks go") {
  const Folder folder;
  write(kFirst, folder / "plan");
  CHECK(names_in(folder / "plan") ==
        std::vector<std::string>{
            ".zeroplan-kit.json", "PLAN.md", "ds_config.json", "model/config.json"});
  put(folder / "plan/notes.txt", "mine");
  write(kSecond, folder / "plan");
  CHECK(names_in(folder / "plan") ==
        std::vector<std::string>{
            ".zeroplan-kit.json", "PLAN.md", "ds_config.json", "notes.txt", "run.sh"});
  CHECK(text_of(folder / "plan/PLAN.md") == "two");
  CHECK(text_of(folder / "plan/notes.txt") == "mine");
  CHECK(access((folder / "plan/run.sh").c_str(), X_OK) == 0);
}

TEST_CASE("files of other hands are named, all of them, and nothing is written") {
  const Folder folder;
  put(folder / "PLAN.md", "my plan");
  fs::create_symlink("/dev/null", folder / "ds_config.json");
  const std::vector<Diagnostic> found = refusals(kFirst, folder.path.string());
  REQUIRE(found.size() == 2);
  CHECK(found[0].file == folder / "PLAN.md");
  CHECK(found[0].got == "one that zeroplan did not write");
  CHECK(found[0].hint == "name another folder, or replace it with --force");
  CHECK(found[1].file == folder / "ds_config.json");
  CHECK(names_in(folder.path.string()) == std::vector<std::string>{"PLAN.md", "ds_config.json"});
  CHECK(text_of(folder / "PLAN.md") == "my plan");
  write(kFirst, folder.path.string(), true);
  CHECK(text_of(folder / "PLAN.md") == "one");
  CHECK(fs::is_regular_file(fs::symlink_status(folder / "ds_config.json")));
  CHECK(fs::is_character_file("/dev/null"));
}

TEST_CASE("a file of the kit that was changed since is the user's") {
  const Folder folder;
  write(kFirst, folder.path.string());
  put(folder / "ds_config.json", "[]");  // as long as ours
  const std::vector<Diagnostic> found = refusals(kSecond, folder.path.string());
  REQUIRE(found.size() == 1);
  CHECK(found[0].file == folder / "ds_config.json");
  CHECK(found[0].got == "one that was changed since");
  CHECK(text_of(folder / "PLAN.md") == "one");
  CHECK_FALSE(fs::exists(folder / "run.sh"));
  // What the new kit lacks stays where it was changed.
  put(folder / "model/config.json", "mine");
  write(kSecond, folder.path.string(), true);
  CHECK(text_of(folder / "model/config.json") == "mine");
}

TEST_CASE("a file that says what the kit says is nobody's loss") {
  const Folder folder;
  put(folder / "ds_config.json", "{}");
  write(kFirst, folder.path.string());
  CHECK(text_of(folder / "PLAN.md") == "one");
}

TEST_CASE("a file of the kit keeps the mode that the user gave it") {
  const Folder folder;
  write(kFirst, folder.path.string());
  REQUIRE(chmod((folder / "PLAN.md").c_str(), 0600) == 0);
  write(kSecond, folder.path.string());
  struct stat status {};
  REQUIRE(stat((folder / "PLAN.md").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777U) == 0600);
}

TEST_CASE("a list of what is ours that somebody wrote frees no file outside the folder") {
  const Folder folder;
  fs::create_directory(folder / "plan");
  put(folder / "precious", "mine");
  put(folder / "plan/.zeroplan-kit.json",
      R"({"schema":"zeroplan.kit/1","files":{"../precious":[{"bytes":4,"crc32":1772671891}]}})");
  write(kFirst, folder / "plan");
  CHECK(text_of(folder / "precious") == "mine");
  for (const char* broken : {"", "{", "[]", "{\"schema\":1}", "{\"schema\":\"zeroplan.kit/1\"}"}) {
    put(folder / "plan/.zeroplan-kit.json", broken);
    CHECK(refusals(kSecond, folder / "plan").size() == 1);  // ds_config.json is the same
  }
}

TEST_CASE("a list of what is ours that is a pipe or a link is refused, not waited for") {
  const Folder folder;
  REQUIRE(mkfifo((folder / ".zeroplan-kit.json").c_str(), 0600) == 0);
  for (const bool force : {false, true}) {
    CHECK_THROWS_AS(cli::require_kit_folder(folder.path.string(), force), InputError);
    CHECK_THROWS_AS(write(kFirst, folder.path.string(), force), InputError);
  }
  CHECK(fs::is_fifo(folder / ".zeroplan-kit.json"));
  CHECK_FALSE(fs::exists(folder / "PLAN.md"));
}

TEST_CASE("a kit that cannot be written leaves no folders behind") {
  const Folder folder;
  const Kit kit = {{"PLAN.md", "one"}, {"model/config.json", "{}"}, {std::string(300, 'x'), ""}};
  CHECK_THROWS_AS(write(kit, folder / "deep/plan"), InputError);
  CHECK_FALSE(fs::exists(folder / "deep"));
  fs::create_directory(folder / "kept");
  CHECK_THROWS_AS(write(kit, folder / "kept"), InputError);
  CHECK(fs::is_empty(folder / "kept"));
}

TEST_CASE("a folder that cannot take a kit is known before it is computed") {
  const Folder folder;
  put(folder / "PLAN.md", "mine");
  CHECK_THROWS_AS(cli::require_kit_folder(folder.path.string(), false), InputError);
  cli::require_kit_folder(folder.path.string(), true);
  cli::require_kit_folder(folder / "new", false);
  write(kFirst, folder / "new");
  cli::require_kit_folder(folder / "new", false);
}

}  // namespace
}  // namespace zeroplan
