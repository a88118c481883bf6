// Starting programs (rehearsal/process.hpp): outputs, variables, and that nothing is left behind.
#include "rehearsal/process.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "base/diagnostic.hpp"
#include "rehearsal/torch_install.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;
using namespace zeroplan::rehearsal;

namespace {

namespace fs = std::filesystem;

// A folder of this test's own.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("zeroplan_process_" + std::to_string(getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string at(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

std::string first_word(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

void script(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  fs::permissions(path, fs::perms::owner_all);
}

bool wait_until_gone(pid_t process) {
  for (int i = 0; i < 200; ++i) {
    if (kill(process, 0) != 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace

TEST_CASE("A program's output and how it ended are known") {
  const Output output = run_and_read({"sh", "-c", "echo out; echo err >&2; exit 3"});
  CHECK(output.exit == 3);
  CHECK(output.text == "out\nerr\n");
  CHECK(run_and_read({"/nonexistent/program"}).exit == 127);
  CHECK(run_and_read({"sh", "-c", "kill -9 $$"}).exit == 128 + 9);
}

TEST_CASE("Programs are found on the path, by path, and not where there is none") {
  CHECK(find_program("sh").ends_with("/sh"));
  CHECK(find_program("/bin/sh") == "/bin/sh");
  CHECK(find_program("zeroplan-no-such-program").empty());
  CHECK(find_program("/etc/passwd").empty());
  CHECK(find_program("").empty());
}

TEST_CASE("A program gets the variables that were set over this process's own") {
  const Folder folder;
  const std::string out = folder.at("out");
  setenv("ZEROPLAN_TEST_KEPT", "kept", 1);
  setenv("ZEROPLAN_TEST_CHANGED", "old", 1);
  const Ended ended =
      run_program({"sh", "-c", "echo $ZEROPLAN_TEST_KEPT$ZEROPLAN_TEST_CHANGED >" + out},
                  {{"ZEROPLAN_TEST_CHANGED", "new"}});
  CHECK(ended.exit == 0);
  CHECK(first_word(out) == "keptnew");
}

TEST_CASE("What a program leaves behind is ended, also in a session of its own") {
  const Folder folder;
  const std::string pid = folder.at("pid");
  const Ended ended = run_program(
      {"sh", "-c", "setsid sh -c 'echo $$ >" + pid + "; exec sleep 60' & sleep 0.5"}, {});
  CHECK(ended.exit == 0);
  CHECK(ended.signal == 0);
  const pid_t left = std::atoi(first_word(pid).c_str());
  REQUIRE(left > 0);
  CHECK(wait_until_gone(left));
}

TEST_CASE("What asks to end is passed on, and who ignores it is killed") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    CAPTURE(signal);
    const Folder folder;
    const std::string pid = folder.at("pid");
    std::thread later([signal] {
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
      kill(getpid(), signal);
    });
    const Ended ended = run_program(
        {"sh", "-c", "trap '' INT TERM HUP QUIT; echo $$ >" + pid + "; sleep 60 & wait; sleep 60"},
        {},
        1);
    later.join();
    CHECK(ended.signal == signal);
    CHECK(ended.exit == 128 + SIGKILL);
    CHECK(wait_until_gone(std::atoi(first_word(pid).c_str())));
  }
}

TEST_CASE("A signal that was ignored stays ignored") {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  const Ended ended = run_program({"sh", "-c", "kill -HUP $PPID; exit 7"}, {});
  std::signal(SIGHUP, before);
  CHECK(ended.signal == 0);
  CHECK(ended.exit == 7);
}

TEST_CASE("What was started ends with the process that started it, though that is killed") {
  const Folder folder;
  for (const bool keeps : {true, false}) {
    CAPTURE(keeps);
    const std::string pid = folder.at(keeps ? "pid" : "read");
    // In a session of its own, as ranks of a launcher are, and behind a shell that stays.
    const std::string launched = "setsid sh -c 'echo $$ >" + pid + "; exec sleep 60' & sleep 60";
    const pid_t starter = fork();
    if (starter == 0) {
      if (keeps) run_program({"sh", "-c", launched}, {});
      if (!keeps) run_and_read({"sh", "-c", launched});
      _exit(0);
    }
    for (int i = 0; i < 300 && first_word(pid).empty(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    const pid_t started = std::atoi(first_word(pid).c_str());
    REQUIRE(started > 0);
    kill(starter, SIGKILL);
    waitpid(starter, nullptr, 0);
    CHECK(wait_until_gone(started));
  }
}

TEST_CASE("The Python of a command is the one that it runs") {
  const Folder folder;
  const std::string python = folder.at("python3.99");
  script(python, "#!/bin/sh\n");
  CHECK(python_of_command({python, "train.py"}) == python);
  const std::string launcher = folder.at("torchrun");
  script(launcher, "#!" + python + "\nimport sys\n");
  CHECK(python_of_command({launcher, "train.py"}) == python);
  const std::string long_path = folder.at("accelerate");
  script(long_path, "#!/bin/sh\n'''exec' \"" + python + "\" \"$0\" \"$@\"\n' '''\n");
  CHECK(python_of_command({long_path, "launch"}) == python);
  CHECK_THROWS_AS(python_of_command({folder.at("missing")}), InputError);
}

TEST_CASE("A Python that does not answer, or has no torch, is an error that says so") {
  const Folder folder;
  const std::string silent = folder.at("python_silent");
  script(silent, "#!/bin/sh\nexit 1\n");
  CHECK_THROWS_WITH(find_torch(silent), Catch::Contains("does not answer"));
  const std::string bare = folder.at("python_bare");
  script(bare, "#!/bin/sh\necho 'ZEROPLAN {\"python\": [3, 12]}'\n");
  CHECK_THROWS_WITH(find_torch(bare), Catch::Contains("a Python with PyTorch"));
  const std::string cpu = folder.at("python_cpu");
  script(
      cpu,
      "#!/bin/sh\necho 'ZEROPLAN {\"library\": \"/x\", \"__version__\": \"2.6.0+cpu\", \"cuda\": "
      "null}'\n");
  CHECK_THROWS_WITH(find_torch(cpu), Catch::Contains("torch 2.6.0+cpu for CPUs"));
}

TEST_CASE("Releases of CUDA, cuDNN and NCCL are the numbers that those libraries report") {
  CHECK(cuda_number("13.0") == 13000);
  CHECK(cuda_number("12.4") == 12040);
  CHECK(cudnn_number("9.19.0.56") == 91900);
  CHECK(cudnn_number("8.9.2.26") == 8902);
  CHECK(nccl_number("2.28.9") == 22809);
  const Folder folder;
  const std::string python = folder.at("python");
  script(
      python,
      "#!/bin/sh\necho 'ZEROPLAN {\"library\": \"/x\", \"__version__\": \"2.6.0+cu124\", \"cuda\": "
      "\"12.4\", \"wants\": {\"nccl\": \"2.21.5\"}}'\n");
  const TorchInstall torch = find_torch(python);
  CHECK(torch.version == "2.6.0");
  CHECK(torch.cuda_number == 12040);
  CHECK(torch.nccl_number == 22105);
  CHECK(torch.cudnn_number == 90100);  // that CUDA's usual
}
