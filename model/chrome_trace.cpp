#include "model/chrome_trace.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "base/json.hpp"

namespace zeroplan {
namespace {

constexpr double kMicro = 1e6;
constexpr int kPhaseTrack = 1000;  // above the streams in Perfetto's order of sort indices

std::string quoted(const std::string& text) { return Json(text).dump(); }

}  // namespace

ChromeTrace::ChromeTrace(const std::string& title, Seconds origin)
    : text_("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"), origin_(origin.seconds()) {
  next_process(title);
}

void ChromeTrace::next_process(const std::string& title) {
  ++process_;
  text_ += fmt::format(
      "{{\"ph\":\"M\",\"pid\":{},\"name\":\"process_name\",\"args\":{{\"name\":{}}}}},\n",
      process_,
      quoted(title));
  append_track_name(kPhaseTrack, "phase", -1);
}

void ChromeTrace::append_track_name(int track, const std::string& name, int order) {
  text_ += fmt::format(
      "{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":{}}}}},\n"
      "{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_sort_index\",\"args\":{{"
      "\"sort_index\":{}}}}},\n",
      process_,
      track,
      quoted(name),
      process_,
      track,
      order);
}

double ChromeTrace::micro(Seconds time) const { return (time.seconds() - origin_) * kMicro; }

void ChromeTrace::track(int track, const std::string& name) {
  append_track_name(track, name, track);
}

void ChromeTrace::span(int track,
                       std::string_view category,
                       const std::string& name,
                       const std::string& about,
                       Seconds begin,
                       Seconds end) {
  fmt::format_to(std::back_inserter(text_),
                 "{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},\"cat\":\"{}\","
                 "\"name\":{}",
                 process_,
                 track,
                 micro(begin),
                 (end - begin).seconds() * kMicro,
                 category,
                 quoted(name));
  if (!about.empty()) text_ += fmt::format(",\"args\":{{\"for\":{}}}", quoted(about));
  text_ += "},\n";
}

void ChromeTrace::phase(std::string_view name, Seconds begin, Seconds end) {
  text_ += fmt::format(
      "{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},\"name\":\"{}\"}},\n",
      process_,
      kPhaseTrack,
      micro(begin),
      std::max(0.0, (end - begin).seconds()) * kMicro,
      name);
}

void ChromeTrace::memory(Seconds time,
                         const std::array<Bytes, kMemoryCategoryCount>& held,
                         Bytes not_allocated) {
  fmt::format_to(std::back_inserter(text_),
                 "{{\"ph\":\"C\",\"pid\":{},\"ts\":{:.3f},\"name\":\"memory, MiB\",\"args\":{{",
                 process_,
                 micro(time));
  const auto mebibytes = [](Bytes bytes) { return static_cast<double>(bytes.count()) / (1 << 20); };
  for (std::size_t category = 0; category < kMemoryCategoryCount; ++category) {
    const auto which = static_cast<MemoryCategory>(category);
    if (which == MemoryCategory::cuda_context || which == MemoryCategory::fragmentation) continue;
    fmt::format_to(std::back_inserter(text_),
                   "\"{}\":{:.3f},",
                   zeroplan::name(which),
                   mebibytes(held[category]));
  }
  text_ += fmt::format("\"not allocated\":{:.3f}}}}},\n", mebibytes(not_allocated));
}

std::string ChromeTrace::finish() {
  // Lists of JSON take no comma behind their last element.
  text_.erase(text_.find_last_of(','), 1);
  return std::move(text_) + "]}\n";
}

}  // namespace zeroplan
