// Recordings of allocators in the format of tests/reference/record_allocator.py: read, replayed
// through CachingAllocator, and written from the naive allocator.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "simulator/allocator.hpp"

namespace zeroplan::testing {

// The values of an outcome line, by name.
using RecordedValues = std::map<std::string, std::int64_t>;

inline RecordedValues values_of(const simulator::MemoryStats& stats) {
  const simulator::PoolStats& all = stats.all();
  const simulator::PoolStats& small = stats.of(simulator::StatPool::small_pool);
  return {{"allocated", all.allocated_bytes.current},
          {"reserved", all.reserved_bytes.current},
          {"active", all.active_bytes.current},
          {"requested", all.requested_bytes.current},
          {"split", all.inactive_split_bytes.current},
          {"splits", all.inactive_split.current},
          {"segments", all.segment.current},
          {"small", small.allocated_bytes.current},
          {"small_reserved", small.reserved_bytes.current},
          {"peak_allocated", all.allocated_bytes.peak},
          {"peak_reserved", all.reserved_bytes.peak},
          {"retries", stats.num_alloc_retries},
          {"ooms", stats.num_ooms},
          {"device_allocs", stats.num_device_alloc},
          {"device_frees", stats.num_device_free}};
}

struct Replay {
  std::int64_t statements = 0;
  std::int64_t outcomes = 0;
  std::int64_t retries = 0, ooms = 0, waits = 0;
  std::vector<std::string> mismatches;  // "line 12: alloc 3 512 0: reserved: expected 1, got 2"
};

class Replayer {
 public:
  Replay run(std::istream& recording) {
    std::string line;
    for (int number = 1; std::getline(recording, line); ++number) {
      std::istringstream words(line);
      std::string word;
      if (!(words >> word) || word[0] == '#') continue;
      ++replay_.statements;
      if (word == "=") {
        compare(words, "line " + std::to_string(number) + ": " + statement_);
      } else {
        statement_ = line;
        play(word, words);
      }
    }
    if (allocator_.empty()) start();
    replay_.retries = allocator_[0].stats().num_alloc_retries;
    replay_.ooms = allocator_[0].stats().num_ooms;
    allocator_[0].check_invariants();
    return replay_;
  }

 private:
  template <typename T = std::int64_t>
  static T next(std::istringstream& words) {
    T value{};
    if (!(words >> value)) throw std::runtime_error("a recording: a value is missing");
    return value;
  }

  // The heading is complete with the first statement that needs the allocator.
  void start() {
    if (!allocator_.empty()) return;
    options_ = simulator::parse_alloc_conf(conf_, "recording", torch_, options_);
    allocator_.emplace_back(options_);
  }

  void play(const std::string& word, std::istringstream& words) {
    if (word == "torch") {
      torch_ = parse_version(next<std::string>(words)).value();
    } else if (word == "conf") {
      conf_ = next<std::string>(words);
      if (conf_ == "-") conf_.clear();
    } else if (word == "total") {
      options_.device_total = Bytes::of(next(words));
    } else if (word == "allowed") {
      const auto text = next<std::string>(words);
      if (text != "-") options_.allowed = Bytes::of(std::stoll(text));
    } else if (word == "busy") {
      ++clock(static_cast<simulator::StreamId>(next(words))).queued;
    } else if (word == "sync") {
      finish();
    } else {
      start();
      call(word, words);
    }
  }

  void call(const std::string& word, std::istringstream& words) {
    simulator::CachingAllocator& allocator = allocator_[0];
    is_allocated_ = true;
    if (word == "alloc") {
      const std::int64_t tensor = next(words);
      const Bytes size = Bytes::of(next(words));
      const auto stream = static_cast<simulator::StreamId>(next(words));
      clock(stream);
      simulator::Allocation got = allocator.allocate({.size = size, .stream = stream}, clocks_);
      if (got.outcome == simulator::AllocationOutcome::must_synchronize) {
        ++replay_.waits;
        finish();
        got = allocator.continue_allocation(clocks_);
      }
      is_allocated_ = got.outcome == simulator::AllocationOutcome::allocated;
      if (is_allocated_) blocks_[tensor] = got.block;
    } else if (word == "free") {
      const std::int64_t tensor = next(words);
      allocator.free(blocks_.at(tensor), clocks_);
      blocks_.erase(tensor);
    } else if (word == "record") {
      const simulator::BlockId block = blocks_.at(next(words));
      allocator.record_stream(block, static_cast<simulator::StreamId>(next(words)));
    } else if (word == "empty") {
      if (!allocator.empty_cache(clocks_)) throw std::runtime_error("empty without a sync");
    } else {
      throw std::runtime_error("a recording: unknown statement " + word);
    }
  }

  void compare(std::istringstream& words, const std::string& where) {
    ++replay_.outcomes;
    const bool expected_ok = next<std::string>(words) == "ok";
    for (std::string pair; words >> pair;) {
      const std::size_t colon = pair.find(':');
      expected_[pair.substr(0, colon)] = std::stoll(pair.substr(colon + 1));
    }
    if (expected_ok != is_allocated_) {
      replay_.mismatches.push_back(where + (expected_ok ? ": ran out of memory" : ": did not"));
    }
    const RecordedValues got = values_of(allocator_.at(0).stats());
    for (const auto& [name, value] : got) {
      const auto it = expected_.find(name);
      const std::int64_t wanted = it == expected_.end() ? 0 : it->second;
      if (value == wanted) continue;
      replay_.mismatches.push_back(where + ": " + name + ": expected " + std::to_string(wanted) +
                                   ", got " + std::to_string(value));
    }
  }

  simulator::StreamClock& clock(simulator::StreamId stream) {
    const auto i = static_cast<std::size_t>(stream);
    if (i >= clocks_.size()) clocks_.resize(i + 1);
    return clocks_[i];
  }

  void finish() {
    for (simulator::StreamClock& c : clocks_) c.completed = c.queued;
  }

  Version torch_{2, 6, 0};
  std::string conf_;
  simulator::AllocatorOptions options_;
  std::vector<simulator::CachingAllocator> allocator_;  // at most one
  std::vector<simulator::StreamClock> clocks_;
  std::map<std::int64_t, simulator::BlockId> blocks_;
  RecordedValues expected_;
  bool is_allocated_ = true;
  std::string statement_;
  Replay replay_;
};

}  // namespace zeroplan::testing
