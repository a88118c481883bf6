// NVML without a driver: a library of its name with as much of its interface as runtime/cuda asks,
// for the tests that find it in LD_LIBRARY_PATH. The GPU's memory in use grows by a context's at
// the second question, which is asked when there is one.
#include <cstdio>
#include <cstring>

namespace {

constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;

int one_gpu = 0;

bool is_gpu(const void* device) { return device == &one_gpu; }

int put(const void* device, unsigned* value, unsigned what) {
  if (!is_gpu(device)) return kNotSupported;
  *value = what;
  return kSuccess;
}

}  // namespace

extern "C" {

struct Memory {
  unsigned long long total, free, used;
};

int nvmlInit_v2() { return kSuccess; }
int nvmlShutdown() { return kSuccess; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  if (std::strcmp(bus, "0000:00:00.0") != 0) return kNotSupported;
  *device = &one_gpu;
  return kSuccess;
}
int nvmlDeviceGetClockInfo(void* device, int type, unsigned* megahertz) {
  return type == 1 ? put(device, megahertz, 1410) : kNotSupported;
}
int nvmlDeviceGetMaxClockInfo(void* device, int type, unsigned* megahertz) {
  return type == 1 ? put(device, megahertz, 1980) : kNotSupported;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  return put(device, milliwatts, 250'000);
}
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts) {
  return put(device, milliwatts, 300'000);
}
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* celsius) {
  return sensor == 0 ? put(device, celsius, 41) : kNotSupported;
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  static int asked = 0;
  if (!is_gpu(device)) return kNotSupported;
  *memory = {.total = 1ULL << 30, .free = 0, .used = asked++ == 0 ? 1'000'000ULL : 401'000'000ULL};
  memory->free = memory->total - memory->used;
  return kSuccess;
}
int nvmlDeviceGetMaxPcieLinkGeneration(void* device, unsigned* generation) {
  return put(device, generation, 4);
}
int nvmlDeviceGetMaxPcieLinkWidth(void* device, unsigned* lanes) { return put(device, lanes, 16); }
int nvmlDeviceGetNvLinkState(void* device, unsigned link, int* active) {
  if (!is_gpu(device) || link >= 6) return kNotSupported;
  *active = link < 4 ? 1 : 0;
  return kSuccess;
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::snprintf(text, size, "500.1");
  return kSuccess;
}

}  // extern "C"
