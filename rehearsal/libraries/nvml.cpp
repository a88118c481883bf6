// NVML: what nvidia-smi's library says of the emulated GPUs.
#include <cstdint>
#include <cstdio>

#include "rehearsal/libraries/gpu/memory.hpp"
#include "rehearsal/libraries/gpu/settings.hpp"

namespace {

using namespace zeroplan::gpu;

constexpr int kNvmlSuccess = 0;
constexpr int kNvmlNotSupported = 3;
constexpr unsigned kNoRemoteDevice = 255;

int handle_of(unsigned index, void** device) {
  if (index >= static_cast<unsigned>(settings().gpus)) return 2;  // NVML_ERROR_INVALID_ARGUMENT
  *device = reinterpret_cast<void*>(static_cast<std::uintptr_t>(index) + 1);
  return kNvmlSuccess;
}
int index_of(void* device) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(device)) - 1;
}

struct NvmlMemory {
  unsigned long long total, free, used;
};

}  // namespace

extern "C" {

int nvmlInit() { return kNvmlSuccess; }
int nvmlInit_v2() { return kNvmlSuccess; }
int nvmlInitWithFlags(unsigned) { return kNvmlSuccess; }
int nvmlShutdown() { return kNvmlSuccess; }
const char* nvmlErrorString(int status) {
  return status == kNvmlSuccess ? "Success" : "Not Supported by zeroplan rehearse's emulated GPU";
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(settings().gpus);
  return kNvmlSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  return handle_of(index, device);
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  unsigned domain = 0;
  unsigned number = 1;
  std::sscanf(bus, "%x:%x", &domain, &number);
  return handle_of(number > 0 ? number - 1 : 0, device);
}
int nvmlDeviceGetHandleByUUID(const char*, void** device) { return handle_of(0, device); }
int nvmlDeviceGetUUID(void* device, char* text, unsigned room) {
  std::snprintf(text, room, "GPU-11111111-1111-1111-1111-%012d", index_of(device));
  return kNvmlSuccess;
}
int nvmlDeviceGetName(void*, char* text, unsigned room) {
  std::snprintf(text, room, "%s", settings().name.c_str());
  return kNvmlSuccess;
}
int nvmlDeviceGetMemoryInfo(void* device, NvmlMemory* info) {
  const unsigned long long free_bytes = memory().free_bytes(index_of(device));
  *info = {memory().total(), free_bytes, memory().total() - free_bytes};
  return kNvmlSuccess;
}
int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) {
  *count = 0;
  return kNvmlSuccess;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, void* processes) {
  return nvmlDeviceGetComputeRunningProcesses(device, count, processes);
}
int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = settings().major;
  *minor = settings().minor;
  return kNvmlSuccess;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = settings().cuda;
  return kNvmlSuccess;
}
int nvmlSystemGetDriverVersion(char* text, unsigned room) {
  std::snprintf(text, room, "580.0");
  return kNvmlSuccess;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, unsigned* type) {
  *type = kNoRemoteDevice;
  return kNvmlNotSupported;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, void*) { return kNvmlNotSupported; }
int nvmlDeviceGetGpuFabricInfoV(void*, void*) { return kNvmlNotSupported; }
int nvmlDeviceGetP2PStatus(void*, void*, int, int* status) {
  *status = 0;  // NVML_P2P_STATUS_OK
  return kNvmlSuccess;
}
}
