// Recordings of torch's own allocator, made on a GPU by tests/reference/record_allocator.py, and of
// the brute-force one in the same format, replayed.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "tests/catch.hpp"
#include "tests/support/allocator_recording.hpp"
#include "tests/support/naive_allocator.hpp"

using namespace zeroplan;
using namespace zeroplan::testing;

namespace {

// Plays like record_allocator.py, with the brute-force allocator in torch's place.
class NaiveRecorder {
 public:
  NaiveRecorder(std::string conf, std::int64_t allowed_mib, unsigned seed)
      : random_(seed), naive_(options(conf, allowed_mib), [this] { finish(); }) {
    out_ << "# the brute-force allocator\ntorch 2.6.0\nconf " << (conf.empty() ? "-" : conf)
         << "\ntotal " << Bytes::gib(2).count() << "\nallowed ";
    if (allowed_mib == 0) {
      out_ << "-\n";
    } else {
      out_ << Bytes::mib(allowed_mib).count() << '\n';
    }
  }

  std::string record(int operations) {
    for (int i = 0; i < operations; ++i) step();
    return out_.str();
  }

 private:
  static simulator::AllocatorOptions options(const std::string& conf, std::int64_t allowed_mib) {
    simulator::AllocatorOptions base;
    base.device_total = 2_GiB;
    if (allowed_mib != 0) base.allowed = Bytes::mib(allowed_mib);
    return simulator::parse_alloc_conf(conf, "test", {2, 6}, base);
  }

  std::int64_t below(std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random_);
  }

  void finish() {
    for (simulator::StreamClock& clock : clocks_) clock.completed = clock.queued;
  }

  void sync() {
    finish();
    out_ << "sync\n";
  }

  void outcome(bool ok) {
    const NaiveAllocator::Totals t = naive_.totals();
    const NaiveAllocator::Totals small = naive_.totals(true);
    const RecordedValues now = {{"allocated", t.allocated},
                                {"reserved", t.reserved},
                                {"active", t.active_bytes},
                                {"requested", t.requested},
                                {"split", t.split_bytes},
                                {"splits", t.split},
                                {"segments", t.segments},
                                {"small", small.allocated},
                                {"small_reserved", small.reserved},
                                {"peak_allocated", naive_.peak_allocated},
                                {"peak_reserved", naive_.peak_reserved},
                                {"retries", naive_.retries},
                                {"ooms", naive_.ooms},
                                {"device_allocs", naive_.device_allocs},
                                {"device_frees", naive_.device_frees}};
    out_ << (ok ? "= ok" : "= oom");
    for (const auto& [name, value] : now) {
      if (value != said_[name]) out_ << ' ' << name << ':' << value;
      said_[name] = value;
    }
    out_ << '\n';
    const auto calls = std::pair(naive_.device_allocs, naive_.device_frees);
    if (calls != calls_) sync();
    calls_ = calls;
  }

  void step() {
    const std::int64_t kind = below(40);
    if (kind < 2) {
      const auto stream = static_cast<std::size_t>(1 + below(2));
      ++clocks_[stream].queued;
      out_ << "busy " << stream << '\n';
    } else if (kind < 6) {
      sync();
    } else if (kind == 6) {
      sync();
      out_ << "empty\n";
      naive_.empty_cache();
      outcome(true);
    } else if (live_.empty() || (kind < 24 && live_.size() < 40)) {
      const std::int64_t size = 1 + below(std::int64_t{1} << (11 + below(16)));
      const auto stream = static_cast<simulator::StreamId>(below(3));
      out_ << "alloc " << next_ << ' ' << size << ' ' << stream << '\n';
      const bool ok =
          naive_.allocate(next_, size, stream, clocks_) == NaiveAllocator::Outcome::allocated;
      if (ok) live_.push_back(next_);
      ++next_;
      outcome(ok);
    } else {
      const auto i = static_cast<std::size_t>(below(static_cast<std::int64_t>(live_.size())));
      if (kind < 28) {
        const auto stream = static_cast<simulator::StreamId>(below(3));
        out_ << "record " << live_[i] << ' ' << stream << '\n';
        naive_.record_stream(live_[i], stream);
      } else {
        out_ << "free " << live_[i] << '\n';
        naive_.free(live_[i], clocks_);
        live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(i));
      }
      outcome(true);
    }
  }

  std::mt19937 random_;
  std::ostringstream out_;
  std::vector<simulator::StreamClock> clocks_ = std::vector<simulator::StreamClock>(3);
  NaiveAllocator naive_;
  RecordedValues said_;
  std::pair<std::int64_t, std::int64_t> calls_;
  std::vector<int> live_;
  int next_ = 0;
};

Replay replay(const std::string& text) {
  std::istringstream in(text);
  return Replayer().run(in);
}

void check(const Replay& replay) {
  for (std::size_t i = 0; i < std::min<std::size_t>(replay.mismatches.size(), 5); ++i) {
    UNSCOPED_INFO(replay.mismatches[i]);
  }
  CHECK(replay.mismatches.empty());
  CHECK(replay.outcomes > 100);
}

}  // namespace

TEST_CASE("recordings of the brute-force allocator are reproduced line by line") {
  struct Case {
    const char* conf;
    std::int64_t allowed_mib;
  };
  std::int64_t retries = 0, ooms = 0, waits = 0;
  for (const Case& c : {Case{"", 0},
                        Case{"", 120},
                        Case{"max_split_size_mb:64", 120},
                        Case{"roundup_power2_divisions:[1:4,16:8,>:2]", 120},
                        Case{"garbage_collection_threshold:0.6", 150},
                        Case{"garbage_collection_threshold:0.5,max_split_size_mb:48", 120},
                        Case{"expandable_segments:True", 0},
                        Case{"expandable_segments:True", 120}}) {
    CAPTURE(c.conf, c.allowed_mib);
    for (unsigned seed = 0; seed < 3; ++seed) {
      const Replay result = replay(NaiveRecorder(c.conf, c.allowed_mib, seed).record(500));
      check(result);
      retries += result.retries;
      ooms += result.ooms;
      waits += result.waits;
    }
  }
  CHECK(retries > 20);
  CHECK(ooms > 20);
  CHECK(waits > 3);
}

TEST_CASE("a recording that the allocator does not reproduce is reported by line and value") {
  const std::string head = "torch 2.6.0\nconf -\ntotal 1073741824\nallowed -\n";
  const Replay good = replay(head +
                             "alloc 0 1000 0\n= ok allocated:1024 reserved:2097152 "
                             "active:1024 requested:1000 split:2096128 splits:1 segments:1 "
                             "small:1024 small_reserved:2097152 peak_allocated:1024 "
                             "peak_reserved:2097152 device_allocs:1\n");
  CHECK(good.mismatches.empty());
  const Replay bad = replay(head + "alloc 0 1000 0\n= oom allocated:512\n");
  REQUIRE(bad.mismatches.size() > 2);
  CHECK(bad.mismatches[0] == "line 6: alloc 0 1000 0: did not");
  CHECK(std::count(bad.mismatches.begin(),
                   bad.mismatches.end(),
                   "line 6: alloc 0 1000 0: allocated: expected 512, got 1024") == 1);
}

TEST_CASE("recordings of torch on a GPU are reproduced line by line") {
  const std::filesystem::path folder = ZEROPLAN_SOURCE_DIR "/tests/reference/allocator_recordings";
  if (!std::filesystem::exists(folder)) {
    WARN("no recordings: tests/reference/record_allocator.py makes them on a machine with a GPU");
    return;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    CAPTURE(file.filename().string());
    std::ifstream in(file);
    check(Replayer().run(in));
  }
}
