#include "rehearsal/libraries/gpu/settings.hpp"

#include <cstdlib>
#include <set>
#include <sstream>

namespace zeroplan::gpu {
namespace {

constexpr int kKiB = 1024;
constexpr int kReservedPerBlock = 1 * kKiB;

struct Reader {
  const char* (*read)(const char*);

  template <typename Number>
  void number(const char* name, Number& value) const {
    const char* text = read(name);
    if (text != nullptr && *text != 0) value = static_cast<Number>(std::strtoll(text, nullptr, 10));
  }
  void text(const char* name, std::string& value) const {
    const char* found = read(name);
    if (found != nullptr && *found != 0) value = found;
  }
};

const char* from_environment(const char* name) { return std::getenv(name); }

}  // namespace

int Settings::kernel_capability() const {
  constexpr struct {
    int gpu, kernels;
  } kRuns[] = {
      {61, 60}, {62, 60}, {72, 70}, {87, 86}, {89, 86}, {101, 100}, {103, 100}, {121, 120}};
  for (const auto& row : kRuns) {
    if (row.gpu == capability()) return row.kernels;
  }
  return capability();
}

int Settings::threads_per_multiprocessor() const {
  switch (capability()) {
    case 75:
      return 1024;
    case 86:
    case 87:
    case 89:
    case 120:
      return 1536;
    default:
      return 2048;
  }
}

int Settings::shared_per_multiprocessor() const {
  switch (capability()) {
    case 60:
      return 64 * kKiB;
    case 70:
      return 96 * kKiB;
    case 75:
      return 64 * kKiB;
    case 80:
    case 87:
      return 164 * kKiB;
    case 86:
    case 89:
    case 120:
      return 100 * kKiB;
    default:
      return 228 * kKiB;
  }
}

int Settings::shared_per_block() const {
  const int whole = shared_per_multiprocessor();
  if (major < 7) return 48 * kKiB;
  return major < 8 ? whole : whole - kReservedPerBlock;
}

int visible_devices(const std::string& text, int gpus) {
  std::set<int> seen;
  std::istringstream names(text);
  for (std::string name; std::getline(names, name, ',');) {
    char* end = nullptr;
    // Names of GPUs ("GPU-1f...") are not told apart: each is the next.
    const bool named = name.compare(0, 4, "GPU-") == 0 || name.compare(0, 4, "MIG-") == 0;
    const long index = named ? static_cast<long>(seen.size()) : std::strtol(name.c_str(), &end, 10);
    const bool is_gpu = (named || end != name.c_str()) && index >= 0 && index < gpus;
    if (!is_gpu) break;
    if (!seen.insert(static_cast<int>(index)).second) return 0;  // a GPU twice: CUDA shows none
  }
  return static_cast<int>(seen.size());
}

Settings settings_from(const char* (*read)(const char*)) {
  const Reader from{read};
  Settings made;
  from.number("ZEROPLAN_GPU_MEMORY", made.memory);
  from.number("ZEROPLAN_GPU_CONTEXT", made.context);
  from.number("ZEROPLAN_GPU_MULTIPROCESSORS", made.multiprocessors);
  from.number("ZEROPLAN_GPU_L2", made.l2);
  from.number("ZEROPLAN_GPU_COUNT", made.gpus);
  from.number("ZEROPLAN_GPU_CUDA", made.cuda);
  from.number("ZEROPLAN_GPU_CUDNN", made.cudnn);
  from.number("ZEROPLAN_GPU_NCCL", made.nccl);
  from.text("ZEROPLAN_GPU_NAME", made.name);
  from.text("ZEROPLAN_GPU_WORK", made.work_file);
  const char* const visible = read("CUDA_VISIBLE_DEVICES");
  made.devices = visible == nullptr ? made.gpus : visible_devices(visible, made.gpus);
  std::string capability;
  from.text("ZEROPLAN_GPU_CAPABILITY", capability);
  const std::size_t dot = capability.find('.');
  if (dot != std::string::npos) {
    made.major = std::atoi(capability.c_str());
    made.minor = std::atoi(capability.c_str() + dot + 1);
  }
  std::string ending;
  from.text("ZEROPLAN_GPU_EVENTS", ending);
  if (ending == "pending") made.ending = Ending::pending;
  return made;
}

namespace {
Settings& own_settings() {
  // Never destroyed: threads of torch outlive static objects.
  static Settings* const made = new Settings(settings_from(from_environment));
  return *made;
}
}  // namespace

const Settings& settings() { return own_settings(); }

void read_settings_again() { own_settings() = settings_from(from_environment); }

}  // namespace zeroplan::gpu
