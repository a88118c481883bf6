#include "rehearsal/process.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace zeroplan::rehearsal {
namespace {

constexpr int kCannotStart = 127;

int exit_of(int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return 128 + (WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

std::vector<char*> pointers_of(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Between fork and exec nothing may allocate: what a child needs is made before.
[[noreturn]] void become(const std::vector<char*>& words, const std::vector<char*>& environment) {
  execvpe(words[0], words.data(), environment.data());
  _exit(kCannotStart);
}

std::vector<std::string> environment_with(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> all;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string entry = *at;
    if (variables.count(entry.substr(0, entry.find('='))) == 0) all.push_back(entry);
  }
  for (const auto& [name, value] : variables) all.push_back(name + "=" + value);
  return all;
}

// --- the processes that a child leaves behind

pid_t parent_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return 0;
  std::istringstream rest(text.substr(name_end + 1));
  char state = 0;
  pid_t parent = 0;
  rest >> state >> parent;
  return parent;
}

std::set<pid_t> descendants_of(pid_t ancestor) {
  std::map<pid_t, std::vector<pid_t>> children;
  if (DIR* folder = opendir("/proc")) {
    while (const dirent* entry = readdir(folder)) {
      const pid_t process = std::atoi(entry->d_name);
      if (process > 0) children[parent_of(process)].push_back(process);
    }
    closedir(folder);
  }
  std::set<pid_t> found;
  const std::function<void(pid_t)> add = [&](pid_t process) {
    for (const pid_t child : children[process]) {
      if (found.insert(child).second) add(child);
    }
  };
  add(ancestor);
  return found;
}

// What this process had started before is not among `kept`'s business.
void end_descendants(const std::set<pid_t>& kept) {
  for (int round = 0; round < 100; ++round) {
    bool any = false;
    for (const pid_t process : descendants_of(getpid())) {
      if (kept.count(process) > 0) continue;
      any = true;
      kill(process, SIGKILL);
      waitpid(process, nullptr, WNOHANG);
    }
    if (!any) return;
    usleep(10000);
  }
}

// --- signals

volatile std::sig_atomic_t asked_to_end = 0;
void remember(int signal) { asked_to_end = signal; }

// What ends a program that does nothing about it, and comes from a person, a terminal that closes
// or a launcher.
constexpr std::array kEndings = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

class SignalGuard {
 public:
  SignalGuard() {
    asked_to_end = 0;
    for (std::size_t i = 0; i < kEndings.size(); ++i) {
      sigaction(kEndings[i], nullptr, &before_[i]);
      if (before_[i].sa_handler == SIG_IGN) continue;  // nohup
      struct sigaction action {};
      action.sa_handler = remember;
      sigaction(kEndings[i], &action, nullptr);
    }
  }
  ~SignalGuard() {
    for (std::size_t i = 0; i < kEndings.size(); ++i) sigaction(kEndings[i], &before_[i], nullptr);
  }
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

 private:
  std::array<struct sigaction, kEndings.size()> before_{};
};

constexpr int kPollMicroseconds = 20000;

// Between fork and exec: an end of this process, of whatever kind, is the child's, too.
void end_with(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kCannotStart);
}

// The child's exit code; where this process is asked to end, the child's group is asked too, and
// where this process's own parent is gone, that group is killed.
int wait_for(pid_t child, pid_t parent, int grace_seconds) {
  int status = 0;
  int left = -1;  // polls until the child is killed; -1: nobody asked
  while (true) {
    const pid_t done = waitpid(child, &status, WNOHANG);
    if (done == child) return exit_of(status);
    if (done < 0 && errno != EINTR) return kCannotStart;
    if (getppid() != parent || left == 0) {
      kill(-child, SIGKILL);
    } else if (asked_to_end != 0 && left < 0) {
      kill(-child, asked_to_end);
      left = grace_seconds * 1000000 / kPollMicroseconds;
    } else if (left > 0) {
      --left;
    }
    usleep(kPollMicroseconds);
  }
}

// What stands between this program and the one that it runs: the parent to which every process
// falls that loses its own, so that none outlives this program, even where that is killed.
int keep(const std::vector<char*>& words,
         const std::vector<char*>& environment,
         pid_t parent,
         int grace_seconds) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);
    end_with(self);
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    become(words, environment);
  }
  if (child < 0) return kCannotStart;
  setpgid(child, child);
  const int exit = wait_for(child, parent, grace_seconds);
  end_descendants({});
  return exit;
}

}  // namespace

std::string find_program(const std::string& name) {
  namespace fs = std::filesystem;
  const auto runs = [](const std::string& path) {
    std::error_code error;
    return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
  };
  std::error_code error;
  if (name.find('/') != std::string::npos) {
    return runs(name) ? fs::absolute(name, error).string() : "";
  }
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; !name.empty() && std::getline(folders, folder, ':');) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (runs(candidate)) return fs::absolute(candidate, error).string();
  }
  return "";
}

Output run_and_read(const std::vector<std::string>& words) {
  std::vector<std::string> copy = words;
  const std::vector<char*> pointers = pointers_of(copy);
  std::vector<std::string> variables = environment_with({});
  const std::vector<char*> environment = pointers_of(variables);
  std::array<int, 2> ends{};
  Output output;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return output;
  const pid_t self = getpid();
  const pid_t keeper = fork();
  if (keeper == 0) {
    const SignalGuard guard;
    dup2(ends[1], STDERR_FILENO);
    _exit(keep(pointers, environment, self, kGraceSeconds));
  }
  close(ends[1]);
  std::array<char, 4096> buffer{};
  constexpr std::size_t kLongest = std::size_t{1} << 22;
  for (ssize_t count = 0; keeper > 0;) {
    count = read(ends[0], buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    if (output.text.size() < kLongest) {
      output.text.append(buffer.data(), static_cast<std::size_t>(count));
    }
  }
  close(ends[0]);
  int status = 0;
  if (keeper > 0 && waitpid(keeper, &status, 0) == keeper) output.exit = exit_of(status);
  return output;
}

Ended run_program(const std::vector<std::string>& words,
                  const std::map<std::string, std::string>& variables,
                  int grace_seconds) {
  std::vector<std::string> copy = words;
  const std::vector<char*> pointers = pointers_of(copy);
  std::vector<std::string> entries = environment_with(variables);
  const std::vector<char*> environment = pointers_of(entries);
  const std::set<pid_t> before = descendants_of(getpid());
  // Whoever loses its parent becomes ours, however many sessions a launcher opens.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const SignalGuard guard;
  const pid_t self = getpid();
  const pid_t keeper = fork();
  if (keeper == 0) _exit(keep(pointers, environment, self, grace_seconds));
  Ended ended;
  int status = 0;
  while (keeper > 0) {
    const pid_t done = waitpid(keeper, &status, WNOHANG);
    if (done == keeper) ended.exit = exit_of(status);
    if (done == keeper || (done < 0 && errno != EINTR)) break;
    if (asked_to_end != 0 && ended.signal == 0) {
      ended.signal = asked_to_end;
      kill(keeper, ended.signal);
    }
    usleep(kPollMicroseconds);
  }
  end_descendants(before);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  return ended;
}

}  // namespace zeroplan::rehearsal
