#include "cli/report/draw.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/diagnostic.hpp"
#include "cli/write_file.hpp"

namespace zeroplan::cli {
namespace {

namespace fs = std::filesystem;

// A folder of its own that goes with it.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (fs::temp_directory_path() / "zeroplan-plot-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      throw InputError({pattern, "", "a folder that can be made", "none", "set TMPDIR"});
    }
    path_ = pattern;
  }
  ~ScratchFolder() {
    try {
      std::error_code ignored;
      fs::remove_all(path_, ignored);
    } catch (const std::bad_alloc&) {
      // It stays where temporary files are.
    }
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

// The first of the programs that stands on PATH; empty where none does.
std::string find_program(const std::vector<std::string_view>& names) {
  const char* path = std::getenv("PATH");
  for (const std::string_view name : names) {
    std::string_view rest = path == nullptr ? "" : path;
    while (!rest.empty()) {
      const std::size_t colon = std::min(rest.find(':'), rest.size());
      const std::string file = std::string(rest.substr(0, colon)) + "/" + std::string(name);
      if (access(file.c_str(), X_OK) == 0) return file;
      rest.remove_prefix(std::min(colon + 1, rest.size()));
    }
  }
  return "";
}

struct Outputs {
  std::string out;  // files that get what the program prints
  std::string err;
};

// Exit status; no shell takes part.
int run(std::vector<std::string> words, const Outputs& outputs) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  constexpr int kWrite = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, outputs.out.c_str(), kWrite, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, outputs.err.c_str(), kWrite, 0600);
  pid_t child = 0;
  const int failed =
      posix_spawn(&child, words[0].c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string content_of(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

[[noreturn]] void tool_failed(const std::string& program, const Outputs& outputs) {
  constexpr std::size_t kShown = 400;
  throw std::runtime_error(
      fmt::format("{} failed: {}", program, content_of(outputs.err).substr(0, kShown)));
}

std::string node_program() { return find_program({"node", "nodejs"}); }
std::string png_program() { return find_program({"rsvg-convert"}); }

}  // namespace

void require_drawing(bool png, const Phrase& otherwise) {
  if (node_program().empty()) {
    throw InputError({"zeroplan",
                      "",
                      "Node.js, which runs Vega, on PATH",
                      "none",
                      phrase("sudo apt-get install nodejs; {}", otherwise)});
  }
  if (png && png_program().empty()) {
    throw InputError({"zeroplan",
                      "",
                      "rsvg-convert, which makes PNG of SVG, on PATH",
                      "none",
                      "sudo apt-get install librsvg2-bin, or write .svg"});
  }
}

std::string draw_svg(const std::string& script) {
  const std::string node = node_program();
  const ScratchFolder scratch;
  write_file(scratch.file("plot.js"), script);
  const Outputs outputs{scratch.file("out"), scratch.file("err")};
  if (run({node, scratch.file("plot.js")}, outputs) != 0) tool_failed(node, outputs);
  std::string svg = content_of(outputs.out);
  if (!svg.starts_with("<svg")) tool_failed(node, outputs);
  return svg;
}

void write_png(const std::string& svg, const std::string& path) {
  const std::string convert = png_program();
  const ScratchFolder scratch;
  const std::string drawing = scratch.file("plot.svg");
  const std::string picture = scratch.file("plot.png");
  write_file(drawing, svg);
  const Outputs outputs{scratch.file("out"), scratch.file("err")};
  const int status = run({convert, "--zoom", "2", "--output", picture, drawing}, outputs);
  if (status != 0 || !fs::exists(picture)) tool_failed(convert, outputs);
  write_file(path, content_of(picture));
}

}  // namespace zeroplan::cli
