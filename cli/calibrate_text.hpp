// What `zeroplan calibrate` prints for people.
#pragma once

#include <cstddef>
#include <string>

#include "evidence/calibrate/calibrate.hpp"

namespace zeroplan {

std::string calibrate_text(const Calibration& calibration, std::size_t worst);

}  // namespace zeroplan
