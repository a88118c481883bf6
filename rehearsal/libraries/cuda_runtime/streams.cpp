// The runtime's streams and events.
#include "rehearsal/libraries/gpu/streams.hpp"

#include "rehearsal/libraries/cuda_abi.hpp"
#include "rehearsal/libraries/cuda_runtime/last_error.hpp"
#include "rehearsal/libraries/gpu/record.hpp"

namespace {

using namespace zeroplan::gpu;

// Functions of the host that stand in a stream run where they are enqueued.
using HostFunction = void (*)(void*);
using StreamCallback = void (*)(void*, int, void*);

// What is asked of a capture, which never runs: status and identity; CUDA 12 and 13 have different
// parameters behind.
int no_capture(int* status, unsigned long long* identity) {
  if (status != nullptr) *status = 0;
  if (identity != nullptr) *identity = 0;
  return kSuccess;
}

// An event is what was recorded last: its number among all pieces of work.
unsigned long long number_of(const Event& event) { return event.after; }

int ready(bool ended) { return ended ? kSuccess : kNotReady; }

}  // namespace

extern "C" {

int cudaStreamCreateWithPriority(void** stream, unsigned, int priority) {
  *stream = stream_handle(streams().create(priority));
  return kSuccess;
}
int cudaStreamCreateWithFlags(void** stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
int cudaStreamCreate(void** stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
int cudaStreamDestroy(void*) { return kSuccess; }
int cudaStreamGetPriority(void* stream, int* priority) {
  *priority = streams().priority(stream_number(stream));
  return kSuccess;
}
int cudaStreamSynchronize(void* stream) {
  note_on_stream("sync", stream_number(stream), "stream");
  streams().synchronize(stream_number(stream));
  return kSuccess;
}
int cudaStreamQuery(void* stream) { return ready(streams().has_ended(stream_number(stream))); }
// Work ends in the order in which it is enqueued: no stream has to be told to wait.
int cudaStreamWaitEvent(void* stream, Event* event, unsigned) {
  note_on_stream("wait", stream_number(stream), "%llu", number_of(*event));
  return kSuccess;
}
int cudaStreamIsCapturing(void*, int* status) { return no_capture(status, nullptr); }
int cudaStreamGetCaptureInfo(void*, int* status, unsigned long long* identity) {
  return no_capture(status, identity);
}
int cudaStreamGetCaptureInfo_v2(void*, int* status, unsigned long long* identity) {
  return no_capture(status, identity);
}
int cudaStreamGetCaptureInfo_v3(void*, int* status, unsigned long long* identity) {
  return no_capture(status, identity);
}
// Graphs are refused: a program that captures would replay work that nobody counted.
int cudaStreamBeginCapture(void*, int) { return failed(kNotSupported); }
int cudaStreamEndCapture(void*, void**) { return failed(kNotSupported); }
int cudaLaunchHostFunc(void* stream, HostFunction function, void* data) {
  enqueue(Work::host_function, stream, "%s", "");
  function(data);
  return kSuccess;
}
int cudaStreamAddCallback(void* stream, StreamCallback function, void* data, unsigned) {
  enqueue(Work::host_function, stream, "%s", "");
  function(stream, kSuccess, data);
  return kSuccess;
}

int cudaEventCreateWithFlags(Event** event, unsigned) {
  *event = new Event;
  return kSuccess;
}
int cudaEventCreate(Event** event) { return cudaEventCreateWithFlags(event, 0); }
int cudaEventDestroy(Event* event) {
  delete event;
  return kSuccess;
}
int cudaEventRecord(Event* event, void* stream) {
  streams().record(*event);
  note_on_stream("event", stream_number(stream), "%llu", number_of(*event));
  return kSuccess;
}
int cudaEventRecordWithFlags(Event* event, void* stream, unsigned) {
  return cudaEventRecord(event, stream);
}
int cudaEventQuery(Event* event) { return ready(streams().has_ended(*event)); }
int cudaEventSynchronize(Event* event) {
  note_on_stream("sync", Streams::kDefault, "event %llu", number_of(*event));
  streams().synchronize(*event);
  return kSuccess;
}
int cudaEventElapsedTime(float* milliseconds, Event* first, Event* second) {
  *milliseconds = milliseconds_between(*first, *second);
  return kSuccess;
}
int cudaEventElapsedTime_v2(float* milliseconds, Event* first, Event* second) {
  return cudaEventElapsedTime(milliseconds, first, second);
}
}
