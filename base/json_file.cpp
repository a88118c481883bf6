// Reading files for base/json.hpp: everything a path may turn out to be.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "base/diagnostic.hpp"
#include "base/json.hpp"

namespace zeroplan {
namespace {

// The names in the folder of `path` nearest to its file name, as a hint.
Phrase nearest_file(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  constexpr std::size_t kMostFiles = 2000;
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (names.size() == kMostFiles) break;
    names.push_back(entry->path().filename().string());
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  return did_you_mean(path.filename().string(), views);
}

// A file descriptor that closes itself.
class OpenFile {
 public:
  explicit OpenFile(const std::string& path)
      : descriptor_(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {}
  ~OpenFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

// Appends what is there to read; waits for a pipe's writer, for at most a second while none has
// come. Returns false at the end.
bool read_some(int descriptor, bool is_pipe, int& polls_left, std::string& text) {
  constexpr int kPollMilliseconds = 20;
  char buffer[1 << 16];
  while (true) {
    const ssize_t count = read(descriptor, buffer, sizeof(buffer));
    if (count > 0) {
      text.append(buffer, static_cast<std::size_t>(count));
      return true;
    }
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno != EAGAIN) throw std::system_error(errno, std::generic_category());
    if (count < 0) {  // a writer is there and has not written yet
      pollfd ready{descriptor, POLLIN, 0};
      poll(&ready, 1, -1);
      continue;
    }
    if (!is_pipe || !text.empty() || polls_left == 0) return false;
    --polls_left;
    poll(nullptr, 0, kPollMilliseconds);
  }
}

// A pipe gives its bytes once (`--ds-config <(...)`), and several parts of a command read a file:
// who finds nothing in it gets what it gave before.
class GivenByPipes {
 public:
  std::optional<std::string> find(const std::string& path) const {
    const std::lock_guard lock(mutex_);
    const auto known = texts_.find(path);
    return known == texts_.end() ? std::nullopt : std::optional(known->second);
  }
  void keep(const std::string& path, const std::string& text) {
    const std::lock_guard lock(mutex_);
    texts_[path] = text;
  }
  static GivenByPipes& of_this_process() {
    static GivenByPipes pipes;
    return pipes;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> texts_;  // by path
};

[[noreturn]] void not_readable(const std::string& path, const std::string& why) {
  throw InputError({path, "", "a readable file", why, ""});
}

}  // namespace

std::string read_text_file(const std::string& path, std::int64_t max_bytes) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (path.empty()) not_readable("\"\"", "an empty name");
  if (type == fs::file_type::not_found) {
    throw InputError({path, "", "a readable file", "no such file", nearest_file(path)});
  }
  if (type == fs::file_type::directory) {
    throw InputError({path, "", "a file", "a directory", ""});
  }
  const bool is_pipe = type == fs::file_type::fifo;
  constexpr std::int64_t kMostOfDevice = 16 << 20;  // /dev/zero never ends
  if (type == fs::file_type::character) max_bytes = std::min(max_bytes, kMostOfDevice);
  const OpenFile file(path);
  if (file.descriptor() < 0) not_readable(path, std::strerror(errno));
  const std::optional<std::string> given =
      is_pipe ? GivenByPipes::of_this_process().find(path) : std::nullopt;
  std::string text;
  const std::uintmax_t size = type == fs::file_type::regular ? fs::file_size(path, error) : 0;
  if (!error) text.reserve(std::min(size, static_cast<std::uintmax_t>(max_bytes)) + 1);
  int polls_left = given ? 0 : 50;
  try {
    while (read_some(file.descriptor(), is_pipe, polls_left, text)) {
      if (static_cast<std::int64_t>(text.size()) <= max_bytes) continue;
      const std::string most = std::to_string(max_bytes >> 20) + " MiB";
      throw InputError({path, "", phrase("a file of at most {}", most), "a larger one", ""});
    }
  } catch (const std::system_error& failure) {
    not_readable(path, failure.code().message());
  }
  if (!is_pipe) return text;
  if (text.empty() && given) return *given;
  if (text.empty()) not_readable(path, "a pipe that nobody writes to");
  GivenByPipes::of_this_process().keep(path, text);
  return text;
}

JsonDocument read_json_file(const std::string& path, const JsonOptions& options) {
  const std::string text = read_text_file(path);
  try {
    return parse_json(text, path, options);
  } catch (const InputError& error) {
    const std::string ending = std::filesystem::path(path).extension().string();
    std::vector<Diagnostic> diagnostics = error.diagnostics();
    if ((ending != ".yaml" && ending != ".yml") || !diagnostics.front().hint.empty()) throw;
    diagnostics.front().hint =
        "of accelerate's or LLaMA-Factory's YAML give the JSON file that deepspeed_config_file or "
        "deepspeed names there";
    throw InputError(std::move(diagnostics));
  }
}

std::vector<Diagnostic> duplicate_key_problems(const JsonDocument& document) {
  std::vector<Diagnostic> problems;
  for (const DuplicateKey& twice : document.duplicates) {
    problems.push_back({document.file,
                        twice.pointer,
                        "each key once",
                        phrase("a second one in line {}", twice.line),
                        ""});
  }
  return problems;
}

}  // namespace zeroplan
