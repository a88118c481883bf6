#include "runtime/memory/available_memory.hpp"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

namespace zeroplan::runtime {
namespace {

// The first number of a file; nothing for "max", and for no file.
std::optional<std::int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// The number behind `key` in lines of a name and a number.
std::optional<std::int64_t> number_behind(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t number = 0;
    if (words >> name >> number && name == key) return number;
  }
  return std::nullopt;
}

// What one control group still takes.
Bytes left_in(const std::string& folder, const char* limit, const char* usage, const char* cache) {
  const auto most = number_in(folder + limit);
  const auto used = number_in(folder + usage);
  if (!most || !used) return Bytes::infinite();
  const std::int64_t cached = number_behind(folder + "memory.stat", cache).value_or(0);
  const std::int64_t held = std::max<std::int64_t>(0, *used - cached);
  return Bytes::of(std::max<std::int64_t>(0, *most - held));
}

// Of the group and of all above it; a container may see its own as the root.
template <typename Left>
Bytes least_upwards(const std::string& mount, std::string group, const Left& left) {
  Bytes least = Bytes::infinite();
  for (;;) {
    if (!group.ends_with('/')) group += '/';
    least = std::min(least, left(mount + group));
    if (group == "/") return least;
    group.pop_back();
    group.resize(group.rfind('/') + 1);
  }
}

Bytes left_in_groups(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  Bytes least = Bytes::infinite();
  for (std::string line; std::getline(file, line);) {  // "0::/a/b", "7:memory:/a/b"
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos || line.substr(second + 1, 1) != "/") continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") {
      least = std::min(least,
                       least_upwards(root + "/sys/fs/cgroup", group, [](const std::string& folder) {
                         return left_in(folder, "memory.max", "memory.current", "file");
                       }));
    } else if (controllers.find(",memory,") != std::string::npos) {
      least = std::min(
          least,
          least_upwards(root + "/sys/fs/cgroup/memory", group, [](const std::string& folder) {
            return left_in(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache");
          }));
    }
  }
  return least;
}

}  // namespace

Bytes available_host_memory(const std::string& root) {
  const auto kibibytes = number_behind(root + "/proc/meminfo", "MemAvailable:");
  const Bytes machine = kibibytes ? Bytes::kib(*kibibytes) : Bytes::infinite();
  return std::min(machine, left_in_groups(root));
}

}  // namespace zeroplan::runtime
