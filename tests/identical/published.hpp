// All published measurements of data/, and what is predicted of them.
#pragma once

#include <vector>

#include "evidence/validate.hpp"
#include "tests/identical/answer.hpp"

namespace zeroplan::identical {

// `file` of each is its name without folder and ending, in ascending order.
const std::vector<evidence::MeasurementFile>& published_files();

// Of all of them, in their order; made when first asked for, on two threads.
const evidence::ValidationReport& published_report();

// A line for each measurement: what is simulated of the defaults, and as its document that together
// with all that `validate` says of it.
std::vector<Line> published_lines();

}  // namespace zeroplan::identical
