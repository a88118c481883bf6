#include "runtime/engine/timeline.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "model/chrome_trace.hpp"

namespace zeroplan::runtime {
namespace {

constexpr int kFirstStream = 100;  // tracks of a device's streams
// Of the tracks; what the simulator calls the kinds of its tasks.
constexpr const char* kCategories[] = {"kernel", "collective", "NVMe"};

class RecordedGroup : public Communicator {
 public:
  RecordedGroup(Communicator& group, Timeline& timeline)
      : group_(group), timeline_(timeline), free_(std::make_shared<Seconds>()) {}

  int rank() const override { return group_.rank(); }
  int ranks() const override { return group_.ranks(); }
  void fail(std::string_view reason) noexcept override { group_.fail(reason); }

  std::optional<std::string> failure() const override { return group_.failure(); }

  std::unique_ptr<Communicator> split(std::span<const int> members) override {
    auto part = group_.split(members);
    auto recorded = std::make_unique<RecordedGroup>(*part, timeline_);
    recorded->own_ = std::move(part);
    recorded->free_ = free_;
    return recorded;
  }

  Pending start(const Exchange& exchange) override {
    if (!timeline_.records()) return group_.start(exchange);
    if (timeline_.has_recorder()) {
      const Timeline::Scope scope(&timeline_, Timeline::collectives, name_of(exchange.kind));
      return group_.start(exchange);
    }
    timeline_.settle();
    const Seconds begin = Timeline::now();
    const auto pending = std::make_shared<Pending>(group_.start(exchange));
    return Pending([this, begin, pending, kind = exchange.kind] {
      pending->wait();
      timeline_.settle();
      const Seconds end = Timeline::now();
      timeline_.span(Timeline::collectives, name_of(kind), "", std::max(begin, *free_), end);
      *free_ = end;
    });
  }

 private:
  std::unique_ptr<Communicator> own_;  // of a part
  Communicator& group_;
  Timeline& timeline_;
  std::shared_ptr<Seconds> free_;  // when the last one ended, of any group
};

}  // namespace

std::string_view trace_name(ActionKind kind) {
  switch (kind) {
    case ActionKind::insert_gradient:
      return "copy gradient";
    case ActionKind::flatten:
    case ActionKind::concatenate:
      return "flatten";
    case ActionKind::cast:
      return "cast";
    case ActionKind::copy_back:
      return "copy back";
    case ActionKind::keep_owned:
      return "keep gradient";
    case ActionKind::keep_partitions:
      return "keep partitions";
    case ActionKind::accumulate_on_host:
      return "add gradient";
    case ActionKind::gradient_to_master:
      return "cast gradient";
    case ActionKind::norm:
      return "norm";
    case ActionKind::optimizer_step:
      return "optimizer";
    case ActionKind::update_weights:
      return "update weights";
    case ActionKind::copy_to_device:
      return "copy to device";
    default:
      return "";
  }
}

Seconds Timeline::now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return Seconds::of(std::chrono::duration<double>(since).count());
}

Timeline::Scope::Scope(Timeline* timeline,
                       Track track,
                       std::string_view name,
                       std::string_view about)
    : timeline_(timeline != nullptr && timeline->records_ && !name.empty() ? timeline : nullptr) {
  if (timeline_ == nullptr) return;
  timeline_->settle();
  span_ = timeline_->spans_.size();
  timeline_->spans_.push_back({track, std::string(name), std::string(about), now(), {}});
  if (timeline_->recorder_) timeline_->recorder_->open(span_);
}

Timeline::Scope::~Scope() {
  if (timeline_ == nullptr) return;
  if (timeline_->recorder_) timeline_->recorder_->close();
  try {
    timeline_->settle();
  } catch (const std::exception&) {
    // The device has failed; who uses it next hears of it.
  }
  timeline_->spans_[span_].end = now();
}

void Timeline::begin() {
  if (settle_) settle_();
  records_ = true;
  began_ = now();
  if (recorder_) recorder_->begin();
}

void Timeline::end() {
  if (settle_) settle_();
  ended_ = now();
  records_ = false;
  if (recorder_) take_activities();
}

// A span for which the device worked lasted from the first to the last of that work.
void Timeline::take_activities() {
  activities_ = recorder_->finish();
  std::vector<bool> seen(spans_.size(), false);
  for (const DeviceActivity& activity : activities_) {
    if (activity.span >= spans_.size()) continue;
    Span& span = spans_[activity.span];
    span.begin = seen[activity.span] ? std::min(span.begin, activity.begin) : activity.begin;
    span.end = seen[activity.span] ? std::max(span.end, activity.end) : activity.end;
    seen[activity.span] = true;
    device_busy_ += activity.end - activity.begin;
  }
}

void Timeline::span(
    Track track, std::string_view name, std::string_view about, Seconds begin, Seconds end) {
  if (!records_) return;
  if (track == nvme) {  // transfers overlap, a track's spans do not
    begin = std::min(std::max(begin, drive_free_), end);
    drive_free_ = std::max(drive_free_, end);
  }
  spans_.push_back({track, std::string(name), std::string(about), begin, end});
}

void Timeline::phase(Phase phase) {
  if (records_) phases_.push_back({phase, now()});
}

void Timeline::memory(const CategoryBytes& held) {
  if (records_) memory_.push_back({held, now()});
}

std::string Timeline::chrome_trace(const std::string& title) const {
  ChromeTrace trace(title, began_);
  trace.track(compute, "compute");
  trace.track(collectives, "collectives");
  const bool swaps = std::any_of(
      spans_.begin(), spans_.end(), [](const Span& span) { return span.track == nvme; });
  if (swaps) trace.track(nvme, "NVMe");
  for (const Span& span : spans_) {
    trace.span(span.track, kCategories[span.track], span.name, span.about, span.begin, span.end);
  }
  std::set<int> streams;
  for (const DeviceActivity& activity : activities_) {
    const int track = kFirstStream + activity.stream;
    if (streams.insert(activity.stream).second) {
      trace.track(track, "GPU stream " + std::to_string(activity.stream));
    }
    trace.span(track, "gpu", activity.name, "", activity.begin, activity.end);
  }
  for (std::size_t i = 0; i < phases_.size(); ++i) {
    const Seconds until = i + 1 < phases_.size() ? phases_[i + 1].time : ended_;
    trace.phase(name(kPhaseNames, phases_[i].phase), phases_[i].time, until);
  }
  Bytes peak;
  for (const Held& held : memory_) peak = std::max(peak, sum(held.bytes));
  constexpr double kMoved = 1e-3;
  Bytes shown = Bytes::of(-1);
  for (const Held& held : memory_) {
    const Bytes total = sum(held.bytes);
    const double moved = std::abs(static_cast<double>((total - shown).count()));
    if (total != peak && moved < kMoved * static_cast<double>(peak.count())) continue;
    shown = total;
    trace.memory(held.time, held.bytes, Bytes::zero());
  }
  return trace.finish();
}

std::unique_ptr<Communicator> recorded(Communicator& group, Timeline& timeline) {
  return std::make_unique<RecordedGroup>(group, timeline);
}

}  // namespace zeroplan::runtime
