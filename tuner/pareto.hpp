// The front of speed, GPU memory and host memory: what no other point beats in all three.
#pragma once

#include <vector>

#include "tuner/search_result.hpp"

namespace zeroplan::tuner {

// The fastest first; of points with the same three numbers the first one stays.
std::vector<Evaluated> pareto_front(std::vector<Evaluated> points);

// The front on which `best` stands: what is as fast and as small counts as equal to it where the
// search chose a simpler point, and is left out.
std::vector<Evaluated> front_beside(const Evaluated& best, std::vector<Evaluated> points);

}  // namespace zeroplan::tuner
