// A folder for swap files that goes with the test, and what is open in it: swap files have no name.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <unistd.h>

namespace zeroplan::runtime::test {

class SwapFolder {
 public:
  explicit SwapFolder(const std::string& parent = std::filesystem::temp_directory_path().string()) {
    path_ = parent + "/zeroplan_test_XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  SwapFolder(const SwapFolder&) = delete;
  SwapFolder& operator=(const SwapFolder&) = delete;
  ~SwapFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  bool empty() const { return std::filesystem::is_empty(path_); }
  // Descriptors of this process on files in the folder.
  std::vector<int> open_files() const {
    std::vector<int> found;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
      if (!error && target.rfind(path_ + "/", 0) == 0) {
        found.push_back(std::stoi(entry.path().filename().string()));
      }
    }
    return found;
  }

 private:
  std::string path_;
};

}  // namespace zeroplan::runtime::test
