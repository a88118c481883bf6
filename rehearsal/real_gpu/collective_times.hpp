// How long collectives take, as `zeroplan rehearse --real-gpu` wrote it down
// (collective_times, rehearsal/timed_step.hpp).
//
// A line is NAME RANKS BYTES NANOSECONDS; bytes are those of CollectiveCall, ascending for each
// name and number of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace zeroplan::gpu {

class CollectiveTimes {
 public:
  CollectiveTimes() = default;
  explicit CollectiveTimes(const std::string& lines);

  // Linear between two lines, in proportion beyond the last; 0 for names and numbers of ranks that
  // have no line.
  std::uint64_t nanoseconds(const std::string& name, int ranks, std::size_t bytes) const;

 private:
  using Points = std::vector<std::pair<double, double>>;  // bytes, nanoseconds
  std::map<std::pair<std::string, int>, Points> known_;
};

}  // namespace zeroplan::gpu
