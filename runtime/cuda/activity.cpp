// CUPTI hands over buffers of records from threads of its own. A record of the GPU has the
// correlation of the call that ordered it; a record of EXTERNAL_CORRELATION says which span was
// open at that call. Both come in any order, so they are joined at the end.
#include "runtime/cuda/activity.hpp"

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include <cupti.h>

namespace zeroplan::runtime::cuda {
namespace {

#if CUPTI_API_VERSION >= 130000
using KernelRecord = CUpti_ActivityKernel10;
using CopyRecord = CUpti_ActivityMemcpy6;
#else
using KernelRecord = CUpti_ActivityKernel9;
using CopyRecord = CUpti_ActivityMemcpy5;
#endif
using SetRecord = CUpti_ActivityMemset4;

constexpr CUpti_ExternalCorrelationKind kSpans = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET,
                                         CUPTI_ACTIVITY_KIND_RUNTIME,
                                         CUPTI_ACTIVITY_KIND_DRIVER,
                                         CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};

// What the callbacks, which carry no context, write to.
struct Collected {
  std::mutex mutex;
  std::unordered_map<std::uint32_t, std::uint64_t> span_of;  // by correlation
  std::vector<std::pair<std::uint32_t, DeviceActivity>> activities;
  std::uint64_t first = 0;  // CUPTI's clock when the recording began
  Seconds first_seconds;    // Timeline's clock then
};

// Never destroyed: CUPTI hands over what is left when the process ends, too.
Collected& collected() {
  static auto* const all = new Collected;
  return *all;
}

template <typename Record>
void keep(Collected& to, const void* raw, const char* name) {
  const auto& record = *static_cast<const Record*>(raw);
  // CUPTI could not take the times (0), or the work was not done when it was made to hand it over.
  if (record.start == 0 || record.end < record.start) return;
  const auto seconds = [&](std::uint64_t time) {
    const auto after = static_cast<std::int64_t>(time - to.first);
    return to.first_seconds + Seconds::of(1e-9 * static_cast<double>(after));
  };
  to.activities.push_back({record.correlationId,
                           {.name = name,
                            .stream = static_cast<int>(record.streamId),
                            .begin = seconds(record.start),
                            .end = seconds(record.end)}});
}

void keep(Collected& to, const CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_KERNEL:
      keep<KernelRecord>(to, record, reinterpret_cast<const KernelRecord*>(record)->name);
      break;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      keep<CopyRecord>(to, record, "copy");
      break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
      keep<SetRecord>(to, record, "set");
      break;
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto& about = *reinterpret_cast<const CUpti_ActivityExternalCorrelation*>(record);
      if (about.externalKind == kSpans) to.span_of[about.correlationId] = about.externalId;
      break;
    }
    default:
      break;
  }
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most) {
  constexpr std::size_t kSize = 4 << 20;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kSize));
  *size = *buffer != nullptr ? kSize : 0;
  *most = 0;  // as many as fit
}

void CUPTIAPI
take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  Collected& to = collected();
  {
    const std::lock_guard lock(to.mutex);
    CUpti_Activity* record = nullptr;
    while (valid > 0 && cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
      keep(to, record);
    }
  }
  std::free(buffer);
}

class ActivityRecorder : public DeviceRecorder {
 public:
  ActivityRecorder() = default;
  ActivityRecorder(const ActivityRecorder&) = delete;
  ActivityRecorder& operator=(const ActivityRecorder&) = delete;
  ~ActivityRecorder() override { stop(); }

  // False where CUPTI refuses.
  bool prepare() {
    return cuptiActivityRegisterCallbacks(give_buffer, take_buffer) == CUPTI_SUCCESS && start();
  }

  void begin() override {
    (void)cuptiActivityFlushAll(0);
    Collected& to = collected();
    const std::lock_guard lock(to.mutex);
    to.span_of.clear();
    to.activities.clear();
    (void)cuptiGetTimestamp(&to.first);
    to.first_seconds = Timeline::now();
  }
  void open(std::size_t span) override {
    (void)cuptiActivityPushExternalCorrelationId(kSpans, span);
  }
  void close() override {
    std::uint64_t last = 0;
    (void)cuptiActivityPopExternalCorrelationId(kSpans, &last);
  }
  std::vector<DeviceActivity> finish() override {
    (void)cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    stop();
    Collected& from = collected();
    const std::lock_guard lock(from.mutex);
    std::vector<DeviceActivity> result;
    for (auto& [correlation, activity] : from.activities) {
      // What no span ordered is another rank's, which shares the process.
      const auto span = from.span_of.find(correlation);
      if (span == from.span_of.end()) continue;
      activity.span = static_cast<std::size_t>(span->second);
      result.push_back(std::move(activity));
    }
    from.activities.clear();
    from.span_of.clear();
    return result;
  }

 private:
  bool start() {
    for (const CUpti_ActivityKind kind : kKinds) {
      if (cuptiActivityEnable(kind) != CUPTI_SUCCESS) return false;
      ++enabled_;
    }
    return true;
  }
  void stop() {
    while (enabled_ > 0) (void)cuptiActivityDisable(kKinds[--enabled_]);
  }

  std::size_t enabled_ = 0;
};

}  // namespace

bool built_with_cupti() { return true; }

std::unique_ptr<DeviceRecorder> activity_recorder() {
  auto recorder = std::make_unique<ActivityRecorder>();
  if (!recorder->prepare()) return nullptr;
  return recorder;
}

}  // namespace zeroplan::runtime::cuda
