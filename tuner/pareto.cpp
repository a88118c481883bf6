#include "tuner/pareto.hpp"

#include <algorithm>
#include <utility>

namespace zeroplan::tuner {

std::vector<Evaluated> pareto_front(std::vector<Evaluated> points) {
  std::stable_sort(points.begin(), points.end(), [](const Evaluated& a, const Evaluated& b) {
    if (a.tokens_per_second != b.tokens_per_second) {
      return a.tokens_per_second > b.tokens_per_second;
    }
    if (a.gpu_memory != b.gpu_memory) return a.gpu_memory < b.gpu_memory;
    return a.host_memory < b.host_memory;
  });
  std::vector<Evaluated> front;
  for (Evaluated& point : points) {
    const bool beaten = std::any_of(front.begin(), front.end(), [&](const Evaluated& other) {
      return other.gpu_memory <= point.gpu_memory && other.host_memory <= point.host_memory;
    });
    if (!beaten) front.push_back(std::move(point));
  }
  return front;
}

std::vector<Evaluated> front_beside(const Evaluated& best, std::vector<Evaluated> points) {
  std::erase_if(points, [&](const Evaluated& item) {
    return item.point != best.point && item.tokens_per_second >= best.tokens_per_second &&
           item.gpu_memory <= best.gpu_memory;
  });
  return pareto_front(std::move(points));
}

}  // namespace zeroplan::tuner
