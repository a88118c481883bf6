// What is left of the host's memory, as the kernel and control groups say it.
#include "runtime/memory/available_memory.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/catch.hpp"

namespace zeroplan::runtime {
namespace {

namespace fs = std::filesystem;

// A folder that stands for the machine's root.
class Machine {
 public:
  Machine() {
    std::string name = (fs::temp_directory_path() / "zeroplan_machine_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    root_ = name;
  }
  ~Machine() { fs::remove_all(root_); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  Machine& says(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
    return *this;
  }
  Bytes available() const { return available_host_memory(root_.string()); }

 private:
  fs::path root_;
};

constexpr const char* kMeminfo = "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 400 kB\n";

TEST_CASE("without groups it is what the kernel calls available") {
  Machine machine;
  CHECK(machine.available() == Bytes::infinite());
  machine.says("proc/meminfo", kMeminfo);
  CHECK(machine.available() == Bytes::kib(400));
}

TEST_CASE("a control group leaves its limit less what is held; the page cache is not") {
  Machine machine;
  machine.says("proc/meminfo", kMeminfo).says("proc/self/cgroup", "0::/job/step\n");
  machine.says("sys/fs/cgroup/job/step/memory.max", "max\n");
  CHECK(machine.available() == Bytes::kib(400));
  // The group above counts, too.
  machine.says("sys/fs/cgroup/job/memory.max", "204800\n")
      .says("sys/fs/cgroup/job/memory.current", "102400\n")
      .says("sys/fs/cgroup/job/memory.stat", "anon 1\nfile 51200\n");
  CHECK(machine.available() == Bytes::of(204800 - 102400 + 51200));
  machine.says("sys/fs/cgroup/job/memory.current", "999999\n");
  CHECK(machine.available() == Bytes::zero());
}

TEST_CASE("the first version of control groups is read as well") {
  Machine machine;
  machine.says("proc/meminfo", kMeminfo).says("proc/self/cgroup", "3:cpu:/a\n7:memory,x:/a\n");
  machine.says("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "100000\n")
      .says("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "40000\n")
      .says("sys/fs/cgroup/memory/a/memory.stat", "cache 1\ntotal_cache 5000\n");
  CHECK(machine.available() == Bytes::of(65000));
}

}  // namespace
}  // namespace zeroplan::runtime
