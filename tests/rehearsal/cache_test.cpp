// The folder that Python's code is read from: who else could put something there.
#include "rehearsal/cache.hpp"

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include <sys/stat.h>
#include <unistd.h>

#include "base/diagnostic.hpp"
#include "tests/catch.hpp"

namespace zeroplan::rehearsal {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "zeroplan_cache_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }
  fs::path make(const std::string& name, mode_t mode) const {
    const fs::path made = path_ / name;
    fs::create_directories(made);
    REQUIRE(chmod(made.c_str(), mode) == 0);
    return made;
  }

 private:
  fs::path path_;
};

class Variable {
 public:
  Variable(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    set(value);
  }
  ~Variable() { set(before_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const std::optional<std::string>& value) const {
    if (value) {
      setenv(name_, value->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  const char* name_;
  std::optional<std::string> before_;
};

std::string refusal(const fs::path& path) {
  try {
    require_private(path);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("a folder that others can write to is refused, and everything below it") {
  const Folder folder;
  const fs::path open = folder.make("open", 0777);
  CHECK(refusal(open).find("everybody can write to") != std::string::npos);
  CHECK(refusal(open).find("chmod go-w") != std::string::npos);
  CHECK(!refusal(folder.make("open/own", 0700)).empty());
  CHECK(!refusal(open / "not" / "there").empty());
  CHECK(!refusal(folder.make("other/../open", 0777) / "x").empty());
}

TEST_CASE(
    "the user's own folders are taken, below a folder for everybody with the sticky bit too") {
  const Folder folder;
  CHECK(refusal(folder.path()).empty());
  CHECK(refusal(folder.make("own", 0755)).empty());
  CHECK(refusal(folder.path() / "not" / "there").empty());
  const fs::path sticky = folder.make("sticky", 01777);
  CHECK(refusal(folder.make("sticky/own", 0700)).empty());
}

TEST_CASE("what another user made is refused, a link that leads elsewhere too") {
  if (geteuid() != 0) {
    WARN("skipped: only root can make what is another's");
    return;
  }
  const Folder folder;
  const fs::path others = folder.make("others", 0755);
  REQUIRE(chown(others.c_str(), 12345, 12345) == 0);
  CHECK(refusal(others / "x").find("belongs to user 12345") != std::string::npos);
  fs::create_directory_symlink(others, folder.path() / "own_link");
  CHECK(!refusal(folder.path() / "own_link" / "x").empty());
  const fs::path link = folder.path() / "others_link";
  fs::create_directory_symlink(folder.make("own", 0700), link);
  CHECK(refusal(link).empty());
  REQUIRE(lchown(link.c_str(), 12345, 12345) == 0);
  CHECK(!refusal(link / "x").empty());
}

TEST_CASE("the cache is made for the user alone, whatever the umask") {
  const Folder folder;
  const Variable cache("XDG_CACHE_HOME", (folder.path() / "deep" / "cache").string());
  const mode_t before = umask(0);
  const std::string made = cache_folder();
  umask(before);
  CHECK(made == (folder.path() / "deep" / "cache" / "zeroplan" / "rehearsal").string());
  for (fs::path at = made; at != folder.path(); at = at.parent_path()) {
    CHECK(fs::status(at).permissions() == fs::perms::owner_all);
  }
}

TEST_CASE("without XDG_CACHE_HOME the cache stands in the home folder, never in a temporary one") {
  const Variable cache("XDG_CACHE_HOME", std::nullopt);
  const Folder folder;
  const Variable home("HOME", folder.path().string());
  const Variable temporary("TMPDIR", folder.make("temporary", 0700).string());
  CHECK(cache_folder() == (folder.path() / ".cache" / "zeroplan" / "rehearsal").string());
}

}  // namespace
}  // namespace zeroplan::rehearsal
