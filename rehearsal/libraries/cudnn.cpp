// cuDNN: its version, handles, and a backend whose every graph has one plan without a workspace.
// What torch's own cudnn-frontend allocates around a plan (sums of dQ) is torch's code and happens
// as it would.
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "rehearsal/libraries/gpu/record.hpp"
#include "rehearsal/libraries/gpu/settings.hpp"

namespace {

using namespace zeroplan::gpu;

constexpr int kDone = 0;  // CUDNN_STATUS_SUCCESS
// cudnnBackendAttributeName_t and cudnnBackendAttributeType_t.
constexpr int kHeuristicResults = 202;
constexpr int kConfigurationEngine = 300;
constexpr int kPlanWorkspace = 402;
constexpr int kTypeInt64 = 3;
constexpr int kTypeInt32 = 23;

struct Handle {
  void* stream = nullptr;
};
struct Descriptor {
  int type;
};

// How many values the attribute has; the first of them, 0, is written where there is room.
std::int64_t answer(int attribute, int type, std::int64_t room, void* to) {
  if (attribute == kHeuristicResults || attribute == kConfigurationEngine) return 1;
  const bool one = attribute == kPlanWorkspace || (room == 1 && to != nullptr);
  if (!one || (type != kTypeInt64 && type != kTypeInt32)) return 0;
  if (to != nullptr && type == kTypeInt64) *static_cast<std::int64_t*>(to) = 0;
  if (to != nullptr && type == kTypeInt32) *static_cast<std::int32_t*>(to) = 0;
  return 1;
}

}  // namespace

extern "C" {

std::size_t cudnnGetVersion() { return static_cast<std::size_t>(settings().cudnn); }
std::size_t cudnnGetCudartVersion() { return static_cast<std::size_t>(settings().cuda); }
int cudnnGetProperty(int kind, int* value) {
  const int version = settings().cudnn;
  const int scale = version >= 90000 ? 10000 : 1000;  // 9.1.0 is 90100, 8.9.2 is 8902
  *value = kind == 0 ? version / scale : kind == 1 ? version / 100 % (scale / 100) : version % 100;
  return kDone;
}
int cudnnCreate(Handle** handle) {
  *handle = new Handle;
  return kDone;
}
int cudnnDestroy(Handle* handle) {
  delete handle;
  return kDone;
}
int cudnnSetStream(Handle* handle, void* stream) {
  handle->stream = stream;
  return kDone;
}
int cudnnGetStream(Handle* handle, void** stream) {
  *stream = handle->stream;
  return kDone;
}
const char* cudnnGetErrorString(int) { return "the status of an emulated cuDNN"; }
void cudnnGetLastErrorString(char* text, std::size_t room) {
  if (room > 0) *text = 0;
}

int cudnnBackendCreateDescriptor(int type, Descriptor** descriptor) {
  *descriptor = new Descriptor{type};
  return kDone;
}
int cudnnBackendDestroyDescriptor(Descriptor* descriptor) {
  delete descriptor;
  return kDone;
}
int cudnnBackendInitialize(Descriptor*) { return kDone; }
int cudnnBackendFinalize(Descriptor*) { return kDone; }
int cudnnBackendSetAttribute(Descriptor*, int, int, std::int64_t, const void*) { return kDone; }
int cudnnBackendGetAttribute(
    Descriptor*, int attribute, int type, std::int64_t room, std::int64_t* count, void* to) {
  const std::int64_t found = answer(attribute, type, room, to);
  if (count != nullptr) *count = found;
  return kDone;
}
int cudnnBackendExecute(Handle* handle, Descriptor*, Descriptor*) {
  enqueue(Work::kernel, handle->stream, "%s", "cudnn_plan");
  return kDone;
}
}
