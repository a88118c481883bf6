// What stands at a path stays whole until the new file is, and nothing beside it is touched.
#include "base/output_file.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/catch.hpp"

namespace zeroplan {
namespace {

namespace fs = std::filesystem;

// A folder that goes with the test.
struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "zeroplan_output_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const char* name) const { return (path / name).string(); }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(path)) {
      found.push_back(entry.path().filename().string());
    }
    std::sort(found.begin(), found.end());
    return found;
  }
};

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

mode_t mode_of(const std::string& path) {
  struct stat status {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  return status.st_mode & 07777U;
}

std::string refusal_of(const std::string& path) {
  try {
    replace_file(path, "new");
  } catch (const WriteError& error) {
    return error.reason();
  }
  return "";
}

using Names = std::vector<std::string>;

TEST_CASE("a file is made, replaced, and nothing stays beside it") {
  const Folder folder;
  replace_file(folder / "a", "one");
  CHECK(text_of(folder / "a") == "one");
  replace_file(folder / "a", "two");
  CHECK(text_of(folder / "a") == "two");
  CHECK(folder.names() == Names{"a"});
}

TEST_CASE("a user's own a.tmp is neither overwritten nor followed nor waited for") {
  const Folder folder;
  SECTION("a file") {
    put(folder / "a.tmp", "precious");
    replace_file(folder / "a", "new");
    CHECK(text_of(folder / "a.tmp") == "precious");
  }
  SECTION("a link") {
    put(folder / "target", "precious");
    fs::create_symlink(folder / "target", folder / "a.tmp");
    replace_file(folder / "a", "new");
    CHECK(text_of(folder / "target") == "precious");
  }
  SECTION("a pipe") {
    REQUIRE(mkfifo((folder / "a.tmp").c_str(), 0600) == 0);
    replace_file(folder / "a", "new");
  }
  CHECK(text_of(folder / "a") == "new");
}

TEST_CASE("a file keeps its mode, and a new one has the user's") {
  const Folder folder;
  for (const mode_t mode : {0600U, 0644U, 0640U, 0755U}) {
    put(folder / "a", "old");
    REQUIRE(chmod((folder / "a").c_str(), mode) == 0);
    replace_file(folder / "a", "new");
    CHECK(mode_of(folder / "a") == mode);
  }
  const mode_t before = umask(027);
  replace_file(folder / "b", "new");
  umask(before);
  CHECK(mode_of(folder / "b") == 0640);
}

TEST_CASE("links stay links, also in chains, relative ones and ones to nothing yet") {
  const Folder folder;
  fs::create_directory(folder / "deep");
  put(folder / "deep/file", "old");
  fs::create_symlink("deep/file", folder / "one");
  fs::create_symlink("one", folder / "two");
  fs::create_symlink("deep/later", folder / "three");
  replace_file(folder / "two", "new");
  CHECK(text_of(folder / "deep/file") == "new");
  CHECK(fs::is_symlink(folder / "one"));
  CHECK(fs::is_symlink(folder / "two"));
  replace_file(folder / "three", "made");
  CHECK(text_of(folder / "deep/later") == "made");
  CHECK(fs::is_symlink(folder / "three"));
  fs::create_symlink("loop", folder / "loop");
  CHECK(refusal_of(folder / "loop") == "Too many levels of symbolic links");
}

TEST_CASE("a link that a stranger laid in a folder for everybody is not followed") {
  if (geteuid() != 0) {
    WARN("SKIPPED: only root can lay a stranger's link");
    return;
  }
  const Folder folder;
  put(folder / "precious", "old");
  fs::create_directory(folder / "tmp");
  REQUIRE(chmod((folder / "tmp").c_str(), 01777) == 0);
  fs::create_symlink(folder / "precious", folder / "tmp/out");
  REQUIRE(lchown((folder / "tmp/out").c_str(), 12345, 12345) == 0);
  CHECK(refusal_of(folder / "tmp/out").starts_with("a symbolic link of another user"));
  CHECK(text_of(folder / "precious") == "old");
}

TEST_CASE("devices and pipes are written to and stay what they are") {
  const Folder folder;
  replace_file("/dev/null", "gone");
  struct stat status {};
  REQUIRE(stat("/dev/null", &status) == 0);
  CHECK(S_ISCHR(status.st_mode));
  fs::create_symlink("/dev/null", folder / "null");
  replace_file(folder / "null", "gone");
  CHECK(fs::is_symlink(folder / "null"));

  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  std::string got;
  std::thread reader([&] { got = text_of(folder / "pipe"); });
  replace_file(folder / "pipe", "through");
  reader.join();
  CHECK(got == "through");
  CHECK(fs::is_fifo(folder / "pipe"));
}

TEST_CASE("a full device is told with the system's reason") {
  if (!fs::exists("/dev/full")) {
    WARN("SKIPPED: no /dev/full here");
    return;
  }
  CHECK(refusal_of("/dev/full") == "No space left on device");
}

TEST_CASE("a descriptor by its name goes on where it stands") {
  const Folder folder;
  const int descriptor = open((folder / "a").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  REQUIRE(descriptor >= 0);
  REQUIRE(write(descriptor, "first ", 6) == 6);
  for (const char* place : {"/dev/fd/", "/proc/self/fd/"}) {
    replace_file(place + std::to_string(descriptor), "then ");
  }
  REQUIRE(write(descriptor, "last", 4) == 4);
  close(descriptor);
  CHECK(text_of(folder / "a") == "first then then last");
}

TEST_CASE("what is no place for a file is refused") {
  const Folder folder;
  CHECK(refusal_of("") == "no name of a file");
  CHECK(refusal_of(folder / "a/") == "no name of a file");
  CHECK(refusal_of(folder.path.string()) == "a folder of that name");
  CHECK(refusal_of(folder / "nowhere/a") == "No such file or directory");
  put(folder / "file", "");
  CHECK(refusal_of(folder / "file/a") == "a file for its folder");
  CHECK(why_not_writable(folder / "nowhere/a") == "no folder of that name");
  CHECK(why_not_writable(folder / "a") == std::nullopt);
  CHECK(why_not_writable("/dev/null") == std::nullopt);
  CHECK(folder.names() == Names{"file"});
}

// Runs `body` in a process of a user who owns nothing; its result, or -1.
template <typename Body>
int as_nobody(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(99);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("a file that one may write to in a folder that takes no other is written in place") {
  if (geteuid() != 0) {
    WARN("SKIPPED: root may do everything, and only root can become somebody else");
    return;
  }
  const Folder folder;
  REQUIRE(chmod(folder.path.c_str(), 0755) == 0);
  put(folder / "open", "old and long");
  REQUIRE(chmod((folder / "open").c_str(), 0666) == 0);
  put(folder / "shut", "old");
  REQUIRE(chmod((folder / "shut").c_str(), 0444) == 0);
  const std::string open_one = folder / "open";
  const std::string shut = folder / "shut";
  CHECK(as_nobody([&] {
          replace_file(open_one, "new");
          return 7;
        }) == 7);
  CHECK(text_of(open_one) == "new");
  CHECK(as_nobody([&] {
          if (why_not_writable(shut) != "Permission denied") return 1;
          try {
            replace_file(shut, "new");
          } catch (const WriteError&) {
            return 7;
          }
          return 2;
        }) == 7);
  CHECK(text_of(shut) == "old");
}

TEST_CASE("a file that one may not write to is not replaced, whatever its folder allows") {
  if (geteuid() != 0) {
    WARN("SKIPPED: only root can become somebody else");
    return;
  }
  const Folder folder;
  REQUIRE(chmod(folder.path.c_str(), 0777) == 0);
  put(folder / "shut", "old");
  REQUIRE(chmod((folder / "shut").c_str(), 0644) == 0);
  const std::string shut = folder / "shut";
  CHECK(as_nobody([&] { return refusal_of(shut) == "Permission denied" ? 7 : 1; }) == 7);
  CHECK(text_of(shut) == "old");
  CHECK(folder.names() == Names{"shut"});
}

// The process may write no file longer than that until this goes.
class LongestFile {
 public:
  explicit LongestFile(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~LongestFile() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  LongestFile(const LongestFile&) = delete;
  LongestFile& operator=(const LongestFile&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_CASE("a disk that takes no more leaves what was there, and nothing beside it") {
  const Folder folder;
  put(folder / "a", "old");
  put(folder / "lines", "one\n");
  {
    const LongestFile limit(1000);
    CHECK_THROWS_AS(replace_file(folder / "a", std::string(2000, 'x')), WriteError);
    CHECK_THROWS_AS(append_line(folder / "lines", std::string(2000, 'x')), WriteError);
  }
  CHECK(text_of(folder / "a") == "old");
  CHECK(text_of(folder / "lines") == "one\n");
  CHECK(folder.names() == Names{"a", "lines"});
}

TEST_CASE("lines are added behind what is there, each on its own") {
  const Folder folder;
  append_line(folder / "a", "one");
  append_line(folder / "a", "two");
  CHECK(text_of(folder / "a") == "one\ntwo\n");
  put(folder / "b", "without an end");
  append_line(folder / "b", "one");
  CHECK(text_of(folder / "b") == "without an end\none\n");
  append_line("/dev/null", "gone");
}

TEST_CASE("lines that many processes add at once are all there, whole") {
  const Folder folder;
  constexpr int kProcesses = 8;
  constexpr int kLines = 50;
  const std::string path = folder / "lines";
  for (int p = 0; p < kProcesses; ++p) {
    if (fork() != 0) continue;
    for (int i = 0; i < kLines; ++i) {
      // Longer than a page: one write() alone might be cut.
      append_line(path, std::to_string(p) + ":" + std::to_string(i) + std::string(9000, 'x'));
    }
    _exit(0);
  }
  for (int p = 0; p < kProcesses; ++p) wait(nullptr);
  std::ifstream file(path);
  std::vector<int> next(kProcesses, 0);
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const int process = line[0] - '0';
    REQUIRE((process >= 0 && process < kProcesses));
    const std::string expected = std::to_string(process) + ":" +
                                 std::to_string(next[static_cast<std::size_t>(process)]++) +
                                 std::string(9000, 'x');
    REQUIRE(line == expected);
  }
  CHECK(lines == kProcesses * kLines);
}

TEST_CASE("a name that is taken is not written to, and not given away") {
  const Folder folder;
  put(folder / "a", "old");
  CHECK_THROWS_AS(OutputFile::create(folder / "a"), WriteError);
  fs::create_symlink(folder / "b", folder / "link");
  CHECK_THROWS_AS(OutputFile::create(folder / "link"), WriteError);
  put(folder / "c", "new");
  CHECK_THROWS_AS(rename_to_free_name(folder / "c", folder / "a"), WriteError);
  rename_to_free_name(folder / "c", folder / "d");
  CHECK(text_of(folder / "a") == "old");
  CHECK(text_of(folder / "d") == "new");
}

TEST_CASE("the longest name that a file may have is written like others") {
  const Folder folder;
  const std::string name(255, 'n');
  replace_file(folder / name.c_str(), "new");
  CHECK(text_of(folder / name.c_str()) == "new");
  CHECK(folder.names() == Names{name});
}

}  // namespace
}  // namespace zeroplan
