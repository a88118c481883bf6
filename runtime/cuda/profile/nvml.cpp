// NVML's interface as its API reference has it (names, order and values of arguments); its header
// comes with some toolkits only, so what is used of it stands here.
#include "runtime/cuda/profile/nvml.hpp"

#include <array>

#include <dlfcn.h>

namespace zeroplan::runtime::cuda {
namespace {

constexpr int kSuccess = 0;          // NVML_SUCCESS
constexpr int kMultiprocessors = 1;  // NVML_CLOCK_SM
constexpr int kDie = 0;              // NVML_TEMPERATURE_GPU
constexpr unsigned kMostLinks = 18;  // NVML_NVLINK_MAX_LINKS

struct Memory {  // nvmlMemory_t
  unsigned long long total, free, used;
};

}  // namespace

template <typename Function>
Function* Nvml::function(const char* name) const {
  return library_ == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(library_, name));
}

Nvml::Nvml(const std::string& bus_id) {
  constexpr const char* kFile = "libnvidia-ml.so.1";
  library_ = ::dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) {
    problem_ = std::string(kFile) + " is not there";
    return;
  }
  auto* const init = function<int()>("nvmlInit_v2");
  auto* const find = function<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
  if (init == nullptr || find == nullptr) {
    problem_ = std::string(kFile) + " lacks what is asked of it";
    return;
  }
  if (const int status = init(); status != kSuccess) {
    problem_ = "nvmlInit_v2 answers " + std::to_string(status);
  } else if (const int found = find(bus_id.c_str(), &device_); found != kSuccess) {
    device_ = nullptr;
    problem_ = "NVML does not know GPU " + bus_id + ": " + std::to_string(found);
  }
}

Nvml::~Nvml() {
  if (library_ == nullptr) return;
  if (auto* const end = function<int()>("nvmlShutdown")) static_cast<void>(end());
  ::dlclose(library_);
}

std::optional<double> Nvml::number(const char* name) const {
  auto* const ask = function<int(void*, unsigned*)>(name);
  unsigned value = 0;
  if (!found() || ask == nullptr || ask(device_, &value) != kSuccess) return std::nullopt;
  return value;
}

std::optional<double> Nvml::number(const char* name, int of) const {
  auto* const ask = function<int(void*, int, unsigned*)>(name);
  unsigned value = 0;
  if (!found() || ask == nullptr || ask(device_, of, &value) != kSuccess) return std::nullopt;
  return value;
}

std::optional<double> Nvml::clock_megahertz() const {
  return number("nvmlDeviceGetClockInfo", kMultiprocessors);
}

std::optional<double> Nvml::clock_limit_megahertz() const {
  return number("nvmlDeviceGetMaxClockInfo", kMultiprocessors);
}

std::optional<double> Nvml::power_watts() const {
  const auto milliwatts = number("nvmlDeviceGetPowerUsage");
  return milliwatts ? std::optional(*milliwatts / 1000.0) : std::nullopt;
}

std::optional<double> Nvml::power_limit_watts() const {
  const auto milliwatts = number("nvmlDeviceGetEnforcedPowerLimit");
  return milliwatts ? std::optional(*milliwatts / 1000.0) : std::nullopt;
}

std::optional<double> Nvml::temperature_celsius() const {
  return number("nvmlDeviceGetTemperature", kDie);
}

std::optional<Bytes> Nvml::used_memory() const {
  auto* const ask = function<int(void*, Memory*)>("nvmlDeviceGetMemoryInfo");
  Memory memory{};
  if (!found() || ask == nullptr || ask(device_, &memory) != kSuccess) return std::nullopt;
  return Bytes::of(static_cast<std::int64_t>(memory.used));
}

std::optional<int> Nvml::pcie_generation() const {
  const auto value = number("nvmlDeviceGetMaxPcieLinkGeneration");
  return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

std::optional<int> Nvml::pcie_lanes() const {
  const auto value = number("nvmlDeviceGetMaxPcieLinkWidth");
  return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

// A GPU without NVLink refuses every link.
std::optional<int> Nvml::active_nvlinks() const {
  auto* const ask = function<int(void*, unsigned, int*)>("nvmlDeviceGetNvLinkState");
  if (!found() || ask == nullptr) return std::nullopt;
  int count = 0;
  for (unsigned link = 0; link < kMostLinks; ++link) {
    int active = 0;
    if (ask(device_, link, &active) == kSuccess && active != 0) ++count;
  }
  return count;
}

std::string Nvml::driver() const {
  auto* const ask = function<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
  std::array<char, 96> text{};
  if (!found() || ask == nullptr || ask(text.data(), text.size() - 1) != kSuccess) return "";
  return text.data();
}

}  // namespace zeroplan::runtime::cuda
