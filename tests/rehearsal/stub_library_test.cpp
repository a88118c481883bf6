// Libraries that are written without a linker, loaded by this machine's own.
#include "rehearsal/stub_library.hpp"

#include <filesystem>
#include <fstream>

#include <dlfcn.h>
#include <unistd.h>

#include "rehearsal/elf.hpp"
#include "rehearsal/embedded.hpp"
#include "rehearsal/libraries/gpu/record.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;
using namespace zeroplan::rehearsal;

namespace {

// A file that is gone with it.
class File {
 public:
  explicit File(const std::string& bytes) {
    static int count = 0;  // the linker takes two files of one name for the same library
    path_ = std::filesystem::temp_directory_path() /
            ("stub-" + std::to_string(getpid()) + "-" + std::to_string(++count) + ".so");
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~File() { std::filesystem::remove(path_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

using Function = long (*)(long, long);

Function find(void* library, const char* name, const char* version = nullptr) {
  return reinterpret_cast<Function>(version == nullptr ? dlsym(library, name)
                                                       : dlvsym(library, name, version));
}

bool was_called(const std::string& name) {
  return (" " + gpu::record().unknown_names() + " ").find(" " + name + " ") != std::string::npos;
}

constexpr const char* kCallback = "zeroplan_gpu_unknown_called";  // this program's own

}  // namespace

TEST_CASE(
    "A written library is loaded under its name, and its functions return 0 and say who they are") {
  const File file(stub_library({"libstubbed.so.3",
                                {},
                                {{"stubbedOne", {"libstubbed.so.3", true}},
                                 {"stubbedTwo", {"", true}},
                                 {"stubbedSilent", {"STUBBED_2", false}}},
                                {"STUBBED_1"},
                                kCallback}));
  void* const library = dlopen(file.path().c_str(), RTLD_NOW | RTLD_LOCAL);
  INFO(dlerror());
  REQUIRE(library != nullptr);
  CHECK(dlopen("libstubbed.so.3", RTLD_NOW | RTLD_NOLOAD) == library);
  const Function one = find(library, "stubbedOne", "libstubbed.so.3");
  REQUIRE(one != nullptr);
  CHECK(one(7, 8) == 0);
  CHECK(was_called("stubbedOne"));
  const Function two = find(library, "stubbedTwo");
  REQUIRE(two != nullptr);
  CHECK_FALSE(was_called("stubbedTwo"));
  CHECK(two(1, 2) == 0);
  CHECK(was_called("stubbedTwo"));
  const Function silent = find(library, "stubbedSilent", "STUBBED_2");
  REQUIRE(silent != nullptr);
  CHECK(silent(1, 2) == 0);
  CHECK_FALSE(was_called("stubbedSilent"));
  CHECK(find(library, "stubbedThree") == nullptr);
  CHECK(find(library, "stubbedOne", "STUBBED_2") == nullptr);
  dlclose(library);
}

TEST_CASE("A written library has room for any number of functions") {
  for (const int count : {0, 1, 341, 5000}) {
    StubLibrary stubs{"libmany.so.1", {}, {}, {}, kCallback};
    for (int i = 0; i < count; ++i) stubs.functions["many" + std::to_string(i)] = {"MANY", true};
    const File file(stub_library(stubs));
    void* const library = dlopen(file.path().c_str(), RTLD_NOW | RTLD_LOCAL);
    INFO(count);
    REQUIRE(library != nullptr);
    for (int i = 0; i < count; ++i) {
      const std::string name = "many" + std::to_string(i);
      const Function function = find(library, name.c_str(), "MANY");
      REQUIRE(function != nullptr);
      if (i + 1 < count) continue;
      CHECK(function(0, 0) == 0);
      CHECK(was_called(name));
    }
    dlclose(library);
  }
}

TEST_CASE("A written library whose callback nobody has cannot be loaded") {
  const File file(
      stub_library({"liblone.so.1", {}, {{"lone", {"", true}}}, {}, "nobody_has_this"}));
  CHECK(dlopen(file.path().c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr);
}

TEST_CASE("The emulator is a library with CUDA's functions, which needs no library of C++") {
  const std::string bytes(emulator_library());
  const std::set<std::string> defined = defined_functions(bytes, "emulator");
  for (const char* name :
       {"cudaMalloc", "cuLaunchKernel", "ncclAllReduce", "cublasGemmEx", kCallback}) {
    INFO(name);
    CHECK(defined.count(name) == 1);
  }
  const SharedLibrary library = read_shared_library(bytes, "emulator");
  CHECK(library.soname == "libzeroplan_cuda.so");
  for (const std::string& needed : library.needed) {
    INFO(needed);
    CHECK(needed.find("stdc++") == std::string::npos);
    CHECK(needed.find("san") == std::string::npos);
  }
}
