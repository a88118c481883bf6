// How far predictions are from measurements, over all rows and by where these come from.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace zeroplan::evidence {

struct RelativeErrors {
  double median = 0.0, p95 = 0.0;  // of |predicted / measured - 1|
  double bias = 0.0;               // median of predicted / measured - 1
};

struct OriginErrors {
  std::string origin;  // "": all
  std::size_t rows = 0;
  RelativeErrors before, after;
  RelativeErrors left_out;  // predicted by a fit that has not seen the origin
  bool has_left_out = false;
};

// log(predicted / measured) of one row.
struct RowErrors {
  std::string origin;
  double before = 0.0, after = 0.0, left_out = 0.0;
};

// All rows, then each origin in the order of its first row; empty without rows.
std::vector<OriginErrors> errors_by_origin(const std::vector<RowErrors>& rows, bool has_left_out);

// 1.4826 times the median of |values|, one standard deviation of a normal distribution around 0; 0
// without values.
double robust_spread(std::vector<double> values);

// What another origin's rows may have: the mean of the origins' medians; sd^2 is the variance
// between these and the mean of the squared robust spreads around them.
struct MeanOfOrigins {
  double mean = 0.0, sd = 0.0;
  std::size_t rows = 0;
};
MeanOfOrigins mean_of_origins(const std::map<std::string, std::vector<double>>& values);

}  // namespace zeroplan::evidence
