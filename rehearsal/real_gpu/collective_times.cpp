#include "rehearsal/real_gpu/collective_times.hpp"

#include <algorithm>
#include <sstream>

namespace zeroplan::gpu {

CollectiveTimes::CollectiveTimes(const std::string& lines) {
  std::istringstream stream(lines);
  std::string name;
  int ranks = 0;
  double bytes = 0, nanoseconds = 0;
  while (stream >> name >> ranks >> bytes >> nanoseconds) {
    known_[{name, ranks}].emplace_back(bytes, nanoseconds);
  }
}

std::uint64_t CollectiveTimes::nanoseconds(const std::string& name,
                                           int ranks,
                                           std::size_t bytes) const {
  const auto found = known_.find({name, ranks});
  if (found == known_.end()) return 0;
  const Points& points = found->second;
  const double wanted = static_cast<double>(bytes);
  const auto above =
      std::lower_bound(points.begin(), points.end(), wanted, [](const auto& point, double value) {
        return point.first < value;
      });
  if (above == points.begin()) return static_cast<std::uint64_t>(above->second);
  const auto& [low_bytes, low] = *(above - 1);
  if (above == points.end()) return static_cast<std::uint64_t>(low * wanted / low_bytes);
  const double share = (wanted - low_bytes) / (above->first - low_bytes);
  return static_cast<std::uint64_t>(low + share * (above->second - low));
}

}  // namespace zeroplan::gpu
