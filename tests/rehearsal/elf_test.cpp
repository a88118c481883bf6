// The ELF reader, on a library that the build makes (tests/rehearsal/sample), and on what is none.
#include "rehearsal/elf.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/diagnostic.hpp"
#include "rehearsal/wanted_libraries.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;
using namespace zeroplan::rehearsal;

namespace {

const std::string kSample = ZEROPLAN_ELF_SAMPLE;

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

const WantedSymbol* find(const SharedLibrary& library, const std::string& name) {
  for (const WantedSymbol& symbol : library.wanted) {
    if (symbol.name == name) return &symbol;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("A library's name, what it needs, and what it wants with its version are read") {
  const SharedLibrary library = read_shared_library_file(kSample);
  CHECK(library.soname == "libelf_sample.so.7");
  CHECK(std::count(library.needed.begin(), library.needed.end(), "libelf_wanted.so.3") == 1);
  const WantedSymbol* versioned = find(library, "sample_versioned");
  REQUIRE(versioned != nullptr);
  CHECK(versioned->version == "SAMPLE_2");
  CHECK(versioned->library == "libelf_wanted.so.3");
  const WantedSymbol* plain = find(library, "cudaSampleMissing");
  REQUIRE(plain != nullptr);
  CHECK(plain->version.empty());
  CHECK(find(library, "sample_defined") == nullptr);
}

TEST_CASE("What a library defines for others is read, and what it wants is not among it") {
  const std::set<std::string> defined = defined_functions(bytes_of(kSample), kSample);
  CHECK(defined.count("sample_defined") == 1);
  CHECK(defined.count("sample_versioned") == 0);
  CHECK_THROWS_AS(defined_functions("no library", "text"), InputError);
}

TEST_CASE("Names of the driver's functions in a library's texts are found") {
  const std::vector<std::string> names = driver_names_of_file(kSample);
  CHECK(std::count(names.begin(), names.end(), "cuSampleByName") == 1);
  CHECK(std::count(names.begin(), names.end(), "nvmlSampleByName") == 1);
  CHECK(std::count(names.begin(), names.end(), "custom text") == 0);
  using namespace std::string_literals;
  CHECK(driver_names("cuMemCreate\0cudaMalloc\0curandXX\0cuA\0nvmlInit_v2\0cuMemNoEnd"s) ==
        std::vector<std::string>{"cuMemCreate", "nvmlInit_v2"});
}

TEST_CASE("A file that is cut anywhere is an error and nothing worse") {
  const std::string bytes = bytes_of(kSample);
  for (std::size_t size = 0; size < bytes.size(); size += 61) {
    CHECK_THROWS_AS(read_shared_library(bytes.substr(0, size), "cut"), InputError);
  }
}

TEST_CASE("A file with any byte of its tables changed is read or is an error") {
  const std::string bytes = bytes_of(kSample);
  unsigned state = 12345;
  for (int i = 0; i < 3000; ++i) {
    std::string changed = bytes;
    for (int k = 0; k < 4; ++k) {
      state = state * 1664525U + 1013904223U;
      changed[(state >> 8) % changed.size()] = static_cast<char>(state >> 24);
    }
    try {
      read_shared_library(changed, "changed");
    } catch (const InputError&) {
    }
  }
  CHECK_THROWS_AS(read_shared_library_file("/nonexistent.so"), InputError);
  CHECK_THROWS_AS(read_shared_library_file("/tmp"), InputError);
}

TEST_CASE("Functions go to the library of their version, else to that of their name's beginning") {
  SharedLibrary torch;
  torch.needed = {
      "libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libnccl.so.2", "libc.so.6"};
  torch.wanted = {{"cudaMalloc", "libcudart.so.13", "libcudart.so.13"},
                  {"cublasLtMatmul", "", ""},
                  {"cublasCreate_v2", "libcublas.so.13", "libcublas.so.13"},
                  {"ncclAllReduce", "", ""},
                  {"curandUnknown", "", ""},  // of a library that is not needed
                  {"current_time", "", ""},
                  {"_ZN4cuda3fooEv", "", ""},
                  {"malloc", "GLIBC_2.2.5", "libc.so.6"}};
  const std::vector<WantedLibrary> libraries =
      wanted_libraries({torch}, {"cuMemCreate", "nvmlInit_v2"});
  std::map<std::string, WantedLibrary> by_stem;
  for (const WantedLibrary& library : libraries) by_stem[library.stem] = library;
  CHECK(by_stem.size() == 6);
  CHECK(by_stem["libcudart"].functions.count("cudaMalloc") == 1);
  CHECK(by_stem["libcublasLt"].functions.count("cublasLtMatmul") == 1);
  CHECK(by_stem["libcublas"].functions.size() == 1);
  CHECK(by_stem["libnccl"].functions.count("ncclAllReduce") == 1);
  CHECK(by_stem["libcuda"].functions.count("cuMemCreate") == 1);
  CHECK(by_stem["libcuda"].functions.count("current_time") == 0);
  CHECK(by_stem["libcuda"].soname == "libcuda.so.1");
  CHECK(by_stem["libnvidia-ml"].functions.count("nvmlInit_v2") == 1);
}

TEST_CASE("An extension's functions are wanted, too, unless it was linked with another CUDA") {
  SharedLibrary torch;
  torch.needed = {"libcudart.so.13", "libcublas.so.13"};
  torch.wanted = {{"cudaMalloc", "libcudart.so.13", "libcudart.so.13"}};
  SharedLibrary same;
  same.needed = {"libcudart.so.13", "libcusparse.so.13"};
  same.wanted = {{"cudaMallocManaged", "libcudart.so.13", "libcudart.so.13"},
                 {"cusparseSpMM", "libcusparse.so.13", "libcusparse.so.13"}};
  SharedLibrary other;
  other.needed = {"libcudart.so.12", "libcufft.so.11"};
  other.wanted = {{"cudaMallocAsync", "libcudart.so.12", "libcudart.so.12"}};
  CHECK(wants_cuda(same));
  CHECK_FALSE(wants_cuda(SharedLibrary{"", {"libc.so.6", "libamdhip64.so.6"}, {}}));
  std::map<std::string, WantedLibrary> by_stem;
  for (const WantedLibrary& library : wanted_libraries({torch}, {}, {other, same})) {
    by_stem[library.stem] = library;
  }
  CHECK(by_stem["libcudart"].soname == "libcudart.so.13");
  CHECK(by_stem["libcudart"].functions.size() == 2);
  CHECK(by_stem["libcudart"].functions.count("cudaMallocManaged") == 1);
  CHECK(by_stem["libcusparse"].functions.count("cusparseSpMM") == 1);
  CHECK(by_stem.count("libcufft") == 0);
}

TEST_CASE("Of the files in packages those that need CUDA's libraries are extensions") {
  CHECK(extensions_among({kSample, "/nonexistent.so", "/tmp"}).empty());  // it needs none of them
}
