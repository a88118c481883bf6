// Starts the program as processes of its own, as launchers do, and takes what they say.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "tests/catch.hpp"

namespace zeroplan::test {

// How long a test waits for what has to come, before it takes it that nothing does.
inline constexpr std::chrono::seconds kPatience{kUnderThreadSanitizer ? 600 : 60};

using Variables = std::map<std::string, std::string>;

// A folder that goes with the test.
struct Folder {
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return (path / name).string(); }
  std::filesystem::path path;
};

// A program under way; killed, with what it started, when it goes.
class Process {
 public:
  // `limit` of the bytes of a file it may write; what is in `variables` is added to this
  // environment, without launchers' variables.
  Process(const std::vector<std::string>& command,
          const Variables& variables,
          const std::string& output,  // path; errors go to output + ".err"
          std::optional<std::int64_t> limit = std::nullopt);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void kill(int signal);
  // Exit code, 128 + signal, or nothing where it did not end in time.
  std::optional<int> wait(std::chrono::seconds most = kPatience);
  pid_t pid() const { return pid_; }
  std::string out() const;
  std::string err() const;

 private:
  std::string output_;
  pid_t pid_ = -1;
  std::optional<int> code_;
};

// One process a rank, with the variables of torchrun on one machine.
std::vector<std::unique_ptr<Process>> torchrun(int ranks,
                                               const std::vector<std::string>& command,
                                               const Folder& folder);

// Of this process, which is about to become the program: a script's background ignores them.
void default_interrupts();
// Waits until the program of that process takes SIGINT and SIGTERM itself.
bool takes_signals(pid_t pid);

std::string read_text(const std::string& path);
// Looks every few milliseconds; false where it does not come within kPatience.
bool wait_until(const std::function<bool()>& reached);
// Waits until the file holds the text.
bool wait_for_text(const std::string& path, const std::string& text);

}  // namespace zeroplan::test
