#include "tests/processes/job.hpp"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/free_port.hpp"

extern char** environ;

namespace zeroplan::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook{5};

// Variables that a launcher of this very test may have set.
bool of_a_launcher(const std::string& variable) {
  for (const char* prefix :
       {"RANK=", "WORLD_SIZE=", "LOCAL_", "MASTER_", "OMPI_COMM", "PMI", "SLURM"}) {
    if (variable.starts_with(prefix)) return true;
  }
  return false;
}

std::vector<std::string> environment_with(const Variables& variables) {
  std::vector<std::string> lines;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string line = *at;
    const bool replaced = variables.count(line.substr(0, line.find('='))) > 0;
    if (!of_a_launcher(line) && !replaced) lines.push_back(line);
  }
  for (const auto& [name, value] : variables) {
    std::string line = name;
    line += '=';
    line += value;
    lines.push_back(line);
  }
  return lines;
}

std::vector<char*> pointers_of(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

void open_as(int number, const std::string& path) {
  const int opened = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  dup2(opened, number);
  close(opened);
}

}  // namespace

Folder::Folder() {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "zeroplan_processes_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path = pattern;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

Process::Process(const std::vector<std::string>& command,
                 const Variables& variables,
                 const std::string& output,
                 std::optional<std::int64_t> limit)
    : output_(output) {
  std::vector<std::string> words = command;
  std::vector<std::string> lines = environment_with(variables);
  const std::vector<char*> arguments = pointers_of(words);
  const std::vector<char*> environment = pointers_of(lines);
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("no process");
  if (pid_ > 0) return;
  setpgid(0, 0);
  default_interrupts();
  open_as(STDOUT_FILENO, output);
  open_as(STDERR_FILENO, output + ".err");
  if (limit) {
    // Writing more fails with EFBIG, as a full disk does with ENOSPC.
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit most{static_cast<rlim_t>(*limit), static_cast<rlim_t>(*limit)};
    setrlimit(RLIMIT_FSIZE, &most);
  }
  execvpe(arguments[0], arguments.data(), environment.data());
  _exit(127);
}

Process::~Process() {
  if (code_) return;
  ::kill(-pid_, SIGKILL);
  kill(SIGKILL);
  wait();
}

void Process::kill(int signal) { ::kill(pid_, signal); }

std::optional<int> Process::wait(std::chrono::seconds most) {
  const Clock::time_point deadline = Clock::now() + most;
  while (!code_) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    } else if (Clock::now() >= deadline) {
      break;
    } else {
      std::this_thread::sleep_for(kLook);
    }
  }
  return code_;
}

std::string Process::out() const { return read_text(output_); }
std::string Process::err() const { return read_text(output_ + ".err"); }

std::vector<std::unique_ptr<Process>> torchrun(int ranks,
                                               const std::vector<std::string>& command,
                                               const Folder& folder) {
  const std::string port = std::to_string(free_port());
  const std::string size = std::to_string(ranks);
  std::vector<std::unique_ptr<Process>> processes;
  for (int r = 0; r < ranks; ++r) {
    const std::string rank = std::to_string(r);
    const Variables variables = {{"RANK", rank},
                                 {"WORLD_SIZE", size},
                                 {"LOCAL_RANK", rank},
                                 {"LOCAL_WORLD_SIZE", size},
                                 {"MASTER_ADDR", "127.0.0.1"},
                                 {"MASTER_PORT", port}};
    processes.push_back(std::make_unique<Process>(command, variables, folder / ("rank" + rank)));
  }
  return processes;
}

void default_interrupts() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGPIPE, SIG_DFL);
}

bool takes_signals(pid_t pid) {
  return wait_until([&] {
    const std::string folder = "/proc/" + std::to_string(pid);
    std::error_code gone;
    const auto program = std::filesystem::read_symlink(folder + "/exe", gone);
    if (gone || program.filename() != "zeroplan") return false;
    const std::string status = read_text(folder + "/status");
    const std::size_t at = status.find("SigCgt:");
    if (at == std::string::npos) return false;
    return (std::stoull(status.substr(at + 7), nullptr, 16) >> (SIGTERM - 1) & 1) == 1;
  });
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool wait_until(const std::function<bool()>& reached) {
  const Clock::time_point deadline = Clock::now() + kPatience;
  while (!reached()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

bool wait_for_text(const std::string& path, const std::string& text) {
  return wait_until([&] { return read_text(path).find(text) != std::string::npos; });
}

}  // namespace zeroplan::test
