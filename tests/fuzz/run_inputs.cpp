// The main of the fuzz targets where there is no libFuzzer: runs the seeds and the inputs that once
// crashed, in every build with tests.   program FILE-OR-FOLDER...
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::vector<std::filesystem::path> inputs(int count, char** names) {
  std::vector<std::filesystem::path> paths;
  for (int i = 1; i < count; ++i) {
    const std::filesystem::path path = names[i];
    if (!std::filesystem::is_directory(path)) {
      paths.push_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

int main(int argc, char** argv) {
  const auto paths = inputs(argc, argv);
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    if (!file) {
      std::fprintf(stderr, "%s cannot be read\n", path.c_str());
      return 1;
    }
    std::fprintf(stderr, "%s\n", path.filename().c_str());
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  }
  std::printf("%zu inputs\n", paths.size());
  return paths.empty() ? 1 : 0;
}
